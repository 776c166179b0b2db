/* SPDX-License-Identifier: MIT
 *
 * The kernels, in PTX. The driver compiles them when they are loaded, so the tests are built
 * without a CUDA compiler.
 */
#include "tests/gpu/kernels.h"

#include <stddef.h>

/* For kernels (words, n, value, ...) whose threads share n words. After it, %first is the thread's
 * first word, %step leads to its next one, %end is behind the last, and %v is the value. */
#define SHARED_WORDS                                        \
	"	.reg .u64 %at, %first, %end, %step;\n"            \
	"	.reg .u32 %block, %thread, %size, %blocks, %v;\n" \
	"	.reg .pred %p;\n"                                 \
	"	ld.param.u64 %first, [words];\n"                  \
	"	ld.param.u64 %end, [n];\n"                        \
	"	ld.param.u32 %v, [value];\n"                      \
	"	shl.b64 %end, %end, 2;\n"                         \
	"	add.u64 %end, %end, %first;\n"                    \
	"	mov.u32 %block, %ctaid.x;\n"                      \
	"	mov.u32 %size, %ntid.x;\n"                        \
	"	mov.u32 %thread, %tid.x;\n"                       \
	"	mov.u32 %blocks, %nctaid.x;\n"                    \
	"	mad.lo.u32 %thread, %block, %size, %thread;\n"    \
	"	mad.wide.u32 %first, %thread, 4, %first;\n"       \
	"	mul.lo.u32 %blocks, %blocks, %size;\n"            \
	"	mul.wide.u32 %step, %blocks, 4;\n"

static const char kernels_ptx[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .entry store(.param .u64 address, .param .u32 value)\n"
	"{\n"
	"	.reg .u64 %a;\n"
	"	.reg .u32 %v;\n"
	"	ld.param.u64 %a, [address];\n"
	"	ld.param.u32 %v, [value];\n"
	"	st.global.u32 [%a], %v;\n"
	"	ret;\n"
	"}\n"
	/* for (;;)
	 *	for (i = thread; i < n; i += threads)
	 *		words[i] = value;
	 */
	".visible .entry scribble(.param .u64 words, .param .u64 n, .param .u32 value)\n"
	"{\n" SHARED_WORDS "again:\n"
	"	mov.u64 %at, %first;\n"
	"next:\n"
	"	setp.ge.u64 %p, %at, %end;\n"
	"	@%p bra again;\n"
	"	st.volatile.global.u32 [%at], %v;\n"
	"	add.u64 %at, %at, %step;\n"
	"	bra next;\n"
	"}\n"
	/* witness->started = 1;
	 * for (;;)
	 *	for (i = thread; i < n; i += threads)
	 *		if (words[i] != value)
	 *			witness->seen = words[i] | 1 << 31;
	 */
	".visible .entry watch(.param .u64 words, .param .u64 n, .param .u32 value,\n"
	"		       .param .u64 witness)\n"
	"{\n" SHARED_WORDS "	.reg .u64 %witness;\n"
	"	.reg .u32 %w;\n"
	"	.reg .pred %q;\n"
	"	ld.param.u64 %witness, [witness];\n"
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

#define SCRIBBLE_BLOCKS 528 /* four for each of an H200's 132 multiprocessors */
#define WATCH_BLOCKS 32
#define THREADS 256

bool kernels_load(struct driver *d)
{
	CUmodule module;

	if (!driver_has_kernels(d))
		return true;
	return d->module_load_data(&module, kernels_ptx) == CUDA_SUCCESS &&
	       d->module_get_function(&d->store, module, "store") == CUDA_SUCCESS &&
	       d->module_get_function(&d->scribble, module, "scribble") == CUDA_SUCCESS &&
	       d->module_get_function(&d->watch, module, "watch") == CUDA_SUCCESS &&
	       d->module_get_function(&d->fill_at, module, "fill_at") == CUDA_SUCCESS &&
	       d->module_get_function(&d->check_at, module, "check_at") == CUDA_SUCCESS;
}

static CUresult launch(const struct driver *d, CUfunction kernel, unsigned int blocks,
		       unsigned int threads, CUstream stream, void **params)
{
	return d->launch_kernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL);
}

CUresult kernel_store(const struct driver *d, CUdeviceptr address, unsigned int value)
{
	void *params[] = { &address, &value };
	CUresult r = launch(d, d->store, 1, 1, NULL, params);

	return r == CUDA_SUCCESS ? d->ctx_synchronize() : r;
}

CUresult kernel_scribble(const struct driver *d, CUdeviceptr words, uint64_t n, unsigned int value)
{
	void *params[] = { &words, &n, &value };

	return launch(d, d->scribble, SCRIBBLE_BLOCKS, THREADS, NULL, params);
}

CUresult kernel_watch(const struct driver *d, CUstream stream, CUdeviceptr words, uint64_t n,
		      unsigned int value, CUdeviceptr witness)
{
	void *params[] = { &words, &n, &value, &witness };

	return launch(d, d->watch, WATCH_BLOCKS, THREADS, stream, params);
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

static CUresult launch_one(const struct driver *d, CUfunction kernel, CUhostFn by_hand,
			   CUstream stream, CUdeviceptr state)
{
	void *params[] = { &state };

	if (!driver_has_kernels(d))
		return d->launch_host_func(stream, by_hand, (void *)(uintptr_t)state);
	return launch(d, kernel, 1, 1, stream, params);
}

CUresult kernel_fill_at(const struct driver *d, CUstream stream, CUdeviceptr state)
{
	return launch_one(d, d->fill_at, fill_by_hand, stream, state);
}

CUresult kernel_check_at(const struct driver *d, CUstream stream, CUdeviceptr state)
{
	return launch_one(d, d->check_at, check_by_hand, stream, state);
}
