/* SPDX-License-Identifier: MIT
 *
 * A process that comes back to a buffer finds what has its name now: the same pages, other pages
 * with the same bytes, another generation of the name, or a refusal; always at the same addresses.
 */
#include "client/gpushm_memory.h"
#include "client/gpushm_query.h"
#include "proto/base/own.h"
#include "proto/kind.h"
#include "tests/lib/client.h"
#include "tests/lib/kept.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES ((uint64_t)1 << 20)
#define STRANGER 54321
#define STORM_MS 1500
#define STORM_OPENS 3

#define ck_works(call) ck_assert_msg((call) == 0, "%s", gpushm_error())

/* A buffer of one array that has this value everywhere, published as "~/b" in the place of another
 * one. */
static struct gpushm_buffer *make_in(const char *pool, const char *name, int value, int64_t n)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool, .mode = 0644 };
	struct gpushm_array_spec spec = { .struct_size = sizeof(spec), .ndim = 1, .shape = &n };
	struct gpushm_buffer *b = NULL;
	_cleanup_(free_ptr) unsigned char *bytes = malloc((size_t)n);

	memset(bytes, value, (size_t)n);
	ck_works(gpushm_dtype_parse("uint8", &spec.dtype));
	ck_works(gpushm_create_arrays(c, "~/new", &spec, 1, &o, &b));
	ck_works(gpushm_write(b, 0, bytes, (uint64_t)n));
	ck_works(gpushm_publish_as(b, GPUSHM_SEALED, name, GPUSHM_REPLACE));
	return b;
}

static struct gpushm_buffer *make(int value)
{
	return make_in("host", "~/b", value, BYTES);
}

static void replace(int value)
{
	ck_works(gpushm_close(make(value)));
}

static int value_of(const struct gpushm_buffer *b)
{
	_cleanup_(free_ptr) unsigned char *bytes = malloc(BYTES);

	ck_works(gpushm_read(b, 0, bytes, BYTES));
	for (uint64_t i = 1; i < BYTES; i++)
		if (bytes[i] != bytes[0])
			return -1;
	return bytes[0];
}

#define ck_resumes(b, expected)                                                \
	do {                                                                   \
		int r_ = gpushm_resume(b, 10000);                              \
		ck_assert_msg(r_ == (expected), "%d: %s", r_, gpushm_error()); \
		ck_assert_int_eq(gpushm_buffer_suspended(b), r_ < 0);          \
	} while (0)

#define ck_refuses(call, error, words)                                              \
	do {                                                                        \
		ck_assert_int_eq(call, -(error));                                   \
		ck_assert_msg(strstr(gpushm_error(), words), "%s", gpushm_error()); \
	} while (0)

static uint32_t holders(const char *name)
{
	struct gpushm_stat *st = NULL;
	uint32_t n;

	ck_works(gpushm_stat(c, name, 0, 0, &st));
	n = st->readers + st->writers;
	gpushm_free(st);
	return n;
}

/* ---- what it finds ---- */

START_TEST(another_generation_is_at_the_same_addresses)
{
	struct gpushm_pool **pools = NULL;
	size_t n = 0;

	ck_works(gpushm_pools(c, &pools, &n));
	for (size_t i = 0; i < n; i++) {
		struct gpushm_buffer *b;
		void *host, *device;
		uint64_t id, used;

		if (pools[i]->failed || kind_opens_pool(pools[i]->kind))
			continue;
		b = make_in(pools[i]->name, "~/b", 1, BYTES);
		host = gpushm_buffer_host_ptr(b);
		device = gpushm_buffer_device_ptr(b);
		id = gpushm_buffer_id(b);
		used = client_used_bytes();
		for (int round = 2; round < 5; round++) {
			ck_works(gpushm_suspend(b, 0));
			ck_works(gpushm_close(make_in(pools[i]->name, "~/b", round, BYTES)));
			ck_resumes(b, GPUSHM_OTHER_GENERATION);
			ck_assert_int_eq(value_of(b), round);
			ck_assert_ptr_eq(gpushm_buffer_host_ptr(b), host);
			ck_assert_ptr_eq(gpushm_buffer_device_ptr(b), device);
			ck_assert_uint_ne(gpushm_buffer_id(b), id);
			ck_assert_uint_eq(gpushm_buffer_notice(b) & 0xff, GPUSHM_NOTICE_SEALED);
			ck_assert_uint_eq(holders("~/b"), 1);
			ck_works(gpushm_flush(c, pools[i]->name));
			ck_assert_uint_eq(client_used_bytes(), used);
		}
		ck_works(gpushm_suspend(b, 0));
		ck_resumes(b, 0);
		client_close_and_unlink(b, "~/b");
	}
	gpushm_free(pools);
}
END_TEST

START_TEST(another_layout_is_refused_and_the_old_bytes_stay)
{
	struct gpushm_buffer *b = make(1), *other = NULL;
	uint64_t used = client_used_bytes(), id = gpushm_buffer_id(b);

	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_close(make_in("host", "~/b", 2, BYTES / 2)));
	ck_refuses(gpushm_resume(b, 1000), ESTALE, "close it, and open the name again");
	ck_assert_int_eq(gpushm_buffer_suspended(b), 1);
	ck_assert_uint_eq(gpushm_buffer_id(b), id);
	ck_assert_uint_gt(client_used_bytes(), used);
	ck_works(gpushm_unlink(c, "~/b"));
	ck_resumes(b, 0);
	ck_assert_int_eq(value_of(b), 1);
	ck_works(gpushm_close(b));
	ck_assert_int_eq(gpushm_open(c, "~/b", GPUSHM_READ, 0, NULL, &other), -ENOENT);
}
END_TEST

START_TEST(a_name_that_means_nothing_else_leaves_it_as_it_was)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "host" };
	struct gpushm_buffer *b = make(1), *filling;

	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_rename(c, "~/b", "~/old", 0));
	ck_resumes(b, 0);
	ck_works(gpushm_suspend(b, 0));
	filling = client_create("~/b", BYTES, &o);
	ck_resumes(b, 0);
	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_discard(filling));
	ck_works(gpushm_unlink(c, "~/old"));
	ck_resumes(b, 0);
	ck_assert_int_eq(value_of(b), 1);
	ck_works(gpushm_close(b));
}
END_TEST

START_TEST(a_rollback_brings_the_generation_that_has_the_name)
{
	struct gpushm_buffer *b = make(1);
	uint64_t id = gpushm_buffer_id(b);

	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_rename(c, "~/b", "~/old", 0));
	replace(2);
	ck_resumes(b, GPUSHM_OTHER_GENERATION);
	ck_assert_int_eq(value_of(b), 2);
	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_rename(c, "~/old", "~/b", GPUSHM_REPLACE));
	ck_resumes(b, GPUSHM_OTHER_GENERATION);
	ck_assert_int_eq(value_of(b), 1);
	ck_assert_uint_eq(gpushm_buffer_id(b), id);
	client_close_and_unlink(b, "~/b");
}
END_TEST

START_TEST(an_evicted_generation_is_restored)
{
	struct gpushm_buffer *b = make(1);

	ck_works(gpushm_suspend(b, 0));
	replace(2);
	ck_works(gpushm_make_twin(c, "~/b", "host"));
	ck_works(gpushm_evict(c, "~/b"));
	ck_resumes(b, GPUSHM_OTHER_GENERATION);
	ck_assert_int_eq(value_of(b), 2);
	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_evict(c, "~/b"));
	ck_resumes(b, GPUSHM_OTHER_PAGES);
	ck_works(gpushm_suspend(b, 0));
	ck_resumes(b, 0);
	ck_assert_int_eq(value_of(b), 2);
	client_close_and_unlink(b, "~/b");
}
END_TEST

START_TEST(two_opens_of_a_process_have_the_same_generation)
{
	struct gpushm_buffer *a = make(1), *b = NULL;

	ck_works(gpushm_open(c, "~/b", GPUSHM_READ, 0, NULL, &b));
	ck_works(gpushm_suspend(a, 0));
	replace(2);
	ck_resumes(a, 0); /* the other open uses the addresses */
	ck_assert_int_eq(value_of(a), 1);
	ck_works(gpushm_suspend(a, 0));
	ck_works(gpushm_suspend(b, 0));
	ck_resumes(a, GPUSHM_OTHER_GENERATION);
	replace(3);
	ck_resumes(b, GPUSHM_OTHER_GENERATION);
	ck_assert_int_eq(value_of(a), 2);
	ck_assert_int_eq(value_of(b), 2);
	ck_works(gpushm_suspend(a, 0));
	ck_works(gpushm_close(b));
	ck_resumes(a, GPUSHM_OTHER_GENERATION);
	ck_assert_int_eq(value_of(a), 3);
	client_close_and_unlink(a, "~/b");
}
END_TEST

/* ---- another user ---- */

/* socket: opens, suspends, says so, resumes when it is told to, and prints what it gets. */
static int stranger_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;

	if (!user_become(STRANGER, STRANGER) || gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_open(conn, "b", GPUSHM_READ, 10000, NULL, &b) < 0 || gpushm_suspend(b, 0) < 0)
		return fprintf(stderr, "%s\n", gpushm_error()), 1;
	puts("away");
	while (getchar() != EOF)
		printf("%d\n", gpushm_resume(b, 3000));
	return 0;
}

START_TEST(rights_are_those_of_an_open)
{
	const char *args[] = { d.socket, NULL };
	struct role_process p;
	char line[256];
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "host", .mode = 0600 };
	struct gpushm_buffer *b = make_in("host", "b", 1, BYTES), *secret = NULL;

	if (user_may_change()) {
		role_start(&p, "stranger", args);
		role_read_line(&p, line, sizeof(line));
		ck_assert_str_eq(line, "away");
		secret = client_create("c", BYTES, &o);
		ck_works(gpushm_publish(secret, GPUSHM_SEALED));
		ck_works(gpushm_rename(c, "c", "b", GPUSHM_REPLACE));
		role_write_line(&p, "");
		role_read_line(&p, line, sizeof(line));
		ck_assert_int_eq(atoi(line), -EACCES);
		ck_works(gpushm_close(secret));
		role_finish(&p);
	}
	client_close_and_unlink(b, "b");
}
END_TEST

START_TEST(another_user_waits_for_what_is_evicted)
{
	const char *args[] = { d.socket, NULL };
	struct role_process p;
	char line[256];
	struct gpushm_buffer *b = make_in("host", "b", 1, BYTES);

	if (user_may_change()) {
		role_start(&p, "stranger", args);
		role_read_line(&p, line, sizeof(line));
		ck_works(gpushm_make_twin(c, "b", "host"));
		ck_works(gpushm_suspend(b, 0));
		ck_works(gpushm_evict(c, "b"));
		role_write_line(&p, "");
		client_await(client_waiting() == 1);
		ck_resumes(b, GPUSHM_OTHER_PAGES);
		role_read_line(&p, line, sizeof(line));
		ck_assert_int_eq(atoi(line), GPUSHM_OTHER_PAGES);
		role_finish(&p);
	}
	client_close_and_unlink(b, "b");
}
END_TEST

/* ---- the daemon dies ---- */

START_TEST(the_next_daemon_knows_which_generation_a_process_has)
{
	struct gpushm_buffer *b = make(1);

	ck_works(gpushm_suspend(b, 0));
	replace(2);
	kept_crash();
	ck_resumes(b, GPUSHM_OTHER_GENERATION);
	kept_crash();
	ck_assert_uint_eq(holders("~/b"), 1);
	ck_assert_int_eq(value_of(b), 2);
	ck_works(gpushm_make_twin(c, "~/b", "host"));
	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_evict(c, "~/b"));
	ck_resumes(b, GPUSHM_OTHER_PAGES);
	ck_works(gpushm_suspend(b, 0));
	kept_crash();
	ck_resumes(b, 0);
	ck_assert_int_eq(value_of(b), 2);
	client_close_and_unlink(b, "~/b");
}
END_TEST

/* ---- all at once ---- */

static atomic_bool over;

static void *comes_and_goes(void *arg)
{
	while (!over) {
		int r;

		ck_works(gpushm_suspend(arg, GPUSHM_IDLE));
		r = gpushm_resume(arg, 30000);
		ck_assert_msg(r >= 0, "%s", gpushm_error());
		ck_assert_int_ge(value_of(arg), 0);
	}
	return NULL;
}

static void *evicts(void *unused)
{
	struct gpushm *own = NULL;

	ck_works(gpushm_connect(d.socket, &own));
	while (!over) {
		gpushm_make_twin(own, "~/b", "host");
		gpushm_evict(own, "~/b");
		poll(NULL, 0, 1);
	}
	gpushm_disconnect(own);
	return NULL;
}

START_TEST(replaces_evictions_and_other_resumes_may_come_in_between)
{
	struct gpushm_buffer *b[STORM_OPENS] = { make(1) };
	struct gpushm *own[STORM_OPENS] = { NULL };
	pthread_t threads[STORM_OPENS], evicting;
	int value = 1;

	for (int i = 1; i < STORM_OPENS; i++) {
		ck_works(gpushm_connect(d.socket, &own[i]));
		ck_works(gpushm_open(own[i], "~/b", GPUSHM_READ, 0, NULL, &b[i]));
	}
	for (int i = 0; i < STORM_OPENS; i++)
		pthread_create(&threads[i], NULL, comes_and_goes, b[i]);
	pthread_create(&evicting, NULL, evicts, NULL);
	for (uint64_t left = STORM_MS / 10; left > 0; left--) {
		replace(++value % 250);
		poll(NULL, 0, 10);
	}
	over = true;
	pthread_join(evicting, NULL);
	for (int i = 0; i < STORM_OPENS; i++) {
		pthread_join(threads[i], NULL);
		ck_works(gpushm_close(b[i]));
		gpushm_disconnect(own[i]);
	}
	ck_works(gpushm_unlink(c, "~/b"));
}
END_TEST

int main(int argc, char **argv)
{
	static const struct role roles[] = { { "stranger", stranger_role }, { "user", user_role } };
	TCase *t = tcase_create("generations"), *kept = tcase_create("restart");

	role_dispatch(argc, argv, roles, sizeof(roles) / sizeof(*roles));
	tcase_add_checked_fixture(t, client_setup, client_teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, another_generation_is_at_the_same_addresses);
	tcase_add_test(t, another_layout_is_refused_and_the_old_bytes_stay);
	tcase_add_test(t, a_name_that_means_nothing_else_leaves_it_as_it_was);
	tcase_add_test(t, a_rollback_brings_the_generation_that_has_the_name);
	tcase_add_test(t, an_evicted_generation_is_restored);
	tcase_add_test(t, two_opens_of_a_process_have_the_same_generation);
	tcase_add_test(t, rights_are_those_of_an_open);
	tcase_add_test(t, another_user_waits_for_what_is_evicted);
	tcase_add_test(t, replaces_evictions_and_other_resumes_may_come_in_between);
	tcase_add_checked_fixture(kept, kept_setup, kept_teardown);
	tcase_set_timeout(kept, 60);
	tcase_add_test(kept, the_next_daemon_knows_which_generation_a_process_has);
	return suite_run("generations", t, kept, NULL);
}
