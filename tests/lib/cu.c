/* SPDX-License-Identifier: MIT
 *
 * The calls are looked up at run time, so that no test program needs the driver to start.
 */
#include "tests/lib/cu.h"

#include <check.h>
#include <dlfcn.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>

struct cu cu;
atomic_bool cu_gate_open;

static const struct {
	const char *name;
	size_t at; /* in struct cu */
} calls[] = {
	{ "cuInit", offsetof(struct cu, init) },
	{ "cuDevicePrimaryCtxRetain", offsetof(struct cu, retain) },
	{ "cuDevicePrimaryCtxRelease_v2", offsetof(struct cu, release) },
	{ "cuCtxPushCurrent_v2", offsetof(struct cu, push) },
	{ "cuCtxPopCurrent_v2", offsetof(struct cu, pop) },
	{ "cuStreamCreate", offsetof(struct cu, create) },
	{ "cuStreamDestroy_v2", offsetof(struct cu, destroy) },
	{ "cuStreamQuery", offsetof(struct cu, query) },
	{ "cuStreamSynchronize", offsetof(struct cu, synchronize) },
	{ "cuLaunchHostFunc", offsetof(struct cu, host_function) },
	{ "cuMemsetD32Async", offsetof(struct cu, fill) },
	{ "cuMemcpyDtoHAsync_v2", offsetof(struct cu, to_host) },
	{ "cuStreamBeginCapture_v2", offsetof(struct cu, begin_capture) },
	{ "cuStreamEndCapture", offsetof(struct cu, end_capture) },
	{ "cuGraphInstantiateWithFlags", offsetof(struct cu, instantiate) },
	{ "cuGraphLaunch", offsetof(struct cu, launch) },
	{ "cuGraphExecDestroy", offsetof(struct cu, exec_destroy) },
	{ "cuGraphDestroy", offsetof(struct cu, graph_destroy) },
};

void cu_load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	ck_assert_ptr_nonnull(library);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		void *symbol = dlsym(library, calls[i].name);

		ck_assert_msg(symbol != NULL, "%s", calls[i].name);
		memcpy((char *)&cu + calls[i].at, &symbol, sizeof(symbol));
	}
}

void cu_enter(void)
{
	void *context;

	cu_gate_open = false;
	ck_assert_int_eq(cu.init(0), 0);
	ck_assert_int_eq(cu.retain(&context, 0), 0);
	ck_assert_int_eq(cu.push(context), 0);
}

void cu_leave(void)
{
	void *context;

	cu.pop(&context);
	cu.release(0);
}

static void wait_at_gate(void *unused)
{
	while (!cu_gate_open)
		poll(NULL, 0, 1);
}

void cu_work(void *stream)
{
	ck_assert_int_eq(cu.host_function(stream, wait_at_gate, NULL), 0);
}

static void *open_gate(void *unused)
{
	poll(NULL, 0, 30);
	cu_gate_open = true;
	return NULL;
}

pthread_t cu_open_gate_later(void)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, open_gate, NULL), 0);
	return thread;
}
