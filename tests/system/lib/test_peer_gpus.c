/* SPDX-License-Identifier: MIT
 *
 * Buffers that one process uses from two GPUs, over the fake driver: from the memory's own GPU, and
 * from a peer GPU that has access to it. vmm and pinned memory is mapped once for each GPU, mempool
 * memory once for both.
 */
#include "client/gpushm.h"
#include "proto/base/own.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/lib/client.h"
#include "tests/lib/suite.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define FLOATS 100

static void *driver;
static fakecuda_calls_fn *calls; /* NULL: no fake driver */

static void setup(void)
{
	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	calls = driver ? (fakecuda_calls_fn *)dlsym(driver, "fakecuda_calls") : NULL;
	setenv("FAKECUDA_DEVICES", "2", 1);
	daemon_start(&d, "", NULL);
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
}

static void make(const char *pool)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	const int64_t shape[] = { FLOATS };
	struct gpushm_array_spec spec = {
		.struct_size = sizeof(spec), .name = "", .ndim = 1, .shape = shape
	};
	struct gpushm_buffer *b = NULL;

	gpushm_dtype_parse("float32", &spec.dtype);
	ck_assert_msg(gpushm_create_arrays(c, "x", &spec, 1, &o, &b) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
}

/* Opens the buffer for this GPU, or for the memory's own, and queues work there. */
static struct gpushm_buffer *open_for(int device)
{
	struct gpushm_open_options o = { .struct_size = sizeof(o), .device = device };
	struct gpushm_buffer *b = NULL;
	float value = 1;

	o.flags = device == GPUSHM_OWN_DEVICE ? 0 : GPUSHM_SET_DEVICE;
	ck_assert_msg(gpushm_open(c, "x", GPUSHM_WRITE, 0, &o, &b) == 0, "%s", gpushm_error());
	ck_assert_msg(gpushm_write(b, 0, &value, sizeof(value)) == 0, "%s", gpushm_error());
	return b;
}

static int told_to_consumers(struct gpushm_buffer *b)
{
	struct gpushm_array *a = NULL;
	int type, id;

	ck_assert_int_eq(gpushm_array_get(b, "", &a), 0);
	gpushm_array_dlpack_device(a, &type, &id);
	gpushm_array_free(a);
	return id;
}

static unsigned long close_and_count(struct gpushm_buffer *b)
{
	unsigned long before = calls("cuCtxSynchronize");

	ck_assert_msg(gpushm_close(b) == 0, "%s", gpushm_error());
	return calls("cuCtxSynchronize") - before;
}

static void use_from_both(const char *pool, int first, int second, bool one_map)
{
	struct gpushm_buffer *a, *b;

	make(pool);
	a = open_for(first);
	b = open_for(second);
	ck_assert_int_eq(told_to_consumers(a), first == 1);
	ck_assert_int_eq(told_to_consumers(b), second == 1);
	ck_assert_int_eq(gpushm_buffer_device(b), 0);
	/* A GPU that shares the map could go on writing to memory that belongs to another buffer by
	 * then. */
	ck_assert_uint_eq(close_and_count(a), one_map ? 2 : 1);
	ck_assert_uint_eq(close_and_count(b), one_map ? 2 : 1);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
}

START_TEST(each_gpu_is_named_and_a_close_waits_for_it)
{
	static const int pairs[][2] = { { GPUSHM_OWN_DEVICE, 1 },
					{ 1, GPUSHM_OWN_DEVICE },
					{ 0, 1 } };

	if (!calls) {
		printf("skipped: needs the fake driver\n");
		return;
	}
	for (int i = 0; i < 3; i++) {
		use_from_both("gpu0", pairs[i][0], pairs[i][1], false);
		use_from_both("gpu0-mempool", pairs[i][0], pairs[i][1], true);
	}
}
END_TEST

/* The thread works on that GPU until leave(), as after torch.cuda.set_device(). */
static void enter(int device)
{
	int (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
	int (*push)(void *) = dlsym(driver, "cuCtxPushCurrent_v2");
	void *ctx; /* a CUcontext */

	ck_assert_int_eq(retain(&ctx, device), 0);
	ck_assert_int_eq(push(ctx), 0);
}

static void leave(int device)
{
	int (*release)(int) = dlsym(driver, "cuDevicePrimaryCtxRelease_v2");
	int (*pop)(void **) = dlsym(driver, "cuCtxPopCurrent_v2");
	void *ctx; /* a CUcontext */

	ck_assert_int_eq(pop(&ctx), 0);
	ck_assert_int_eq(release(device), 0);
}

/* The GPU that DLPack tells. */
static int opened_for_current(void)
{
	struct gpushm_buffer *b = open_for(GPUSHM_CURRENT_DEVICE);
	int device = told_to_consumers(b);

	ck_assert_int_eq(gpushm_close(b), 0);
	return device;
}

START_TEST(a_buffer_is_opened_for_the_current_gpu)
{
	static const char *const pools[] = { "gpu0", "gpu0-mempool", "gpu1" };

	if (!calls) {
		printf("skipped: needs the fake driver\n");
		return;
	}
	for (size_t i = 0; i < array_size(pools); i++) {
		make(pools[i]);
		ck_assert_int_eq(gpushm_current_device(), -1);
		ck_assert_int_eq(opened_for_current(), 0);
		enter(1);
		ck_assert_int_eq(gpushm_current_device(), 1);
		ck_assert_int_eq(opened_for_current(), 1);
		leave(1);
		ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	}
	make("host");
	enter(1);
	ck_assert_int_eq(opened_for_current(), 0); /* the id of every CPU */
	leave(1);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("peer_gpus");

	tcase_add_checked_fixture(t, setup, client_teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, each_gpu_is_named_and_a_close_waits_for_it);
	tcase_add_test(t, a_buffer_is_opened_for_the_current_gpu);
	return suite_run("peer_gpus", t, NULL);
}
