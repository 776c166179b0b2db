/* SPDX-License-Identifier: MIT
 *
 * The driver calls of libgpushm-load. Its table is its own: libgpushm exports none of its driver
 * functions. The primary context is the one that libgpushm and every framework use, so retaining it
 * here costs nothing where they have it already.
 */
#include "client/models/copy/gpu.h"

#include "client/gpushm_private.h"
#include "client/models/copy/pages.h"
#include "client/models/locks.h"
#include "proto/base/libcuda.h"
#include "proto/base/own.h"

#include <ctype.h>
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* member, symbol */
#define CALLS(X)                                             \
	X(init, cuInit)                                      \
	X(get_error_name, cuGetErrorName)                    \
	X(device_get, cuDeviceGet)                           \
	X(device_get_pci_bus_id, cuDeviceGetPCIBusId)        \
	X(primary_ctx_retain, cuDevicePrimaryCtxRetain)      \
	X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2) \
	X(ctx_push_current, cuCtxPushCurrent_v2)             \
	X(ctx_pop_current, cuCtxPopCurrent_v2)               \
	X(mem_host_register, cuMemHostRegister_v2)           \
	X(mem_host_unregister, cuMemHostUnregister)          \
	X(stream_create, cuStreamCreate)                     \
	X(stream_destroy, cuStreamDestroy_v2)                \
	X(stream_synchronize, cuStreamSynchronize)           \
	X(event_create, cuEventCreate)                       \
	X(event_destroy, cuEventDestroy_v2)                  \
	X(event_record, cuEventRecord)                       \
	X(event_synchronize, cuEventSynchronize)             \
	X(memcpy_htod_async, cuMemcpyHtoDAsync_v2)           \
	X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2)

struct cuda {
	CALLS(LIBCUDA_MEMBER)
};

static struct cuda cuda; /* written under lock, once */
static atomic_bool loaded;
/* Never held during a call that takes long: a child of fork() would find it locked for ever. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct gpu {
	CUdevice device;
	CUcontext _Atomic context; /* another one after a reset */
	atomic_uint retains;	   /* to be released, one by one */
};

struct gpu_queue {
	CUstream stream;
	CUevent *marks; /* owned; n_marks of them */
	unsigned n_marks;
};

static int check(const char *call, CUresult result)
{
	const char *name = NULL;
	int number = EIO;

	if (result == CUDA_SUCCESS)
		return 0;
	cuda.get_error_name(result, &name);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		number = ENOMEM;
	if (result == CUDA_ERROR_NO_DEVICE || result == CUDA_ERROR_INVALID_DEVICE ||
	    result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_DEVICE_UNAVAILABLE)
		number = ENODEV;
	return gpushm_private_fail(number, "%s: %s", call,
				   name ? name : "an error that the driver has no name for");
}

static int load(void)
{
	static const struct libcuda_symbol symbols[] = { CALLS(LIBCUDA_SYMBOL) };
	struct cuda found;
	char why[256] = "";

	if (!libcuda_load(symbols, array_size(symbols), &found, why, sizeof(why)))
		return gpushm_private_fail(ENODEV, "%s", why);
	lock_take(&lock, LOCK_DRIVER);
	if (!loaded)
		cuda = found;
	loaded = true;
	lock_drop(&lock);
	return 0;
}

static int start(void)
{
	int r = loaded ? 0 : load();

	return r < 0 ? r : check("cuInit", cuda.init(0));
}

/* ---- the context ---- */

static int retain(struct gpu *g)
{
	CUcontext context = NULL;
	CUresult result = cuda.primary_ctx_retain(&context, g->device);

	if (result == CUDA_SUCCESS) {
		g->context = context;
		g->retains++;
	}
	return check("cuDevicePrimaryCtxRetain", result);
}

int gpu_enter(struct gpu *g)
{
	int r;

	if (cuda.ctx_push_current(g->context) == CUDA_SUCCESS)
		return 0;
	/* An application that resets the device (cuDevicePrimaryCtxReset) destroys the context
	 * while we use it; retaining it makes another. */
	r = retain(g);
	return r < 0 ? r : check("cuCtxPushCurrent", cuda.ctx_push_current(g->context));
}

void gpu_leave(void)
{
	CUcontext context;

	cuda.ctx_pop_current(&context);
}

int gpu_open(int device, struct gpu **ret)
{
	_cleanup_(free_ptr) struct gpu *g = calloc(1, sizeof(*g));
	int r = start();

	if (r < 0)
		return r;
	if (!g)
		return gpushm_private_fail(ENOMEM, "out of memory for a GPU");
	r = check("cuDeviceGet", cuda.device_get(&g->device, device));
	if (r == 0)
		r = retain(g);
	if (r == 0)
		*ret = take_ptr(g);
	return r;
}

struct gpu *gpu_close(struct gpu *g)
{
	for (; g && g->retains > 0; g->retains--)
		cuda.primary_ctx_release(g->device);
	free(g);
	return NULL;
}

/* ---- processors ---- */

/* "0-15,32-47\n" */
static void parse_list(const char *text, cpu_set_t *ret)
{
	unsigned from, to;
	int n;

	CPU_ZERO(ret);
	while (sscanf(text, "%u%n", &from, &n) == 1) {
		text += n;
		to = from;
		if (*text == '-' && sscanf(text, "-%u%n", &to, &n) == 1)
			text += n;
		for (; from <= to && from < CPU_SETSIZE; from++)
			CPU_SET(from, ret);
		text += *text == ',';
	}
}

/* Reads a line of what the kernel says about the device. */
static bool read_property(struct gpu *g, const char *property, char *ret, int size)
{
	char id[32], path[96];
	FILE *file;
	bool found;

	if (cuda.device_get_pci_bus_id(id, sizeof(id), g->device) != CUDA_SUCCESS)
		return false;
	/* The kernel has small letters in its names. */
	for (char *p = id; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", id, property);
	file = fopen(path, "re");
	if (!file)
		return false;
	found = fgets(ret, size, file) != NULL;
	fclose(file);
	return found;
}

bool gpu_processors(struct gpu *g, cpu_set_t *ret)
{
	cpu_set_t near, mine;
	char line[1024];

	if (!read_property(g, "local_cpulist", line, sizeof(line)) ||
	    sched_getaffinity(0, sizeof(mine), &mine) < 0)
		return false;
	parse_list(line, &near);
	CPU_AND(ret, &near, &mine);
	return CPU_COUNT(ret) > 0;
}

int gpu_node(struct gpu *g)
{
	char line[32];

	return read_property(g, "numa_node", line, sizeof(line)) ? atoi(line) : -1;
}

/* ---- memory ---- */

/* The driver's own cuMemHostAlloc() takes 50 ms for the slots of a load; this takes 6. */
int gpu_pin(struct gpu *g, size_t bytes, void **ret)
{
	cpu_set_t near;
	void *at = pages_new(bytes, gpu_processors(g, &near) ? &near : NULL);
	int r;

	if (!at)
		return gpushm_private_fail(ENOMEM, "out of memory for %zu bytes to be pinned",
					   bytes);
	r = gpu_enter(g);
	/* Portable: every context may copy from it, which a buffer that is mapped for a peer needs.
	 */
	if (r == 0) {
		r = check("cuMemHostRegister",
			  cuda.mem_host_register(at, bytes, CU_MEMHOSTREGISTER_PORTABLE));
		gpu_leave();
	}
	if (r < 0)
		pages_free(at, bytes);
	else
		*ret = at;
	return r;
}

void gpu_unpin(struct gpu *g, void *memory, size_t bytes)
{
	CUresult result;

	/* What can't be unpinned stays: the driver may use it. */
	if (!memory || gpu_enter(g) < 0)
		return;
	result = cuda.mem_host_unregister(memory);
	/* A reset of the device has unpinned it. */
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
		pages_free(memory, bytes);
	gpu_leave();
}

/* ---- queues ---- */

static void queue_close(struct gpu_queue *q)
{
	for (; q->n_marks > 0; q->n_marks--)
		cuda.event_destroy(q->marks[q->n_marks - 1]);
	if (q->stream)
		cuda.stream_destroy(q->stream);
	free(q->marks);
	free(q);
}

int gpu_queue_reserve(struct gpu_queue *q, unsigned marks)
{
	CUevent *all;
	int r = 0;

	if (marks <= q->n_marks)
		return 0;
	all = realloc(q->marks, marks * sizeof(*all));
	if (!all)
		return gpushm_private_fail(ENOMEM, "out of memory for a queue of copies");
	q->marks = all;
	for (; r == 0 && q->n_marks < marks; q->n_marks += r == 0)
		r = check("cuEventCreate",
			  cuda.event_create(&q->marks[q->n_marks],
					    CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
	return r;
}

int gpu_queue_new(unsigned marks, struct gpu_queue **ret)
{
	struct gpu_queue *q = calloc(1, sizeof(*q));
	int r;

	if (!q)
		return gpushm_private_fail(ENOMEM, "out of memory for a queue of copies");
	/* Non-blocking: it does not wait for the legacy default stream of the application. */
	r = check("cuStreamCreate", cuda.stream_create(&q->stream, CU_STREAM_NON_BLOCKING));
	if (r == 0)
		r = gpu_queue_reserve(q, marks);
	if (r < 0)
		queue_close(q);
	else
		*ret = q;
	return r;
}

void gpu_queue_free(struct gpu *g, struct gpu_queue *q)
{
	bool entered = q && gpu_enter(g) == 0;

	if (q)
		queue_close(q);
	if (entered)
		gpu_leave();
}

int gpu_copy_to_device(struct gpu_queue *q, uint64_t device, const void *host, size_t bytes)
{
	return check("cuMemcpyHtoDAsync", cuda.memcpy_htod_async(device, host, bytes, q->stream));
}

int gpu_copy_to_host(struct gpu_queue *q, void *host, uint64_t device, size_t bytes)
{
	return check("cuMemcpyDtoHAsync", cuda.memcpy_dtoh_async(host, device, bytes, q->stream));
}

int gpu_mark(struct gpu_queue *q, unsigned mark)
{
	return check("cuEventRecord", cuda.event_record(q->marks[mark], q->stream));
}

int gpu_wait(struct gpu_queue *q, unsigned mark)
{
	return check("cuEventSynchronize", cuda.event_synchronize(q->marks[mark]));
}

int gpu_drain(struct gpu_queue *q)
{
	return check("cuStreamSynchronize", cuda.stream_synchronize(q->stream));
}
