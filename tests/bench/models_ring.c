/* SPDX-License-Identifier: MIT
 *
 * What the shape of the loader's slots does (client/load/lane.h): threads that read a file, hash
 * it, and copy it to the GPU through rings of slots of several sizes, without a daemon and a
 *buffer.
 *
 *	models_ring FILE [--rounds N] [--threads N] [--device-mib N] [--json FILE]
 *
 * Small slots stay in the processor's cache, so that neither the hash nor the copy reads from
 * memory; large ones need fewer copies, each of which costs the GPU some microseconds. The shapes
 * take turns; each row is the best and the median of its rounds, "alone" the best of the same
 *copies without reading a file, "floor" a copy of as many bytes from one piece of pinned memory.
 */
#include "client/gpushm_private.h"
#include "client/load/digest.h"
#include "client/load/gpu.h"
#include "proto/base/libcuda.h"
#include "proto/base/own.h"
#include "tests/bench/sample.h"

#include <cuda.h>
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define BLOCK (8 * MIB)
#define PIECE (512 * KIB) /* that is read and hashed at a time */
#define RING_MAX (16 * MIB)
#define THREADS_MAX 64
#define ROUNDS_MAX 16

struct shape {
	unsigned slots;
	size_t bytes;
};
static const struct shape shapes[] = { { 2, 8 * MIB }, { 2, 4 * MIB },	{ 3, 4 * MIB },
				       { 4, 4 * MIB }, { 2, 2 * MIB },	{ 4, 2 * MIB },
				       { 8, MIB },     { 8, 512 * KIB } };

#define CALLS(X) X(mem_alloc, cuMemAlloc_v2) X(mem_free, cuMemFree_v2)
struct cuda {
	CALLS(LIBCUDA_MEMBER)
};
static struct cuda cuda;

static const char *path;
static unsigned rounds = 3, only_threads;
static FILE *json;
static struct gpu *gpu;
static int file;
static uint64_t bytes; /* whole blocks of the file */
static CUdeviceptr device;
static uint64_t device_bytes = 512 * MIB; /* which the copies go to again and again */

static void must(int r)
{
	if (r < 0)
		errx(1, "%s", gpushm_error());
}

/* ---- one round ---- */

struct round {
	struct shape shape;
	bool reads;	       /* the file; else the slots are copied as they are */
	_Atomic uint64_t next; /* block */
};

struct worker {
	struct round *round;
	char *ring; /* RING_MAX, pinned */
	pthread_t thread;
};

static void read_all(char *to, size_t n, uint64_t at)
{
	for (size_t done = 0; done < n;) {
		ssize_t r = pread(file, to + done, n - done, (off_t)(at + done));

		if (r <= 0)
			errx(1, "%s: it can't be read, or has become shorter", path);
		done += (size_t)r;
	}
}

static void read_and_hash(char *slot, size_t n, uint64_t at, const struct block_hash_code *code,
			  struct block_hash *hash)
{
	for (size_t done = 0; done < n; done += PIECE) {
		size_t piece = n - done < PIECE ? n - done : PIECE;

		read_all(slot + done, piece, at + done);
		code->add(hash, slot + done, piece);
	}
}

static void *work(void *arg)
{
	const struct block_hash_code *code = digest_code();
	struct block_hash *hash = code->new ();
	struct worker *w = arg;
	struct round *round = w->round;
	const size_t n = round->shape.bytes;
	struct gpu_queue *q;
	unsigned slot = 0;
	uint64_t block;

	must(gpu_enter(gpu));
	must(gpu_queue_new(round->shape.slots, &q));
	while ((block = atomic_fetch_add(&round->next, 1)) < bytes / BLOCK) {
		code->begin(hash);
		for (uint64_t at = block * BLOCK; at < (block + 1) * BLOCK; at += n) {
			char *memory = w->ring + slot * n;

			must(gpu_wait(q, slot));
			if (round->reads)
				read_and_hash(memory, n, at, code, hash);
			must(gpu_copy_to_device(q, device + at % device_bytes, memory, n));
			must(gpu_mark(q, slot));
			slot = (slot + 1) % round->shape.slots;
		}
		code->end(hash);
	}
	must(gpu_drain(q));
	gpu_queue_free(gpu, q);
	gpu_leave();
	code->free(hash);
	return NULL;
}

static double run_round(struct shape shape, bool reads, unsigned threads, char *rings)
{
	struct worker workers[THREADS_MAX];
	struct round round = { .shape = shape, .reads = reads };
	double start = now_us();

	for (unsigned i = 0; i < threads; i++) {
		workers[i] = (struct worker){ .round = &round, .ring = rings + i * RING_MAX };
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			errx(1, "no thread could be started");
	}
	for (unsigned i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	return now_us() - start;
}

static double copy_alone(char *memory)
{
	struct gpu_queue *q;
	double start;

	must(gpu_enter(gpu));
	must(gpu_queue_new(1, &q));
	start = now_us();
	for (uint64_t at = 0; at < bytes; at += RING_MAX)
		must(gpu_copy_to_device(q, device + at % device_bytes, memory, RING_MAX));
	must(gpu_drain(q));
	start = now_us() - start;
	gpu_queue_free(gpu, q);
	gpu_leave();
	return start;
}

/* ---- all of them ---- */

static double rate(double us)
{
	return (double)bytes / us / 1e3;
}

static void print(unsigned threads, struct shape shape, struct sample *s, struct sample *alone,
		  double floor)
{
	struct figures f = sample_figures(s);
	double copies = rate(sample_figures(alone).min);

	printf("%2u threads, %u slots of %4llu KiB %6.1f GB/s (median %5.1f)   %.2f of the floor; "
	       "alone %.1f\n",
	       threads, shape.slots, shape.bytes / KIB, rate(f.min), rate(f.median),
	       rate(f.min) / floor, copies);
	fflush(stdout);
	if (json)
		fprintf(json,
			"{\"row\": \"ring\", \"threads\": %u, \"slots\": %u, \"slot_bytes\": %zu, "
			"\"best_gbs\": %.3f, \"median_gbs\": %.3f, \"alone_gbs\": %.3f, "
			"\"floor_gbs\": %.3f}\n",
			threads, shape.slots, shape.bytes, rate(f.min), rate(f.median), copies,
			floor);
}

static void measure(unsigned threads, char *rings, double floor)
{
	struct sample samples[array_size(shapes)] = { 0 }, alone[array_size(shapes)] = { 0 };

	for (unsigned r = 0; r < rounds; r++)
		for (size_t i = 0; i < array_size(shapes); i++) {
			sample_add(&samples[i], run_round(shapes[i], true, threads, rings));
			sample_add(&alone[i], run_round(shapes[i], false, threads, rings));
		}
	for (size_t i = 0; i < array_size(shapes); i++) {
		print(threads, shapes[i], &samples[i], &alone[i], floor);
		sample_done(&samples[i]);
		sample_done(&alone[i]);
	}
}

static void measure_all(void)
{
	static const unsigned counts[] = { 8, 12 };
	const unsigned most = only_threads > 0 ? only_threads : 12;
	struct sample alone = { 0 };
	double floor;
	void *rings;

	must(gpu_pin(gpu, most * RING_MAX, &rings));
	for (unsigned r = 0; r < rounds; r++)
		sample_add(&alone, copy_alone(rings));
	floor = rate(sample_figures(&alone).min);
	printf("%-32s %6.1f GB/s\n", "pinned memory to GPU, alone", floor);
	sample_done(&alone);
	if (only_threads > 0)
		measure(only_threads, rings, floor);
	for (size_t i = 0; only_threads == 0 && i < array_size(counts); i++)
		measure(counts[i], rings, floor);
	gpu_unpin(gpu, rings, most * RING_MAX);
}

static void open_all(void)
{
	static const struct libcuda_symbol symbols[] = { CALLS(LIBCUDA_SYMBOL) };
	struct stat st;
	char why[256];

	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0 || fstat(file, &st) < 0)
		err(1, "%s", path);
	bytes = (uint64_t)st.st_size / RING_MAX * RING_MAX;
	if (bytes == 0)
		errx(1, "%s: wanted is a file of some GiB", path);
	must(gpu_open(0, &gpu));
	if (!libcuda_load(symbols, array_size(symbols), &cuda, why, sizeof(why)))
		errx(1, "%s", why);
	must(gpu_enter(gpu));
	if (cuda.mem_alloc(&device, device_bytes) != CUDA_SUCCESS)
		errx(1, "the GPU has no %llu MiB left", (unsigned long long)(device_bytes / MIB));
	gpu_leave();
}

static void close_all(void)
{
	must(gpu_enter(gpu));
	cuda.mem_free(device);
	gpu_leave();
	gpu_close(gpu);
	close(file);
	if (json)
		fclose(json);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		errx(2, "usage: models_ring FILE [--rounds N] [--threads N] [--device-mib N] "
			"[--json FILE]");
	path = argv[1];
	for (int i = 2; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--rounds") == 0)
			rounds = (unsigned)atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--threads") == 0)
			only_threads = (unsigned)atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--device-mib") == 0)
			device_bytes = strtoull(argv[i + 1], NULL, 10) * MIB;
		else if (strcmp(argv[i], "--json") == 0)
			json = fopen(argv[i + 1], "we");
	}
	if (rounds < 1 || rounds > ROUNDS_MAX || only_threads > THREADS_MAX || device_bytes == 0 ||
	    device_bytes % RING_MAX != 0)
		errx(2, "wanted: 1 to %u rounds, at most %u threads, and a multiple of %llu MiB",
		     ROUNDS_MAX, THREADS_MAX, RING_MAX / MIB);
	open_all();
	measure_all();
	close_all();
	return 0;
}
