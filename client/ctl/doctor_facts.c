/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl doctor --driver`: tries the facts of proto/facts.h on the first GPU, with memory of
 * its own. The trial of a kind of memory is a process that never starts CUDA, as gpushmd's keeper
 * is, and holds a descriptor. It forks others that do start it, and kills some of them. A child
 * can't use a driver that its parent has started, so the doctor starts its own after this.
 *
 * Facts are tried one after the other. The process that sees one broken writes that where all see
 * it, and exits with 1; so does one that can't go on. Then those behind are "not tried".
 */
#include "client/ctl/doctor.h"
#include "proto/base/clock.h"
#include "proto/base/libcuda.h"
#include "proto/base/own.h"
#include "proto/facts.h"
#include "proto/wire.h"
#include "proto/words.h"

#include <cuda.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* A member has its symbol's name, with the version that cuda.h's macros add. */
#define CUDA_CALLS(X)                         \
	X(cuInit)                             \
	X(cuGetErrorName)                     \
	X(cuDeviceGetAttribute)               \
	X(cuDevicePrimaryCtxRetain)           \
	X(cuCtxSetCurrent)                    \
	X(cuCtxSynchronize)                   \
	X(cuMemGetInfo)                       \
	X(cuMemCreate)                        \
	X(cuMemRelease)                       \
	X(cuMemExportToShareableHandle)       \
	X(cuMemImportFromShareableHandle)     \
	X(cuMemAddressReserve)                \
	X(cuMemMap)                           \
	X(cuMemSetAccess)                     \
	X(cuMemsetD8Async)                    \
	X(cuMemcpyDtoHAsync)                  \
	X(cuMemPoolCreate)                    \
	X(cuMemPoolDestroy)                   \
	X(cuMemPoolExportToShareableHandle)   \
	X(cuMemPoolImportFromShareableHandle) \
	X(cuMemAllocFromPoolAsync)            \
	X(cuMemPoolExportPointer)             \
	X(cuMemPoolImportPointer)
#define MEMBER(symbol) LIBCUDA_MEMBER(symbol, symbol)
#define SYMBOL(symbol) LIBCUDA_SYMBOL(symbol, symbol)

static struct cuda {
	CUDA_CALLS(MEMBER)
} cuda;
static const struct libcuda_symbol symbols[] = { CUDA_CALLS(SYMBOL) };

static const struct fact facts[] = { FACTS(FACT_ROW) };

#define PAGE (2ull << 20)   /* of a driver's memory */
#define PIECE (64ull << 10) /* of each page that is looked at */
#define FIRST 0x5a	    /* what is in the memory */
#define SECOND 0xc3
#define SECONDS 20 /* for the trial of a kind */
#define TOO_LONG "its trial did not end in time"

/* What all processes of a trial see. */
static struct common {
	enum fact_id now;  /* what is tried; FACT_COUNT: nothing yet */
	bool broken;	   /* it does not hold */
	char why[160];	   /* that, or the trial did not go on */
	unsigned int held; /* a bit for each fact */
	size_t free;
	CUmemPoolPtrExportData record;
} * common;

static enum gpushm_kind kind; /* the trial's, as what follows */
static size_t bytes;
static int memory = -1; /* its descriptor */

static _Noreturn void leave(bool broken, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(common->why, sizeof(common->why), format, ap);
	va_end(ap);
	common->broken = broken;
	_exit(1);
}

static void check(bool proves, const char *call, CUresult result)
{
	const char *name = "an unknown error";

	if (result == CUDA_SUCCESS)
		return;
	cuda.cuGetErrorName(result, &name);
	leave(proves, "%s: %s", call, name);
}
#define NEED(call, ...) check(false, #call, cuda.call(__VA_ARGS__))
#define PROVE(call, ...) check(true, #call, cuda.call(__VA_ARGS__))

/* ---- processes ---- */

struct actor {
	pid_t pid;
	int socket;
};

static void tell(int socket, int fd)
{
	wire_send(socket, "", 1, &fd, fd >= 0, 0);
}

/* Waits until the other end has told something, and returns its descriptor or -1. False: it has
 * ended. */
static bool hear(int socket, int *ret_fd)
{
	static struct frame f;

	if (wire_recv(socket, &f, 0) < 0)
		return false;
	if (f.n_fds)
		*ret_fd = f.fds[0];
	return true;
}

/* Starts a process with a context of the first GPU. */
static struct actor start(void (*act)(int socket))
{
	struct actor a;
	CUcontext context;
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		leave(false, "socketpair: %s", strerror(errno));
	a = (struct actor){ fork(), ends[0] };
	if (a.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		NEED(cuInit, 0);
		NEED(cuDevicePrimaryCtxRetain, &context, 0);
		NEED(cuCtxSetCurrent, context);
		act(ends[1]);
		_exit(0);
	}
	close(ends[1]);
	if (a.pid < 0)
		leave(false, "fork: %s", strerror(errno));
	return a;
}

/* Goes on if it has ended well. */
static void join(const struct actor *a)
{
	int status = 0;

	while (waitpid(a->pid, &status, 0) < 0 && errno == EINTR)
		continue;
	close(a->socket);
	if (WIFSIGNALED(status))
		leave(true, "signal %d ended a process", WTERMSIG(status));
	if (status)
		_exit(1);
}

static void await(const struct actor *a, int *ret_fd)
{
	if (!hear(a->socket, ret_fd))
		join(a);
}

static void murder(const struct actor *a)
{
	struct pollfd ended = { .fd = (int)syscall(SYS_pidfd_open, a->pid, 0), .events = POLLIN };

	if (ended.fd < 0)
		leave(false, "pidfd_open: %s", strerror(errno));
	kill(a->pid, SIGKILL);
	poll(&ended, 1, -1);
	close(ended.fd);
}

static void run(void (*act)(int socket))
{
	struct actor a = start(act);

	join(&a);
}

/* ---- memory, as gpushmd makes it and its clients map it ---- */

static CUmemLocation place(void)
{
	CUmemLocation l = { .type = CU_MEM_LOCATION_TYPE_DEVICE };

	if (kind != GPUSHM_PINNED)
		return l;
	l.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
	NEED(cuDeviceGetAttribute, &l.id, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0);
	l.id = l.id < 0 ? 0 : l.id;
	return l;
}

static CUdeviceptr import(int fd)
{
	CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	const CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	void *handle_fd = (void *)(uintptr_t)fd;
	CUmemGenericAllocationHandle handle;
	CUmemoryPool pool;
	CUdeviceptr at = 0;

	if (kind == GPUSHM_MEMPOOL) {
		PROVE(cuMemPoolImportFromShareableHandle, &pool, handle_fd, type, 0);
		PROVE(cuMemPoolImportPointer, &at, pool, &common->record);
		return at;
	}
	PROVE(cuMemImportFromShareableHandle, &handle, handle_fd, type);
	NEED(cuMemAddressReserve, &at, bytes, 0, 0, 0);
	NEED(cuMemMap, at, bytes, 0, handle, 0);
	NEED(cuMemRelease, handle);
	NEED(cuMemSetAccess, at, bytes, &access, 1);
	return at;
}

static CUdeviceptr make_block(int *ret_fd)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				 .location = place(),
				 .maxSize = bytes };
	CUmemoryPool pool;
	CUdeviceptr at = 0;

	/* The first one shows whether a descriptor outlives its pool. */
	for (int i = 0; i < 2; i++) {
		NEED(cuMemPoolCreate, &pool, &props);
		NEED(cuMemPoolExportToShareableHandle, ret_fd, pool, props.handleTypes, 0);
		if (i == 1)
			break;
		NEED(cuMemPoolDestroy, pool);
		PROVE(cuMemPoolImportFromShareableHandle, &pool, (void *)(uintptr_t)*ret_fd,
		      props.handleTypes, 0);
		NEED(cuMemPoolDestroy, pool);
		close_fd(ret_fd);
	}
	NEED(cuMemAllocFromPoolAsync, &at, bytes, pool, NULL);
	NEED(cuMemPoolExportPointer, &common->record, at);
	return at;
}

static CUdeviceptr make(int *ret_fd)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = place(),
	};
	CUmemGenericAllocationHandle handle;

	if (kind == GPUSHM_MEMPOOL)
		return make_block(ret_fd);
	NEED(cuMemCreate, &handle, bytes, &prop, 0);
	NEED(cuMemExportToShareableHandle, ret_fd, handle, prop.requestedHandleTypes, 0);
	NEED(cuMemRelease, handle);
	return import(*ret_fd);
}

static void fill(CUdeviceptr at, unsigned char value)
{
	NEED(cuMemsetD8Async, at, value, bytes, NULL);
	NEED(cuCtxSynchronize);
}

static bool all_are(CUdeviceptr at, unsigned char value)
{
	static unsigned char piece[PIECE];
	bool same = true;

	for (size_t i = 0; same && i < bytes; i += PAGE) {
		NEED(cuMemcpyDtoHAsync, piece, at + i, PIECE, NULL);
		NEED(cuCtxSynchronize);
		same = piece[0] == value && memcmp(piece, piece + 1, PIECE - 1) == 0;
	}
	return same;
}

static void hold(enum fact_id fact)
{
	common->held |= 1u << fact;
}

static bool relies_on(enum fact_id fact)
{
	common->now = fact;
	return facts[fact].kinds & FACT_OF(kind);
}

/* ---- the parts that processes play ---- */

/* Makes memory, and has work queued on it when it is killed. */
static void act_writer(int socket)
{
	int fd = -1;
	CUdeviceptr at = make(&fd);

	fill(at, FIRST);
	tell(socket, fd);
	for (;;)
		NEED(cuMemsetD8Async, at, FIRST, bytes, NULL);
}

/* Has mapped it before the writer's death. */
static void act_holder(int socket)
{
	CUdeviceptr at = import(memory);

	close_fd(&memory);
	tell(socket, -1);
	hear(socket, NULL);
	if (!all_are(at, FIRST))
		leave(true, "its contents were lost with its maker");
	common->now = FACT_stops;
	fill(at, SECOND);
	for (int ms = 0; ms <= 300; ms += 50) {
		if (!all_are(at, SECOND))
			leave(true, "it wrote up to %d ms later", ms);
		poll(NULL, 0, 50);
	}
	hold(FACT_stops);
	common->now = FACT_kept;
	tell(socket, -1);
	hear(socket, NULL);
	if (!all_are(at, SECOND))
		leave(true, "its contents were lost with its descriptors");
	tell(socket, -1);
	hear(socket, NULL);
}

static void act_reader(int socket)
{
	if (!all_are(import(memory), SECOND))
		leave(true, "a process that came later read other contents");
}

static void act_finder(int socket)
{
	int fd = -1;

	if (!all_are(make(&fd), 0))
		leave(true, "%zu bytes had other contents", bytes);
}

static void act_gauge(int socket)
{
	size_t total;

	NEED(cuMemGetInfo, &common->free, &total);
}

/* Memory that is mapped while its maker dies, and alone after that. */
static void try_lives(void)
{
	struct actor writer = start(act_writer), holder;

	common->now = FACT_kept;
	await(&writer, &memory);
	holder = start(act_holder);
	await(&holder, NULL);
	murder(&writer);
	tell(holder.socket, -1);
	await(&holder, NULL);
	run(act_reader);
	close_fd(&memory);
	tell(holder.socket, -1);
	await(&holder, NULL);
	murder(&holder);
	hold(FACT_kept);
}

/* Another process may take some meanwhile. */
static void try_freed(size_t before)
{
	for (int i = 0; i < 5; i++) {
		run(act_gauge);
		if (common->free >= before - bytes / 4 * 3) {
			hold(FACT_freed);
			return;
		}
		poll(NULL, 0, 500);
	}
	leave(true, "%zu bytes are free, before it were %zu", common->free, before);
}

static void try_kind(void)
{
	size_t before, most = kind == GPUSHM_PINNED ? 256 * PAGE / 2 : 512 * PAGE;

	run(act_gauge);
	before = common->free;
	bytes = before / 8 < most ? before / 8 / PAGE * PAGE : most;
	try_lives();
	if (relies_on(FACT_freed))
		try_freed(before);
	if (!relies_on(FACT_zero))
		return;
	if (kind == GPUSHM_VMM)
		bytes = before / 4 / PAGE * PAGE;
	run(act_finder);
	hold(FACT_zero);
}

/* ---- the report ---- */

/* Runs the trial in a process group, so that all of it ends. What the driver keeps from ending is
 * left alone. */
static void run_trial(void)
{
	uint64_t until_ms = clock_monotonic_ms() + SECONDS * 1000;
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	bool ended = false;
	char first[80];
	pid_t pid;

	fflush(stdout);
	*common = (struct common){ .now = FACT_COUNT, .broken = true, .why = TOO_LONG };
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpgid(0, 0);
		/* Starting the driver takes longer with each GPU. */
		snprintf(first, sizeof(first), "%.*s", (int)strcspn(visible ?: "0", ","),
			 visible ?: "0");
		setenv("CUDA_VISIBLE_DEVICES", first, 1);
		try_kind();
		_exit(0);
	}
	while (pid > 0 && !ended && clock_monotonic_ms() < until_ms) {
		ended = waitpid(pid, NULL, WNOHANG) == pid;
		poll(NULL, 0, 5);
	}
	if (pid > 0)
		kill(-pid, SIGKILL);
}

static void report(struct doctor *d, enum fact_id i)
{
	const struct fact *f = &facts[i];
	char name[32];

	snprintf(name, sizeof(name), "%s-%s", kind_word(kind), f->name);
	if (common->held & 1u << i)
		doctor_ok(d, name, "%s", f->holds);
	else if (i == common->now && common->broken)
		doctor_fail(d, name, f->relies, "this does not hold: %s: %s", f->holds,
			    common->why);
	else
		doctor_warn(d, name, NULL, "not tried: %s: %s", f->holds,
			    common->broken ? "the one that failed comes first" : common->why);
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
		run_trial();
		if (common->now == FACT_COUNT) {
			doctor_warn(d, "facts", NULL, "not tried: %s", common->why);
			return;
		}
		for (enum fact_id i = 0; i < FACT_COUNT; i++)
			if (facts[i].kinds & FACT_OF(kind))
				report(d, i);
	}
}
