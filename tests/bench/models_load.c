/* SPDX-License-Identifier: MIT
 *
 * Loading, verifying and saving a model, beside what the bus and the file system can do:
 *
 *	models_load FOLDER [--quick] [--gib N] [--rounds N] [--threads N] [--only ROW] [--json FILE]
 *	models_load --calls FILE N [cold]
 *
 * It makes a safetensors file of N GiB in FOLDER, unless one of that size is there, and removes
 * what it saves. It starts daemons of its own. Each row is the best and the median of its rounds;
 * "floor" is a copy of as many bytes between pinned memory and the GPU in the same process, or for
 * a save to a tmpfs what as many threads write there from memory.
 *
 * --calls: N loads of that file by a process that has used the GPU before, or with "cold" not: each
 * one as a line of JSON, in ms.
 */
#include "client/gpushm_load.h"
#include "proto/base/libcuda.h"
#include "proto/base/own.h"
#include "tests/bench/sample.h"
#include "tests/lib/daemon.h"

#include <check.h>
#include <cuda.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GIB (1ull << 30)
#define MIB (1ull << 20)
#define COPY_BYTES (32 * MIB)
#define WRITE_BYTES (4 * MIB)
#define WRITERS 8
/* The driver clears memory that was given back: 60 ms for 16 GiB, during which copies to the GPU go
 * at half the speed. */
#define CLEARING_US 300000

static const char *folder;
static uint64_t bytes = 16 * GIB, tensor_bytes = 128 * MIB;
static bool quick; /* whether it runs at all */
static unsigned rounds = 3, threads;
static const char *only; /* NULL: all rows */
static FILE *json;
static char file[512], saved[512];

/* ---- rows ---- */

static bool is_wanted(const char *id)
{
	return !only || strcmp(only, id) == 0;
}

/* Bytes in microseconds as GB/s. */
static double rate(double us)
{
	return (double)bytes / us / 1e3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* us: of each round. floor: GB/s, or 0. Returns the best round's GB/s. */
static double print_row(const char *id, const char *text, double *us, unsigned n, double floor)
{
	double best, median;

	qsort(us, n, sizeof(*us), compare);
	best = rate(us[0]);
	median = rate(us[n / 2]);
	printf("%-44s %6.1f GB/s (median %5.1f)  %8.1f ms", text, best, median, us[0] / 1e3);
	if (floor > 0)
		printf("   %.2f of %.1f", best / floor, floor);
	printf("\n");
	fflush(stdout);
	if (json)
		fprintf(json,
			"{\"row\": \"%s\", \"what\": \"%s\", \"bytes\": %llu, \"best_gbs\": %.3f, "
			"\"median_gbs\": %.3f, \"floor_gbs\": %.3f}\n",
			id, text, (unsigned long long)bytes, best, median, floor);
	return best;
}

/* ---- the driver ---- */

#define CALLS(X)                                     \
	X(init, cuInit)                              \
	X(ctx_retain, cuDevicePrimaryCtxRetain)      \
	X(ctx_release, cuDevicePrimaryCtxRelease_v2) \
	X(ctx_push, cuCtxPushCurrent_v2)             \
	X(ctx_pop, cuCtxPopCurrent_v2)               \
	X(ctx_synchronize, cuCtxSynchronize)         \
	X(host_alloc, cuMemHostAlloc)                \
	X(host_free, cuMemFreeHost)                  \
	X(mem_alloc, cuMemAlloc_v2)                  \
	X(mem_free, cuMemFree_v2)                    \
	X(memcpy_htod_async, cuMemcpyHtoDAsync_v2)   \
	X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2)

struct cuda {
	CALLS(LIBCUDA_MEMBER)
};
static struct cuda cuda;

static void must(const char *call, CUresult result)
{
	if (result != CUDA_SUCCESS)
		errx(1, "%s: CUresult %d", call, result);
}
#define MUST(call) must(#call, call)

static void start_driver(void)
{
	static const struct libcuda_symbol symbols[] = { CALLS(LIBCUDA_SYMBOL) };
	char why[256];

	if (!libcuda_load(symbols, array_size(symbols), &cuda, why, sizeof(why)))
		errx(1, "%s", why);
	MUST(cuda.init(0));
}

static double copy_once(CUdeviceptr device, char *host, bool to_host)
{
	double start = now_us();

	for (uint64_t done = 0; done < bytes; done += COPY_BYTES) {
		uint64_t at = done % (16 * COPY_BYTES);

		MUST(to_host ? cuda.memcpy_dtoh_async(host, device + at, COPY_BYTES, NULL)
			     : cuda.memcpy_htod_async(device + at, host, COPY_BYTES, NULL));
	}
	MUST(cuda.ctx_synchronize());
	return now_us() - start;
}

/* Copies between the GPU and one piece of pinned memory, which is as good as it gets. */
static double measure_floor(bool to_host)
{
	double us[16];
	CUcontext context;
	CUdeviceptr device;
	void *host;

	MUST(cuda.ctx_retain(&context, 0));
	MUST(cuda.ctx_push(context));
	MUST(cuda.host_alloc(&host, COPY_BYTES, 0));
	MUST(cuda.mem_alloc(&device, 16 * COPY_BYTES));
	for (unsigned i = 0; i < rounds; i++)
		us[i] = copy_once(device, host, to_host);
	MUST(cuda.mem_free(device));
	MUST(cuda.host_free(host));
	MUST(cuda.ctx_pop(&context));
	MUST(cuda.ctx_release(0));
	return print_row(to_host ? "floor_out" : "floor_in",
			 to_host ? "GPU to pinned memory, alone" : "pinned memory to GPU, alone",
			 us, rounds, 0);
}

/* ---- the file ---- */

static void write_all(int fd, const void *from, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t r = write(fd, (const char *)from + done, n - done);

		if (r < 0)
			err(1, "%s", file);
		done += (size_t)r;
	}
}

static char *make_header(uint64_t *ret_length)
{
	uint64_t n = bytes / tensor_bytes, length = 0;
	char *text = malloc(n * 160 + 64);

	length += (uint64_t)sprintf(text, "{");
	for (uint64_t i = 0; i < n; i++)
		length += (uint64_t)sprintf(
			text + length,
			"%s\"model.layers.%llu.weight\":{\"dtype\":\"BF16\",\"shape\":[%llu],"
			"\"data_offsets\":[%llu,%llu]}",
			i ? "," : "", (unsigned long long)i, (unsigned long long)(tensor_bytes / 2),
			(unsigned long long)(i * tensor_bytes),
			(unsigned long long)((i + 1) * tensor_bytes));
	length += (uint64_t)sprintf(text + length, "}");
	while (length % 8 != 0)
		text[length++] = ' ';
	*ret_length = length;
	return text;
}

/* Numbers that no file system can compress. */
static void fill(uint64_t *words, size_t n)
{
	uint64_t x = 88172645463325252u;

	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		words[i] = x;
	}
}

static void make_file(void)
{
	_cleanup_(close_fd) int fd = -1;
	_cleanup_(free_ptr) uint64_t *words = malloc(tensor_bytes);
	uint64_t length;
	_cleanup_(free_ptr) char *header = make_header(&length);
	struct stat st;

	if (stat(file, &st) == 0 && (uint64_t)st.st_size == 8 + length + bytes)
		return;
	fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		err(1, "%s", file);
	write_all(fd, &length, sizeof(length));
	write_all(fd, header, length);
	fill(words, tensor_bytes / 8);
	for (uint64_t i = 0; i < bytes / tensor_bytes; i++) {
		words[i] = i; /* so that no two tensors are equal */
		write_all(fd, words, tensor_bytes);
	}
}

/* ---- loading ---- */

static struct gpushm *client;

static struct gpushm_buffer *load(const char *name, const char *pool, uint32_t flags,
				  unsigned n_threads, struct gpushm_load_report *ret)
{
	struct gpushm_create_options options = { .struct_size = sizeof(options), .pool = pool };
	struct gpushm_load_options how = {
		.struct_size = sizeof(how), .flags = flags, .threads = n_threads, .report = ret
	};
	struct gpushm_buffer *b = NULL;
	const char *sources[] = { file };

	if (gpushm_load(client, sources, 1, name, &options, &how, &b) < 0)
		errx(1, "%s", gpushm_error());
	return b;
}

static void drop(struct gpushm_buffer *b, const char *name)
{
	if (gpushm_close(b) < 0 || gpushm_unlink(client, name) < 0)
		errx(1, "%s", gpushm_error());
}

/* The engine's own time, and the whole call's, with the driver started by an earlier round. */
static void measure_load(const char *id, const char *text, const char *pool, uint32_t flags,
			 unsigned n_threads, double floor)
{
	struct gpushm_load_report report = { .struct_size = sizeof(report) };
	double engine[16], call[16];
	char what[96], name[64];

	for (unsigned i = 0; i < rounds && is_wanted(id); i++) {
		double start = now_us();
		struct gpushm_buffer *b = load("bench/model", pool, flags, n_threads, &report);

		call[i] = now_us() - start;
		engine[i] = (double)report.elapsed_ns / 1e3;
		drop(b, "bench/model");
		/* Not the ring's memory, which the next load finds there. */
		gpushm_flush(client, pool);
		usleep(CLEARING_US);
	}
	if (!is_wanted(id))
		return;
	snprintf(what, sizeof(what), "%s%s", text, report.direct ? " (direct)" : "");
	print_row(id, what, engine, rounds, floor);
	snprintf(what, sizeof(what), "  the whole call");
	snprintf(name, sizeof(name), "%s_call", id);
	print_row(name, what, call, rounds, floor);
}

/* This program once more: connects, loads, prints how long it took since it was started. */
static void measure_process(const struct daemon *d, double floor)
{
	double us[16];
	char self[512], command[1200];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[n > 0 ? n : 0] = '\0';
	snprintf(command, sizeof(command), "exec %s --once %s %s", self, d->socket, file);
	if (!is_wanted("process"))
		return;
	for (unsigned i = 0; i < rounds; i++) {
		double start = now_us();

		if (system(command) != 0)
			errx(1, "%s failed", command);
		us[i] = now_us() - start;
		usleep(CLEARING_US);
	}
	print_row("process", "a whole process, from exec to exit", us, rounds, floor);
}

static int load_once(const char *socket, const char *path)
{
	snprintf(file, sizeof(file), "%s", path);
	if (gpushm_connect(socket, &client) < 0)
		errx(1, "%s", gpushm_error());
	drop(load("bench/once", "gpu", 0, 0, NULL), "bench/once");
	gpushm_disconnect(client);
	return 0;
}

/* ---- calls ---- */

static unsigned calls;
static bool cold;

static double processor_ms(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

static void print_call(void)
{
	struct gpushm_load_report report = { .struct_size = sizeof(report) };
	double before = processor_ms(), start = now_us(), end;
	struct gpushm_buffer *b = load("bench/call", "gpu", 0, threads, &report);

	end = now_us();
	printf("{\"call_ms\": %.2f, \"engine_ms\": %.2f, \"processor_ms\": %.1f, \"gbs\": %.2f}\n",
	       (end - start) / 1e3, (double)report.elapsed_ns / 1e6, processor_ms() - before,
	       (double)report.bytes / (end - start) / 1e3);
	fflush(stdout);
	drop(b, "bench/call");
	gpushm_flush(client, "gpu");
	usleep(CLEARING_US);
}

/* As in a program that has used the GPU: its context is there, and a copy was made. */
static void warm_up(void)
{
	CUcontext context;
	CUdeviceptr device;
	char bytes_of[64] = "";

	start_driver();
	MUST(cuda.ctx_retain(&context, 0));
	MUST(cuda.ctx_push(context));
	MUST(cuda.mem_alloc(&device, MIB));
	MUST(cuda.memcpy_htod_async(device, bytes_of, sizeof(bytes_of), NULL));
	MUST(cuda.ctx_synchronize());
	MUST(cuda.mem_free(device));
	MUST(cuda.ctx_pop(&context));
}

static void print_calls(void)
{
	struct daemon d;

	if (!cold)
		warm_up();
	daemon_start(&d, "[pool gpu]\nkind=vmm\n", NULL);
	if (gpushm_connect(d.socket, &client) < 0)
		errx(1, "%s", gpushm_error());
	for (unsigned i = 0; i < calls; i++)
		print_call();
	client = gpushm_disconnect(client);
	daemon_stop(&d);
}

/* ---- saving and verifying ---- */

static char *memory; /* WRITE_BYTES */
static int out;

static void *write_some(void *number)
{
	uint64_t step = WRITERS * WRITE_BYTES;

	for (uint64_t at = (uintptr_t)number * WRITE_BYTES; at < bytes; at += step)
		if (pwrite(out, memory, WRITE_BYTES, (off_t)at) != (ssize_t)WRITE_BYTES)
			err(1, "%s", saved);
	return NULL;
}

/* What the file system takes from as many threads, out of memory that is in the cache. */
static double measure_writes(void)
{
	pthread_t t[WRITERS];
	double us[1], start;

	memory = malloc(WRITE_BYTES);
	memset(memory, 1, WRITE_BYTES);
	out = open(saved, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (out < 0)
		err(1, "%s", saved);
	start = now_us();
	for (uintptr_t i = 0; i < WRITERS; i++)
		pthread_create(&t[i], NULL, write_some, (void *)i);
	for (unsigned i = 0; i < WRITERS; i++)
		pthread_join(t[i], NULL);
	us[0] = now_us() - start;
	close(out);
	unlink(saved);
	free(memory);
	return print_row("floor_file", "8 threads write memory to that file system", us, 1, 0);
}

static void measure_save(double floor_out, double floor_file)
{
	struct gpushm_load_report report = { .struct_size = sizeof(report) };
	struct gpushm_save_options how = { .struct_size = sizeof(how), .report = &report };
	struct gpushm_buffer *b = load("bench/saved", "gpu", 0, 0, NULL);
	double us[16];

	for (unsigned i = 0; i < rounds; i++) {
		if (gpushm_verify(b, NULL, NULL, &report) < 0)
			errx(1, "%s", gpushm_error());
		us[i] = (double)report.elapsed_ns / 1e3;
	}
	print_row("verify", "gpushm_verify", us, rounds, floor_out);
	for (unsigned i = 0; i < rounds; i++) {
		if (gpushm_save(b, saved, &how) < 0)
			errx(1, "%s", gpushm_error());
		us[i] = (double)report.elapsed_ns / 1e3;
		unlink(saved);
	}
	print_row("save", "gpushm_save, beside the file system", us, rounds, floor_file);
	print_row("save_bus", "gpushm_save, beside the bus", us, rounds, floor_out);
	drop(b, "bench/saved");
}

/* ---- all of it ---- */

static void connect_to(struct daemon *d, const char *config)
{
	daemon_start(d, config, NULL);
	if (gpushm_connect(d->socket, &client) < 0)
		errx(1, "%s", gpushm_error());
}

static void end(struct daemon *d)
{
	client = gpushm_disconnect(client);
	daemon_stop(d);
}

static void measure_threads(double floor)
{
	static const unsigned counts[] = { 1, 2, 4, 6, 8, 10, 12, 16 };
	char id[32], text[64];

	for (size_t i = 0; i < (quick ? 2 : array_size(counts)); i++) {
		snprintf(id, sizeof(id), "load_%u", counts[i]);
		snprintf(text, sizeof(text), "gpushm_load, %u threads", counts[i]);
		measure_load(id, text, "gpu", GPUSHM_LOAD_CACHED, counts[i], floor);
	}
}

static void measure_all(void)
{
	struct daemon d;
	double in, back, writes;

	start_driver();
	in = measure_floor(false);
	back = measure_floor(true);
	connect_to(&d, "[pool gpu]\nkind=vmm\n[pool pinned]\nkind=pinned\nsize=1G\n"
		       "[pool mempool]\nkind=mempool\n[pool host]\nkind=host\n");
	measure_process(&d, in);
	measure_load("load", "gpushm_load from the page cache, pinned pool", "gpu", 0, threads, in);
	measure_load("load_verify", "gpushm_load with GPUSHM_LOAD_VERIFY", "gpu",
		     GPUSHM_LOAD_VERIFY, threads, in);
	measure_load("load_host", "gpushm_load to a host pool", "host", 0, threads, 0);
	measure_load("load_direct", "gpushm_load past the page cache", "gpu", GPUSHM_LOAD_DIRECT, 0,
		     in);
	end(&d);
	connect_to(&d, "[pool gpu]\nkind=vmm\n");
	measure_process(&d, in);
	measure_load("load_alone", "gpushm_load, no pinned pool", "gpu", 0, threads, in);
	measure_load("load_alone_direct", "gpushm_load past the page cache, no pool", "gpu",
		     GPUSHM_LOAD_DIRECT, 0, in);
	measure_threads(in);
	if (is_wanted("save")) {
		writes = measure_writes();
		measure_save(back, writes);
	}
	end(&d);
}

/* The daemons of tests/lib fail a Check test, so this is one; it runs in this process. */
START_TEST(everything_runs)
{
	if (calls > 0) {
		print_calls();
		return;
	}
	make_file();
	measure_all();
}
END_TEST

static int run(void)
{
	Suite *s = suite_create("models_load");
	TCase *t = tcase_create("models_load");
	SRunner *runner;
	int failed;

	tcase_set_timeout(t, 0);
	tcase_add_test(t, everything_runs);
	suite_add_tcase(s, t);
	runner = srunner_create(s);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	if (json)
		fclose(json);
	return failed > 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "--once") == 0)
		return load_once(argv[2], argv[3]);
	if (argc >= 4 && strcmp(argv[1], "--calls") == 0) {
		snprintf(file, sizeof(file), "%s", argv[2]);
		calls = (unsigned)atoi(argv[3]);
		cold = argc > 4;
		return run();
	}
	if (argc < 2)
		errx(2, "usage: models_load FOLDER [--quick] [--gib N] [--rounds N] [--threads N] "
			"[--only ROW] [--json FILE]");
	folder = argv[1];
	quick = argc > 2 && strcmp(argv[2], "--quick") == 0;
	if (quick) {
		bytes = 64 * MIB;
		tensor_bytes = 16 * MIB;
		rounds = 1;
	}
	for (int i = quick ? 3 : 2; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--gib") == 0)
			bytes = strtoull(argv[i + 1], NULL, 10) * GIB;
		else if (strcmp(argv[i], "--rounds") == 0)
			rounds = (unsigned)atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--threads") == 0)
			threads = (unsigned)atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--only") == 0)
			only = argv[i + 1];
		else if (strcmp(argv[i], "--json") == 0)
			json = fopen(argv[i + 1], "we");
	}
	if (rounds < 1 || rounds > 16 || bytes == 0)
		errx(2, "wanted: 1 to 16 rounds, and at least 1 GiB");
	snprintf(file, sizeof(file), "%s/gpushm-bench.safetensors", folder);
	snprintf(saved, sizeof(saved), "%s/gpushm-bench-saved.safetensors", folder);
	return run();
}
