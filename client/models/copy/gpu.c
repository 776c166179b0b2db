/* SPDX-License-Identifier: MIT
 *
 * The driver calls of libgpushm-load. Its table is its own: libgpushm exports none of its driver
 * functions. The primary context is the one that libgpushm and every framework use, so retaining it
 * here costs nothing where they have it already.
 */
#include "client/models/copy/gpu.h"

#include "client/gpushm_private.h"
#include "client/models/crew.h"
#include "client/models/locks.h"
#include "proto/base/cuda_table.h"
#include "proto/base/huge_pages.h"
#include "proto/base/own.h"

#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* clang-format off */
#define CUDA_CALLS(X) \
	X(cuInit) X(cuGetErrorName) X(cuDeviceGet) X(cuDeviceGetPCIBusId) \
	X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuCtxPushCurrent) \
	X(cuCtxPopCurrent) X(cuMemHostRegister) X(cuMemHostUnregister) X(cuStreamCreate) \
	X(cuStreamDestroy) X(cuStreamSynchronize) X(cuEventCreate) X(cuEventDestroy) \
	X(cuEventRecord) X(cuEventSynchronize) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync)
/* clang-format on */

struct cuda {
	CUDA_CALLS(CUDA_MEMBER)
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
	if (result == CUDA_SUCCESS)
		return 0;
	return gpushm_private_fail(cuda_errno(result), "%s: %s", call,
				   cuda_error_name(cuda.cuGetErrorName, result));
}

/* cuda_try(cuEventRecord, mark, stream): calls it, and checks the result. */
#define cuda_try(call, ...) check(#call, cuda.call(__VA_ARGS__))

static int load(void)
{
	static const struct libcuda_symbol symbols[] = { CUDA_CALLS(CUDA_SYMBOL) };
	struct cuda found;
	char why[256] = "";

	if (!libcuda_load(symbols, array_size(symbols), &found, why, sizeof(why)))
		return gpushm_private_fail(ENODEV, "%s", why);
	lock_guard(&lock, LOCK_DRIVER);
	if (!loaded)
		cuda = found;
	loaded = true;
	return 0;
}

static int start(void)
{
	int r = loaded ? 0 : load();

	return r < 0 ? r : cuda_try(cuInit, 0);
}

/* ---- the context ---- */

static int retain(struct gpu *g)
{
	CUcontext context = NULL;
	CUresult result = cuda.cuDevicePrimaryCtxRetain(&context, g->device);

	if (result == CUDA_SUCCESS) {
		g->context = context;
		g->retains++;
	}
	return check("cuDevicePrimaryCtxRetain", result);
}

int gpu_enter(struct gpu *g)
{
	int r;

	if (cuda.cuCtxPushCurrent(g->context) == CUDA_SUCCESS)
		return 0;
	/* An application that resets the device (cuDevicePrimaryCtxReset) destroys the context
	 * while we use it; retaining it makes another. */
	r = retain(g);
	return r < 0 ? r : cuda_try(cuCtxPushCurrent, g->context);
}

void gpu_leave(void)
{
	CUcontext context;

	cuda.cuCtxPopCurrent(&context);
}

int gpu_open(int device, struct gpu **ret)
{
	_cleanup_(free_ptr) struct gpu *g = calloc(1, sizeof(*g));
	int r = start();

	if (r < 0)
		return r;
	if (!g)
		return gpushm_private_fail(ENOMEM, "out of memory for a GPU");
	r = cuda_try(cuDeviceGet, &g->device, device);
	if (r == 0)
		r = retain(g);
	if (r == 0)
		*ret = take_ptr(g);
	return r;
}

struct gpu *gpu_close(struct gpu *g)
{
	for (; g && g->retains > 0; g->retains--)
		cuda.cuDevicePrimaryCtxRelease(g->device);
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

	if (cuda.cuDeviceGetPCIBusId(id, sizeof(id), g->device) != CUDA_SUCCESS)
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

#define PART (4 * HUGE_PAGE) /* that a thread clears at a time */
#define THREADS 4u /* one clears 8 GB/s, four 24; eight are slower (tests/bench/RESULTS.md) */

static size_t page_align(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) & ~(page - 1);
}

struct region {
	char *at;
	size_t bytes;
};

/* Before Linux 5.14 this does nothing, and the driver clears the pages. */
static int populate(struct crew *crew, unsigned thread, void *user)
{
	const struct region *all = user;
	uint64_t part;

	(void)thread;
	while (crew_next(crew, &part)) {
		size_t from = part * PART, left = all->bytes - from;

		madvise(all->at + from, left < PART ? left : PART, MADV_POPULATE_WRITE);
	}
	return 0;
}

/* Aligned to HUGE_PAGE. */
static char *map(size_t bytes)
{
	const int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	char *all = mmap(NULL, bytes + HUGE_PAGE, prot, flags, -1, 0);
	size_t before;

	if (all == MAP_FAILED)
		return NULL;
	before = -(uintptr_t)all & (HUGE_PAGE - 1);
	if (before > 0)
		munmap(all, before);
	munmap(all + before + bytes, HUGE_PAGE - before);
	return all + before;
}

/* New memory for pinning: huge pages where the kernel gives them, that are there already, so that
 * the driver clears none one by one. Threads clear them on these processors, and so, by the
 * kernel's default, on their NUMA node; NULL: on any. Blocks until they are there, some 5 ms for
 * 100 MiB. */
static void *pages_new(size_t bytes, const cpu_set_t *cpus)
{
	struct region all = { .bytes = page_align(bytes) };
	const struct crew_work clearing = { .threads = THREADS,
					    .blocks = (all.bytes + PART - 1) / PART,
					    .run = populate,
					    .user = &all,
					    .cpus = cpus };
	uint64_t elapsed_ns;

	all.at = map(all.bytes);
	if (!all.at)
		return NULL;
	madvise(all.at, all.bytes, MADV_DONTFORK);
	madvise(all.at, all.bytes, MADV_HUGEPAGE);
	/* Without threads the driver clears them, which takes longer. */
	(void)crew_run(&clearing, &elapsed_ns);
	return all.at;
}

static void pages_free(void *pages, size_t bytes)
{
	munmap(pages, page_align(bytes));
}

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
	/* Portable: any context may copy from it, as a buffer that is mapped for a peer needs. */
	if (r == 0) {
		r = cuda_try(cuMemHostRegister, at, bytes, CU_MEMHOSTREGISTER_PORTABLE);
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
	result = cuda.cuMemHostUnregister(memory);
	/* A reset of the device has unpinned it. */
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
		pages_free(memory, bytes);
	gpu_leave();
}

/* ---- queues ---- */

static void queue_close(struct gpu_queue *q)
{
	for (; q->n_marks > 0; q->n_marks--)
		cuda.cuEventDestroy(q->marks[q->n_marks - 1]);
	if (q->stream)
		cuda.cuStreamDestroy(q->stream);
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
		r = cuda_try(cuEventCreate, &q->marks[q->n_marks],
			     CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
	return r;
}

int gpu_queue_new(unsigned marks, struct gpu_queue **ret)
{
	struct gpu_queue *q = calloc(1, sizeof(*q));
	int r;

	if (!q)
		return gpushm_private_fail(ENOMEM, "out of memory for a queue of copies");
	/* Non-blocking: it does not wait for the legacy default stream of the application. */
	r = cuda_try(cuStreamCreate, &q->stream, CU_STREAM_NON_BLOCKING);
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
	return cuda_try(cuMemcpyHtoDAsync, device, host, bytes, q->stream);
}

int gpu_copy_to_host(struct gpu_queue *q, void *host, uint64_t device, size_t bytes)
{
	return cuda_try(cuMemcpyDtoHAsync, host, device, bytes, q->stream);
}

int gpu_mark(struct gpu_queue *q, unsigned mark)
{
	return cuda_try(cuEventRecord, q->marks[mark], q->stream);
}

int gpu_wait(struct gpu_queue *q, unsigned mark)
{
	return cuda_try(cuEventSynchronize, q->marks[mark]);
}

int gpu_drain(struct gpu_queue *q)
{
	return cuda_try(cuStreamSynchronize, q->stream);
}
