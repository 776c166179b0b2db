/* SPDX-License-Identifier: MIT
 *
 * A kernel that goes through memory once: each thread adds one to every n-th group of four words.
 * It is PTX, which the driver compiles when it is loaded, so that building needs no compiler.
 */
#include "proto/base/own.h"
#include "tests/bench/gpu.h"
#include "tests/bench/gpu_driver.h"

#define BLOCKS 1024u
#define THREADS 256u

static const char sweep_ptx[] = ".version 7.0\n"
				".target sm_70\n"
				".address_size 64\n"
				".visible .entry sweep(.param .u64 first, .param .u64 count)\n"
				"{\n"
				"	.reg .pred %p;\n"
				"	.reg .u32 %b, %n, %t, %i, %step, %x, %y, %z, %w;\n"
				"	.reg .u64 %at, %count, %wide, %stride, %bytes, %first;\n"
				"	ld.param.u64 %first, [first];\n"
				"	ld.param.u64 %count, [count];\n"
				"	mov.u32 %b, %ctaid.x;\n"
				"	mov.u32 %n, %ntid.x;\n"
				"	mov.u32 %t, %tid.x;\n"
				"	mad.lo.u32 %i, %b, %n, %t;\n"
				"	cvt.u64.u32 %wide, %i;\n"
				"	mov.u32 %b, %nctaid.x;\n"
				"	mul.lo.u32 %step, %b, %n;\n"
				"	cvt.u64.u32 %stride, %step;\n"
				"again:\n"
				"	setp.ge.u64 %p, %wide, %count;\n"
				"	@%p bra done;\n"
				"	shl.b64 %bytes, %wide, 4;\n"
				"	add.u64 %at, %first, %bytes;\n"
				"	ld.global.v4.u32 {%x, %y, %z, %w}, [%at];\n"
				"	add.u32 %x, %x, 1;\n"
				"	add.u32 %y, %y, 1;\n"
				"	add.u32 %z, %z, 1;\n"
				"	add.u32 %w, %w, 1;\n"
				"	st.global.v4.u32 [%at], {%x, %y, %z, %w};\n"
				"	add.u64 %wide, %wide, %stride;\n"
				"	bra again;\n"
				"done:\n"
				"	ret;\n"
				"}\n";

static CUfunction sweep;

static bool load(void)
{
	CUmodule module;

	if (!driver_has_kernels(&gpu))
		return false;
	GPU_MUST(gpu.module_load_data(&module, sweep_ptx));
	GPU_MUST(gpu.module_get_function(&sweep, module, "sweep"));
	return true;
}

bool gpu_sweep(uint64_t ptr, uint64_t bytes)
{
	uint64_t count = bytes / 16;
	void *params[] = { &ptr, &count };

	if (!sweep && !load())
		return false;
	GPU_MUST(gpu.launch_kernel(sweep, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
	GPU_MUST(gpu.ctx_synchronize());
	return true;
}
