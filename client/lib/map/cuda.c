/* SPDX-License-Identifier: MIT
 *
 * The client's table of driver calls. The library is loaded when the first GPU buffer is opened, so
 * that a process with host pools only never pays for it, and is never unloaded.
 *
 * CUDA does not survive a fork (CUDA C Programming Guide, "Multi-process": a child must not use
 * what its parent initialised): where the parent had started CUDA here, the child gets this error
 * instead.
 */
#include "client/lib/map/cuda.h"

#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "client/lib/base/process.h"
#include "proto/base/own.h"

static const struct libcuda_symbol symbols[] = { CUDA_CALLS(CUDA_SYMBOL) },
				   stream_symbols[] = { CUDA_STREAM_CALLS(CUDA_SYMBOL) },
				   newer_symbols[] = { CUDA_NEWER_CALLS(CUDA_SYMBOL) };

struct cuda cuda;		    /* under process::cuda_lock until it is loaded */
static bool loaded;		    /* likewise */
static char no_streams[256];	    /* likewise; why not; "": the driver has all their calls */
static int n_devices;		    /* likewise; after cuInit */
static _Atomic uint64_t started_in; /* process_generation() where cuInit was called; 0 */

static int load(void)
{
	char why[256];

	loaded = libcuda_load(symbols, array_size(symbols), &cuda, why, sizeof(why));
	if (!loaded)
		return error_set(ENODEV, "%s", why);
	libcuda_load(newer_symbols, array_size(newer_symbols), &cuda, why, sizeof(why));
	libcuda_load(stream_symbols, array_size(stream_symbols), &cuda, no_streams,
		     sizeof(no_streams));
	return 0;
}

static int start(uint64_t generation)
{
	int r = loaded ? 0 : load();

	if (r < 0)
		return r;
	if (cuda_try(cuInit, 0) < 0 || cuda_try(cuDeviceGetCount, &n_devices) < 0)
		return -ENODEV;
	started_in = generation;
	return 0;
}

int cuda_start(void)
{
	struct process *p = process();
	uint64_t generation = process_generation();

	if (generation == 0)
		return error_set(ENOMEM, "out of memory for the driver");
	if (started_in == generation)
		return 0;
	if (started_in != 0)
		return error_set(ENODEV, "CUDA was started before fork() and can't be used in the "
					 "child: fork first, or exec");
	lock_guard(&p->cuda_lock, LOCK_CUDA);
	return started_in == generation ? 0 : start(generation);
}

bool cuda_is_started(void)
{
	return started_in != 0 && started_in == process_generation();
}

int cuda_devices(void)
{
	return n_devices;
}

int cuda_check_streams(void)
{
	return no_streams[0] ? error_set(ENOTSUP, "streams: %s", no_streams) : 0;
}

int cuda_check(const char *call, CUresult result)
{
	if (result == CUDA_SUCCESS)
		return 0;
	return error_set(cuda_errno(result), "%s: %s", call,
			 cuda_error_name(cuda.cuGetErrorName, result));
}
