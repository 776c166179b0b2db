/* SPDX-License-Identifier: MIT
 *
 * Strided copies on every pool of the machine, by the CPU or by the driver: sliced and transposed
 * arrays, to and from host memory with gaps and another order, compared with a copy element by
 * element. The other bytes of the buffer must not change.
 */
#include "client/gpushm_query.h"
#include "proto/base/own.h"
#include "tests/lib/daemon.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define ROWS 96
#define COLUMNS 160
#define ELEMENTS (ROWS * COLUMNS)
#define BYTES (ELEMENTS * 4)

static struct daemon d;
static struct gpushm *c;
static struct gpushm_pool **pools;
static size_t n_pools;

static struct gpushm_buffer *b;
static struct gpushm_array *whole; /* uint32, ROWS x COLUMNS */

static void open_buffer(const char *pool)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_array_spec spec = { .struct_size = sizeof(spec),
					  .name = "",
					  .ndim = 2,
					  .shape = (const int64_t[]){ ROWS, COLUMNS } };

	ck_assert_int_eq(gpushm_dtype_parse("uint32", &spec.dtype), 0);
	ck_assert_msg(gpushm_create_arrays(c, "~/copies", &spec, 1, &o, &b) == 0, "%s",
		      gpushm_error());
	ck_assert_int_eq(gpushm_array_get(b, "", &whole), 0);
}

static void close_buffer(void)
{
	whole = gpushm_array_free(whole);
	ck_assert_msg(gpushm_close(take_ptr(b)) >= 0, "%s", gpushm_error());
}

static void setup(void)
{
	daemon_start(&d, "", NULL);
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_pools(c, &pools, &n_pools), 0);
	/* A driver opens fds when it is first used, and keeps them. */
	for (size_t i = 0; i < n_pools; i++) {
		if (pools[i]->failed)
			continue;
		open_buffer(pools[i]->name);
		close_buffer();
	}
	fds_mark();
}

static void teardown(void)
{
	fds_check();
	pools = gpushm_free(pools);
	c = gpushm_disconnect(c);
	daemon_stop(&d);
}

static void on_every_pool(void (*test)(void))
{
	for (size_t i = 0; i < n_pools; i++) {
		if (pools[i]->failed)
			continue;
		open_buffer(pools[i]->name);
		test();
		close_buffer();
	}
}

/* ---- views and what is in them ---- */

/* whole[rows][columns], each a slice, transposed or not. */
struct cut {
	int64_t from[2], to[2], step[2];
	int turned;
};

#define ALL GPUSHM_SLICE_NONE

static const struct cut cuts[] = {
	{ { ALL, ALL }, { ALL, ALL }, { 1, 1 }, 0 },  { { ALL, ALL }, { ALL, ALL }, { 1, 1 }, 1 },
	{ { 3, 5 }, { 60, 77 }, { 1, 1 }, 0 },	      { { ALL, ALL }, { ALL, ALL }, { -1, 1 }, 0 },
	{ { ALL, ALL }, { ALL, ALL }, { 1, -1 }, 0 }, { { ALL, ALL }, { ALL, ALL }, { -1, -1 }, 1 },
	{ { ALL, ALL }, { ALL, ALL }, { 2, 3 }, 0 },  { { ALL, 1 }, { ALL, ALL }, { -3, 2 }, 1 },
	{ { ALL, 7 }, { ALL, 8 }, { 1, 1 }, 0 },      { { 9, ALL }, { 10, ALL }, { 1, -2 }, 0 },
	{ { 50, 50 }, { 50, ALL }, { 1, 1 }, 0 },
};

static struct gpushm_array *cut_out(const struct cut *cut)
{
	struct gpushm_array *rows = NULL, *both = NULL, *turned = NULL;

	ck_assert_int_eq(gpushm_array_slice(whole, 0, cut->from[0], cut->to[0], cut->step[0],
					    &rows),
			 0);
	ck_assert_int_eq(gpushm_array_slice(rows, 1, cut->from[1], cut->to[1], cut->step[1], &both),
			 0);
	gpushm_array_free(rows);
	if (!cut->turned)
		return both;
	ck_assert_int_eq(gpushm_array_transpose(both, NULL, &turned), 0);
	gpushm_array_free(both);
	return turned;
}

/* Host memory of the array's shape, in row or column order, with gaps or without. */
static void host_strides(const struct gpushm_array *a, int way, int64_t *ret)
{
	int64_t rows = gpushm_array_dim(a, 0), columns = gpushm_array_dim(a, 1);

	ret[0] = way & 1 ? 4 : 4 * columns + (way & 2 ? 12 : 0);
	ret[1] = way & 1 ? 4 * rows + (way & 2 ? 12 : 0) : 4;
}

static uint32_t *element(uint32_t *start, const int64_t *strides, int64_t i, int64_t j)
{
	return (uint32_t *)((char *)start + i * strides[0] + j * strides[1]);
}

static void copy_slowly(const struct gpushm_array *a, uint32_t *dst, const int64_t *dst_strides,
			uint32_t *src, const int64_t *src_strides)
{
	for (int64_t i = 0; i < gpushm_array_dim(a, 0); i++)
		for (int64_t j = 0; j < gpushm_array_dim(a, 1); j++)
			*element(dst, dst_strides, i, j) = *element(src, src_strides, i, j);
}

/* ---- the tests ---- */

static uint32_t memory[ELEMENTS], host[2 * ELEMENTS], expected[2 * ELEMENTS];

static void fill(uint32_t *words, size_t n, uint32_t salt)
{
	for (size_t i = 0; i < n; i++)
		words[i] = (uint32_t)(i * 2654435761u) ^ salt;
}

static void check_to_host(const struct gpushm_array *a, const int64_t *strides, int async)
{
	fill(host, 2 * ELEMENTS, 77);
	memcpy(expected, host, sizeof(expected));
	copy_slowly(a, expected, strides, memory + gpushm_array_offset(a) / 4,
		    gpushm_array_strides(a));
	if (async)
		ck_assert_msg(gpushm_copy_to_host_async(a, host, strides, NULL) == 0, "%s",
			      gpushm_error());
	else
		ck_assert_msg(gpushm_copy_to_host(a, host, strides) == 0, "%s", gpushm_error());
	/* A copy on the default stream comes after all earlier work, and this one waits. */
	ck_assert_int_eq(gpushm_read(b, 0, &(char){ 0 }, 1), 0);
	ck_assert(memcmp(host, expected, sizeof(expected)) == 0);
}

static void check_from_host(struct gpushm_array *a, const int64_t *strides, int async,
			    uint32_t salt)
{
	fill(host, 2 * ELEMENTS, salt);
	copy_slowly(a, memory + gpushm_array_offset(a) / 4, gpushm_array_strides(a), host, strides);
	if (async)
		ck_assert_msg(gpushm_copy_from_host_async(a, host, strides, NULL) == 0, "%s",
			      gpushm_error());
	else
		ck_assert_msg(gpushm_copy_from_host(a, host, strides) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_read(b, 0, expected, BYTES), 0);
	ck_assert(memcmp(memory, expected, BYTES) == 0);
}

static void copy_all_cuts(void)
{
	int64_t strides[2];

	fill(memory, ELEMENTS, 5);
	ck_assert_int_eq(gpushm_write(b, 0, memory, BYTES), 0);
	for (size_t i = 0; i < array_size(cuts); i++) {
		struct gpushm_array *a = cut_out(&cuts[i]);

		for (int way = 0; way < 8; way++) {
			host_strides(a, way & 3, strides);
			check_to_host(a, strides, way & 4);
			check_from_host(a, strides, way & 4, (uint32_t)(1000 * i) + way);
		}
		gpushm_array_free(a);
	}
}

START_TEST(a_strided_copy_moves_the_right_bytes_on_each_pool)
{
	on_every_pool(copy_all_cuts);
}
END_TEST

static void touch_read_only(void)
{
	uint32_t word = 1;

	ck_assert_int_eq(gpushm_write(b, 0, &word, 4), 0);
	ck_assert_msg(gpushm_publish(b, GPUSHM_SEALED) == 0, "%s", gpushm_error());
	word = 2;
	ck_assert_int_eq(gpushm_copy_from_host(whole, memory, NULL), -EROFS);
	ck_assert_int_eq(gpushm_write(b, 0, &word, 4), -EROFS);
	ck_assert_int_eq(gpushm_array_read_only(whole), 1);
	ck_assert_int_eq(gpushm_read(b, 0, &word, 4), 0);
	ck_assert_uint_eq(word, 1);
	ck_assert_int_eq(gpushm_unlink(c, "~/copies"), 0);
}

START_TEST(a_copy_into_a_sealed_buffer_is_refused)
{
	on_every_pool(touch_read_only);
}
END_TEST

static void check_tensor_device(void)
{
	enum gpushm_kind kind = gpushm_buffer_kind(b);
	int type, id;

	gpushm_array_dlpack_device(whole, &type, &id);
	ck_assert_int_eq(type, kind == GPUSHM_HOST ? 1 : kind == GPUSHM_PINNED ? 3 : 2);
	ck_assert_int_eq(id, type == 2 ? gpushm_buffer_device(b) : 0);
	ck_assert(gpushm_array_device_ptr(whole) || kind == GPUSHM_HOST);
	ck_assert(gpushm_array_host_ptr(whole) || type == 2);
}

START_TEST(a_tensor_is_on_the_device_of_its_pool)
{
	on_every_pool(check_tensor_device);
}
END_TEST

/* ---- many copies, between buffers ---- */

static struct gpushm_buffer *other;
static struct gpushm_array *others; /* as whole, in another buffer */

static void *address(const struct gpushm_array *a)
{
	void *p = gpushm_array_device_ptr(a);

	return p ? p : gpushm_array_host_ptr(a);
}

/* The cut of `whole` and that of `others`, which has other strides: one of them is transposed. */
static void make_pair(const struct cut *cut, struct gpushm_array *of[2])
{
	struct cut turned = *cut;
	struct gpushm_array *mine = whole, *back = NULL;

	of[0] = cut_out(cut);
	turned.turned = !cut->turned;
	whole = others;
	back = cut_out(&turned);
	whole = mine;
	ck_assert_int_eq(gpushm_array_transpose(back, NULL, &of[1]), 0);
	gpushm_array_free(back);
}

static void copy_pair(int out, uint32_t flags)
{
	static uint32_t theirs[ELEMENTS];
	struct gpushm_array *pairs[array_size(cuts)][2];
	struct gpushm_copy copies[array_size(cuts)];

	fill(memory, ELEMENTS, 5);
	fill(theirs, ELEMENTS, 6);
	ck_assert_int_eq(gpushm_write(b, 0, memory, BYTES), 0);
	ck_assert_int_eq(gpushm_write(other, 0, theirs, BYTES), 0);
	for (size_t i = 0; i < array_size(cuts); i++) {
		struct gpushm_array **p = pairs[i];
		uint32_t *at[2];

		make_pair(&cuts[i], p);
		at[0] = memory + gpushm_array_offset(p[0]) / 4;
		at[1] = theirs + gpushm_array_offset(p[1]) / 4;
		copy_slowly(p[0], at[out], gpushm_array_strides(p[out]), at[!out],
			    gpushm_array_strides(p[!out]));
		copies[i] = (struct gpushm_copy){ .struct_size = sizeof(struct gpushm_copy),
						  .array = p[0],
						  .memory = address(p[1]),
						  .strides = gpushm_array_strides(p[1]),
						  .device = gpushm_buffer_device(other),
						  .flags = out ? GPUSHM_COPY_OUT : 0 };
	}
	ck_assert_msg(gpushm_copy_many(copies, array_size(cuts), flags, NULL) == 0, "%s",
		      gpushm_error());
	ck_assert_int_eq(gpushm_read(b, 0, expected, BYTES), 0);
	ck_assert(memcmp(memory, expected, BYTES) == 0);
	ck_assert_int_eq(gpushm_read(other, 0, expected, BYTES), 0);
	ck_assert(memcmp(theirs, expected, BYTES) == 0);
	for (size_t i = 0; i < array_size(cuts); i++) {
		gpushm_array_free(pairs[i][0]);
		gpushm_array_free(pairs[i][1]);
	}
}

static void copy_from_every_pool(void)
{
	for (size_t i = 0; i < n_pools; i++) {
		struct gpushm_create_options o = { .struct_size = sizeof(o),
						   .pool = pools[i]->name };

		if (pools[i]->failed)
			continue;
		ck_assert_int_eq(gpushm_create(c, "~/other", BYTES, &o, &other), 0);
		ck_assert_int_eq(gpushm_array_over(other,
						   &(struct gpushm_array_spec){
							   .struct_size =
								   sizeof(struct gpushm_array_spec),
							   .dtype = gpushm_array_dtype(whole),
							   .ndim = 2,
							   .shape = gpushm_array_shape(whole) },
						   &others),
				 0);
		for (int way = 0; way < 4; way++)
			copy_pair(way & 1, way & 2 ? GPUSHM_COPY_ASYNC : 0);
		gpushm_array_free(others);
		ck_assert_int_eq(gpushm_discard(other), 0);
	}
}

START_TEST(a_copy_between_pools_moves_the_right_bytes)
{
	on_every_pool(copy_from_every_pool);
}
END_TEST

/* Too large for the memory on the host through which a transposed array goes: in parts. */
static void copy_large(void)
{
	enum { N = 5000, M = 4096 };
	struct gpushm_create_options o = { .struct_size = sizeof(o),
					   .pool = gpushm_buffer_pool(b) };
	const int64_t shape[] = { N, M }, turned[] = { 1, N };
	struct gpushm_array_spec spec = {
		.struct_size = sizeof(spec), .name = "", .ndim = 2, .shape = shape
	};
	unsigned char *bytes = malloc(N * M), *got = malloc(N * M);
	struct gpushm_buffer *from = NULL, *to = NULL;
	struct gpushm_array *a = NULL;
	struct gpushm_copy one;

	for (int i = 0; i < N * M; i++)
		bytes[i] = (unsigned char)(i * 31 + i / 251);
	ck_assert_int_eq(gpushm_dtype_parse("uint8", &spec.dtype), 0);
	ck_assert_int_eq(gpushm_create(c, "~/from", N * M, &o, &from), 0);
	ck_assert_int_eq(gpushm_write(from, 0, bytes, N * M), 0);
	ck_assert_int_eq(gpushm_create_arrays(c, "~/to", &spec, 1, &o, &to), 0);
	ck_assert_int_eq(gpushm_array_get(to, "", &a), 0);
	one = (struct gpushm_copy){ .struct_size = sizeof(struct gpushm_copy),
				    .array = a,
				    .memory = gpushm_buffer_device_ptr(from),
				    .strides = turned,
				    .device = gpushm_buffer_device(from) };
	if (!one.memory)
		one.memory = gpushm_buffer_host_ptr(from);
	ck_assert_msg(gpushm_copy_many(&one, 1, 0, NULL) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_read(to, 0, got, N * M), 0);
	for (int i = 0; i < N; i++)
		for (int j = 0; j < M; j++)
			if (got[i * M + j] != bytes[j * N + i])
				ck_abort_msg("[%d, %d]", i, j);
	gpushm_array_free(a);
	ck_assert_int_eq(gpushm_discard(to), 0);
	ck_assert_int_eq(gpushm_discard(from), 0);
	free(bytes);
	free(got);
}

START_TEST(a_large_transposed_copy_moves_the_right_bytes)
{
	on_every_pool(copy_large);
}
END_TEST

/* whole[1:] = whole[:-1], the other way round, and whole[::-1] = whole. */
static void copy_what_overlaps(void)
{
	static const struct cut to[] = { { { 1, ALL }, { ALL, ALL }, { 1, 1 }, 0 },
					 { { ALL, ALL }, { -1, ALL }, { 1, 1 }, 0 },
					 { { ALL, ALL }, { ALL, ALL }, { -1, -1 }, 0 } };
	static const struct cut from[] = { { { ALL, ALL }, { -1, ALL }, { 1, 1 }, 0 },
					   { { 1, ALL }, { ALL, ALL }, { 1, 1 }, 0 },
					   { { ALL, ALL }, { ALL, ALL }, { 1, 1 }, 0 } };

	for (size_t i = 0; i < array_size(to); i++) {
		struct gpushm_array *dst = cut_out(&to[i]), *src = cut_out(&from[i]);
		struct gpushm_copy one = { .struct_size = sizeof(one),
					   .array = dst,
					   .memory = address(src),
					   .strides = gpushm_array_strides(src),
					   .device = gpushm_buffer_device(b) };

		fill(memory, ELEMENTS, 5);
		fill(host, ELEMENTS, 5);
		ck_assert_int_eq(gpushm_write(b, 0, memory, BYTES), 0);
		copy_slowly(dst, memory + gpushm_array_offset(dst) / 4, gpushm_array_strides(dst),
			    host + gpushm_array_offset(src) / 4, gpushm_array_strides(src));
		ck_assert_msg(gpushm_copy_many(&one, 1, 0, NULL) == 0, "%s", gpushm_error());
		ck_assert_int_eq(gpushm_read(b, 0, expected, BYTES), 0);
		ck_assert(memcmp(memory, expected, BYTES) == 0);
		gpushm_array_free(dst);
		gpushm_array_free(src);
	}
}

START_TEST(an_overlapping_copy_moves_the_original_bytes)
{
	on_every_pool(copy_what_overlaps);
}
END_TEST

static void give_bad_copies(void)
{
	struct gpushm_copy bad[] = {
		{ .struct_size = sizeof(*bad),
		  .array = whole,
		  .memory = memory,
		  .device = -1,
		  .flags = 2 },
		{ .struct_size = sizeof(*bad), .array = whole, .memory = memory, .device = -2 },
		{ .struct_size = sizeof(*bad), .array = whole, .memory = memory, .device = 64 },
		{ .struct_size = sizeof(*bad), .memory = memory, .device = -1 },
	};

	for (size_t i = 0; i < array_size(bad); i++)
		ck_assert_int_eq(gpushm_copy_many(&bad[i], 1, 0, NULL), -EINVAL);
	ck_assert_int_eq(gpushm_copy_many(bad, 0, 2, NULL), -EINVAL);
	ck_assert_int_eq(gpushm_copy_many(NULL, 0, 0, NULL), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	bad[0].flags = 0;
	ck_assert_int_eq(gpushm_copy_many(bad, 1, 0, NULL), -EROFS);
	bad[0].flags = GPUSHM_COPY_OUT;
	ck_assert_int_eq(gpushm_copy_many(bad, 1, 0, NULL), 0);
	ck_assert_int_eq(gpushm_unlink(c, "~/copies"), 0);
}

START_TEST(a_wrong_copy_is_refused)
{
	on_every_pool(give_bad_copies);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("every pool");

	/* Of the fake driver: pools on two GPUs. */
	setenv("FAKECUDA_DEVICES", "2", 1);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 300);
	tcase_add_test(t, a_strided_copy_moves_the_right_bytes_on_each_pool);
	tcase_add_test(t, a_copy_into_a_sealed_buffer_is_refused);
	tcase_add_test(t, a_tensor_is_on_the_device_of_its_pool);
	tcase_add_test(t, a_copy_between_pools_moves_the_right_bytes);
	tcase_add_test(t, a_large_transposed_copy_moves_the_right_bytes);
	tcase_add_test(t, an_overlapping_copy_moves_the_original_bytes);
	tcase_add_test(t, a_wrong_copy_is_refused);
	return suite_run("copies", t, NULL);
}
