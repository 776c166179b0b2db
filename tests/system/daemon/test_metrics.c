/* SPDX-License-Identifier: MIT
 *
 * The daemon's counts: known requests are made, and the counts must grow by exactly these.
 */
#include "client/gpushm_memory.h"
#include "client/gpushm_metrics.h"
#include "proto/base/own.h"
#include "tests/lib/fake.h"
#include "tests/lib/kept.h"
#include "tests/lib/raw.h"
#include "tests/lib/reexec.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define MIB (1u << 20)
#define CONFIG "[pool a]\nkind=host\nsize=64M\n[pool b]\nkind=host\nsize=64M\n"

static const struct role roles[] = { { "user", user_role } };

static void metrics_done(struct gpushm_metrics **m)
{
	gpushm_free(*m);
}
#define METRICS _cleanup_(metrics_done) struct gpushm_metrics *

static struct gpushm_metrics *read_metrics(void)
{
	struct gpushm_metrics *m = NULL;

	ck_assert_msg(gpushm_metrics(c, &m) == 0, "%s", gpushm_error());
	return m;
}

static const struct gpushm_verb_metrics *verb(const struct gpushm_metrics *m, const char *name)
{
	static const struct gpushm_verb_metrics none;

	for (size_t i = 0; i < m->n_verbs; i++)
		if (strcmp(m->verbs[i]->verb, name) == 0)
			return m->verbs[i];
	return &none;
}

static uint64_t results(const struct gpushm_metrics *m, const char *name, const char *code)
{
	const struct gpushm_verb_metrics *v = verb(m, name);

	for (size_t i = 0; i < v->n_results; i++)
		if (strcmp(v->results[i]->code, code) == 0)
			return v->results[i]->count;
	return 0;
}

static uint64_t all_results(const struct gpushm_verb_metrics *v)
{
	uint64_t n = 0;

	for (size_t i = 0; i < v->n_results; i++)
		n += v->results[i]->count;
	return n;
}

static uint64_t all_times(const struct gpushm_metrics *m, const struct gpushm_verb_metrics *v)
{
	uint64_t n = 0;

	for (size_t i = 0; v->buckets && i <= m->n_bounds_ns; i++)
		n += v->buckets[i];
	return n;
}

static const struct gpushm_pool_metrics *pool(const struct gpushm_metrics *m, const char *name)
{
	for (size_t i = 0; i < m->n_pools; i++)
		if (strcmp(m->pools[i]->pool->name, name) == 0)
			return m->pools[i];
	ck_abort_msg("no pool %s", name);
}

static void setup(void)
{
	client_setup_with(CONFIG);
}

static struct gpushm_buffer *publish(const char *name, const char *in, enum gpushm_state state)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = in, .mode = 0666 };
	struct gpushm_buffer *b = client_create(name, MIB, &o);

	ck_assert_msg(gpushm_publish(b, state) == 0, "%s", gpushm_error());
	return b;
}

static struct gpushm_buffer *open_one(const char *name, enum gpushm_access access)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(gpushm_open(c, name, access, 0, NULL, &b) == 0, "%s", gpushm_error());
	return b;
}

START_TEST(each_request_is_counted_once)
{
	METRICS before = read_metrics();
	METRICS after = NULL;
	struct gpushm_buffer *b = publish("x", "a", GPUSHM_SEALED), *other = NULL;

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(gpushm_close(open_one("x", GPUSHM_READ)), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(gpushm_open(c, "no", GPUSHM_READ, 0, NULL, &other), -ENOENT);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_WRITE, 0, NULL, &other), -EROFS);
	ck_assert_int_eq(gpushm_create(c, "x", 1, NULL, &other), -EEXIST);
	client_close_and_unlink(b, "x");
	after = read_metrics();
	ck_assert_uint_eq(results(before, "hello", "OK"), 1);
	ck_assert_uint_eq(results(after, "hello", "OK"), 1);
	ck_assert_uint_eq(results(before, "metrics", "OK"), 0);
	ck_assert_uint_eq(results(after, "metrics", "OK"), 1);
	ck_assert_uint_eq(results(after, "create", "OK"), 1);
	ck_assert_uint_eq(results(after, "create", "EXISTS"), 1);
	ck_assert_uint_eq(results(after, "publish", "OK"), 1);
	ck_assert_uint_eq(results(after, "open", "OK"), 3);
	ck_assert_uint_eq(results(after, "open", "NOT_FOUND"), 2);
	ck_assert_uint_eq(results(after, "open", "READ_ONLY"), 1);
	ck_assert_uint_eq(results(after, "close", "OK"), 4);
	ck_assert_uint_eq(results(after, "unlink", "OK"), 1);
	/* No request waited, so each has its time. */
	for (size_t i = 0; i < after->n_verbs; i++) {
		const struct gpushm_verb_metrics *v = after->verbs[i];

		ck_assert_msg(all_results(v) == all_times(after, v), "%s: %lu results, %lu times",
			      v->verb, (unsigned long)all_results(v),
			      (unsigned long)all_times(after, v));
		ck_assert_uint_gt(v->ns, 0);
		ck_assert_uint_eq(v->waits, 0);
	}
}
END_TEST

START_TEST(a_wait_for_a_name_counts_as_waiting_time)
{
	METRICS m = NULL;
	struct gpushm_buffer *b = NULL;

	ck_assert_int_eq(gpushm_open(c, "late", GPUSHM_READ, 20, NULL, &b), -ETIMEDOUT);
	ck_assert_int_eq(gpushm_open(c, "late", GPUSHM_READ, 0, NULL, &b), -ENOENT);
	ck_assert_int_eq(gpushm_wait(c, "late", 20), -ETIMEDOUT);
	m = read_metrics();
	ck_assert_uint_eq(results(m, "open", "TIMED_OUT"), 1);
	ck_assert_uint_eq(results(m, "open", "NOT_FOUND"), 1);
	ck_assert_uint_eq(results(m, "stat", "TIMED_OUT"), 1);
	ck_assert_uint_eq(all_times(m, verb(m, "open")), 1);
	ck_assert_uint_eq(all_times(m, verb(m, "stat")), 0);
	ck_assert_uint_eq(verb(m, "open")->waits, 1);
	ck_assert_uint_ge(verb(m, "open")->waited_ns, 19000000);
	ck_assert_uint_eq(verb(m, "stat")->waits, 1);
}
END_TEST

START_TEST(an_unknown_request_is_counted_as_unknown)
{
	METRICS m = NULL;
	struct raw r;
	const unsigned char later[] = { 0xfa, 0x3f, 0 }; /* field 1023, a message of 0 bytes */

	raw_greet(&r, d.socket);
	ck_assert_int_eq(raw_send(&r, later, sizeof(later)), 0);
	ck_assert_int_eq(raw_receive(&r), CODE_UNKNOWN_VERB);
	ck_assert_int_eq(raw_send(&r, "\xff\xff", 2), 0);
	raw_await_end(&r);
	raw_close(&r);
	m = read_metrics();
	ck_assert_uint_eq(results(m, "unknown", "UNKNOWN_VERB"), 1);
	/* It gets no reply. */
	ck_assert_uint_eq(all_results(verb(m, "unknown")), 1);
	ck_assert_uint_eq(results(m, "hello", "OK"), 2);
	ck_assert_uint_eq(client_status().violations, 1);
}
END_TEST

START_TEST(states_and_accesses_are_counted)
{
	METRICS m = NULL;
	METRICS end = NULL;
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "a" };
	struct gpushm_buffer *all[] = {
		publish("sealed", "a", GPUSHM_SEALED), publish("one", "b", GPUSHM_SHARED),
		publish("two", "b", GPUSHM_SHARED),    client_create("filling", 1, &o),
		open_one("one", GPUSHM_READ),	       open_one("two", GPUSHM_WRITE)
	};

	ck_assert_int_eq(gpushm_suspend(all[1], 0), 0);
	ck_assert_int_eq(gpushm_suspend(all[4], 0), 0);
	m = read_metrics();
	ck_assert_uint_eq(pool(m, "a")->filling, 1);
	ck_assert_uint_eq(pool(m, "a")->sealed, 1);
	ck_assert_uint_eq(pool(m, "a")->shared, 0);
	ck_assert_uint_eq(pool(m, "b")->filling, 0);
	ck_assert_uint_eq(pool(m, "b")->sealed, 0);
	ck_assert_uint_eq(pool(m, "b")->shared, 2);
	/* Of "sealed" and one of "one"; two of "two", one of "one", and that of "filling". */
	ck_assert_uint_eq(m->read_leases, 2);
	ck_assert_uint_eq(m->write_leases, 4);
	ck_assert_uint_eq(m->away_leases, 2);
	for (size_t i = 0; i < array_size(all); i++)
		ck_assert_int_ge(gpushm_close(all[i]), 0);
	ck_assert_int_eq(gpushm_unlink(c, "sealed"), 0);
	ck_assert_int_eq(gpushm_unlink(c, "one"), 0);
	ck_assert_int_eq(gpushm_unlink(c, "two"), 0);
	end = read_metrics();
	ck_assert_uint_eq(end->read_leases + end->write_leases + end->away_leases, 0);
	for (size_t i = 0; i < end->n_pools; i++)
		ck_assert_uint_eq(end->pools[i]->filling + end->pools[i]->sealed +
					  end->pools[i]->shared,
				  0);
}
END_TEST

static void die_with(const char *command)
{
	struct role_process p;

	user_start(&p, d.socket, geteuid(), getegid());
	user_does(&p, "open x read", "OK");
	if (command)
		user_does(&p, command, "OK");
	kill(p.pid, SIGKILL);
	role_wait(&p);
	client_await(client_status().leases == 1);
}

START_TEST(each_death_is_counted_by_its_role)
{
	METRICS m = NULL;
	struct gpushm_buffer *b = publish("x", "a", GPUSHM_SHARED);

	die_with(NULL);
	die_with(NULL);
	die_with("open x write");
	die_with("create y 0600");
	m = read_metrics();
	ck_assert_uint_eq(m->reader_deaths, 2);
	ck_assert_uint_eq(m->writer_deaths, 1);
	ck_assert_uint_eq(m->creator_deaths, 1);
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(a_restart_is_counted)
{
	METRICS first = read_metrics();
	METRICS second = NULL;
	struct gpushm_buffer *b = reexec_make(NULL, "x", GPUSHM_SHARED);

	ck_assert_uint_eq(first->restarts, 0);
	reexec_restart();
	reexec_restart();
	second = read_metrics();
	ck_assert_uint_eq(second->restarts, 2);
	ck_assert_uint_eq(second->restored, 2);
	ck_assert_uint_eq(second->lost, 0);
	ck_assert_uint_eq(results(second, "create", "OK"), 0);
	ck_assert_uint_eq(second->write_leases, 1);
	ck_assert_uint_ge(second->started_ns, first->started_ns);
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(the_restarts_of_a_killed_daemon_are_counted)
{
	METRICS m = NULL;
	struct gpushm_buffer *b = reexec_make(NULL, "x", GPUSHM_SHARED);

	kept_crash();
	kept_crash();
	m = read_metrics();
	ck_assert_uint_eq(m->restarts, 2);
	ck_assert_uint_eq(m->restored, 2);
	client_close_and_unlink(b, "x");
}
END_TEST

static struct gpushm_driver_call call(const char *name)
{
	METRICS m = read_metrics();

	for (size_t i = 0; i < m->n_driver_calls; i++)
		if (strcmp(m->driver_calls[i]->call, name) == 0)
			return *m->driver_calls[i];
	return (struct gpushm_driver_call){ 0 };
}

START_TEST(driver_calls_are_counted)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "gpu0" };
	struct gpushm_driver_call before;
	struct gpushm_buffer *b = NULL;

	if (!fake_is_here())
		return;
	/* Each of the two pools has one export of its own, and has imported it once. */
	setenv("FAKECUDA_FAIL", "3:cuMemExportToShareableHandle", 1);
	client_setup();
	unsetenv("FAKECUDA_FAIL");
	before = call("cuMemExportToShareableHandle");
	ck_assert_uint_eq(before.count, 2);
	ck_assert_uint_eq(call("cuDeviceGetUuid").count, 1);
	ck_assert_int_eq(gpushm_create(c, "x", MIB, &o, &b), -EIO);
	gpushm_close(client_create("x", MIB, &o));
	ck_assert_uint_eq(call("cuMemExportToShareableHandle").count, 4);
	ck_assert_uint_eq(call("cuMemExportToShareableHandle").failed, 1);
	ck_assert_uint_gt(call("cuMemCreate").ns, 0);
	ck_assert_uint_eq(call("cuMemCreate").count, 4);
	ck_assert_uint_eq(call("cuMemImportFromShareableHandle").count, 2);
	ck_assert_uint_eq(call("cuMemRelease").count, 6);
	client_teardown();
}
END_TEST

int main(int argc, char **argv)
{
	TCase *host = tcase_create("host"), *reexec = tcase_create("reexec");
	TCase *kept = tcase_create("kept"), *driver = tcase_create("driver");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(host, setup, client_teardown);
	tcase_add_test(host, each_request_is_counted_once);
	tcase_add_test(host, a_wait_for_a_name_counts_as_waiting_time);
	tcase_add_test(host, an_unknown_request_is_counted_as_unknown);
	tcase_add_test(host, states_and_accesses_are_counted);
	tcase_add_test(host, each_death_is_counted_by_its_role);
	tcase_add_checked_fixture(reexec, reexec_setup, client_teardown);
	tcase_add_test(reexec, a_restart_is_counted);
	tcase_add_checked_fixture(kept, kept_setup, kept_teardown);
	tcase_add_test(kept, the_restarts_of_a_killed_daemon_are_counted);
	tcase_add_test(driver, driver_calls_are_counted);
	return suite_run("metrics", host, reexec, kept, driver, NULL);
}
