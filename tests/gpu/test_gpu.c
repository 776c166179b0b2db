/* SPDX-License-Identifier: MIT
 *
 * What only a real GPU can show: sizes, page tables that refuse a write, what the daemon takes of
 * the GPU for itself, and two GPUs. Prints the figures that tests/gpu/RESULTS.md keeps. Skipped,
 * with a word, without a GPU.
 */
#include "client/gpushm.h"
#include "proto/own.h"
#include "tests/gpu/driver.h"
#include "tests/lib/daemon.h"
#include "tests/lib/fds.h"
#include "tests/lib/role.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define BUFFERS 4096
#define ARRAYS 5000

static struct daemon d;
static struct gpushm *c;
static struct gpushm_pool *pools;
static size_t n_pools;
static long used_before;

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* MiB of GPU 0 in use by anybody, as nvidia-smi says; -1 without it. */
static long gpu_used_mib(void)
{
	FILE *f = popen("nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0 "
			"2>/dev/null",
			"r");
	long v = -1;

	if (f && fscanf(f, "%ld", &v) != 1)
		v = -1;
	if (f)
		pclose(f);
	return v;
}

static long rss_kib(pid_t pid)
{
	char path[64], line[256];
	long v = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %ld", &v) == 1)
			break;
	if (f)
		fclose(f);
	return v;
}

static void setup(void)
{
	fds_mark();
	used_before = gpu_used_mib();
	daemon_start(&d, "", NULL);
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_pools(c, &pools, &n_pools), 0);
}

static void teardown(void)
{
	free(take_ptr(pools));
	c = gpushm_disconnect(c);
	daemon_stop(&d);
}

static const struct gpushm_pool *pool_of(enum gpushm_kind kind)
{
	for (size_t i = 0; i < n_pools; i++)
		if (pools[i].kind == kind && !pools[i].failed)
			return &pools[i];
	return NULL;
}

static struct gpushm_buffer *create(enum gpushm_kind kind, const char *name, uint64_t bytes)
{
	struct gpushm_options o = { .struct_size = sizeof(o), .pool = pool_of(kind)->name };
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(gpushm_create(c, name, bytes, &o, &b) == 0, "%s", gpushm_error());
	return b;
}

static CUdeviceptr device_ptr(const struct gpushm_buffer *b)
{
	return (CUdeviceptr)(uintptr_t)gpushm_buffer_device_ptr(b);
}

/* ---- roles ---- */

static int complain(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, gpushm_error());
	return 1;
}

/* socket name how: opens for reading and writes all the same, by the driver or by a kernel. 0: it
 * was refused; 1: it went through. */
static int violate_role(char **args)
{
	struct driver gpu;
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;

	if (!driver_open(&gpu, 0) || gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_open(conn, args[1], GPUSHM_READ, 0, NULL, &b) < 0)
		return complain("open") + 1;
	if (strcmp(args[2], "memset") == 0)
		return gpu.memset_d8(device_ptr(b), 1, 4096) == CUDA_SUCCESS;
	if (strcmp(args[2], "kernel") == 0)
		return driver_store(&gpu, device_ptr(b), 1) == CUDA_SUCCESS;
	*(volatile unsigned *)gpushm_buffer_host_ptr(b) = 1;
	return 1;
}

/* socket name device: opens for the device, compares the two ends, says ok and how long the attach
 * took, and waits. */
static int ends_role(char **args)
{
	struct gpushm_options o = { .struct_size = sizeof(o), .flags = GPUSHM_SET_DEVICE };
	struct driver gpu;
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	unsigned first = 0, last = 0;
	double start;
	char word[8];

	o.device = atoi(args[2]);
	if (!driver_open(&gpu, o.device) || gpushm_connect(args[0], &conn) < 0)
		return complain("connect");
	start = now_us();
	if (gpushm_open(conn, args[1], GPUSHM_READ, 10000, &o, &b) < 0)
		return complain("open");
	start = now_us() - start;
	if (gpushm_read(b, 0, &first, 4) < 0 ||
	    gpushm_read(b, gpushm_buffer_bytes(b) - 4, &last, 4) < 0)
		return complain("read");
	printf("%x %x %.0f\n", first, last, start);
	if (fgets(word, sizeof(word), stdin))
		return 1;
	return gpushm_close(b) < 0 ? complain("close") : 0;
}

static const struct role roles[] = { { "violate", violate_role }, { "ends", ends_role } };

/* ---- tests ---- */

START_TEST(the_daemon_takes_more_of_the_gpu_than_8_mib)
{
	static const enum gpushm_kind kinds[] = { GPUSHM_VMM, GPUSHM_PINNED, GPUSHM_HOST };
	long used, rss;

	/* In another process, so that this one's context does not count. */
	for (size_t i = 0; i < array_size(kinds); i++) {
		struct gpushm_buffer *b = create(kinds[i], "~/small", MIB);

		ck_assert_int_eq(gpushm_close(b), 0);
	}
	used = gpu_used_mib();
	rss = rss_kib(d.pid);
	printf("figure: daemon with vmm, pinned and host pools in use: %ld KiB RSS\n", rss);
	printf("figure: GPU memory with the daemon and this test's context: %ld MiB before, %ld "
	       "MiB now\n",
	       used_before, used);
	ck_assert_int_le(rss, 16 * 1024);
}
END_TEST

START_TEST(an_idle_daemon_takes_more_of_the_gpu_than_8_mib)
{
	long used = gpu_used_mib();

	printf("figure: an idle daemon takes %ld MiB of the GPU, %ld KiB RSS\n", used - used_before,
	       rss_kib(d.pid));
	ck_assert_int_le(used - used_before, 8);
	ck_assert_int_le(rss_kib(d.pid), 16 * 1024);
}
END_TEST

START_TEST(a_16_gib_buffer_differs_at_its_ends)
{
	struct gpushm_buffer *b = create(GPUSHM_VMM, "big", 16 * GIB);
	const char *args[] = { d.socket, "big", "0", NULL };
	struct role_process readers[8];
	const unsigned first = 0x11223344, last = 0xa5a5f00d;
	char line[64];

	ck_assert_int_eq(gpushm_write(b, 0, &first, 4), 0);
	ck_assert_int_eq(gpushm_write(b, 16 * GIB - 4, &last, 4), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	for (size_t i = 0; i < array_size(readers); i++)
		role_start(&readers[i], "ends", args);
	for (size_t i = 0; i < array_size(readers); i++) {
		unsigned got_first = 0, got_last = 0;
		double us = 0;

		role_read_line(&readers[i], line, sizeof(line));
		ck_assert_int_eq(sscanf(line, "%x %x %lf", &got_first, &got_last, &us), 3);
		ck_assert_uint_eq(got_first, first);
		ck_assert_uint_eq(got_last, last);
		printf("figure: attach of 16 GiB of vmm, reader %zu: %.0f us\n", i, us);
	}
	for (size_t i = 0; i < array_size(readers); i++)
		role_finish(&readers[i]);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "big"), 0);
}
END_TEST

START_TEST(the_4096th_buffer_is_refused_or_mixed_up)
{
	static struct gpushm_buffer *all[BUFFERS];
	double start = now_us();
	char name[32];
	unsigned got;

	for (unsigned i = 0; i < BUFFERS; i++) {
		snprintf(name, sizeof(name), "many/%u", i);
		all[i] = create(GPUSHM_VMM, name, 2 * MIB);
		ck_assert_int_eq(gpushm_write(all[i], 0, &i, 4), 0);
		ck_assert_int_eq(gpushm_publish(all[i], GPUSHM_SEALED), 0);
	}
	printf("figure: create, write and publish %d vmm buffers of 2 MiB: %.1f us each\n", BUFFERS,
	       (now_us() - start) / BUFFERS);
	printf("figure: daemon with %d vmm buffers: %ld KiB RSS\n", BUFFERS, rss_kib(d.pid));
	for (unsigned i = 0; i < BUFFERS; i++) {
		struct gpushm_buffer *b = NULL;

		snprintf(name, sizeof(name), "many/%u", i);
		ck_assert_int_eq(gpushm_close(all[i]), 0);
		ck_assert_int_eq(gpushm_open(c, name, GPUSHM_READ, 0, NULL, &b), 0);
		ck_assert_int_eq(gpushm_read(b, 0, &got, 4), 0);
		ck_assert_uint_eq(got, i);
		ck_assert_int_eq(gpushm_close(b), 0);
		ck_assert_int_eq(gpushm_unlink(c, name), 0);
	}
}
END_TEST

/* A writer through a read-only mapping is refused, or lost; the data and everyone else are not. */
static void violate(enum gpushm_kind kind, const char *how)
{
	struct gpushm_buffer *b = create(kind, "sealed", 2 * MIB);
	const char *args[] = { d.socket, "sealed", how, NULL };
	const unsigned word = 0x600dda7a;
	struct role_process offender;
	unsigned got = 0;
	int status;

	ck_assert_int_eq(gpushm_write(b, 0, &word, 4), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	role_start(&offender, "violate", args);
	status = role_wait(&offender);
	printf("figure: %s through a read-only mapping: %s %d\n", how,
	       WIFSIGNALED(status) ? "died of signal" : "refused, exit",
	       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	if (strcmp(how, "cpu") == 0)
		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	else
		ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_int_eq(gpushm_read(b, 0, &got, 4), 0);
	ck_assert_uint_eq(got, word);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "sealed"), 0);
}

START_TEST(a_write_through_a_read_only_mapping_succeeds)
{
	violate(GPUSHM_VMM, "memset");
	violate(GPUSHM_VMM, "kernel");
	violate(GPUSHM_PINNED, "memset");
	violate(GPUSHM_PINNED, "kernel");
	violate(GPUSHM_PINNED, "cpu");
	violate(GPUSHM_HOST, "cpu");
}
END_TEST

START_TEST(attach_of_5000_arrays_takes_as_long_as_many_attaches)
{
	static struct gpushm_array_spec specs[ARRAYS];
	static char names[ARRAYS][32];
	struct gpushm_options o = { .struct_size = sizeof(o), .pool = pool_of(GPUSHM_VMM)->name };
	const int64_t shape[] = { 64, 32 };
	struct gpushm_buffer *b = NULL, *again = NULL;
	struct gpushm_array *a = NULL;
	double start;

	for (int i = 0; i < ARRAYS; i++) {
		snprintf(names[i], sizeof(names[i]), "layer.%d.weight", i);
		specs[i] =
			(struct gpushm_array_spec){ .name = names[i], .ndim = 2, .shape = shape };
		ck_assert_int_eq(gpushm_dtype_parse("float32", &specs[i].dtype), 0);
	}
	start = now_us();
	ck_assert_msg(gpushm_create_arrays(c, "model", specs, ARRAYS, &o, &b) == 0, "%s",
		      gpushm_error());
	printf("figure: create and describe %d arrays: %.0f us\n", ARRAYS, now_us() - start);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	start = now_us();
	ck_assert_int_eq(gpushm_open(c, "model", GPUSHM_READ, 0, NULL, &again), 0);
	printf("figure: attach of %d arrays: %.0f us\n", ARRAYS, now_us() - start);
	ck_assert_uint_eq(gpushm_buffer_arrays(again), ARRAYS);
	ck_assert_int_eq(gpushm_array_get(again, names[ARRAYS - 1], &a), 0);
	ck_assert_uint_eq(gpushm_array_offset(a), specs[ARRAYS - 1].offset);
	gpushm_array_free(a);
	ck_assert_int_eq(gpushm_close(again), 0);
	ck_assert_int_eq(gpushm_unlink(c, "model"), 0);
}
END_TEST

START_TEST(a_mempool_gives_more_than_an_importer_survives)
{
	struct gpushm_options o = { .struct_size = sizeof(o) };
	struct gpushm_buffer *b = NULL;

	o.pool = pool_of(GPUSHM_MEMPOOL)->name;
	ck_assert_int_eq(gpushm_create(c, "~/huge", 4 * GIB + 1, &o, &b), -EFBIG);
	printf("figure: %s\n", gpushm_error());
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "vmm"));
	b = create(GPUSHM_MEMPOOL, "~/large", 4 * GIB);
	ck_assert_int_eq(gpushm_close(b), 0);
}
END_TEST

/* What the last tenant of a mempool wrote must not be there for the next one, nor what was on the
 * GPU before. */
START_TEST(a_mempool_block_keeps_what_its_last_tenant_wrote)
{
	_cleanup_(free_ptr) unsigned char *got = malloc(64 * MIB);

	for (int round = 0; round < 6; round++) {
		struct gpushm_buffer *b = create(GPUSHM_MEMPOOL, "~/tenant", 64 * MIB);

		ck_assert_int_eq(gpushm_read(b, 0, got, 64 * MIB), 0);
		for (uint64_t i = 0; i < 64 * MIB; i++)
			ck_assert_msg(got[i] == 0, "round %d: byte %lu is %u", round, i, got[i]);
		memset(got, 0xee, 64 * MIB);
		ck_assert_int_eq(gpushm_write(b, 0, got, 64 * MIB), 0);
		ck_assert_int_eq(gpushm_close(b), 0);
	}
}
END_TEST

/* One process on each of two GPUs; the memory is on the first. */
START_TEST(another_gpu_can_not_read_a_buffer)
{
	static const enum gpushm_kind kinds[] = { GPUSHM_VMM, GPUSHM_MEMPOOL, GPUSHM_PINNED };
	const unsigned word = 0x2b00b1e5;
	struct driver gpu;
	int count = 0;

	ck_assert(driver_open(&gpu, 0) && gpu.device_get_count(&count) == CUDA_SUCCESS);
	if (count < 2) {
		puts("skipped: one GPU: nothing to read from another one");
		return;
	}
	for (size_t i = 0; i < array_size(kinds); i++) {
		struct gpushm_buffer *b = create(kinds[i], "peer", GIB);
		struct role_process on[2];
		unsigned first, last;
		double us;
		char line[64];

		ck_assert_int_eq(gpushm_write(b, 0, &word, 4), 0);
		ck_assert_int_eq(gpushm_write(b, GIB - 4, &word, 4), 0);
		ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
		role_start(&on[0], "ends", (const char *[]){ d.socket, "peer", "0", NULL });
		role_start(&on[1], "ends", (const char *[]){ d.socket, "peer", "1", NULL });
		for (int j = 0; j < 2; j++) {
			role_read_line(&on[j], line, sizeof(line));
			ck_assert_int_eq(sscanf(line, "%x %x %lf", &first, &last, &us), 3);
			ck_assert_uint_eq(first, word);
			ck_assert_uint_eq(last, word);
			printf("figure: pool kind %d of GPU 0, attach of 1 GiB for GPU %d: %.0f "
			       "us\n",
			       kinds[i], j, us);
		}
		role_finish(&on[0]);
		role_finish(&on[1]);
		ck_assert_int_eq(gpushm_close(b), 0);
		ck_assert_int_eq(gpushm_unlink(c, "peer"), 0);
	}
}
END_TEST

/* No CUDA before the tests fork: a context does not survive it. */
static int has_gpu(void)
{
	return system("nvidia-smi -L >/dev/null 2>&1") == 0;
}

int main(int argc, char **argv)
{
	Suite *s = suite_create("gpu");
	TCase *t = tcase_create("a real GPU");
	SRunner *sr = srunner_create(s);
	int failed;

	setvbuf(stdout, NULL, _IOLBF, 0);
	role_dispatch(argc, argv, roles, array_size(roles));
	if (!has_gpu()) {
		puts("skipped: no GPU");
		return 0;
	}
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 300);
	tcase_add_test(t, an_idle_daemon_takes_more_of_the_gpu_than_8_mib);
	tcase_add_test(t, the_daemon_takes_more_of_the_gpu_than_8_mib);
	tcase_add_test(t, a_16_gib_buffer_differs_at_its_ends);
	tcase_add_test(t, the_4096th_buffer_is_refused_or_mixed_up);
	tcase_add_test(t, a_write_through_a_read_only_mapping_succeeds);
	tcase_add_test(t, attach_of_5000_arrays_takes_as_long_as_many_attaches);
	tcase_add_test(t, a_mempool_gives_more_than_an_importer_survives);
	tcase_add_test(t, a_mempool_block_keeps_what_its_last_tenant_wrote);
	tcase_add_test(t, another_gpu_can_not_read_a_buffer);
	suite_add_tcase(s, t);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
