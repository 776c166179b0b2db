/* SPDX-License-Identifier: MIT
 *
 * Strided copies by the driver. This file includes transfer.c, with its own map_copy() and
 * map_wait(): a device that is a block of memory, refuses what cuMemcpy2D refuses, does nothing
 * before it is waited for, as a stream may, and can fail at the n-th call.
 */
#define map_copy(copy, on) fake_copy(copy, on)
#define map_wait(on) fake_wait(on)
#include "client/lib/array/transfer.c"
#undef map_copy
#undef map_wait

#include "tests/lib/suite.h"
#include "tests/unit/lib/array_fixture.h"

#define DEVICE_BYTES (20 << 20)
#define WINDOW_BYTES (4 << 20) /* the memory of small arrays: comparing less is faster */
#define CALLS_MAX 65536

static unsigned char *device, *host, *device_before, *host_before;
static int stream; /* its address stands for a CUstream */
static struct map_copy queue[CALLS_MAX];
static size_t queued, compared;
static uint64_t calls, fail_at; /* 0: never */

static void setup(void)
{
	fds_mark();
	device = calloc(1, DEVICE_BYTES);
	device_before = calloc(1, DEVICE_BYTES);
	host = calloc(1, DEVICE_BYTES);
	host_before = calloc(1, DEVICE_BYTES);
	ck_assert(device && device_before && host && host_before);
	queued = calls = fail_at = 0;
	compared = DEVICE_BYTES;
}

static void teardown(void)
{
	free(device);
	free(device_before);
	free(host);
	free(host_before);
	fds_check();
}

/* ---- the driver ---- */

static void run_queue(void)
{
	for (size_t i = 0; i < queued; i++) {
		const struct map_copy *c = &queue[i];

		for (size_t row = 0; row < c->height; row++) {
			char *d = (char *)c->device + row * c->device_pitch;
			char *h = (char *)c->host + row * c->host_pitch;

			memcpy(c->to_host ? h : d, c->to_host ? d : h, c->width);
		}
	}
	queued = 0;
}

int fake_wait(void *on)
{
	ck_assert_ptr_eq(on, &stream);
	if (++calls == fail_at)
		return error_set(EIO, "cuStreamSynchronize: failed on purpose");
	run_queue();
	return 0;
}

static bool inside(const void *p, size_t bytes, const unsigned char *start)
{
	const unsigned char *at = p;

	return at >= start && at <= start + compared && bytes <= (size_t)(start + compared - at);
}

int fake_copy(const struct map_copy *c, void *on)
{
	size_t rows = c->height - 1;

	if (++calls == fail_at)
		return error_set(EIO, "cuMemcpy2DAsync: failed on purpose");
	if (on != &stream || c->width == 0 || c->height == 0)
		ck_abort_msg("a call of nothing, or on another stream");
	if (rows > 0 && (c->device_pitch < c->width || c->host_pitch < c->width))
		ck_abort_msg("a pitch that the driver refuses");
	if (!inside(c->device, rows * c->device_pitch + c->width, device))
		ck_abort_msg("a call outside of the device's memory");
	if (queued == CALLS_MAX)
		run_queue();
	queue[queued++] = *c;
	return 0;
}

/* ---- comparing ---- */

struct side {
	unsigned char *start;
	int64_t strides[GPUSHM_MAX_NDIM];
};

static void copy_slowly(int ndim, const int64_t *shape, const struct side *dst,
			const struct side *src, size_t itemsize)
{
	int64_t index[GPUSHM_MAX_NDIM] = { 0 };

	do
		memcpy(dst->start + address_of(ndim, dst->strides, index),
		       src->start + address_of(ndim, src->strides, index), itemsize);
	while (next_index(ndim, shape, index));
}

/* Copies, waits as a caller would, and compares all of both memories with the slow reference. */
static void check_copy(int ndim, const int64_t *shape, size_t itemsize, const struct side *d,
		       const struct side *h, bool to_host)
{
	struct side d2 = *d, h2 = *h;
	struct copy_plan w;

	memcpy(device_before, device, compared);
	memcpy(host_before, host, compared);
	d2.start = device_before + (d->start - device);
	h2.start = host_before + (h->start - host);
	copy_slowly(ndim, shape, to_host ? &h2 : &d2, to_host ? &d2 : &h2, itemsize);

	if (copy_plan_init(&w, ndim, shape, to_host ? h->strides : d->strides,
			   to_host ? d->strides : h->strides, itemsize) < 0 ||
	    transfer(&w, d->start, h->start, to_host, &stream) < 0)
		ck_abort_msg("transfer: %s", gpushm_error());
	run_queue();
	if (memcmp(device, device_before, compared) != 0)
		ck_abort_msg("the device has something else than the slow reference");
	if (memcmp(host, host_before, compared) != 0)
		ck_abort_msg("the host has something else than the slow reference");
}

/* Memory of one side: dense in a random order of the axes, with gaps, partly backwards; or with
 * any strides. */
static void random_side(unsigned char *memory, int ndim, const int64_t *shape, int64_t itemsize,
			struct side *ret)
{
	bool done[GPUSHM_MAX_NDIM] = { false }, tangled = random_in(0, 5) == 0;
	bool in_order = random_in(0, 1);
	int64_t stride = itemsize;

	ret->start = memory;
	for (int i = ndim - 1; i >= 0; i--) {
		int axis = in_order ? i : (int)random_in(0, ndim - 1);

		while (done[axis])
			axis = (axis + 1) % ndim;
		done[axis] = true;
		ret->strides[axis] = random_in(0, 3) == 0 ? -stride : stride;
		if (tangled)
			ret->strides[axis] = random_in(-3 * itemsize, 3 * itemsize);
		if (ret->strides[axis] < 0)
			ret->start -= ret->strides[axis] * (shape[axis] - 1);
		stride *= shape[axis];
		stride += random_in(0, 3) == 0 ? random_in(1, 3) * itemsize : 0;
	}
}

START_TEST(a_strided_transfer_moves_the_same_bytes_as_the_slow_reference)
{
	static const int64_t itemsizes[] = { 1, 2, 3, 4, 8, 16, 37 };

	random_start();
	compared = WINDOW_BYTES;
	random_fill(device, WINDOW_BYTES / 4);
	random_fill(host, WINDOW_BYTES / 4);
	for (int round = 0; round < 250; round++) {
		int64_t shape[5], itemsize = itemsizes[random_in(0, 6)];
		int ndim = (int)random_in(0, 5);
		struct side d, h;

		for (int i = 0; i < ndim; i++)
			shape[i] = random_in(1, random_in(0, 2) ? 4 : 9);
		random_side(device, ndim, shape, itemsize, &d);
		random_side(host, ndim, shape, itemsize, &h);
		check_copy(ndim, shape, (size_t)itemsize, &d, &h, true);
		random_fill(host, 4096);
		check_copy(ndim, shape, (size_t)itemsize, &d, &h, false);
	}
}
END_TEST

/* ---- the cost ---- */

struct cost {
	uint64_t to_host, to_device;
};

static struct cost cost_of(int ndim, const int64_t *shape, const struct side *d,
			   const struct side *h)
{
	struct cost cost;

	random_fill(device, 1 << 16);
	random_fill(host, 1 << 16);
	calls = 0;
	check_copy(ndim, shape, 4, d, h, true);
	cost.to_host = calls;
	random_fill(host, 1 << 16);
	calls = 0;
	check_copy(ndim, shape, 4, d, h, false);
	cost.to_device = calls;
	return cost;
}

START_TEST(rows_that_are_dense_on_the_device_cost_one_copy)
{
	struct side d = { device, { 4096, 4 } }, h = { host, { 4, 4000 } };
	struct cost c = cost_of(2, SHAPE(1000, 1024), &d, &h);

	/* One copy and one wait. */
	ck_assert_uint_eq(c.to_host, 2);
	ck_assert_uint_eq(c.to_device, 2);
}
END_TEST

START_TEST(rows_with_a_pitch_cost_one_call)
{
	struct side d = { device, { 8192, 4 } }, h = { host, { 4096, 4 } };
	struct cost c = cost_of(2, SHAPE(1000, 1024), &d, &h);

	ck_assert_uint_eq(c.to_host, 1);
	ck_assert_uint_eq(c.to_device, 1);
}
END_TEST

START_TEST(large_rows_that_are_backwards_are_copied_directly)
{
	struct side d = { device + 7 * (1 << 20), { -(1 << 20), 4 } };
	struct side h = { host, { 1 << 20, 4 } };
	struct cost c = cost_of(2, SHAPE(8, 1 << 18), &d, &h);

	ck_assert_uint_eq(c.to_host, 8);
	ck_assert_uint_eq(c.to_device, 8);
}
END_TEST

START_TEST(elements_that_are_backwards_cost_one_copy)
{
	struct side d = { device + 4 * 9999, { -4 } }, h = { host, { 4 } };
	struct cost c = cost_of(1, SHAPE(10000), &d, &h);

	ck_assert_uint_eq(c.to_host, 2);
	ck_assert_uint_eq(c.to_device, 2);
}
END_TEST

/* More than the buffer holds: the transfer copies it in parts, and waits for each before it uses
 * the buffer again. */
START_TEST(a_transfer_larger_than_the_buffer_moves_the_right_bytes)
{
	const int64_t n = DEVICE_BYTES / 4, half = n / 2;
	struct side d = { device, { 4 } }, h = { host + DEVICE_BYTES - 4, { -4 } };
	struct side back = { device + DEVICE_BYTES - 4, { -4 } }, forth = { host, { 4 } };
	struct side sparse = { device + DEVICE_BYTES - 4, { -8 } };
	struct side turned = { device, { 4, 4 * 2048 } }, rows = { host, { 4 * (n / 2048), 4 } };

	random_start();
	random_fill(device, DEVICE_BYTES);
	check_copy(1, &n, 4, &back, &forth, true);
	random_fill(host, DEVICE_BYTES);
	check_copy(1, &n, 4, &d, &h, false);
	check_copy(1, &half, 4, &sparse, &forth, true);
	check_copy(2, SHAPE(2048, n / 2048), 4, &turned, &rows, true);
	random_fill(host, DEVICE_BYTES);
	check_copy(2, SHAPE(2048, n / 2048), 4, &turned, &rows, false);
}
END_TEST

START_TEST(elements_far_apart_are_copied_without_the_bytes_between)
{
	struct side d = { device + 3 * (5 << 20), { -(5 << 20), 4 } }, h = { host, { 8, 4 } };
	struct cost c = cost_of(2, SHAPE(4, 2), &d, &h);

	ck_assert_uint_le(c.to_host, 4);
	ck_assert_uint_le(c.to_device, 4);
}
END_TEST

/* Copies that are still queued when a transfer ends use the caller's memory only. */
static void queue_is_the_callers(void)
{
	for (size_t i = 0; i < queued; i++) {
		const struct map_copy *c = &queue[i];

		ck_assert(inside(c->host, (c->height - 1) * c->host_pitch + c->width, host));
	}
	queued = 0;
}

/* Fails the n-th call for n = 1, 2, ... until none is left to fail. */
static uint64_t fail_each_call(const struct side *d, const struct side *h, int64_t n, bool to_host)
{
	struct copy_plan w;

	for (fail_at = 1;; fail_at++) {
		int r;

		ck_assert_int_eq(copy_plan_init(&w, 1, &n, to_host ? h->strides : d->strides,
						to_host ? d->strides : h->strides, 4),
				 0);
		calls = 0;
		r = transfer(&w, d->start, h->start, to_host, &stream);
		queued = 0;
		if (calls < fail_at) {
			ck_assert_int_eq(r, 0);
			return fail_at - 1;
		}
		ck_assert_int_eq(r, -EIO);
		ck_assert_ptr_nonnull(strstr(gpushm_error(), "on purpose"));
	}
}

START_TEST(a_failed_driver_call_is_reported_and_leaks_nothing)
{
	const int64_t n = DEVICE_BYTES / 4;
	struct side d = { device, { 4 } }, h = { host + DEVICE_BYTES - 4, { -4 } };
	struct side back = { device + DEVICE_BYTES - 4, { -4 } }, forth = { host, { 4 } };

	ck_assert_uint_eq(fail_each_call(&d, &h, n, false), 4);
	ck_assert_uint_eq(fail_each_call(&back, &forth, n, true), 4);
	ck_assert_uint_eq(fail_each_call(&d, &forth, n, true), 1);
}
END_TEST

START_TEST(calls_left_by_a_failed_one_read_only_the_callers_memory)
{
	const int64_t shape[] = { 3, 100000 };
	const int64_t to[] = { 1 << 20, 8 }, from[] = { 400000, -4 };
	struct copy_plan w;
	int r;

	for (fail_at = 1; fail_at <= 5; fail_at++) {
		ck_assert_int_eq(copy_plan_init(&w, 2, shape, to, from, 4), 0);
		calls = 0;
		r = transfer(&w, device, host + 400000, false, &stream);
		ck_assert_int_eq(r, fail_at <= 4 ? -EIO : 0);
		ck_assert(r == 0 || strstr(gpushm_error(), fail_at <= 3 ? "Memcpy" : "Stream"));
		if (fail_at != 4) /* a failed wait: copies may still be queued */
			queue_is_the_callers();
		queued = 0;
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("transfer");

	tcase_set_timeout(tc, 300);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_strided_transfer_moves_the_same_bytes_as_the_slow_reference);
	tcase_add_test(tc, rows_that_are_dense_on_the_device_cost_one_copy);
	tcase_add_test(tc, rows_with_a_pitch_cost_one_call);
	tcase_add_test(tc, large_rows_that_are_backwards_are_copied_directly);
	tcase_add_test(tc, elements_that_are_backwards_cost_one_copy);
	tcase_add_test(tc, a_transfer_larger_than_the_buffer_moves_the_right_bytes);
	tcase_add_test(tc, elements_far_apart_are_copied_without_the_bytes_between);
	tcase_add_test(tc, a_failed_driver_call_is_reported_and_leaks_nothing);
	tcase_add_test(tc, calls_left_by_a_failed_one_read_only_the_callers_memory);
	return suite_run("transfer", tc, NULL);
}
