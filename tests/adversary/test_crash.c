/* SPDX-License-Identifier: MIT
 *
 * The daemon dies at every critical place, one after the other: before and after each record of the
 * journal, each fd that it stores, each reply, and the exec of a planned restart. The same client
 * session runs each time and must succeed: nothing is lost, doubled or left behind. Then all of
 * this again with the next daemon, which starts after a crash or after the exec, dying at each of
 * its places.
 */
#include "client/gpushm_memory.h"
#include "client/gpushm_query.h"
#include "client/gpushm_stream.h"
#include "proto/base/own.h"
#include "proto/kind.h"
#include "tests/lib/client.h"
#include "tests/lib/result.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"
#include "tests/lib/supervisor.h"

#include <check.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define PLACES_MAX 2000u
#define BYTES 5000u

static struct supervisor k;

/* ---- the session, in a process of its own ---- */

static void must(int r, const char *what)
{
	if (r == 0)
		return;
	fprintf(stderr, "%s: %d: %s\n", what, r, gpushm_error());
	_exit(1);
}

static void fill(unsigned char *data, char seed)
{
	for (unsigned i = 0; i < BYTES; i++)
		data[i] = (unsigned char)(i * 31u + (unsigned)seed);
}

static struct gpushm_buffer *create(struct gpushm *conn, const char *pool, const char *name,
				    uint32_t flags)
{
	struct gpushm_attr attr = { sizeof(attr), "epoch", name, strlen(name) };
	struct gpushm_create_options o = {
		.struct_size = sizeof(o), .pool = pool, .flags = flags, .attrs = &attr, .n_attrs = 1
	};
	struct gpushm_buffer *b = NULL;
	unsigned char data[BYTES];

	must(gpushm_create(conn, name, BYTES, &o, &b), "create");
	fill(data, name[0]);
	must(gpushm_write(b, 0, data, BYTES), "write");
	return b;
}

/* An unpublished buffer may be lost with the daemon; its name is then free again. */
static struct gpushm_buffer *make(struct gpushm *conn, const char *pool, const char *name,
				  enum gpushm_state state, uint32_t flags)
{
	struct gpushm_buffer *b = create(conn, pool, name, flags);
	int r;

	while ((r = gpushm_publish(b, state)) == -ECONNRESET) {
		/* It says that the buffer ends unpublished. */
		must(gpushm_close(b) < 0, "close of a lost one");
		b = create(conn, pool, name, flags);
	}
	must(r, "publish");
	return b;
}

static void check(struct gpushm_buffer *b, const char *name)
{
	unsigned char want[BYTES], got[BYTES];
	const void *value;
	size_t size;

	fill(want, name[0]);
	must(gpushm_read(b, 0, got, BYTES), "read");
	must(gpushm_buffer_attr(b, "epoch", &value, &size), "attribute");
	must(memcmp(got, want, BYTES) != 0 || size != strlen(name), "contents");
}

/* The buffer of that name has the contents that were made under another one; both first letters
 * differ. */
static void check_name(struct gpushm *conn, const char *name, const char *made_as)
{
	struct gpushm_buffer *b = NULL;

	must(gpushm_open(conn, name, GPUSHM_READ, 0, NULL, &b), name);
	check(b, made_as);
	must(gpushm_close(b), "close of what has a new name");
}

/* Each version takes the name over; whatever happens, the name means one of the two. */
static struct gpushm_buffer *replace(struct gpushm *conn, const char *pool, const char *name,
				     const char *former, const char *made_as)
{
	struct gpushm_buffer *b = create(conn, pool, made_as, 0);
	int r;

	while ((r = gpushm_publish_as(b, GPUSHM_SEALED, name, GPUSHM_REPLACE)) == -ECONNRESET) {
		must(gpushm_close(b) < 0, "close of a lost one");
		check_name(conn, name, former);
		b = create(conn, pool, made_as, 0);
	}
	must(r, "publish under another name");
	return b;
}

static void swap_versions(struct gpushm *conn, const char *pool)
{
	struct gpushm_buffer *v, *w;
	uint32_t word;

	v = make(conn, pool, "v", GPUSHM_SEALED, 0);
	must(gpushm_rename(conn, "v", "name", 0), "rename");
	check_name(conn, "name", "v");
	w = replace(conn, pool, "name", "v", "w");
	check_name(conn, "name", "w");
	must(gpushm_wait(conn, "w", 0) != -ENOENT, "the name of its creation");
	word = gpushm_buffer_notice(v);
	must(!(word & GPUSHM_NOTICE_UNLINKED), "the notice of what was replaced");
	check(v, "v");
	must(gpushm_close(v), "close of what was replaced");
	v = make(conn, pool, "v", GPUSHM_SHARED, 0);
	must(gpushm_rename(conn, "v", "name", GPUSHM_REPLACE), "rename over another one");
	check_name(conn, "name", "v");
	must(gpushm_wait(conn, "v", 0) != -ENOENT, "the former name");
	must(gpushm_close(v) || gpushm_close(w), "close of both");
	check_name(conn, "name", "v");
	must(gpushm_unlink(conn, "name"), "unlink");
}

static void look(struct gpushm *conn, size_t expected, uint32_t holders)
{
	struct gpushm_stat **all = NULL;
	size_t n = 0;

	must(gpushm_list(conn, NULL, 0, &all, &n), "list");
	must(n != expected, "number of buffers");
	for (size_t i = 0; i < n; i++) {
		must(all[i]->readers + all[i]->writers != holders, "number of leases");
		must(all[i]->dirty || all[i]->suspects, "dirty or suspect");
	}
	gpushm_free(all);
}

/* socket, pool */
static int session_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *a, *b, *t, *r = NULL, *w = NULL;

	alarm(60);
	while (gpushm_connect(args[0], &conn) < 0)
		poll(NULL, 0, 1);
	a = make(conn, args[1], "a", GPUSHM_SEALED, 0);
	b = make(conn, args[1], "b", GPUSHM_SHARED, 0);
	t = make(conn, args[1], "t", GPUSHM_SHARED, GPUSHM_TRANSIENT);
	look(conn, 3, 1);
	must(gpushm_open(conn, "a", GPUSHM_READ, 0, NULL, &r), "open");
	must(gpushm_open(conn, "b", GPUSHM_WRITE, 0, NULL, &w), "open to write");
	check(r, "a");
	check(w, "b");
	must(gpushm_restart(conn), "restart");
	must(gpushm_close(t), "close of a transient one");
	look(conn, 2, 2);
	must(gpushm_close(a), "close");
	must(gpushm_close(b), "close");
	must(gpushm_buffer_lost(r) || gpushm_buffer_lost(w), "leases");
	look(conn, 2, 1);
	must(gpushm_unlink(conn, "a"), "unlink");
	check(r, "a");
	must(gpushm_close(r), "close of an unlinked one");
	must(gpushm_close(w), "close");
	look(conn, 1, 0);
	must(gpushm_open(conn, "b", GPUSHM_READ, 0, NULL, &r), "open again");
	check(r, "b");
	must(gpushm_close(r), "close again");
	must(gpushm_unlink(conn, "b"), "unlink");
	swap_versions(conn, args[1]);
	gpushm_disconnect(conn);
	return 0;
}

/* ---- a session with a stream ---- */

/* A stream that was not published yet may be lost with the daemon. */
static struct gpushm_stream *make_stream(struct gpushm *conn, const char *pool)
{
	const int64_t shape[] = { 16 };
	struct gpushm_array_spec array = {
		.struct_size = sizeof(array), .name = "x", .ndim = 1, .shape = shape
	};
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	const struct gpushm_stream_spec spec = { .struct_size = sizeof(spec),
						 .arrays = &array,
						 .n_arrays = 1,
						 .slots = 4,
						 .flags = GPUSHM_ADOPT };
	struct gpushm_stream *s = NULL;
	int r;

	gpushm_dtype_parse("uint8", &array.dtype);
	while ((r = gpushm_stream_create(conn, "s", &spec, &o, &s)) == -ECONNRESET ||
	       r == -ENOENT || r == -EBADF)
		poll(NULL, 0, 1);
	must(r, "create a stream");
	return s;
}

static struct gpushm_stream *follow(struct gpushm *conn, enum gpushm_follow how)
{
	struct gpushm_stream *s = NULL;

	must(gpushm_stream_open(conn, "s", how, 2, 0, NULL, &s), "open a stream");
	return s;
}

static void pass_frame(struct gpushm_stream *from, struct gpushm_stream *const *to, size_t n)
{
	struct gpushm_frame *f = NULL;

	must(gpushm_frame_begin(from, GPUSHM_ON_HOST, 10000, &f), "begin");
	must(gpushm_frame_publish(f, GPUSHM_ON_HOST, "meta", 4), "publish");
	for (size_t i = 0; i < n; i++) {
		must(gpushm_frame_next(to[i], GPUSHM_ON_HOST, 10000, &f), "next");
		must(gpushm_frame_ok(f), "a frame");
		must(gpushm_frame_release(f, GPUSHM_ON_HOST), "release");
	}
}

static void expect_readers(struct gpushm *conn, size_t n)
{
	struct gpushm_stream_info **info = NULL;
	size_t streams = 0;

	must(gpushm_streams(conn, "s", &info, &streams), "streams");
	must(streams != 1 || info[0]->n_readers != n || info[0]->dropped, "number of readers");
	must(info[0]->state != GPUSHM_STREAM_RUNNING || info[0]->producers != 1, "the producer");
	gpushm_free(info);
}

/* socket, pool */
static int streams_role(char **args)
{
	struct gpushm *conn = NULL, *other = NULL;
	struct gpushm_stream *s, *r[3];

	alarm(60);
	while (gpushm_connect(args[0], &conn) < 0 || gpushm_connect(args[0], &other) < 0)
		poll(NULL, 0, 1);
	s = make_stream(conn, args[1]);
	r[0] = follow(other, GPUSHM_EVERY);
	r[1] = follow(other, GPUSHM_LATEST);
	pass_frame(s, r, 2);
	r[2] = follow(other, GPUSHM_SHARE);
	pass_frame(s, r, 3);
	expect_readers(other, 3);
	must(gpushm_restart(conn), "restart");
	pass_frame(s, r, 3);
	must(gpushm_stream_leave(r[1]), "leave");
	expect_readers(other, 2);
	gpushm_stream_close(r[1]);
	r[1] = follow(other, GPUSHM_LATEST);
	pass_frame(s, r + 1, 2);
	pass_frame(s, r, 1);
	expect_readers(other, 3);
	for (int i = 0; i < 3; i++)
		gpushm_stream_close(r[i]);
	expect_readers(other, 0);
	gpushm_stream_close(s);
	gpushm_disconnect(other);
	gpushm_disconnect(conn);
	return 0;
}

/* ---- a session that lets go of its memory ---- */

static void must_be(struct gpushm *conn, const char *name, enum gpushm_residence residence,
		    uint64_t away)
{
	struct gpushm_stat *st = NULL;

	must(gpushm_stat(conn, name, 0, 0, &st), "stat");
	must(st->residence != residence, "residence");
	must(st->away != away, "number of those who are away");
	must(st->keep_ms != 5000 || st->priority != 7, "how long it stays");
	gpushm_free(st);
}

static void let_go(struct gpushm *conn, struct gpushm_buffer *b, const char *name)
{
	must(gpushm_suspend(b, 0), "suspend");
	must_be(conn, name, GPUSHM_RESIDENT, 1);
	must(gpushm_evict(conn, name), "evict");
	must_be(conn, name, GPUSHM_IN_TWIN, 1);
}

static void come_back(struct gpushm *conn, struct gpushm_buffer *b, const char *name,
		      const char *made_as)
{
	must(gpushm_resume(b, 20000) < 0, "resume");
	check(b, made_as);
	must_be(conn, name, GPUSHM_RESIDENT, 0);
}

/* socket, pool */
static int memory_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *a;
	char twin[64];

	alarm(60);
	while (gpushm_connect(args[0], &conn) < 0)
		poll(NULL, 0, 1);
	a = make(conn, args[1], "a", GPUSHM_SEALED, 0);
	must(gpushm_make_twin(conn, "a", "host"), "twin");
	snprintf(twin, sizeof(twin), "~/.twin-%" PRIu64, gpushm_buffer_id(a));
	must(gpushm_wait(conn, twin, 0) != -ENOENT, "the name of the twin");
	must(gpushm_set_keep(conn, "a", 5000, 7), "keep");
	let_go(conn, a, "a");
	must(gpushm_restart(conn), "restart");
	must_be(conn, "a", GPUSHM_IN_TWIN, 1);
	come_back(conn, a, "a", "a");
	let_go(conn, a, "a");
	must(gpushm_rename(conn, "a", "b", 0), "rename");
	must(gpushm_close(a), "close of an evicted one");
	must_be(conn, "b", GPUSHM_IN_TWIN, 0);
	must(gpushm_open(conn, "b", GPUSHM_READ, 20000, NULL, &a), "open of an evicted one");
	come_back(conn, a, "b", "a");
	let_go(conn, a, "b");
	must(gpushm_unlink(conn, "b"), "unlink");
	must(gpushm_resume(a, 20000) < 0, "resume of an unlinked one");
	check(a, "a");
	must(gpushm_suspend(a, 0), "suspend");
	must(gpushm_close(a), "close");
	gpushm_disconnect(conn);
	return 0;
}

/* ---- the daemon's deaths ---- */

static const char *role = "session";

/* A line for each daemon: where it dies, and where the program after its exec does; 0: nowhere. */
static void plan(unsigned n, unsigned s, unsigned m)
{
	char path[96];
	FILE *f;

	snprintf(path, sizeof(path), "%s/plan", k.folder);
	setenv("GPUSHM_CRASH_PLAN", path, 1);
	f = fopen(path, "we");
	ck_assert(f && fprintf(f, "%u %u\n%u 0\n", n, s, m) > 0 && fclose(f) == 0);
}

/* All later daemons live. */
static void end_plan(void)
{
	ck_assert_int_eq(unlink(getenv("GPUSHM_CRASH_PLAN")), 0);
	unsetenv("GPUSHM_CRASH_PLAN");
}

static void expect_nothing_left(const char *when)
{
	struct gpushm_status *s = NULL;

	supervisor_await(&k);
	ck_assert_int_eq(gpushm_connect(k.socket, &c), 0);
	client_await(client_used_bytes() == 0);
	ck_assert_int_eq(gpushm_status(c, &s), 0);
	ck_assert_msg(s->buffers == 0 && s->leases == 0 && s->suspects == 0,
		      "%s: %u buffers, %u leases, %u suspects are left", when, s->buffers,
		      s->leases, s->suspects);
	gpushm_free(s);
	c = gpushm_disconnect(c);
	client_await(supervisor_count(&k, 'm') == 0 && supervisor_count(&k, 't') == 0 &&
		     supervisor_count(&k, 's') == 0);
	ck_assert_uint_eq(supervisor_count(&k, 'j'), 1);
}

/* The first daemon dies at its n-th place, its program after the exec at the s-th, the next daemon
 * after a death at the m-th (0: nowhere). Returns whether all that were to die did. */
static bool run_session(const char *pool, unsigned n, unsigned s, unsigned m)
{
	struct role_process client;
	unsigned deaths = 0;
	siginfo_t info = { 0 };
	char when[64];

	snprintf(when, sizeof(when), "%s: places %u, %u and %u", pool, n, s, m);
	supervisor_init(&k, "");
	k.program = "tests/gpushmd-crashat";
	plan(n, s, m);
	supervisor_spawn(&k);
	role_start(&client, role, (const char *[]){ k.socket, pool, NULL });
	while (info.si_pid == 0) {
		if (supervisor_has_died(&k)) {
			deaths++;
			supervisor_spawn(&k);
		}
		poll(NULL, 0, 1);
		ck_assert_int_eq(waitid(P_PID, (id_t)client.pid, &info,
					WEXITED | WNOHANG | WNOWAIT),
				 0);
	}
	ck_assert_msg(role_wait(&client) == 0, "%s: the session failed", when);
	end_plan();
	supervisor_end(&k, SIGKILL);
	supervisor_spawn(&k);
	expect_nothing_left(when);
	supervisor_end(&k, SIGTERM);
	supervisor_done(&k);
	return deaths == (m ? 2u : 1u);
}

static void name_pools(struct gpushm_pool ***ret, size_t *ret_n)
{
	supervisor_init(&k, "");
	supervisor_start(&k);
	ck_assert_int_eq(gpushm_connect(k.socket, &c), 0);
	ck_assert_int_eq(gpushm_pools(c, ret, ret_n), 0);
	c = gpushm_disconnect(c);
	supervisor_end(&k, SIGTERM);
	supervisor_done(&k);
}

/* Each kind is tested once, not each pool. */
static bool is_first_of_kind(struct gpushm_pool *const *pools, size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (!pools[j]->failed && pools[j]->kind == pools[i]->kind)
			return false;
	return !pools[i]->failed;
}

static enum pool_kind kind;

static void each_pool(void (*fn)(const char *pool))
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	size_t n = 0;

	name_pools(&pools, &n);
	for (size_t i = 0; i < n; i++)
		if (is_first_of_kind(pools, i)) {
			kind = (enum pool_kind)pools[i]->kind;
			fn(pools[i]->name);
		}
}

static void die_everywhere(const char *pool)
{
	unsigned n = 1;

	while (run_session(pool, n, 0, 0))
		ck_assert_uint_lt(n++, PLACES_MAX);
	printf("crash: %s: died at %u places\n", pool, n - 1);
	ck_assert_uint_gt(n, 40);
}

/* The first daemon dies in the middle of the session, so that the next one has buffers and leases
 * to restore. */
static void die_twice(const char *pool)
{
	enum { AMID = 55 };
	unsigned m = 1;

	while (run_session(pool, AMID, 0, m))
		ck_assert_uint_lt(m++, PLACES_MAX);
	printf("crash: %s: died at %u places after a death\n", pool, m - 1);
	ck_assert_uint_gt(m, 20);
}

static void die_after_exec(const char *pool)
{
	unsigned s = 1;

	while (run_session(pool, 0, s, 0))
		ck_assert_uint_lt(s++, PLACES_MAX);
	printf("crash: %s: died at %u places after a planned restart\n", pool, s - 1);
	ck_assert_uint_gt(s, 20);
}

START_TEST(a_session_survives_a_daemon_death_at_any_place)
{
	each_pool(die_everywhere);
}
END_TEST

START_TEST(a_session_survives_a_second_death_during_recovery)
{
	each_pool(die_twice);
}
END_TEST

START_TEST(a_session_survives_a_death_after_a_planned_restart)
{
	each_pool(die_after_exec);
}
END_TEST

START_TEST(a_stream_survives_a_daemon_death_at_any_place)
{
	role = "streams";
	die_everywhere("host");
}
END_TEST

START_TEST(a_stream_survives_a_second_death_during_recovery)
{
	role = "streams";
	die_twice("host");
}
END_TEST

START_TEST(a_stream_survives_a_death_after_a_planned_restart)
{
	role = "streams";
	die_after_exec("host");
}
END_TEST

static void let_go_everywhere(const char *pool)
{
	if (!kind_opens_pool(kind))
		die_everywhere(pool);
}

START_TEST(a_session_that_lets_go_survives_a_daemon_death_at_any_place)
{
	role = "memory";
	each_pool(let_go_everywhere);
}
END_TEST

START_TEST(a_session_that_lets_go_survives_a_second_death_during_recovery)
{
	role = "memory";
	die_twice("host");
}
END_TEST

START_TEST(a_session_that_lets_go_survives_a_death_after_a_planned_restart)
{
	role = "memory";
	die_after_exec("host");
}
END_TEST

static const struct role roles[] = { { "session", session_role },
				     { "streams", streams_role },
				     { "memory", memory_role } };

int main(int argc, char **argv)
{
	TCase *t = tcase_create("crash");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_set_timeout(t, 600);
	tcase_add_test(t, a_session_survives_a_daemon_death_at_any_place);
	tcase_add_test(t, a_session_survives_a_second_death_during_recovery);
	tcase_add_test(t, a_session_survives_a_death_after_a_planned_restart);
	tcase_add_test(t, a_stream_survives_a_daemon_death_at_any_place);
	tcase_add_test(t, a_stream_survives_a_second_death_during_recovery);
	tcase_add_test(t, a_stream_survives_a_death_after_a_planned_restart);
	tcase_add_test(t, a_session_that_lets_go_survives_a_daemon_death_at_any_place);
	tcase_add_test(t, a_session_that_lets_go_survives_a_second_death_during_recovery);
	tcase_add_test(t, a_session_that_lets_go_survives_a_death_after_a_planned_restart);
	return suite_run("crash", t, NULL);
}
