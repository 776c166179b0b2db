/* SPDX-License-Identifier: MIT
 *
 * The memory of a buffer that nobody uses goes, and comes back from its twin, on every pool of the
 * machine: the same bytes at the same addresses, whoever dies in between.
 */
#include "client/gpushm_memory.h"
#include "client/gpushm_query.h"
#include "proto/base/own.h"
#include "proto/kind.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/lib/client.h"
#include "tests/lib/kept.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <check.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define BYTES (2 * MIB + 4096)
#define WORKERS 4
#define STRANGER 2002

static struct gpushm_pool **pools;
static size_t n_pools;

static void setup(void)
{
	client_setup();
	ck_assert_msg(gpushm_pools(c, &pools, &n_pools) == 0, "%s", gpushm_error());
}

static void teardown(void)
{
	pools = gpushm_free(pools);
	client_teardown();
}

static void setup_kept(void)
{
	kept_setup();
	ck_assert_msg(gpushm_pools(c, &pools, &n_pools) == 0, "%s", gpushm_error());
}

static void teardown_kept(void)
{
	pools = gpushm_free(pools);
	kept_teardown();
}

static unsigned char pattern(uint64_t i)
{
	return (unsigned char)(i * 59 + (i >> 10) + 3);
}

static struct gpushm_buffer *make(const char *pool, enum gpushm_state state)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_buffer *b = client_create("~/b", BYTES, &o);
	_cleanup_(free_ptr) unsigned char *bytes = malloc(BYTES);

	for (uint64_t i = 0; i < BYTES; i++)
		bytes[i] = pattern(i);
	ck_assert_msg(gpushm_write(b, 0, bytes, BYTES) == 0, "%s", gpushm_error());
	ck_assert_msg(gpushm_publish(b, state) == 0, "%s", gpushm_error());
	return b;
}

static bool bytes_are_right(const struct gpushm_buffer *b)
{
	_cleanup_(free_ptr) unsigned char *bytes = malloc(BYTES);

	if (gpushm_read(b, 0, bytes, BYTES) < 0)
		return false;
	for (uint64_t i = 0; i < BYTES; i++)
		if (bytes[i] != pattern(i))
			return false;
	return true;
}

static enum gpushm_residence residence(void)
{
	struct gpushm_stat *st = NULL;
	enum gpushm_residence r;

	ck_assert_msg(gpushm_stat(c, "~/b", 0, 0, &st) == 0, "%s", gpushm_error());
	r = st->residence;
	gpushm_free(st);
	return r;
}

static uint64_t used(const char *pool)
{
	struct gpushm_pool **now = NULL;
	uint64_t bytes = 0;
	size_t n;

	ck_assert_int_eq(gpushm_pools(c, &now, &n), 0);
	for (size_t i = 0; i < n; i++)
		if (strcmp(now[i]->name, pool) == 0)
			bytes = now[i]->used_bytes;
	gpushm_free(now);
	return bytes;
}

#define ck_works(call) ck_assert_msg((call) == 0, "%s", gpushm_error())
#define ck_refuses(call, error, text)                                              \
	do {                                                                       \
		ck_assert_int_eq((call), -(error));                                \
		ck_assert_msg(strstr(gpushm_error(), text), "%s", gpushm_error()); \
	} while (0)

static struct gpushm_buffer *make_evicted(const char *pool)
{
	struct gpushm_buffer *b = make(pool, GPUSHM_SEALED);

	ck_works(gpushm_make_twin(c, "~/b", "host"));
	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_evict(c, "~/b"));
	ck_assert_int_eq(residence(), GPUSHM_IN_TWIN);
	return b;
}

static bool is_suspendable(const struct gpushm_pool *p)
{
	return !p->failed && !kind_opens_pool(p->kind);
}

/* ---- one process ---- */

static void comes_back(const char *pool)
{
	struct gpushm_buffer *b = make(pool, GPUSHM_SEALED), *other = NULL;
	void *device = gpushm_buffer_device_ptr(b), *host = gpushm_buffer_host_ptr(b);
	uint64_t before = used(pool);

	ck_works(gpushm_make_twin(c, "~/b", "host"));
	for (int i = 0; i < 3; i++) {
		ck_works(gpushm_suspend(b, 0));
		ck_works(gpushm_evict(c, "~/b"));
		ck_works(gpushm_evict(c, "~/b"));
		ck_assert_int_eq(residence(), GPUSHM_IN_TWIN);
		if (strcmp(pool, "host") != 0)
			ck_assert_uint_lt(used(pool), before);
		ck_assert_int_eq(gpushm_resume(b, 10000), GPUSHM_OTHER_PAGES);
		ck_assert_int_eq(residence(), GPUSHM_RESIDENT);
		ck_assert_ptr_eq(gpushm_buffer_device_ptr(b), device);
		ck_assert_ptr_eq(gpushm_buffer_host_ptr(b), host);
		ck_assert(bytes_are_right(b));
	}
	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_evict(c, "~/b"));
	ck_works(gpushm_open(c, "~/b", GPUSHM_READ, 0, NULL, &other));
	ck_assert(bytes_are_right(other));
	ck_works(gpushm_close(other));
	ck_works(gpushm_close(b));
	ck_works(gpushm_evict(c, "~/b")); /* without a lease */
	ck_works(gpushm_open(c, "~/b", GPUSHM_READ, 0, NULL, &other));
	ck_assert(bytes_are_right(other));
	client_close_and_unlink(other, "~/b");
}

START_TEST(an_evicted_buffer_comes_back_at_its_addresses)
{
	for (size_t i = 0; i < n_pools; i++)
		if (is_suspendable(pools[i]))
			comes_back(pools[i]->name);
}
END_TEST

static const char *pool_of(enum gpushm_kind kind)
{
	for (size_t i = 0; i < n_pools; i++)
		if (pools[i]->kind == kind && !pools[i]->failed)
			return pools[i]->name;
	return NULL;
}

/* Imports of a restore are those of the twin, of the memory to fill and of the resumed buffer. */
static void comes_back_with(struct gpushm_buffer *b, fakecuda_calls_fn *calls,
			    unsigned long imports)
{
	unsigned long copied, staged, imported;

	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_evict(c, "~/b"));
	copied = calls("cuMemcpyAsync");
	staged = calls("cuMemcpyHtoDAsync");
	imported = calls("cuMemImportFromShareableHandle");
	ck_assert_int_eq(gpushm_resume(b, 10000), GPUSHM_OTHER_PAGES);
	ck_assert_uint_eq(calls("cuMemcpyAsync") - copied, 1);
	ck_assert_uint_eq(calls("cuMemcpyHtoDAsync") - staged, 0);
	ck_assert_uint_eq(calls("cuMemImportFromShareableHandle") - imported, imports);
	ck_assert(bytes_are_right(b));
}

START_TEST(a_pinned_twin_is_copied_from_where_it_lies_and_stays_mapped)
{
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	fakecuda_calls_fn *calls =
		driver ? (fakecuda_calls_fn *)dlsym(driver, "fakecuda_calls") : NULL;
	struct gpushm_buffer *b;

	if (!calls || !pool_of(GPUSHM_PINNED) || !pool_of(GPUSHM_VMM))
		return; /* a real driver, or none */
	b = make(pool_of(GPUSHM_VMM), GPUSHM_SEALED);
	ck_works(gpushm_make_twin(c, "~/b", pool_of(GPUSHM_PINNED)));
	comes_back_with(b, calls, 3);
	comes_back_with(b, calls, 2);
	/* Nothing of others' is mapped in a process that may be parked. */
	ck_works(gpushm_may_park(c, NULL));
	comes_back_with(b, calls, 3);
	comes_back_with(b, calls, 3);
	ck_works(gpushm_may_park(c, "a test"));
	comes_back_with(b, calls, 3);
	comes_back_with(b, calls, 2);
	client_close_and_unlink(b, "~/b");
	ck_assert_uint_eq(used(pool_of(GPUSHM_PINNED)), 0);
	dlclose(driver);
}
END_TEST

START_TEST(the_memory_of_an_evicted_buffer_is_free)
{
	struct gpushm_buffer *b = make("host", GPUSHM_SEALED);
	uint64_t one = used("host");

	ck_works(gpushm_make_twin(c, "~/b", "host"));
	ck_assert_uint_eq(used("host"), 2 * one);
	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_evict(c, "~/b"));
	ck_assert_uint_eq(used("host"), one);
	ck_works(gpushm_close(b));
	ck_works(gpushm_unlink(c, "~/b")); /* the twin goes with it */
	ck_assert_uint_eq(used("host"), 0);
}
END_TEST

START_TEST(what_is_used_or_has_no_twin_is_not_evicted)
{
	struct gpushm_buffer *b = make("host", GPUSHM_SEALED);
	char pid[32];

	snprintf(pid, sizeof(pid), "process %d", getpid());
	ck_refuses(gpushm_evict(c, "~/b"), EBUSY, "no twin");
	ck_works(gpushm_make_twin(c, "~/b", "host"));
	ck_refuses(gpushm_make_twin(c, "~/b", "host"), EEXIST, "has a twin");
	ck_refuses(gpushm_evict(c, "~/b"), EBUSY, pid);
	ck_assert(bytes_are_right(b));
	client_close_and_unlink(b, "~/b");
	b = make("host", GPUSHM_SHARED);
	ck_refuses(gpushm_make_twin(c, "~/b", "host"), EBUSY, "not sealed");
	ck_refuses(gpushm_evict(c, "~/b"), EBUSY, "not sealed");
	client_close_and_unlink(b, "~/b");
	ck_refuses(gpushm_evict(c, "~/b"), ENOENT, "no buffer");
}
END_TEST

START_TEST(an_evicted_buffer_can_be_renamed_and_unlinked)
{
	struct gpushm_buffer *b = make_evicted("host"), *other = NULL;

	ck_works(gpushm_rename(c, "~/b", "~/other", 0));
	ck_works(gpushm_open(c, "~/other", GPUSHM_READ, 0, NULL, &other));
	ck_assert(bytes_are_right(other));
	ck_works(gpushm_close(other));
	ck_works(gpushm_evict(c, "~/other"));
	ck_works(gpushm_unlink(c, "~/other"));
	ck_assert_int_eq(gpushm_resume(b, 10000),
			 GPUSHM_OTHER_PAGES); /* its lease has kept it, and its twin */
	ck_assert(bytes_are_right(b));
	ck_works(gpushm_close(b));
}
END_TEST

START_TEST(the_table_of_an_evicted_buffer_can_be_read)
{
	const struct gpushm_open_options o = { .struct_size = sizeof(o), .flags = GPUSHM_TABLE };
	struct gpushm_buffer *b = make_evicted("host"), *table = NULL;
	unsigned char byte;

	ck_works(gpushm_open(c, "~/b", GPUSHM_READ, 0, &o, &table));
	ck_refuses(gpushm_read(table, 0, &byte, 1), EBADF, "without its memory");
	ck_refuses(gpushm_resume(table, 0), EBUSY, "its table alone");
	ck_refuses(gpushm_suspend(table, 0), EBUSY, "its table alone");
	ck_assert_ptr_null(gpushm_buffer_host_ptr(table));
	ck_assert_int_eq(gpushm_buffer_device(table), -1);
	ck_assert_uint_eq(gpushm_buffer_bytes(table), BYTES);
	ck_works(gpushm_close(table));
	ck_assert_int_eq(residence(), GPUSHM_IN_TWIN);
	client_close_and_unlink(b, "~/b");
}
END_TEST

/* ---- many ---- */

/* socket: opens, compares, and prints what it found. */
static int open_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;

	if (gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_open(conn, "~/b", GPUSHM_READ, 20000, NULL, &b) < 0)
		return fprintf(stderr, "%s\n", gpushm_error()), 1;
	puts(bytes_are_right(b) ? "right" : "wrong");
	if (gpushm_close(b) < 0)
		return 1;
	gpushm_disconnect(conn);
	return 0;
}

static void all_get_it(const char *pool)
{
	struct gpushm_buffer *b = make_evicted(pool);
	const char *args[] = { d.socket, NULL };
	struct role_process workers[WORKERS];
	char line[16];

	for (int i = 0; i < WORKERS; i++)
		role_start(&workers[i], "open", args);
	for (int i = 0; i < WORKERS; i++) {
		role_read_line(&workers[i], line, sizeof(line));
		ck_assert_str_eq(line, "right");
		role_finish(&workers[i]);
	}
	ck_assert_int_eq(residence(), GPUSHM_RESIDENT);
	ck_assert_int_eq(gpushm_resume(b, 10000), GPUSHM_OTHER_PAGES);
	client_close_and_unlink(b, "~/b");
}

START_TEST(processes_that_open_it_at_once_all_get_it)
{
	for (size_t i = 0; i < n_pools; i++)
		if (is_suspendable(pools[i]))
			all_get_it(pools[i]->name);
}
END_TEST

static void *resume_it(void *arg)
{
	ck_assert_int_eq(gpushm_resume(arg, 10000), GPUSHM_OTHER_PAGES);
	return NULL;
}

START_TEST(a_process_that_dies_while_it_restores_leaves_it_to_the_next)
{
	struct gpushm_buffer *b = make_evicted("host"), *dying = NULL;
	struct gpushm *others = NULL;
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "host" };
	pthread_t thread;
	char name[64];

	/* As a process does that copies. */
	snprintf(name, sizeof(name), "~/.restore-%" PRIu64, gpushm_buffer_id(b));
	ck_works(gpushm_connect(d.socket, &others));
	ck_works(gpushm_create(others, name, BYTES, &o, &dying));
	ck_refuses(gpushm_resume(b, 100), ETIMEDOUT, "");
	ck_assert_int_eq(gpushm_buffer_suspended(b), 1);
	pthread_create(&thread, NULL, resume_it, b);
	ck_works(gpushm_discard(dying));
	pthread_join(thread, NULL);
	gpushm_disconnect(others);
	ck_assert(bytes_are_right(b));
	client_close_and_unlink(b, "~/b");
}
END_TEST

/* Who fills the memory decides what is in it. */
START_TEST(another_user_does_not_restore_an_evicted_buffer)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "host", .mode = 0644 };
	struct gpushm_buffer *b;
	struct role_process other;
	char why[256];

	if (!user_may_change())
		return;
	b = client_create("b", BYTES, &o);
	ck_works(gpushm_publish(b, GPUSHM_SEALED));
	ck_works(gpushm_make_twin(c, "b", "host"));
	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_evict(c, "b"));
	user_start(&other, d.socket, STRANGER, STRANGER);
	user_does(&other, "open b read", "EVICTED");
	user_error(&other, why, sizeof(why));
	ck_assert_msg(strstr(why, "gpushmctl promote"), "%s", why);
	ck_assert_int_eq(gpushm_resume(b, 10000), GPUSHM_OTHER_PAGES);
	user_does(&other, "open b read", "OK");
	user_end(&other);
	client_close_and_unlink(b, "b");
}
END_TEST

/* ---- the daemon dies ---- */

START_TEST(the_next_daemon_knows_what_is_evicted)
{
	for (size_t i = 0; i < n_pools; i++) {
		struct gpushm_buffer *b;

		if (!is_suspendable(pools[i]))
			continue;
		b = make_evicted(pools[i]->name);
		kept_crash();
		ck_assert_int_eq(residence(), GPUSHM_IN_TWIN);
		ck_assert_int_eq(gpushm_resume(b, 10000), GPUSHM_OTHER_PAGES);
		ck_assert(bytes_are_right(b));
		kept_crash();
		ck_assert_int_eq(residence(), GPUSHM_RESIDENT);
		ck_assert(bytes_are_right(b));
		ck_works(gpushm_suspend(b, 0));
		ck_works(gpushm_evict(c, "~/b"));
		ck_works(gpushm_close(b));
		kept_crash();
		ck_works(gpushm_open(c, "~/b", GPUSHM_READ, 0, NULL, &b));
		ck_assert(bytes_are_right(b));
		client_close_and_unlink(b, "~/b");
	}
}
END_TEST

/* A supervisor that has an fd of this name keeps another one beside it. */
START_TEST(the_supervisor_keeps_each_memory_once)
{
	struct gpushm_buffer *b = make("host", GPUSHM_SEALED);

	if (supervisor_skips("the_supervisor_keeps_each_memory_once"))
		return;
	ck_works(gpushm_make_twin(c, "~/b", "host"));
	ck_works(gpushm_set_keep(c, "~/b", 0, 1));
	ck_works(gpushm_set_keep(c, "~/b", 0, 2));
	ck_assert_uint_eq(supervisor_count(&k, 'm'), 2);
	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_evict(c, "~/b"));
	ck_assert_uint_eq(supervisor_count(&k, 'm'), 1);
	ck_assert_int_eq(gpushm_resume(b, 10000), GPUSHM_OTHER_PAGES);
	ck_assert_uint_eq(supervisor_count(&k, 'm'), 2);
	ck_assert_uint_eq(supervisor_count(&k, 't'), 0);
	client_close_and_unlink(b, "~/b");
}
END_TEST

int main(int argc, char **argv)
{
	static const struct role roles[] = { { "open", open_role }, { "user", user_role } };
	TCase *t = tcase_create("evict"), *kept = tcase_create("restart");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, an_evicted_buffer_comes_back_at_its_addresses);
	tcase_add_test(t, a_pinned_twin_is_copied_from_where_it_lies_and_stays_mapped);
	tcase_add_test(t, the_memory_of_an_evicted_buffer_is_free);
	tcase_add_test(t, what_is_used_or_has_no_twin_is_not_evicted);
	tcase_add_test(t, an_evicted_buffer_can_be_renamed_and_unlinked);
	tcase_add_test(t, the_table_of_an_evicted_buffer_can_be_read);
	tcase_add_test(t, processes_that_open_it_at_once_all_get_it);
	tcase_add_test(t, a_process_that_dies_while_it_restores_leaves_it_to_the_next);
	tcase_add_test(t, another_user_does_not_restore_an_evicted_buffer);
	tcase_add_checked_fixture(kept, setup_kept, teardown_kept);
	tcase_set_timeout(kept, 120);
	tcase_add_test(kept, the_next_daemon_knows_what_is_evicted);
	tcase_add_test(kept, the_supervisor_keeps_each_memory_once);
	return suite_run("evict", t, kept, NULL);
}
