/* SPDX-License-Identifier: MIT
 *
 * Sizes and numbers on a real GPU: the daemon's own memory, 16 GiB in one buffer, 4,096 buffers,
 * 5,000 arrays, two GPUs. Prints the figures for RESULTS.md.
 */
#include "proto/base/own.h"
#include "tests/gpu/driver.h"
#include "tests/gpu/fixture.h"

#include <stdio.h>
#include <string.h>

#define BUFFERS 4096
#define ARRAYS 5000

static int complain(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, gpushm_error());
	return 1;
}

/* socket name device: opens for the device, compares both ends, prints ok and the duration of the
 * attach, and waits. */
static int ends_role(char **args)
{
	struct gpushm_open_options o = { .struct_size = sizeof(o), .flags = GPUSHM_SET_DEVICE };
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

static const struct role roles[] = { { "ends", ends_role } };

START_TEST(an_idle_daemon_takes_at_most_8_mib_of_the_gpu)
{
	long used = gpu_used_mib();

	printf("figure: an idle daemon takes %ld MiB of the GPU, %ld KiB RSS\n",
	       used - gpu_used_before, rss_kib(d.pid));
	ck_assert_int_le(used - gpu_used_before, 8);
	ck_assert_int_le(rss_kib(d.pid), 16 * 1024);
}
END_TEST

START_TEST(a_daemon_with_used_pools_takes_at_most_16_mib_of_rss)
{
	static const enum gpushm_kind kinds[] = { GPUSHM_VMM, GPUSHM_PINNED, GPUSHM_HOST };
	long used, rss;

	/* In another process, so that this one's context does not count. */
	for (size_t i = 0; i < array_size(kinds); i++) {
		struct gpushm_buffer *b = gpu_create(kinds[i], "~/small", MIB);

		ck_assert_int_eq(gpushm_discard(b), 0);
	}
	used = gpu_used_mib();
	rss = rss_kib(d.pid);
	printf("figure: daemon with vmm, pinned and host pools in use: %ld KiB RSS\n", rss);
	printf("figure: GPU memory with the daemon and this test's context: %ld MiB before, %ld "
	       "MiB now\n",
	       gpu_used_before, used);
	ck_assert_int_le(rss, 16 * 1024);
}
END_TEST

START_TEST(readers_see_both_ends_of_a_16_gib_buffer)
{
	struct gpushm_buffer *b = gpu_create(GPUSHM_VMM, "big", 16 * GIB);
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

START_TEST(each_of_4096_buffers_keeps_its_contents)
{
	static struct gpushm_buffer *all[BUFFERS];
	double start = now_us();
	char name[32];
	unsigned got;

	for (unsigned i = 0; i < BUFFERS; i++) {
		snprintf(name, sizeof(name), "many/%u", i);
		all[i] = gpu_create(GPUSHM_VMM, name, 2 * MIB);
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

START_TEST(one_attach_brings_5000_arrays)
{
	static struct gpushm_array_spec specs[ARRAYS];
	static char names[ARRAYS][32];
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = gpu_pool(GPUSHM_VMM) };
	const int64_t shape[] = { 64, 32 };
	struct gpushm_buffer *b = NULL, *again = NULL;
	struct gpushm_array *a = NULL;
	double start;

	for (int i = 0; i < ARRAYS; i++) {
		snprintf(names[i], sizeof(names[i]), "layer.%d.weight", i);
		specs[i] =
			(struct gpushm_array_spec){ .struct_size = sizeof(struct gpushm_array_spec),
						    .name = names[i],
						    .ndim = 2,
						    .shape = shape };
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

/* One process on each of two GPUs; the memory is on the first. */
START_TEST(another_gpu_reads_a_buffer)
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
		struct gpushm_buffer *b = gpu_create(kinds[i], "peer", GIB);
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

int main(int argc, char **argv)
{
	const TTest *const tests[] = { an_idle_daemon_takes_at_most_8_mib_of_the_gpu,
				       a_daemon_with_used_pools_takes_at_most_16_mib_of_rss,
				       readers_see_both_ends_of_a_16_gib_buffer,
				       each_of_4096_buffers_keeps_its_contents,
				       one_attach_brings_5000_arrays,
				       another_gpu_reads_a_buffer };

	return gpu_main(argc, argv, "gpu_sizes", roles, array_size(roles), tests,
			array_size(tests));
}
