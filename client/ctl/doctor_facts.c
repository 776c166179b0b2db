/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl doctor --driver`: tries the facts of proto/facts.h on the first GPU, with memory of
 * its own. This process holds a descriptor and does not start CUDA, as gpushmd's keeper; the parts
 * of a trial run in children that do. A child can't use a driver that its parent has started, so
 * the doctor starts its own after this. A part that can't go on, or sees that the fact does not
 * hold, writes why where all see it, and exits with 1. Then the facts behind are "not tried".
 */
#include "client/ctl/doctor.h"
#include "proto/base/libcuda.h"
#include "proto/base/own.h"
#include "proto/facts.h"
#include "proto/wire.h"
#include "proto/words.h"

#include <cuda.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* A member has its symbol's name, with the version that cuda.h's macros add. */
/* clang-format off */
#define CUDA_CALLS(X) \
	X(cuInit) X(cuGetErrorName) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuMemGetInfo) \
	X(cuMemCreate) X(cuMemExportToShareableHandle) X(cuMemImportFromShareableHandle) \
	X(cuMemAddressReserve) X(cuMemMap) X(cuMemSetAccess) X(cuMemsetD8Async) X(cuMemcpyDtoH) \
	X(cuMemPoolCreate) X(cuMemPoolExportToShareableHandle) \
	X(cuMemPoolImportFromShareableHandle) X(cuMemAllocFromPoolAsync) \
	X(cuMemPoolExportPointer) X(cuMemPoolImportPointer)
/* clang-format on */
#define MEMBER(symbol) LIBCUDA_MEMBER(symbol, symbol)
#define SYMBOL(symbol) LIBCUDA_SYMBOL(symbol, symbol)

static struct cuda {
	CUDA_CALLS(MEMBER)
} cuda;
static const struct libcuda_symbol symbols[] = { CUDA_CALLS(SYMBOL) };
static const struct fact facts[] = { FACTS(FACT_ROW) };

#define BY_FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
#define PAGE (2ull << 20) /* of a driver's memory */
#define MOST (512ull << 20)
#define SECONDS 15 /* that a part may take */
#define FIRST 0x5a /* what is in the memory */
#define SECOND 0xc3

/* What all processes of a trial see. */
static struct common {
	enum fact_id now;   /* what is tried */
	bool proves;	    /* an error now shows that it does not hold */
	char why[160];	    /* the error */
	unsigned int held;  /* a bit for each fact */
	size_t free, bytes; /* before the trial; of its memory */
	CUmemPoolPtrExportData record;
} * common;

static enum gpushm_kind kind; /* the trial's, as what follows */
static pid_t maker;
static int ends[2];	/* the maker sends the descriptor to the doctor */
static int memory = -1; /* that */

#define LEAVE(...) (snprintf(common->why, sizeof(common->why), __VA_ARGS__), _exit(1))
#define EXPECT(holds, ...) ((holds) ? (void)0 : (common->proves = true, LEAVE(__VA_ARGS__)))

static void check(const char *call, CUresult result)
{
	const char *name = "an unknown error";

	if (result == CUDA_SUCCESS)
		return;
	cuda.cuGetErrorName(result, &name);
	LEAVE("%s: %s", call, name);
}
#define DO(call, ...) check(#call, cuda.call(__VA_ARGS__))

static CUdeviceptr import(int fd)
{
	CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	void *handle_fd = (void *)(uintptr_t)fd;
	CUmemGenericAllocationHandle handle;
	CUmemoryPool pool;
	CUdeviceptr at = 0;

	if (kind == GPUSHM_MEMPOOL) {
		DO(cuMemPoolImportFromShareableHandle, &pool, handle_fd, BY_FD, 0);
		DO(cuMemPoolImportPointer, &at, pool, &common->record);
		return at;
	}
	DO(cuMemImportFromShareableHandle, &handle, handle_fd, BY_FD);
	DO(cuMemAddressReserve, &at, common->bytes, 0, 0, 0);
	DO(cuMemMap, at, common->bytes, 0, handle, 0);
	DO(cuMemSetAccess, at, common->bytes, &access, 1);
	return at;
}

static CUdeviceptr make(int *ret_fd)
{
	CUmemLocation place = { .type = kind == GPUSHM_PINNED ? CU_MEM_LOCATION_TYPE_HOST_NUMA
							      : CU_MEM_LOCATION_TYPE_DEVICE };
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .requestedHandleTypes = BY_FD,
				     .location = place };
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .handleTypes = BY_FD,
				 .location = place,
				 .maxSize = common->bytes };
	CUmemGenericAllocationHandle handle;
	CUmemoryPool pool;
	CUdeviceptr at = 0;

	if (kind == GPUSHM_MEMPOOL) {
		DO(cuMemPoolCreate, &pool, &props);
		DO(cuMemPoolExportToShareableHandle, ret_fd, pool, BY_FD, 0);
		DO(cuMemAllocFromPoolAsync, &at, common->bytes, pool, NULL);
		DO(cuMemPoolExportPointer, &common->record, at);
		return at;
	}
	DO(cuMemCreate, &handle, common->bytes, &prop, 0);
	DO(cuMemExportToShareableHandle, ret_fd, handle, BY_FD, 0);
	return import(*ret_fd);
}

/* Looks at 64 KiB of each page. */
static bool all_are(CUdeviceptr at, unsigned char value)
{
	static unsigned char piece[64 << 10];
	bool same = true;

	for (size_t i = 0; same && i < common->bytes; i += PAGE) {
		DO(cuMemcpyDtoH, piece, at + i, sizeof(piece));
		same = piece[0] == value && memcmp(piece, piece + 1, sizeof(piece) - 1) == 0;
	}
	return same;
}

static bool relies_on(enum fact_id fact)
{
	common->now = fact;
	return facts[fact].kinds & FACT_OF(kind);
}

static void hold(void)
{
	common->held |= 1u << common->now;
}

/* Has work queued on the memory when it is killed. */
static void make_and_write(void)
{
	int fd = -1;
	CUdeviceptr at;
	size_t total;

	DO(cuMemGetInfo, &common->free, &total);
	common->bytes = (common->free / 8 < MOST ? common->free / 8 : MOST) / PAGE * PAGE;
	at = make(&fd);
	DO(cuMemsetD8Async, at, FIRST, common->bytes, NULL);
	all_are(at, FIRST); /* waits for that */
	wire_send(ends[1], "", 1, &fd, 1, 0);
	for (;;)
		DO(cuMemsetD8Async, at, FIRST, common->bytes, NULL);
}

static void kill_the_maker(void)
{
	struct pollfd ended = { .fd = (int)syscall(SYS_pidfd_open, maker, 0), .events = POLLIN };
	CUdeviceptr at = import(memory);

	kill(maker, SIGKILL);
	poll(&ended, 1, -1);
	common->proves = true;
	EXPECT(all_are(at, FIRST), "its contents were lost with its maker");
	common->now = FACT_stops;
	DO(cuMemsetD8Async, at, SECOND, common->bytes, NULL);
	for (int ms = 0; ms <= 300; ms += 50) {
		EXPECT(all_are(at, SECOND), "it wrote up to %d ms later", ms);
		poll(NULL, 0, 50);
	}
	hold();
}

static void read_what_is_kept(void)
{
	common->now = FACT_kept;
	common->proves = true;
	EXPECT(all_are(import(memory), SECOND), "a process that came later read other contents");
	hold();
}

static void see_what_is_left(void)
{
	size_t free = 0, total, least = common->free - common->bytes / 4 * 3;
	int fd = -1;

	if (relies_on(FACT_freed)) {
		/* Another process may take some meanwhile. */
		for (int i = 0; i < 25 && free < least; i++) {
			poll(NULL, 0, 100);
			DO(cuMemGetInfo, &free, &total);
		}
		EXPECT(free >= least, "%zu bytes are free, %zu were before", free, common->free);
		hold();
	}
	if (!relies_on(FACT_zero))
		return;
	if (kind == GPUSHM_VMM)
		common->bytes = common->free / 4 / PAGE * PAGE;
	EXPECT(all_are(make(&fd), 0), "%zu bytes had other contents", common->bytes);
	hold();
}

/* Starts a part in a process with a context of the first GPU. */
static pid_t start(void (*part)(void))
{
	CUcontext context;
	pid_t pid = fork();

	if (pid)
		return pid;
	alarm(SECONDS);
	common->proves = false;
	DO(cuInit, 0);
	DO(cuDevicePrimaryCtxRetain, &context, 0);
	DO(cuCtxSetCurrent, context);
	part();
	_exit(0);
}

static bool run(void (*part)(void))
{
	pid_t pid = start(part);
	int status;

	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static void try_kind(void)
{
	static struct frame f;
	bool goes;

	*common = (struct common){ .why = "a process did not start, crashed, or took too long" };
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0 ||
	    (maker = start(make_and_write)) < 0)
		return;
	close_fd(&ends[1]);
	if (wire_recv(ends[0], &f, 0) == 0)
		memory = f.fds[0];
	close_fd(&ends[0]);
	goes = memory >= 0 && run(kill_the_maker);
	kill(maker, SIGKILL);
	waitpid(maker, NULL, 0);
	goes = goes && run(read_what_is_kept);
	close_fd(&memory);
	if (goes)
		run(see_what_is_left);
}

static void report(struct doctor *d, enum fact_id i)
{
	const struct fact *f = &facts[i];
	char name[32];

	snprintf(name, sizeof(name), "%s-%s", kind_word(kind), f->name);
	if (common->held & 1u << i)
		doctor_ok(d, name, "%s", f->holds);
	else if (i == common->now && common->proves)
		doctor_fail(d, name, f->relies, "this does not hold: %s: %s", f->holds,
			    common->why);
	else
		doctor_warn(d, name, NULL, "not tried: %s: %s", f->holds,
			    common->proves ? "the one that failed comes first" : common->why);
}

void doctor_facts(struct doctor *d)
{
	char why[256];

	if (!libcuda_load(symbols, array_size(symbols), &cuda, why, sizeof(why)))
		return; /* as doctor_cuda() reports */
	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (common == MAP_FAILED) {
		doctor_fail(d, "driver", NULL, "mmap: %s", strerror(errno));
		return;
	}
	for (kind = GPUSHM_PINNED; kind <= GPUSHM_MEMPOOL; kind++) {
		try_kind();
		for (enum fact_id i = 0; i < FACT_COUNT; i++)
			if (facts[i].kinds & FACT_OF(kind))
				report(d, i);
	}
}
