/* SPDX-License-Identifier: MIT
 *
 * Strided copies by the CPU: random arrays to and from random host layouts, compared with a copy
 * element by element. All of both memories is compared, which finds bytes that are written beside
 * an element. test_transfer.c tests the copies by the driver.
 */
#include "tests/lib/suite.h"
#include "tests/unit/lib/array_fixture.h"

#include "client/lib/array/copy_plan.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#define BYTES (1 << 18)

static struct scene s;
static unsigned char *host, *expected;

static void setup(void)
{
	fds_mark();
	scene_open(&s, GPUSHM_HOST, BYTES);
	host = malloc(BYTES);
	expected = malloc(BYTES);
	ck_assert(host && expected);
}

static void teardown(void)
{
	free(host);
	free(expected);
	scene_close(&s);
	fds_check();
}

static void copy_slowly(const struct gpushm_array *a, unsigned char *dst,
			const int64_t *dst_strides, const unsigned char *src,
			const int64_t *src_strides)
{
	int ndim = gpushm_array_ndim(a);
	size_t itemsize = gpushm_dtype_bits(gpushm_array_dtype(a)) / 8;
	int64_t index[GPUSHM_MAX_NDIM] = { 0 };

	if (gpushm_array_size(a) == 0)
		return;
	do
		memcpy(dst + address_of(ndim, dst_strides, index),
		       src + address_of(ndim, src_strides, index), itemsize);
	while (next_index(ndim, gpushm_array_shape(a), index));
}

/* Strides of memory that is dense in a random order of the axes, with gaps, and some of it
 * backwards; or, tangled, any strides. Returns how far the lowest byte lies before the start. */
static int64_t random_strides(int ndim, const int64_t *shape, int64_t align, int64_t itemsize,
			      bool tangled, int64_t *ret)
{
	bool done[GPUSHM_MAX_NDIM] = { false };
	int64_t stride = itemsize, before = 0;

	for (int i = 0; i < ndim; i++) {
		int axis = (int)random_in(0, ndim - 1);

		while (done[axis])
			axis = (axis + 1) % ndim;
		done[axis] = true;
		ret[axis] = random_in(0, 2) == 0 ? -stride : stride;
		if (tangled)
			ret[axis] = random_in(-3, 3) * align;
		if (ret[axis] < 0 && shape[axis] > 0)
			before -= ret[axis] * (shape[axis] - 1);
		stride *= shape[axis] > 0 ? shape[axis] : 1;
		stride += random_in(0, 2) == 0 ? random_in(1, 3) * align : 0;
	}
	return before;
}

static const struct {
	const char *name;
	int64_t align;
} dtypes[] = { { "uint8", 1 },	 { "int16", 2 },      { "float32", 4 },	 { "int64", 8 },
	       { "record3", 1 }, { "complex128", 8 }, { "record37", 1 }, { "float32x3", 4 } };

struct layouts {
	struct gpushm_array *array;
	int64_t strides[GPUSHM_MAX_NDIM]; /* the host's */
	int64_t before;			  /* of the host's */
};

static void random_layouts(struct layouts *ret)
{
	size_t which = (size_t)random_in(0, (int64_t)array_size(dtypes) - 1);
	int64_t itemsize = (int64_t)gpushm_dtype_bits(dtype_of(dtypes[which].name)) / 8;
	int64_t align = dtypes[which].align, shape[5], strides[5], before;
	int ndim = (int)random_in(0, 5);

	for (int i = 0; i < ndim; i++)
		shape[i] = random_in(random_in(0, 15) ? 1 : 0, 5);
	before = random_strides(ndim, shape, align, itemsize, random_in(0, 3) == 0, strides);
	before += (16 - before % 16) % 16;
	ret->array = array_of(&s, dtypes[which].name, ndim, shape, random_in(0, 3) ? strides : NULL,
			      (uint64_t)before);
	ret->before =
		random_strides(ndim, shape, align, itemsize, random_in(0, 3) == 0, ret->strides);
	if (random_in(0, 3) == 0) {
		int64_t stride = itemsize;

		ret->before = 0;
		for (int i = ndim - 1; i >= 0; i--) {
			ret->strides[i] = stride;
			stride *= shape[i];
		}
	}
}

static void check_to_host(const struct layouts *l)
{
	const struct gpushm_array *a = l->array;

	random_fill(host, 4096);
	memcpy(expected, host, BYTES);
	copy_slowly(a, expected + l->before, l->strides, gpushm_array_host_ptr(a),
		    gpushm_array_strides(a));
	if (gpushm_copy_to_host(a, host + l->before, l->strides) != 0)
		ck_abort_msg("copy_to_host: %s", gpushm_error());
	if (memcmp(host, expected, BYTES) != 0)
		ck_abort_msg("the host has something else than the slow reference");
}

static void check_from_host(const struct layouts *l)
{
	struct gpushm_array *a = l->array;

	memcpy(expected, s.memory, BYTES);
	copy_slowly(a, expected + gpushm_array_offset(a), gpushm_array_strides(a), host + l->before,
		    l->strides);
	if (gpushm_copy_from_host_async(a, host + l->before, l->strides, NULL) != 0)
		ck_abort_msg("copy_from_host_async: %s", gpushm_error());
	if (memcmp(s.memory, expected, BYTES) != 0)
		ck_abort_msg("the buffer has something else than the slow reference");
}

START_TEST(a_strided_copy_moves_the_same_bytes_as_the_slow_reference)
{
	random_start();
	random_fill(s.memory, BYTES);
	random_fill(host, BYTES);
	for (int round = 0; round < 4000; round++) {
		struct layouts l;

		random_layouts(&l);
		check_to_host(&l);
		random_fill(host, 4096);
		check_from_host(&l);
		gpushm_array_free(l.array);
	}
}
END_TEST

START_TEST(no_strides_mean_c_order)
{
	struct gpushm_array *a = array_of(&s, "int32", 2, SHAPE(2, 3), SHAPE(4, 8), 0);
	int32_t got[6] = { 0 }, memory[6] = { 0, 3, 1, 4, 2, 5 };

	memcpy(s.memory, memory, sizeof(memory));
	ck_assert_int_eq(gpushm_copy_to_host(a, got, NULL), 0);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(got[i], i);
	for (int i = 0; i < 6; i++)
		got[i] = 10 + i;
	ck_assert_int_eq(gpushm_copy_from_host(a, got, NULL), 0);
	memcpy(memory, s.memory, sizeof(memory));
	ck_assert_int_eq(memory[1], 13);
	ck_assert_int_eq(memory[4], 12);
	gpushm_array_free(a);
}
END_TEST

/* 2^40 rows, all at the same address: the copy must not loop over them. */
START_TEST(a_broadcast_array_is_written_once)
{
	struct gpushm_array *a =
		array_of(&s, "uint8", 2, SHAPE((int64_t)1 << 40, 4), SHAPE(0, 1), 0);
	const unsigned char row[4] = { 1, 2, 3, 4 };

	ck_assert_int_eq(gpushm_copy_from_host(a, row, SHAPE(0, 1)), 0);
	ck_assert_mem_eq(s.memory, row, 4);
	gpushm_array_free(a);
}
END_TEST

START_TEST(the_last_of_overlapping_elements_wins)
{
	struct gpushm_array *all = array_of(&s, "uint8", 1, SHAPE(9), SHAPE(0), 0);
	struct gpushm_array *window = array_of(&s, "uint8", 2, SHAPE(3, 2), SHAPE(1, 1), 16);
	struct gpushm_array *back = array_of(&s, "uint8", 2, SHAPE(2, 2), SHAPE(-1, 1), 33);
	const unsigned char in[9] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };

	ck_assert_int_eq(gpushm_copy_from_host(all, in, NULL), 0);
	ck_assert_int_eq(s.memory[0], 9);
	ck_assert_int_eq(s.memory[1], 0);
	ck_assert_int_eq(gpushm_copy_from_host(window, in, NULL), 0);
	ck_assert_mem_eq(s.memory + 16, ((unsigned char[]){ 1, 3, 5, 6, 0 }), 5);
	ck_assert_int_eq(gpushm_copy_from_host(back, in, NULL), 0);
	ck_assert_mem_eq(s.memory + 32, ((unsigned char[]){ 3, 4, 2, 0 }), 4);
	gpushm_array_free(all);
	gpushm_array_free(window);
	gpushm_array_free(back);
}
END_TEST

START_TEST(a_read_only_array_refuses_writes)
{
	struct gpushm_array *a = array_of(&s, "uint8", 1, SHAPE(4), NULL, 0);
	struct gpushm_array *empty = array_of(&s, "uint8", 1, SHAPE(0), NULL, 0);
	unsigned char bytes[4] = { 1, 2, 3, 4 };

	s.buffer.access = GPUSHM_READ;
	ck_assert_int_eq(gpushm_copy_from_host(a, bytes, NULL), -EROFS);
	ck_assert_int_eq(gpushm_copy_from_host(empty, bytes, NULL), -EROFS);
	ck_assert_int_eq(gpushm_copy_from_host_async(a, bytes, NULL, NULL), -EROFS);
	ck_assert_int_eq(gpushm_write(&s.buffer, 0, bytes, 4), -EROFS);
	ck_assert_int_eq(s.memory[0], 0);
	ck_assert_int_eq(gpushm_copy_to_host(a, bytes, NULL), 0);
	ck_assert_int_eq(bytes[3], 0);
	gpushm_array_free(a);
	gpushm_array_free(empty);
}
END_TEST

START_TEST(a_packed_array_is_copied_as_exactly_its_bytes)
{
	struct gpushm_array *a = array_of(&s, "float4_e2m1fn", 1, SHAPE(5), NULL, 8);
	unsigned char bytes[4] = { 1, 2, 3, 4 };

	ck_assert_int_eq(gpushm_copy_from_host(a, bytes, NULL), 0);
	ck_assert_mem_eq(s.memory + 7, ((unsigned char[]){ 0, 1, 2, 3, 0 }), 5);
	ck_assert_int_eq(gpushm_copy_to_host(a, bytes + 1, NULL), 0);
	ck_assert_mem_eq(bytes, ((unsigned char[]){ 1, 1, 2, 3 }), 4);
	ck_assert_int_eq(gpushm_copy_to_host(a, bytes, SHAPE(0)), -ENOTSUP);
	gpushm_array_free(a);
}
END_TEST

START_TEST(a_run_that_several_threads_copy_is_whole)
{
	const size_t run = (40u << 20) + 3;
	const struct copy_plan plan = { .run = run, .dst_at = 1 };
	unsigned char *src = malloc(run), *dst = calloc(1, run + 2);
	sigset_t before = { 0 }, after = { 0 };

	ck_assert(src && dst);
	for (size_t i = 0; i < run; i++)
		src[i] = (unsigned char)(i % 251 + 1);
	pthread_sigmask(SIG_SETMASK, NULL, &before);
	copy_plan_copy(&plan, dst, src, NULL);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	ck_assert_mem_eq(&before, &after, sizeof(before));
	ck_assert_int_eq(memcmp(dst + 1, src, run), 0);
	ck_assert(dst[0] == 0 && dst[run + 1] == 0);
	free(src);
	free(dst);
}
END_TEST

/* It begins and ends in the middle of a huge page, and in small pages. */
START_TEST(a_run_into_fresh_memory_is_whole)
{
	const size_t run = (20u << 20) + 3, bytes = run + HUGE_PAGE;
	const struct copy_plan plan = { .run = run, .dst_at = 4097 };
	_cleanup_(close_fd) int fd = memfd_create("memory", MFD_CLOEXEC);
	char *src = malloc(run), *room, *dst;
	struct huge_pages fresh;

	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	room = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert(src && room != MAP_FAILED);
	room += -(uintptr_t)room % HUGE_PAGE;
	dst = mmap(room, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	ck_assert_ptr_eq(dst, room);
	huge_pages_init(&fresh, dst, bytes, fd);
	for (size_t i = 0; i < run; i++)
		src[i] = (char)(i % 251 + 1);
	dst[4096] = 7;
	copy_plan_copy(&plan, dst, src, &fresh);
	ck_assert_int_eq(memcmp(dst + 4097, src, run), 0);
	ck_assert(dst[0] == 0 && dst[4096] == 7 && dst[4097 + run] == 0);
	munmap(dst, bytes);
	free(src);
}
END_TEST

#define PAGE 4096u
static char *lost;

/* The page of a file that has become shorter becomes a new one. */
static void on_bus(int signal_number)
{
	(void)signal_number;
	mmap(lost, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

START_TEST(a_fault_of_one_of_several_threads_reaches_the_programs_handler)
{
	const size_t run = 40u << 20;
	const struct sigaction act = { .sa_handler = on_bus };
	const struct copy_plan plan = { .run = run };
	_cleanup_(close_fd) int fd = memfd_create("file", MFD_CLOEXEC);
	char *src = mmap(NULL, run, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *dst = malloc(run);

	/* The caller's thread copies the end. */
	lost = mmap(src, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
	ck_assert(dst && src != MAP_FAILED && lost == src);
	memset(dst, 1, run);
	sigaction(SIGBUS, &act, NULL);
	copy_plan_copy(&plan, dst, src, NULL);
	ck_assert(dst[0] == 0 && dst[run - 1] == 0);
	munmap(src, run);
	free(dst);
}
END_TEST

START_TEST(invalid_host_strides_are_refused)
{
	struct gpushm_array *a = array_of(&s, "uint8", 2, SHAPE(2, 2), NULL, 0);
	struct gpushm_array *one = array_of(&s, "uint8", 2, SHAPE(1, 2), NULL, 0);
	unsigned char bytes[4];

	ck_assert_int_eq(gpushm_copy_to_host(a, bytes, SHAPE(INT64_MAX, INT64_MAX)), -EINVAL);
	ck_assert_int_eq(gpushm_copy_to_host(a, bytes, SHAPE(INT64_MIN, 1)), -EINVAL);
	ck_assert_int_eq(gpushm_copy_to_host(a, bytes, SHAPE(INT64_MAX / 2 + 1, 1)), -EINVAL);
	ck_assert_int_eq(gpushm_copy_to_host(one, bytes, SHAPE(INT64_MIN, 1)), 0);
	gpushm_array_free(a);
	gpushm_array_free(one);
}
END_TEST

START_TEST(an_empty_copy_accepts_a_null_pointer)
{
	struct gpushm_array *empty = array_of(&s, "float32", 2, SHAPE(0, 4), NULL, 0);

	ck_assert_int_eq(gpushm_copy_to_host(empty, NULL, NULL), 0);
	ck_assert_int_eq(gpushm_copy_from_host(empty, NULL, SHAPE(INT64_MAX, 7)), 0);
	ck_assert_int_eq(gpushm_read(&s.buffer, BYTES, NULL, 0), 0);
	ck_assert_int_eq(gpushm_write(&s.buffer, 0, NULL, 0), 0);
	gpushm_array_free(empty);
}
END_TEST

START_TEST(a_copy_beyond_the_buffer_is_refused)
{
	unsigned char bytes[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };

	ck_assert_int_eq(gpushm_write(&s.buffer, BYTES - 8, bytes, 8), 0);
	ck_assert_int_eq(s.memory[BYTES - 1], 8);
	ck_assert_int_eq(gpushm_write(&s.buffer, BYTES - 7, bytes, 8), -ERANGE);
	ck_assert_int_eq(gpushm_write(&s.buffer, UINT64_MAX, bytes, 2), -ERANGE);
	ck_assert_int_eq(gpushm_read(&s.buffer, 8, bytes, UINT64_MAX), -ERANGE);
	ck_assert_int_eq(gpushm_read(&s.buffer, BYTES + 1, bytes, 0), -ERANGE);
	ck_assert_int_eq(gpushm_read(&s.buffer, BYTES - 4, bytes, 4), 0);
	ck_assert_int_eq(bytes[0], 5);
	ck_assert_int_eq(bytes[4], 5);
}
END_TEST

/* ---- the plan: its axes cost calls on a GPU ---- */

static void check_plan(int ndim, const int64_t *shape, const int64_t *dst, const int64_t *src,
		       int n_axes, size_t run)
{
	struct copy_plan w;

	ck_assert_int_eq(copy_plan_init(&w, ndim, shape, dst, src, 4), 0);
	ck_assert_int_eq(w.n_axes, n_axes);
	ck_assert_uint_eq(w.run, run);
}

START_TEST(axes_that_are_contiguous_in_memory_are_copied_at_once)
{
	check_plan(0, NULL, NULL, NULL, 0, 4);
	check_plan(3, SHAPE(2, 3, 4), SHAPE(48, 16, 4), SHAPE(48, 16, 4), 0, 96);
	check_plan(3, SHAPE(2, 3, 4), SHAPE(4, 8, 24), SHAPE(4, 8, 24), 0, 96);
	check_plan(3, SHAPE(2, 3, 4), SHAPE(48, 16, 4), SHAPE(480, 160, 4), 1, 16);
	check_plan(3, SHAPE(2, 3, 4), SHAPE(48, 16, 4), SHAPE(4, 8, 24), 3, 4);
	check_plan(2, SHAPE(3, 4), SHAPE(-16, -4), SHAPE(-16, -4), 0, 48);
	check_plan(2, SHAPE(3, 4), SHAPE(-16, 4), SHAPE(-16, 4), 0, 48);
	check_plan(2, SHAPE(3, 4), SHAPE(16, 4), SHAPE(-16, 4), 1, 16);
	check_plan(4, SHAPE(1, 3, 1, 4), SHAPE(1, 16, 1, 4), SHAPE(9, 16, 9, 4), 0, 48);
	check_plan(2, SHAPE(3, 4), SHAPE(0, 4), SHAPE(16, 4), 0, 16);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("copy");

	tcase_set_timeout(tc, 300);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_strided_copy_moves_the_same_bytes_as_the_slow_reference);
	tcase_add_test(tc, no_strides_mean_c_order);
	tcase_add_test(tc, a_broadcast_array_is_written_once);
	tcase_add_test(tc, the_last_of_overlapping_elements_wins);
	tcase_add_test(tc, a_read_only_array_refuses_writes);
	tcase_add_test(tc, a_packed_array_is_copied_as_exactly_its_bytes);
	tcase_add_test(tc, a_run_that_several_threads_copy_is_whole);
	tcase_add_test(tc, a_run_into_fresh_memory_is_whole);
	tcase_add_test(tc, a_fault_of_one_of_several_threads_reaches_the_programs_handler);
	tcase_add_test(tc, invalid_host_strides_are_refused);
	tcase_add_test(tc, an_empty_copy_accepts_a_null_pointer);
	tcase_add_test(tc, a_copy_beyond_the_buffer_is_refused);
	tcase_add_test(tc, axes_that_are_contiguous_in_memory_are_copied_at_once);
	return suite_run("copy", tc, NULL);
}
