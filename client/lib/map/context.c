/* SPDX-License-Identifier: MIT
 *
 * Which GPU, and in which context. The daemon names a device by its UUID; the ordinal is valid in
 * this process only (CUDA_VISIBLE_DEVICES renumbers and hides GPUs). Mapping vmm memory needs no
 * context. Importing mempool pointers, copying and waiting do: they use the thread's current
 * context if it is of the device, else the device's primary one, which the CUDA runtime, and with
 * it every framework, uses.
 *
 * A primary context that is retained here is kept until the process's last connection ends. If
 * nobody else has retained it, the last release destroys it, and a new one costs 0.3 s.
 */
#include "client/lib/map/cuda.h"

#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "client/lib/base/process.h"

#include <string.h>

#define DEVICES_MAX 64

static struct {
	CUcontext ctx;
	unsigned retains; /* to be released, one by one */
} primaries[DEVICES_MAX]; /* under process::context_lock */

static int find_ordinal(const unsigned char *uuid, int *ret)
{
	CUdevice dev;
	CUuuid it;
	int n = cuda_devices(), r = 0;

	for (int i = 0; r == 0 && i < n && i < DEVICES_MAX; i++) {
		r = cuda_try(cuDeviceGet, &dev, i);
		if (r == 0)
			r = cuda_try(cuDeviceGetUuid, &it, dev);
		if (r == 0 && memcmp(it.bytes, uuid, sizeof(it.bytes)) == 0) {
			*ret = i;
			return 0;
		}
	}
	if (r < 0)
		return r;
	return error_set(ENODEV,
			 "this process can't see the buffer's GPU among its %d: is it left out of "
			 "CUDA_VISIBLE_DEVICES?",
			 n);
}
_Static_assert(sizeof(((CUuuid *)0)->bytes) == UUID_BYTES, "a UUID is a UUID");

int map_device_ordinal(const unsigned char uuid[UUID_BYTES])
{
	int ordinal;

	return cuda_start() < 0 || find_ordinal(uuid, &ordinal) < 0 ? -1 : ordinal;
}

uint64_t map_device_bytes(int device)
{
	size_t bytes = 0;
	CUdevice dev;

	if (cuda_start() < 0 || cuda.cuDeviceGet(&dev, device) != CUDA_SUCCESS ||
	    cuda.cuDeviceTotalMem(&bytes, dev) != CUDA_SUCCESS)
		return 0;
	return bytes;
}

int context_check_peer(int owner, int device)
{
	CUdevice from, to;
	int can = 0, r;

	if (cuda.cuDeviceGet(&from, device) != CUDA_SUCCESS || device >= DEVICES_MAX)
		return error_set(ENODEV, "this process has no GPU %d", device);
	r = cuda_try(cuDeviceGet, &to, owner);
	if (r == 0)
		r = cuda_try(cuDeviceCanAccessPeer, &can, from, to);
	if (r == 0 && !can)
		return error_set(ENODEV, "GPU %d has no peer access to the buffer's GPU %d", device,
				 owner);
	return r;
}

int context_find_devices(const struct map_request *r, int *ret_owner, int *ret_device)
{
	int owner, device = r->device, result = cuda_start();

	if (result < 0)
		return result;
	if (!r->pool->has_device)
		return error_set(EPROTO, "the daemon sent no device of the buffer's pool");
	result = find_ordinal(r->pool->device_uuid, &owner);
	if (device == GPUSHM_OWN_DEVICE)
		device = owner;
	else if (device == GPUSHM_CURRENT_DEVICE)
		device = context_current_device();
	if (result == 0 && device != owner)
		result = context_check_peer(owner, device);
	if (result < 0)
		return result;
	*ret_owner = owner;
	*ret_device = device;
	return 0;
}

/* ---- contexts ---- */

/* The current context's ordinal, or -1. */
static int current_device(void)
{
	CUcontext ctx = NULL;
	CUdevice dev;

	if (cuda.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx ||
	    cuda.cuCtxGetDevice(&dev) != CUDA_SUCCESS)
		return -1;
	/* In every driver so far a CUdevice is the ordinal that cuDeviceGet() was given. */
	return dev;
}

int gpushm_current_device(void)
{
	return cuda_is_started() ? current_device() : -1;
}

int context_current_device(void)
{
	int device = current_device();

	return device < 0 ? 0 : device;
}

/* again: retain anew, the context that was retained before is destroyed. */
static int primary(int device, bool again, CUcontext *ret)
{
	pthread_mutex_t *lock = &process()->context_lock;
	CUresult result = CUDA_SUCCESS;

	lock_take(lock, LOCK_CONTEXTS);
	if (again || !primaries[device].ctx) {
		result = cuda.cuDevicePrimaryCtxRetain(&primaries[device].ctx, device);
		primaries[device].retains += result == CUDA_SUCCESS;
		process()->has_contexts = true;
	}
	*ret = primaries[device].ctx;
	lock_drop(lock);
	return cuda_check("cuDevicePrimaryCtxRetain", result);
}

void context_release_all(void)
{
	/* A forked child has its parent's numbers here, and no driver: cuda_start() refuses. */
	for (int i = 0; i < DEVICES_MAX; i++) {
		for (; primaries[i].retains > 0; primaries[i].retains--)
			if (cuda_start() == 0)
				cuda.cuDevicePrimaryCtxRelease(i);
		primaries[i].ctx = NULL;
	}
}

static int push_primary(int device)
{
	CUcontext ctx;
	int r = primary(device, false, &ctx);

	if (r < 0 || cuda.cuCtxPushCurrent(ctx) == CUDA_SUCCESS)
		return r;
	/* An application that resets the device (cuDevicePrimaryCtxReset, Numba's close()) destroys
	 * the context while we use it; retaining it makes another. */
	r = primary(device, true, &ctx);
	return r < 0 ? r : cuda_try(cuCtxPushCurrent, ctx);
}

int map_enter(int device, struct map_entered *ret)
{
	bool push;
	int r = device < 0 ? 0 : cuda_start();

	*ret = (struct map_entered){ 0 };
	if (device < 0 || r < 0)
		return r;
	push = current_device() != device;
	r = push ? push_primary(device) : 0;
	ret->pushed = push && r == 0;
	return r;
}

void map_leave(struct map_entered *e)
{
	CUcontext ctx;

	if (e->pushed)
		cuda.cuCtxPopCurrent(&ctx);
	e->pushed = false;
}

static int synchronize_primary(int device)
{
	struct map_entered entered = { .pushed = true };
	unsigned int flags;
	int active = 0;
	int r = cuda_try(cuDevicePrimaryCtxGetState, device, &flags, &active);

	/* A context that does not exist has no work to wait for. */
	if (r < 0 || !active)
		return r;
	r = push_primary(device);
	if (r < 0)
		return r;
	r = cuda_try(cuCtxSynchronize);
	map_leave(&entered);
	return r;
}

/* Known once it is retained here. A program that works in the primary context, as most do, then
 * waits once and not twice. */
static bool is_primary_current(int device)
{
	pthread_mutex_t *lock = &process()->context_lock;
	CUcontext ctx = NULL, primary_ctx;

	lock_take(lock, LOCK_CONTEXTS);
	primary_ctx = primaries[device].ctx;
	lock_drop(lock);
	return primary_ctx && cuda.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS && ctx == primary_ctx;
}

int context_synchronize(int device)
{
	bool current = current_device() == device;
	int r = current ? cuda_try(cuCtxSynchronize) : 0;

	if (r < 0 || (current && is_primary_current(device)))
		return r;
	return synchronize_primary(device);
}
