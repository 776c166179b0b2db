/* SPDX-License-Identifier: MIT
 *
 * Deferred frees: when the pool frees its pending blocks, and which users may get one of them.
 */
#include "daemon/pool/pool_internal.h"
#include "proto/systemd/systemd.h"
#include "tests/lib/suite.h"
#include "tests/unit/daemon/pool_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

START_TEST(ten_freed_blocks_stay_and_the_eleventh_gives_all_eleven_back)
{
	struct block b[11];

	open_of(100 * MIB);
	fill(b, 11);
	for (int i = 0; i < 10; i++)
		give(&b[i], ALICE);
	settle();
	ck_assert_uint_eq(pool->pending_count, 10);
	ck_assert_int_eq(driver.frees, 0);

	give(&b[10], ALICE);
	ck_assert_uint_eq(pool->pending_count, 0);
	settle();
	ck_assert_int_eq(driver.frees, 11);
}
END_TEST

START_TEST(a_full_pool_frees_pending_blocks_and_serves_the_request)
{
	struct block b, c;

	open_of(10 * MIB);
	driver.capacity = 10 * MIB; /* so that the free must have run first */
	b = get(pool, 8 * MIB, ALICE);
	give(&b, ALICE);
	c = get(pool, 4 * MIB, BOB);
	ck_assert_int_eq(driver.frees, 1);
	ck_assert_int_eq(driver.allocs, 2);
	give(&c, BOB);
}
END_TEST

START_TEST(one_free_that_fails_is_lost_and_the_others_continue)
{
	struct block b[3];
	struct fault f;

	open_of(10 * MIB);
	fill(b, 3);
	for (int i = 0; i < 3; i++)
		give(&b[i], ALICE);
	driver.fail_free = 2;
	pool_flush(pool);
	settle();
	ck_assert_int_eq(driver.frees, 3);
	ck_assert_uint_eq(pool->lost, MIB);

	ck_assert_int_eq(request_block(pool, 10 * MIB, ALICE, &b[0], &f), -ENOSPC);
	b[0] = get(pool, 9 * MIB, ALICE);
	give(&b[0], ALICE);
	driver.live -= MIB; /* the lost one */
}
END_TEST

static bool is_aging(void)
{
	return uv_is_active((uv_handle_t *)&pool->aging);
}

/* When the pool's timer is due, in ms of the loop's clock. */
static uint64_t due(void)
{
	return uv_now(&fixture.loop) + uv_timer_get_due_in(&pool->aging);
}

/* Lets the loop's clock go on. */
static void pass_time(void)
{
	uint64_t now = uv_now(&fixture.loop);

	while (uv_now(&fixture.loop) == now)
		uv_update_time(&fixture.loop);
}

/* The pool's timer is due at once, and here it keeps the loop alive. */
static void let_timer_run(void)
{
	uv_timer_start(&pool->aging, pool->aging.timer_cb, 0, 0);
	uv_ref((uv_handle_t *)&pool->aging);
	uv_run(&fixture.loop, UV_RUN_NOWAIT);
	uv_unref((uv_handle_t *)&pool->aging);
	settle();
}

START_TEST(a_pending_block_is_freed_when_its_time_is_over)
{
	struct block b;

	open_of(10 * MIB);
	ck_assert(!is_aging());
	b = get(pool, MIB, ALICE);
	give(&b, ALICE);
	ck_assert(is_aging());
	ck_assert_uint_gt(uv_timer_get_due_in(&pool->aging), 1000);

	let_timer_run(); /* too early */
	ck_assert_uint_eq(pool->pending_count, 1);
	ck_assert(is_aging());

	list_first(&pool->pending, struct pending, job.link)->due_ms = 0;
	let_timer_run();
	ck_assert_uint_eq(pool->pending_count, 0);
	ck_assert_int_eq(driver.frees, 1);
	ck_assert(!is_aging());
}
END_TEST

START_TEST(each_pending_block_is_freed_at_its_own_time)
{
	struct block large, small;
	uint64_t at;

	open_of(10 * MIB);
	large = get(pool, 4 * MIB, ALICE);
	small = get(pool, MIB, BOB);
	give(&large, ALICE);
	at = due();
	for (int i = 0; i < 3; i++) {
		pass_time();
		give(&small, BOB);
		ck_assert_uint_eq(due(), at);
		pass_time();
		small = get(pool, MIB, BOB);
		ck_assert_uint_eq(due(), at);
	}
	pass_time();
	give(&small, BOB);

	list_first(&pool->pending, struct pending, job.link)->due_ms = 0;
	let_timer_run();
	ck_assert_uint_eq(pool->pending_bytes, MIB);
	ck_assert_int_eq(driver.frees, 1);
	ck_assert(is_aging());
	ck_assert_uint_gt(due(), at);
}
END_TEST

START_TEST(a_block_above_the_size_limit_is_freed_at_once)
{
	struct block large, larger;

	open_of(1024 * MIB);
	large = get(pool, 64 * MIB, ALICE);
	larger = get(pool, 65 * MIB, ALICE);
	give(&larger, ALICE);
	give(&large, ALICE);
	settle();
	ck_assert_uint_eq(pool->pending_bytes, 64 * MIB);
	ck_assert_int_eq(driver.frees, 1);
}
END_TEST

START_TEST(a_large_block_of_a_gpu_is_freed_a_moment_later)
{
	struct pool_config c = a_config(POOL_VMM, 1024 * MIB);
	struct block small, large, larger;
	uint64_t end;

	gpu.bytes = 1024 * MIB;
	pool = open_pool(&c, &gpu);
	small = get(pool, 60 * MIB, ALICE);
	large = get(pool, 100 * MIB, ALICE);
	larger = get(pool, 400 * MIB, ALICE);
	give(&small, ALICE);
	end = due();
	give(&large, ALICE);
	ck_assert_uint_lt(due(), end);
	ck_assert_uint_le(uv_timer_get_due_in(&pool->aging), 20);
	uv_timer_stop(&pool->aging); /* on a slow machine it would run in between */
	pass_time();
	give(&larger, ALICE);
	small = get(pool, MIB, ALICE);
	give(&small, ALICE); /* large ones do not count for the list's limits */
	ck_assert_int_eq(driver.allocs, 4);
	large = get(pool, 100 * MIB, ALICE); /* and are not used again */
	ck_assert_int_eq(driver.allocs, 5);
	settle();
	ck_assert_int_eq(driver.frees, 0);

	for (int i = 1; i <= 2; i++) { /* in the order in which they were freed */
		list_first(&pool->pending, struct pending, job.link)->due_ms = 0;
		let_timer_run();
		ck_assert_int_eq(driver.frees, i);
		ck_assert_uint_eq(pool->pending_bytes, (i == 1 ? 461 : 61) * MIB);
	}
	ck_assert_uint_ge(due(), end);

	give(&large, ALICE);
	large = get(pool, 1000 * MIB, BOB); /* which would fail, if they waited */
	ck_assert_int_eq(driver.frees, 5);
	give(&large, BOB);
}
END_TEST

/* A receiver that reads when the test does: returns its socket. */
static int keep_at(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	setenv("NOTIFY_SOCKET", path, 1);
	setenv("GPUSHM_FDSTORE", "1", 1);
	return fd;
}

START_TEST(a_large_block_is_freed_when_its_keeper_has_forgotten_it)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	char text[64] = "", path[64];
	struct iovec io = { text, sizeof(text) - 1 };
	struct msghdr m = { .msg_iov = &io,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct block b;
	int keeper, fd;

	snprintf(path, sizeof(path), "/tmp/gpushm-barrier-%d", getpid());
	keeper = keep_at(path);
	open_of(1000 * MIB);
	b = get(pool, 100 * MIB, ALICE);
	give(&b, ALICE);
	ck_assert_int_gt(recvmsg(keeper, &m, MSG_CMSG_CLOEXEC), 0);
	ck_assert_str_eq(text, "BARRIER=1");
	ck_assert_int_eq(driver.frees, 0);

	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	close(fd);
	settle();
	ck_assert_int_eq(driver.frees, 1);
	close(keeper);
	unlink(path);
	unsetenv("NOTIFY_SOCKET");
}
END_TEST

START_TEST(every_block_of_a_pool_without_an_age_is_freed_at_once)
{
	struct pool_config c = a_config(POOL_HOST, 10 * MIB);
	struct block b;

	c.pending_max_age = 0;
	pool = open_pool(&c, NULL);
	b = get(pool, MIB, ALICE);
	give(&b, ALICE);
	settle();
	ck_assert_int_eq(driver.frees, 1);
}
END_TEST

START_TEST(bytes_above_the_pending_limit_free_all_pending_blocks)
{
	struct block b[5];

	open_of(1024 * MIB);
	for (int i = 0; i < 5; i++)
		b[i] = get(pool, 60 * MIB, ALICE);
	for (int i = 0; i < 4; i++)
		give(&b[i], ALICE);
	settle();
	ck_assert_int_eq(driver.frees, 0);
	give(&b[4], ALICE);
	settle();
	ck_assert_uint_eq(pool->pending_bytes, 0);
	ck_assert_int_eq(driver.frees, 5);
}
END_TEST

START_TEST(a_block_that_is_let_go_is_closed_and_never_freed)
{
	struct block b;

	open_of(10 * MIB);
	b = get(pool, MIB, ALICE);
	pool_let_go(pool, &b);
	ck_assert_int_eq(b.fd, -1);
	ck_assert_uint_eq(pool->used, 0);
	ck_assert_uint_eq(pool->blocks, 0);
	close_pool(take_ptr(pool));
	ck_assert_int_eq(driver.frees, 0);
	ck_assert_uint_eq(driver.live, MIB);
	driver.live = 0; /* its holders still have it */
}
END_TEST

START_TEST(the_same_user_gets_a_pending_block_of_that_size_at_once)
{
	struct pool_request r = { .on_done = on_request_done };
	struct block b;
	struct fault f;
	int fd;

	open_of(10 * MIB);
	b = get(pool, 2 * MIB, ALICE);
	fd = b.fd;
	give(&b, ALICE);

	fixture.done = 0;
	ck_assert_int_eq(pool_alloc(pool, &r, MIB + 1, ALICE, &f), 0);
	ck_assert_int_eq(r.block.fd, fd);
	ck_assert_int_eq(r.result, 0);
	ck_assert_uint_eq(pool->used, 2 * MIB);
	ck_assert_uint_eq(pool->blocks, 1);
	ck_assert_uint_eq(pool->pending_count, 0);
	ck_assert_int_eq(driver.allocs, 1);
	settle();
	ck_assert_int_eq(fixture.done, 0);

	give(&r.block, ALICE);
	ck_assert_uint_eq(pool->pending_count, 1);
}
END_TEST

START_TEST(another_user_never_gets_a_pending_block)
{
	struct block b, c;

	open_of(10 * MIB);
	b = get(pool, MIB, ALICE);
	give(&b, ALICE);
	c = get(pool, MIB, BOB);
	ck_assert_int_eq(driver.allocs, 2);
	ck_assert_uint_eq(pool->pending_count, 1);
	give(&c, BOB);
}
END_TEST

START_TEST(a_block_that_another_user_has_had_is_not_reused)
{
	struct block b;

	open_of(10 * MIB);
	b = get(pool, MIB, ALICE);
	pool_free(pool, &b, ALICE, true);
	b = get(pool, MIB, ALICE);
	ck_assert_int_eq(driver.allocs, 2);
	give(&b, ALICE);
}
END_TEST

START_TEST(a_block_of_another_size_is_not_reused)
{
	struct block b;

	open_of(10 * MIB);
	b = get(pool, 2 * MIB, ALICE);
	give(&b, ALICE);
	b = get(pool, MIB, ALICE);
	ck_assert_int_eq(driver.allocs, 2);
	give(&b, ALICE);
}
END_TEST

START_TEST(a_kind_that_must_scrub_reuses_nothing)
{
	struct block b;

	open_gpu(40 * MIB);
	b = get(pool, MIB, ALICE);
	give(&b, ALICE);
	b = get(pool, MIB, ALICE);
	ck_assert_int_eq(driver.allocs, 2);
	give(&b, ALICE);
}
END_TEST

static TCase *flushing_tests(void)
{
	TCase *tc = tcase_create("flushing");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, ten_freed_blocks_stay_and_the_eleventh_gives_all_eleven_back);
	tcase_add_test(tc, a_full_pool_frees_pending_blocks_and_serves_the_request);
	tcase_add_test(tc, one_free_that_fails_is_lost_and_the_others_continue);
	tcase_add_test(tc, a_pending_block_is_freed_when_its_time_is_over);
	tcase_add_test(tc, each_pending_block_is_freed_at_its_own_time);
	tcase_add_test(tc, a_block_above_the_size_limit_is_freed_at_once);
	tcase_add_test(tc, a_large_block_of_a_gpu_is_freed_a_moment_later);
	tcase_add_test(tc, a_large_block_is_freed_when_its_keeper_has_forgotten_it);
	tcase_add_test(tc, every_block_of_a_pool_without_an_age_is_freed_at_once);
	tcase_add_test(tc, bytes_above_the_pending_limit_free_all_pending_blocks);
	return tc;
}

static TCase *reusing_tests(void)
{
	TCase *tc = tcase_create("reusing");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_block_that_is_let_go_is_closed_and_never_freed);
	tcase_add_test(tc, the_same_user_gets_a_pending_block_of_that_size_at_once);
	tcase_add_test(tc, another_user_never_gets_a_pending_block);
	tcase_add_test(tc, a_block_that_another_user_has_had_is_not_reused);
	tcase_add_test(tc, a_block_of_another_size_is_not_reused);
	tcase_add_test(tc, a_kind_that_must_scrub_reuses_nothing);
	return tc;
}

int main(void)
{
	/* Its socket stays open, and is no leak of a test. */
	setenv("NOTIFY_SOCKET", "/nowhere", 1);
	systemd_notify("STATUS=");
	unsetenv("NOTIFY_SOCKET");
	return suite_run("deferred_free", flushing_tests(), reusing_tests(), NULL);
}
