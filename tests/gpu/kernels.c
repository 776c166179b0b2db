/* SPDX-License-Identifier: MIT
 *
 * The driver's table for streams, and three kernels in PTX.
 */
#include "tests/gpu/stream_driver.h"

#include "proto/base/libcuda.h"
#include "proto/base/own.h"

#include <stddef.h>

static const char kernels_ptx[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	/* witness->started = 1;
	 * for (;;)
	 *	for (i = thread; i < n; i += threads)
	 *		if (words[i] != value)
	 *			witness->seen = words[i] | 1 << 31;
	 */
	".visible .entry watch(.param .u64 words, .param .u64 n,\n"
	"		       .param .u32 value, .param .u64 witness)\n"
	"{\n"
	"	.reg .u64 %at, %first, %end, %step, %witness;\n"
	"	.reg .u32 %block, %thread, %size, %blocks, %v, %w;\n"
	"	.reg .pred %p, %q;\n"
	"	ld.param.u64 %first, [words];\n"
	"	ld.param.u64 %end, [n];\n"
	"	ld.param.u32 %v, [value];\n"
	"	ld.param.u64 %witness, [witness];\n"
	"	shl.b64 %end, %end, 2;\n"
	"	add.u64 %end, %end, %first;\n"
	"	mov.u32 %block, %ctaid.x;\n"
	"	mov.u32 %size, %ntid.x;\n"
	"	mov.u32 %thread, %tid.x;\n"
	"	mov.u32 %blocks, %nctaid.x;\n"
	"	mad.lo.u32 %thread, %block, %size, %thread;\n"
	"	mad.wide.u32 %first, %thread, 4, %first;\n"
	"	mul.lo.u32 %blocks, %blocks, %size;\n"
	"	mul.wide.u32 %step, %blocks, 4;\n"
	"	st.volatile.global.u32 [%witness+4], 1;\n"
	"again:\n"
	"	mov.u64 %at, %first;\n"
	"next:\n"
	"	setp.ge.u64 %p, %at, %end;\n"
	"	@%p bra again;\n"
	"	ld.volatile.global.u32 %w, [%at];\n"
	"	setp.ne.u32 %q, %w, %v;\n"
	"	or.b32 %w, %w, 0x80000000;\n"
	"	@%q st.volatile.global.u32 [%witness], %w;\n"
	"	add.u64 %at, %at, %step;\n"
	"	bra next;\n"
	"}\n"
	/* v = ++state->launches; for (i = 0; i < state->words; i++) state->at[i] = v; */
	".visible .entry fill_at(.param .u64 state)\n"
	"{\n"
	"	.reg .u64 %s, %at;\n"
	"	.reg .u32 %v, %n;\n"
	"	.reg .pred %p;\n"
	"	ld.param.u64 %s, [state];\n"
	"	ld.global.u64 %at, [%s];\n"
	"	ld.global.u32 %v, [%s+8];\n"
	"	ld.global.u32 %n, [%s+16];\n"
	"	add.u32 %v, %v, 1;\n"
	"	st.global.u32 [%s+8], %v;\n"
	"next:\n"
	"	setp.eq.u32 %p, %n, 0;\n"
	"	@%p bra done;\n"
	"	st.global.u32 [%at], %v;\n"
	"	add.u64 %at, %at, 4;\n"
	"	sub.u32 %n, %n, 1;\n"
	"	bra next;\n"
	"done:\n"
	"	ret;\n"
	"}\n"
	/* v = ++state->launches; for (...) if (state->at[i] != v) state->bad++; */
	".visible .entry check_at(.param .u64 state)\n"
	"{\n"
	"	.reg .u64 %s, %at;\n"
	"	.reg .u32 %v, %n, %w, %bad;\n"
	"	.reg .pred %p, %q;\n"
	"	ld.param.u64 %s, [state];\n"
	"	ld.global.u64 %at, [%s];\n"
	"	ld.global.u32 %v, [%s+8];\n"
	"	ld.global.u32 %bad, [%s+12];\n"
	"	ld.global.u32 %n, [%s+16];\n"
	"	add.u32 %v, %v, 1;\n"
	"	st.global.u32 [%s+8], %v;\n"
	"next:\n"
	"	setp.eq.u32 %p, %n, 0;\n"
	"	@%p bra done;\n"
	"	ld.volatile.global.u32 %w, [%at];\n"
	"	setp.ne.u32 %q, %w, %v;\n"
	"	@%q add.u32 %bad, %bad, 1;\n"
	"	add.u64 %at, %at, 4;\n"
	"	sub.u32 %n, %n, 1;\n"
	"	bra next;\n"
	"done:\n"
	"	st.global.u32 [%s+12], %bad;\n"
	"	ret;\n"
	"}\n";
_Static_assert(offsetof(struct graph_state, launches) == 8 &&
		       offsetof(struct graph_state, bad) == 12 &&
		       offsetof(struct graph_state, words) == 16 &&
		       offsetof(struct witness, started) == 4,
	       "what the kernels read");

#define BLOCKS 32
#define THREADS 256

#define CALL(member, symbol)                                    \
	{                                                       \
#symbol, offsetof(struct stream_driver, member) \
	}

static const struct libcuda_symbol symbols[] = {
	CALL(stream_create, cuStreamCreate),
	CALL(stream_destroy, cuStreamDestroy_v2),
	CALL(stream_query, cuStreamQuery),
	CALL(wait_value, cuStreamWaitValue64_v2),
	CALL(memset_d32_async, cuMemsetD32Async),
	CALL(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2),
	CALL(launch_host_func, cuLaunchHostFunc),
	CALL(begin_capture, cuStreamBeginCapture_v2),
	CALL(end_capture, cuStreamEndCapture),
	CALL(graph_instantiate, cuGraphInstantiateWithFlags),
	CALL(graph_launch, cuGraphLaunch),
	CALL(graph_exec_destroy, cuGraphExecDestroy),
	CALL(graph_destroy, cuGraphDestroy),
	CALL(host_pointer, cuMemHostGetDevicePointer_v2),
};

static bool load_kernels(struct stream_driver *d)
{
	const struct driver *b = &d->base;
	CUmodule module;

	return b->module_load_data(&module, kernels_ptx) == CUDA_SUCCESS &&
	       b->module_get_function(&d->watch, module, "watch") == CUDA_SUCCESS &&
	       b->module_get_function(&d->fill_at, module, "fill_at") == CUDA_SUCCESS &&
	       b->module_get_function(&d->check_at, module, "check_at") == CUDA_SUCCESS;
}

bool stream_driver_open(struct stream_driver *d)
{
	char why[256];

	*d = (struct stream_driver){ 0 };
	if (!driver_open(&d->base, 0) ||
	    !libcuda_load(symbols, array_size(symbols), d, why, sizeof(why)))
		return false;
	return !driver_has_kernels(&d->base) || load_kernels(d);
}

CUresult stream_driver_watch(const struct stream_driver *d, CUstream stream, CUdeviceptr words,
			     uint64_t n, unsigned int value, CUdeviceptr witness)
{
	void *params[] = { &words, &n, &value, &witness };

	return d->base.launch_kernel(d->watch, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, params,
				     NULL);
}

/* ---- the work of graphs ---- */

/* The fake driver's device memory is the CPU's, too. */
static void fill_by_hand(void *argument)
{
	struct graph_state *state = argument;
	uint32_t *words = (uint32_t *)(uintptr_t)state->at;

	state->launches++;
	for (uint32_t i = 0; i < state->words; i++)
		words[i] = state->launches;
}

static void check_by_hand(void *argument)
{
	struct graph_state *state = argument;
	const uint32_t *words = (const uint32_t *)(uintptr_t)state->at;

	state->launches++;
	for (uint32_t i = 0; i < state->words; i++)
		state->bad += words[i] != state->launches;
}

static CUresult launch_one(const struct stream_driver *d, CUfunction kernel, CUhostFn by_hand,
			   CUstream stream, CUdeviceptr state)
{
	void *params[] = { &state };

	if (!driver_has_kernels(&d->base))
		return d->launch_host_func(stream, by_hand, (void *)(uintptr_t)state);
	return d->base.launch_kernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

CUresult stream_driver_fill_at(const struct stream_driver *d, CUstream stream, CUdeviceptr state)
{
	return launch_one(d, d->fill_at, fill_by_hand, stream, state);
}

CUresult stream_driver_check_at(const struct stream_driver *d, CUstream stream, CUdeviceptr state)
{
	return launch_one(d, d->check_at, check_by_hand, stream, state);
}
