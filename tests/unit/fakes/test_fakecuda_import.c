/* SPDX-License-Identifier: MIT
 *
 * The fake driver's pools in two processes: an exporter, and a peer that imports. The exporter
 * sends the peer the pool's fd and the records of three pointers.
 */
#include "tests/fakecuda/words.h"

#define POINTERS 3

struct lent {
	CUmemPoolPtrExportData records[POINTERS];
};

static CUdeviceptr import_record(CUmemoryPool pool, CUmemPoolPtrExportData *record)
{
	CUdeviceptr p;

	OK(cu(cuMemPoolImportPointer)(&p, pool, record));
	return p;
}

/* The exporter's side of most scenarios: a pool with three pointers of 2 MiB, words 1, 2 and 3 at
 * their starts, lent to a new process. */
struct exporter {
	CUmemoryPool pool;
	CUdeviceptr pointers[POINTERS];
	int peer;
	pid_t pid;
};

static struct exporter lend_to(const char *importer)
{
	struct exporter e;
	struct lent lent;
	int fd;

	start_driver(0);
	e.pool = pool_new(64 * MiB);
	fd = pool_export(e.pool);
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	for (unsigned int i = 0; i < POINTERS; i++) {
		e.pointers[i] = take(e.pool, 2 * MiB);
		OK(cu(cuMemsetD32)(e.pointers[i], i + 1, 1));
		OK(cu(cuMemPoolExportPointer)(&lent.records[i], e.pointers[i]));
	}
	e.pid = scenario_start(importer, &e.peer);
	tell(e.peer, &lent, sizeof(lent), fd);
	close(fd);
	return e;
}

static CUmemoryPool borrow(struct lent *ret)
{
	CUmemoryPool pool;
	int fd;

	start_driver(0);
	fd = hear(PEER, ret, sizeof(*ret));
	MUST(fd >= 0);
	pool = pool_import(fd);
	close(fd);
	return pool;
}

static void lend_end(struct exporter *e)
{
	for (int i = 0; i < POINTERS; i++)
		give(e->pointers[i]);
	OK(cu(cuMemPoolDestroy)(e->pool));
	close(e->peer);
}

static void writes_and_frees_run(void)
{
	struct lent lent;
	CUmemoryPool pool = borrow(&lent);

	for (unsigned int i = 0; i < POINTERS; i++) {
		CUdeviceptr p = import_record(pool, &lent.records[i]);

		MUST(word_at(p) == i + 1);
		OK(cu(cuMemsetD32)(p + 2 * MiB - 4, 10 + i, 1));
		give(p);
	}
	OK(cu(cuMemPoolDestroy)(pool));
	OK(cu(cuDevicePrimaryCtxRelease)(0));
	go(PEER);
	await(PEER);
}

SCENARIO(what_an_importer_writes_its_exporter_reads, .env = "FAKECUDA_STRICT=1")
{
	struct exporter e = lend_to("writes_and_frees");

	await(e.peer);
	for (unsigned int i = 0; i < POINTERS; i++)
		MUST(word_at(e.pointers[i] + 2 * MiB - 4) == 10 + i);
	/* The importer lives and has freed its pointers: now the exporter may free them. */
	for (int i = 0; i < POINTERS; i++)
		give(e.pointers[i]);
	OK(cu(cuMemPoolDestroy)(e.pool));
	go(e.peer);
	scenario_finish(e.pid);
	close(e.peer);
	OK(cu(cuDevicePrimaryCtxRelease)(0));
}

static void holds_the_second_run(void)
{
	struct lent lent;
	CUmemoryPool pool = borrow(&lent);

	import_record(pool, &lent.records[1]);
	go(PEER);
	await(PEER);
}

SCENARIO(an_exporter_that_frees_before_its_importer_aborts, .signal = SIGABRT,
	 .says = "exporter freed before its importer")
{
	struct exporter e = lend_to("holds_the_second");

	await(e.peer);
	give(e.pointers[0]);
	give(e.pointers[2]);
	cu(cuMemFreeAsync)(e.pointers[1], NULL);
}

SCENARIO(a_dead_importer_holds_nothing)
{
	struct exporter e = lend_to("holds_the_second");

	await(e.peer);
	scenario_kill(e.pid);
	lend_end(&e);
}

static void is_refused_run(void)
{
	CUmemAccessDesc read =
		access_for(CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
	CUmemAccessDesc write =
		access_for(CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	struct lent lent;
	CUmemoryPool pool = borrow(&lent);
	CUmemPoolPtrExportData forged = lent.records[0];
	CUdeviceptr p = import_record(pool, &lent.records[0]), none;
	uint64_t used;
	int fd;

	MUST(word_at(p) == 1);
	GIVES(CUDA_ERROR_NOT_SUPPORTED, cu(cuMemPoolSetAccess)(pool, &read, 1));
	OK(cu(cuMemPoolSetAccess)(pool, &write, 1));
	INVALID(take_try(pool, 4096, &none));
	INVALID(cu(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	INVALID(cu(cuMemPoolTrimTo)(pool, 0));
	INVALID(cu(cuMemPoolExportToShareableHandle)(&fd, pool,
						     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	INVALID(cu(cuMemPoolExportPointer)(&forged, p));
	forged.reserved[8] ^= 0x40;
	INVALID(cu(cuMemPoolImportPointer)(&none, pool, &forged));
	memset(&forged, 0, sizeof(forged));
	INVALID(cu(cuMemPoolImportPointer)(&none, pool, &forged));
	INVALID(cu(cuMemPoolDestroy)(pool));
	give(p);
	OK(cu(cuMemPoolDestroy)(pool));
}

SCENARIO(an_importer_may_import_and_nothing_else)
{
	struct exporter e = lend_to("is_refused");

	scenario_finish(e.pid);
	lend_end(&e);
}

static void imports_twice_run(void)
{
	struct lent lent;
	CUmemoryPool pool = borrow(&lent);
	CUdeviceptr p = import_record(pool, &lent.records[0]);

	MUST(import_record(pool, &lent.records[0]) == p);
	give(p);
	go(PEER);
	await(PEER);
	cu(cuMemFreeAsync)(p, NULL);
}

SCENARIO(a_pointer_imported_twice_is_freed_once)
{
	struct exporter e = lend_to("imports_twice");
	int status;

	await(e.peer);
	lend_end(&e);
	MUST(waitpid(e.pid, &status, 0) == e.pid);
	MUST(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

SCENARIO(a_second_free_of_a_pointer_imported_twice_aborts)
{
	struct exporter e = lend_to("imports_twice");
	int status;

	await(e.peer);
	go(e.peer);
	MUST(waitpid(e.pid, &status, 0) == e.pid);
	MUST(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	lend_end(&e);
}

static void imports_late_run(void)
{
	struct lent lent;
	CUmemoryPool pool = borrow(&lent);
	CUdeviceptr p;

	await(PEER);
	cu(cuMemPoolImportPointer)(&p, pool, &lent.records[1]);
}

SCENARIO(an_import_of_a_freed_pointer_aborts)
{
	struct exporter e = lend_to("imports_late");
	int status;

	give(e.pointers[1]);
	e.pointers[1] = take(e.pool, 2 * MiB);
	go(e.peer);
	MUST(waitpid(e.pid, &status, 0) == e.pid);
	MUST(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	lend_end(&e);
}

static void imports_when_told_run(void)
{
	struct lent lent;
	CUmemoryPool pool = borrow(&lent);
	CUdeviceptr p;

	await(PEER);
	p = import_record(pool, &lent.records[2]);
	MUST(word_at(p) == 3);
	give(p);
	OK(cu(cuMemPoolDestroy)(pool));
	go(PEER);
}

static void lends_and_dies_run(void)
{
	struct exporter e;

	/* Sends the importer's socket to our parent, so that it outlives us. */
	e = lend_to("imports_when_told");
	tell(PEER, "s", 1, e.peer);
	await(PEER);
}

SCENARIO(a_pool_outlives_its_exporter)
{
	int exporter, importer;
	pid_t pid = scenario_start("lends_and_dies", &exporter);
	char c;

	importer = hear(exporter, &c, 1);
	scenario_kill(pid);
	go(importer);
	await(importer);
	close(exporter);
	close(importer);
}

static void imports_without_a_context_run(void)
{
	struct lent lent;
	CUmemoryPool pool = borrow(&lent);
	CUcontext context;
	CUdeviceptr p;

	OK(cu(cuCtxPopCurrent)(&context));
	p = import_record(pool, &lent.records[0]);
	GIVES(CUDA_ERROR_INVALID_CONTEXT, cu(cuMemFreeAsync)(p, NULL));
	OK(cu(cuCtxPushCurrent)(context));
	give(p);
	OK(cu(cuMemPoolDestroy)(pool));
}

SCENARIO(an_import_needs_no_context_and_a_free_does)
{
	struct exporter e = lend_to("imports_without_a_context");

	scenario_finish(e.pid);
	lend_end(&e);
}

static void imports_a_giant_run(void)
{
	CUmemPoolPtrExportData record;
	CUmemoryPool pool;
	CUdeviceptr p;
	int fd;

	start_driver(0);
	fd = hear(PEER, &record, sizeof(record));
	pool = pool_import(fd);
	close(fd);
	p = import_record(pool, &record);
	give(p);
	OK(cu(cuMemPoolDestroy)(pool));
}

/* The wait status of a process that imports one pointer of that size. */
static int giant_status(size_t bytes)
{
	CUmemPoolPtrExportData record;
	CUmemoryPool pool = pool_new(0);
	int fd = pool_export(pool), peer, status;
	CUdeviceptr p = take(pool, bytes);
	pid_t pid;

	OK(cu(cuMemPoolExportPointer)(&record, p));
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	pid = scenario_start("imports_a_giant", &peer);
	tell(peer, &record, sizeof(record), fd);
	close(fd);
	MUST(waitpid(pid, &status, 0) == pid);
	close(peer);
	give(p);
	OK(cu(cuMemPoolDestroy)(pool));
	return status;
}

SCENARIO(an_import_above_5248_mib_kills_the_importer)
{
	int status;

	start_driver(0);
	MUST(giant_status(5248 * MiB) == 0);
	status = giant_status(5249 * MiB);
	MUST(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

#define ALL(X)                                               \
	X(what_an_importer_writes_its_exporter_reads)        \
	X(an_exporter_that_frees_before_its_importer_aborts) \
	X(a_dead_importer_holds_nothing)                     \
	X(an_importer_may_import_and_nothing_else)           \
	X(a_pointer_imported_twice_is_freed_once)            \
	X(a_second_free_of_a_pointer_imported_twice_aborts)  \
	X(an_import_of_a_freed_pointer_aborts)               \
	X(a_pool_outlives_its_exporter)                      \
	X(an_import_needs_no_context_and_a_free_does)        \
	X(an_import_above_5248_mib_kills_the_importer)

#define PEERS(X)                     \
	X(writes_and_frees)          \
	X(holds_the_second)          \
	X(is_refused)                \
	X(imports_twice)             \
	X(imports_late)              \
	X(imports_without_a_context) \
	X(imports_when_told)         \
	X(lends_and_dies)            \
	X(imports_a_giant)

const struct scenario scenarios[] = { ALL(SCENARIO_ENTRY) PEERS(SCENARIO_ENTRY){ NULL, NULL } };

static void add(TCase *tests)
{
	ALL(SCENARIO_ADD)
}

int main(int argc, char **argv)
{
	return scenario_main(argc, argv, "fakecuda import", add);
}
