/* SPDX-License-Identifier: MIT
 *
 * Which GPU, and in which context. A device is known by its UUID, as the daemon tells it; the
 * ordinal is this process's own affair (CUDA_VISIBLE_DEVICES renumbers and hides). Mapping vmm
 * memory needs no context; importing mempool pointers, copying and waiting do. Then the thread's
 * current context serves if it is of the device, else the device's primary one, which is the one
 * that the CUDA runtime, and with it every framework, works in.
 *
 * A primary context that we have retained is kept until the process's last connection ends, not
 * until the next release: if nobody else has it, the last release destroys it, and another one
 * costs 0.3 s.
 */
#include "client/map/context.h"

#include "client/base/error.h"
#include "client/base/process.h"
#include "proto/base/own.h"

#include <string.h>

#define DEVICES_MAX 64

static struct {
	CUcontext ctx;
	unsigned retains; /* to be released, one by one */
} primaries[DEVICES_MAX]; /* under state::context_lock */

static int find_ordinal(const struct cuda *cu, const unsigned char *uuid, int *ret)
{
	CUresult result;
	CUdevice dev;
	CUuuid it;
	int n = 0;

	result = cu->device_get_count(&n);
	if (result != CUDA_SUCCESS)
		return cuda_failed("cuDeviceGetCount", result);
	for (int i = 0; i < n && i < DEVICES_MAX; i++) {
		result = cu->device_get(&dev, i);
		if (result != CUDA_SUCCESS)
			return cuda_failed("cuDeviceGet", result);
		result = cu->device_get_uuid(&it, dev);
		if (result != CUDA_SUCCESS)
			return cuda_failed("cuDeviceGetUuid", result);
		if (memcmp(it.bytes, uuid, sizeof(it.bytes)) == 0) {
			*ret = i;
			return 0;
		}
	}
	return error_set(ENODEV,
			 "this process can't see the buffer's GPU among its %d: is it left "
			 "out of CUDA_VISIBLE_DEVICES?",
			 n);
}
_Static_assert(sizeof(((CUuuid *)0)->bytes) == UUID_BYTES, "a UUID is a UUID");

int map_device_ordinal(const unsigned char uuid[UUID_BYTES])
{
	const struct cuda *cu;
	int ordinal;

	return cuda_start(&cu) < 0 || find_ordinal(cu, uuid, &ordinal) < 0 ? -1 : ordinal;
}

uint64_t map_device_bytes(int device)
{
	const struct cuda *cu;
	size_t bytes = 0;
	CUdevice dev;

	if (cuda_start(&cu) < 0 || cu->device_get(&dev, device) != CUDA_SUCCESS ||
	    cu->device_total_mem(&bytes, dev) != CUDA_SUCCESS)
		return 0;
	return bytes;
}

static int check_peer(const struct cuda *cu, int owner, int device)
{
	CUdevice from, to;
	CUresult result;
	int can = 0;

	result = cu->device_get(&from, device);
	if (result != CUDA_SUCCESS || device >= DEVICES_MAX)
		return error_set(ENODEV, "this process has no GPU %d", device);
	result = cu->device_get(&to, owner);
	if (result != CUDA_SUCCESS)
		return cuda_failed("cuDeviceGet", result);
	result = cu->device_can_access_peer(&can, from, to);
	if (result != CUDA_SUCCESS)
		return cuda_failed("cuDeviceCanAccessPeer", result);
	if (!can)
		return error_set(ENODEV, "GPU %d has no peer access to the buffer's GPU %d", device,
				 owner);
	return 0;
}

int context_find_devices(const struct cuda *cu, const struct map_request *r, int *ret_owner,
			 int *ret_device)
{
	int owner, result;

	if (!r->pool->has_device)
		return error_set(EPROTO, "the daemon told no device of the buffer's pool");
	result = find_ordinal(cu, r->pool->device_uuid, &owner);
	if (result == 0 && r->device != GPUSHM_OWN_DEVICE && r->device != owner)
		result = check_peer(cu, owner, r->device);
	if (result < 0)
		return result;
	*ret_owner = owner;
	*ret_device = r->device == GPUSHM_OWN_DEVICE ? owner : r->device;
	return 0;
}

/* ---- contexts ---- */

/* The current context's ordinal, or -1. */
static int current_device(const struct cuda *cu)
{
	CUcontext ctx = NULL;
	CUdevice dev;

	if (cu->ctx_get_current(&ctx) != CUDA_SUCCESS || !ctx ||
	    cu->ctx_get_device(&dev) != CUDA_SUCCESS)
		return -1;
	/* In every driver so far a CUdevice is the ordinal that cuDeviceGet() was given. */
	return dev;
}

int context_current_device(const struct cuda *cu)
{
	int device = current_device(cu);

	return device < 0 ? 0 : device;
}

/* again: what was retained before is not good any more. */
static int primary(const struct cuda *cu, int device, bool again, CUcontext *ret)
{
	pthread_mutex_t *lock = &state()->context_lock;
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(lock);
	if (again || !primaries[device].ctx) {
		result = cu->primary_ctx_retain(&primaries[device].ctx, device);
		primaries[device].retains += result == CUDA_SUCCESS;
	}
	*ret = primaries[device].ctx;
	pthread_mutex_unlock(lock);
	return result == CUDA_SUCCESS ? 0 : cuda_failed("cuDevicePrimaryCtxRetain", result);
}

static void release_primaries(void)
{
	const struct cuda *cu;

	for (int i = 0; i < DEVICES_MAX; i++) {
		for (; primaries[i].retains > 0; primaries[i].retains--)
			if (cuda_start(&cu) == 0)
				cu->primary_ctx_release(i);
		primaries[i].ctx = NULL;
	}
}

void map_begin(void)
{
	struct state *s = state();

	pthread_mutex_lock(&s->context_lock);
	s->connections++;
	pthread_mutex_unlock(&s->context_lock);
}

/* Every use of a context is a buffer's, and every buffer holds its connection. */
void map_end(void)
{
	struct state *s = state();

	pthread_mutex_lock(&s->context_lock);
	if (--s->connections == 0)
		release_primaries();
	pthread_mutex_unlock(&s->context_lock);
}

static int push_primary(const struct cuda *cu, int device)
{
	CUcontext ctx;
	CUresult result;
	int r = primary(cu, device, false, &ctx);

	if (r < 0)
		return r;
	if (cu->ctx_push_current(ctx) == CUDA_SUCCESS)
		return 0;
	/* An application that resets the device (cuDevicePrimaryCtxReset, Numba's close()) destroys
	 * the context under us; retaining it makes another. */
	r = primary(cu, device, true, &ctx);
	if (r < 0)
		return r;
	result = cu->ctx_push_current(ctx);
	return result == CUDA_SUCCESS ? 0 : cuda_failed("cuCtxPushCurrent", result);
}

int context_enter(const struct cuda *cu, int device, struct map_entered *ret)
{
	bool push = current_device(cu) != device;
	int r = push ? push_primary(cu, device) : 0;

	if (r == 0)
		ret->pushed = push;
	return r;
}

void context_leave(const struct cuda *cu, const struct map_entered *e)
{
	CUcontext ctx;

	if (e->pushed)
		cu->ctx_pop_current(&ctx);
}

static int synchronize_primary(const struct cuda *cu, int device)
{
	const struct map_entered entered = { .pushed = true };
	unsigned int flags;
	CUresult result;
	int active = 0, r;

	/* What nobody has made has no work to wait for. */
	result = cu->primary_ctx_get_state(device, &flags, &active);
	if (result != CUDA_SUCCESS)
		return cuda_failed("cuDevicePrimaryCtxGetState", result);
	if (!active)
		return 0;
	r = push_primary(cu, device);
	if (r < 0)
		return r;
	result = cu->ctx_synchronize();
	context_leave(cu, &entered);
	return result == CUDA_SUCCESS ? 0 : cuda_failed("cuCtxSynchronize", result);
}

/* Known once we have retained it: a program that works in the primary context, as most do, waits
 * once and not twice. */
static bool is_primary_current(const struct cuda *cu, int device)
{
	pthread_mutex_t *lock = &state()->context_lock;
	CUcontext ctx = NULL, primary_ctx;

	pthread_mutex_lock(lock);
	primary_ctx = primaries[device].ctx;
	pthread_mutex_unlock(lock);
	return primary_ctx && cu->ctx_get_current(&ctx) == CUDA_SUCCESS && ctx == primary_ctx;
}

int context_synchronize(const struct cuda *cu, int device)
{
	bool current = current_device(cu) == device;
	CUresult result = current ? cu->ctx_synchronize() : CUDA_SUCCESS;

	if (result != CUDA_SUCCESS)
		return cuda_failed("cuCtxSynchronize", result);
	if (current && is_primary_current(cu, device))
		return 0;
	return synchronize_primary(cu, device);
}
