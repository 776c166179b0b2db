/* SPDX-License-Identifier: MIT
 *
 * Host pools with real memory: no client can shrink or seal its memory, and a reader can not write
 * it.
 */
#include "tests/lib/suite.h"
#include "tests/unit/daemon/pool_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define UID 1000
#define NOBODY 65534

static struct pool *pool;
static struct block block;

static void setup(void)
{
	struct pool_config c = a_config(POOL_HOST, 64 * MIB);

	fixture_open();
	pool = open_pool(&c, NULL);
	ck_assert_int_eq(pool->state, POOL_READY);
	block = get(pool, 3 * MIB + 1, UID);
}

static void teardown(void)
{
	pool_free(pool, &block, UID, false);
	close_pool(pool);
	fixture_close();
}

static unsigned char *map(int fd, int prot)
{
	void *at = mmap(NULL, block.bytes, prot, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

START_TEST(the_size_is_whole_pages_and_the_memory_all_zero)
{
	unsigned char *at = map(block.fd, PROT_READ);
	struct stat st;

	ck_assert_uint_eq(block.bytes, 3 * MIB + sysconf(_SC_PAGESIZE));
	ck_assert_int_eq(fstat(block.fd, &st), 0);
	ck_assert_uint_eq(st.st_size, block.bytes);
	ck_assert_uint_eq(st.st_mode & 07777, 0400);
	for (uint64_t i = 0; i < block.bytes; i++)
		if (at[i] != 0)
			ck_abort_msg("byte %lu is %d", (unsigned long)i, at[i]);
	munmap(at, block.bytes);
}
END_TEST

START_TEST(no_client_can_resize_memory_and_no_reader_can_seal_it)
{
	const int fds[] = { block.fd, block.fd_read_only };

	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(fcntl(fds[i], F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW);
		ck_assert_int_eq(ftruncate(fds[i], 4096), -1);
	}
	ck_assert_int_eq(fcntl(block.fd_read_only, F_ADD_SEALS, F_SEAL_WRITE), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(ftruncate(block.fd, 2 * block.bytes), -1);
	ck_assert_int_eq(errno, EPERM);
}
END_TEST

START_TEST(a_reader_can_neither_write_nor_map_writable)
{
	unsigned char *at;

	ck_assert_int_eq(write(block.fd_read_only, "x", 1), -1);
	ck_assert_int_eq(errno, EBADF);
	ck_assert_ptr_null(map(block.fd_read_only, PROT_READ | PROT_WRITE));
	ck_assert_int_eq(errno, EACCES);

	at = map(block.fd_read_only, PROT_READ);
	ck_assert_ptr_nonnull(at);
	ck_assert_int_eq(mprotect(at, block.bytes, PROT_READ | PROT_WRITE), -1);
	ck_assert_int_eq(errno, EACCES);
	munmap(at, block.bytes);
}
END_TEST

START_TEST(a_reader_sees_the_writes_of_a_writer)
{
	unsigned char *out = map(block.fd, PROT_READ | PROT_WRITE);
	unsigned char *in = map(block.fd_read_only, PROT_READ);

	ck_assert_ptr_nonnull(out);
	ck_assert_ptr_nonnull(in);
	out[block.bytes - 1] = 0x5a;
	ck_assert_uint_eq(in[block.bytes - 1], 0x5a);
	munmap(out, block.bytes);
	munmap(in, block.bytes);
}
END_TEST

/* Opens the read-only fd for writing as another user. Returns the result of open(). */
static int reopen_as_nobody(void)
{
	char path[32];

	if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
		return EBADE;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", block.fd_read_only);
	return open(path, O_RDWR | O_CLOEXEC) < 0 ? errno : 0;
}

START_TEST(a_reader_of_another_uid_can_not_reopen_it_for_writing)
{
	pid_t child;
	int status;

	if (geteuid() != 0) {
		printf("skipped: needs root to become another user\n");
		return;
	}

	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		_exit(reopen_as_nobody());
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), EACCES);
}
END_TEST

START_TEST(both_fds_close_on_exec)
{
	ck_assert_int_eq(fcntl(block.fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(fcntl(block.fd_read_only, F_GETFD), FD_CLOEXEC);
}
END_TEST

static bool is_read_only(int fd)
{
	return (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY;
}

START_TEST(a_sealed_block_keeps_only_its_read_only_fd)
{
	int reader = block.fd_read_only;

	for (int i = 0; i < 2; i++) {
		pool_seal_block(&block);
		ck_assert_int_eq(block.fd, reader);
		ck_assert_int_eq(block.fd_read_only, -1);
	}
	ck_assert(is_read_only(block.fd));
	ck_assert_int_eq(pool_lend_fd(pool, &block, false), reader);
	ck_assert_int_eq(pool_lend_fd(pool, &block, true), reader);
}
END_TEST

/* The fd that a daemon restores: of a block that is, or is not, sealed, for writing or for
 * reading. */
START_TEST(a_restored_block_is_lent_with_the_rights_it_had)
{
	bool sealed = _i & 1, writable = _i & 2;
	int fd = fcntl(writable ? block.fd : block.fd_read_only, F_DUPFD_CLOEXEC, 0), r;
	struct block kept = BLOCK_NONE;

	ck_assert_int_ge(fd, 0);
	r = pool_adopt_block(pool, block.bytes, fd, sealed, NULL, &kept);
	if (!sealed && !writable) {
		ck_assert_int_eq(r, -EBADF);
		ck_assert_int_eq(close(fd), 0);
		return;
	}
	ck_assert_int_eq(r, 0);
	ck_assert(is_read_only(pool_lend_fd(pool, &kept, false)));
	ck_assert(is_read_only(pool_lend_fd(pool, &kept, true)) == sealed);
	ck_assert_int_eq(kept.fd_read_only < 0, sealed);
	pool_free(pool, &kept, UID, false);
}
END_TEST

/* Each limit allows one more of an allocation's two fds; the last limit allows both. */
START_TEST(running_out_of_fds_is_reported_and_leaks_none)
{
	struct rlimit old, low;
	struct block none;
	struct fault f;
	int next = dup(0);

	close(next);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	for (int more = 0; more < 2; more++) {
		int result;

		low = old;
		low.rlim_cur = next + more;
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
		result = request_block(pool, MIB, UID, &none, &f);
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);

		ck_assert_int_eq(result, -ENFILE);
		ck_assert_int_eq(f.code, CODE_NO_FDS);
		ck_assert_ptr_nonnull(strstr(f.text, more ? "/proc/self/fd" : "memfd_create"));
	}
}
END_TEST

START_TEST(a_freed_block_is_not_reused_with_its_contents)
{
	unsigned char *at = map(block.fd, PROT_READ | PROT_WRITE);

	at[0] = 0x5a;
	munmap(at, block.bytes);
	pool_free(pool, &block, UID, false);
	block = get(pool, 3 * MIB + 1, UID);

	at = map(block.fd, PROT_READ);
	ck_assert_uint_eq(at[0], 0);
	munmap(at, block.bytes);
}
END_TEST

START_TEST(a_percentage_is_of_the_hosts_memory)
{
	struct pool_config c = a_config(POOL_HOST, 0);
	double host = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
	struct pool *half;

	c.size.percent = 50;
	fixture.ready = 0;
	half = open_pool(&c, NULL);
	ck_assert_double_eq_tol((double)half->size, host / 2, 1);
	close_pool(half);
	fixture.closed = 0;
}
END_TEST

/* ---- allocate=create ---- */

static struct pool *open_allocating(uint64_t bytes)
{
	struct pool_config c = a_config(POOL_HOST, bytes);

	c.allocate = true;
	fixture.ready = 0;
	return open_pool(&c, NULL);
}

static void close_allocating(struct pool *p)
{
	close_pool(p);
	fixture.closed = 0;
}

static uint64_t allocated(const struct block *b)
{
	struct stat st;

	ck_assert_int_eq(fstat(b->fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

START_TEST(a_pool_with_allocate_create_allocates_every_page)
{
	struct pool *p = open_allocating(64 * MIB);
	struct block b = get(p, 40 * MIB + 1, UID);

	ck_assert_uint_eq(allocated(&b), b.bytes);
	ck_assert_uint_eq(allocated(&block), 0); /* of a pool with allocate=first-use */
	pool_free(p, &b, UID, false);
	close_allocating(p);
}
END_TEST

static struct pool_request *first_done;

static void note_first(struct pool_request *r)
{
	if (!first_done)
		first_done = r;
}

START_TEST(a_small_create_overtakes_a_large_one)
{
	struct pool_request large = { .on_done = note_first }, small = { .on_done = note_first };
	struct pool *p = open_allocating(128 * MIB);
	struct fault f;

	ck_assert_int_eq(pool_alloc(p, &large, 100 * MIB, UID, &f), -EINPROGRESS);
	ck_assert_int_eq(pool_alloc(p, &small, 1, UID, &f), -EINPROGRESS);
	settle();
	ck_assert_int_eq(large.result, 0);
	ck_assert_int_eq(small.result, 0);
	ck_assert_ptr_eq(first_done, &small);
	pool_free(p, &large.block, UID, false);
	pool_free(p, &small.block, UID, false);
	close_allocating(p);
}
END_TEST

START_TEST(a_cancelled_large_create_stops_before_its_end)
{
	struct pool_request r = { .on_done = note_first };
	struct pool *p = open_allocating(128 * MIB);
	struct fault f;

	ck_assert_int_eq(pool_alloc(p, &r, 100 * MIB, UID, &f), -EINPROGRESS);
	pool_request_cancel(&r);
	settle();
	ck_assert_int_eq(r.result, -ECANCELED);
	ck_assert_uint_lt(r.populated, r.bytes);
	ck_assert_uint_eq(p->used, 0);
	close_allocating(p);
}
END_TEST

START_TEST(more_than_the_host_has_is_refused)
{
	struct pool *p = open_allocating(1ull << 50);
	struct block b = BLOCK_NONE;
	struct fault f = { .code = CODE_OK };

	ck_assert_int_eq(request_block(p, 1ull << 49, UID, &b, &f), -ENOSPC);
	ck_assert_msg(strstr(f.text, "512.0 TiB asked: ") && strstr(f.text, " left"), "%s", f.text);
	ck_assert_uint_eq(p->used, 0);
	close_allocating(p);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("host_pool");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, the_size_is_whole_pages_and_the_memory_all_zero);
	tcase_add_test(tc, no_client_can_resize_memory_and_no_reader_can_seal_it);
	tcase_add_test(tc, a_reader_can_neither_write_nor_map_writable);
	tcase_add_test(tc, a_reader_sees_the_writes_of_a_writer);
	tcase_add_test(tc, a_reader_of_another_uid_can_not_reopen_it_for_writing);
	tcase_add_test(tc, both_fds_close_on_exec);
	tcase_add_test(tc, a_sealed_block_keeps_only_its_read_only_fd);
	tcase_add_loop_test(tc, a_restored_block_is_lent_with_the_rights_it_had, 0, 4);
	tcase_add_test(tc, running_out_of_fds_is_reported_and_leaks_none);
	tcase_add_test(tc, a_freed_block_is_not_reused_with_its_contents);
	tcase_add_test(tc, a_percentage_is_of_the_hosts_memory);
	tcase_add_test(tc, a_pool_with_allocate_create_allocates_every_page);
	tcase_add_test(tc, a_small_create_overtakes_a_large_one);
	tcase_add_test(tc, a_cancelled_large_create_stops_before_its_end);
	tcase_add_test(tc, more_than_the_host_has_is_refused);
	return suite_run("host_pool", tc, NULL);
}
