/* SPDX-License-Identifier: MIT
 *
 * A daemon that runs out of memory, at each of its allocations in turn: a client's whole session
 * runs again and again, and each time another allocation fails, until all have failed once. The
 * daemon replies with an error or closes the connection, continues to serve other clients, and
 * keeps nothing. And a daemon that has freed many objects gives their memory back to the kernel.
 */
#include "client/gpushm_query.h"
#include "client/gpushm_stream.h"
#include "proto/base/own.h"
#include "tests/adversary/failmalloc.h"
#include "tests/lib/census.h"
#include "tests/lib/result.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define USERS "allow-users=0 65529\nallow-groups=0 65529\n"
#define GPU(kind) "[pool " kind "]\nkind=" kind "\npending-max-age=0\n" USERS
/* Without a driver the last three pools have failed, and are left out. */
#define CONFIG                                           \
	CENSUS_CONFIG USERS GPU("vmm") GPU("mempool")    \
		GPU("pinned") "[limits]\nmax-bytes=1G\n" \
			      "[limits 65529]\nmax-bytes=1G\n"
#define PLAYS_MAX 1000 /* a session has fewer allocations */
#define ASKED 200      /* how often a request is repeated */
#define STAGE "stage/of/what/is/played/in/a/moment/here"
#define HELD 4000   /* buffers; two fds of the daemon each */
#define EVENTS 5000 /* more than the event log keeps */

static struct daemon d;
static struct gpushm *c; /* connected before anything fails */
static struct census before;
static struct failmalloc *shared;

static void setup(void)
{
	char path[] = "/tmp/gpushm-failmalloc-XXXXXX";
	_cleanup_(close_fd) int fd = mkostemp(path, O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, sizeof(*shared)), 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	setenv(FAILMALLOC_ENV, path, 1);
	daemon_start_with(&d, CONFIG,
			  &(struct daemon_options){ .program = "tests/gpushmd-failmalloc" });
	unlink(path);
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
	census_take(&d, c, &before);
}

static void teardown(void)
{
	c = gpushm_disconnect(c);
	daemon_stop(&d);
	munmap(shared, sizeof(*shared));
}

/* ---- a session ---- */

/* The first failure, for the test to judge; "OK" if there was none. */
static char trouble[32] = "OK";

static bool good(int r)
{
	if (r < 0 && strcmp(trouble, "OK") == 0)
		snprintf(trouble, sizeof(trouble), "%s",
			 gpushm_error_code()[0] ? gpushm_error_code()
			 : r == -ECONNRESET	? "RESET"
						: "?");
	return r >= 0;
}

static void look_around(struct gpushm *conn)
{
	struct gpushm_status *status = NULL;
	struct gpushm_pool **pools = NULL;
	struct gpushm_stat *st = NULL, **all = NULL;
	size_t n = 0;

	if (good(gpushm_stat(conn, "played", 0, GPUSHM_HOLDERS, &st)))
		gpushm_free(st);
	if (good(gpushm_list(conn, "", GPUSHM_HOLDERS, &all, &n)))
		gpushm_free(all);
	if (good(gpushm_status(conn, &status)))
		gpushm_free(status);
	if (good(gpushm_pools(conn, &pools, &n)))
		gpushm_free(pools);
}

static struct gpushm_buffer *make(struct gpushm *conn, const char *pool)
{
	static const struct gpushm_attr attrs[] = { { sizeof(*attrs), "step", "1", 1 },
						    { sizeof(*attrs), "lang", "en", 2 } };
	static const struct gpushm_attr later[] = { { sizeof(*later), "step", "2", 1 },
						    { sizeof(*later), "lang", NULL, 0 } };
	struct gpushm_create_options o = {
		.struct_size = sizeof(o), .attrs = attrs, .n_attrs = 2, .pool = pool
	};
	const int64_t shape[] = { 4 };
	struct gpushm_array_spec specs[40];
	struct gpushm_buffer *b = NULL;
	char names[40][8];

	memset(specs, 0, sizeof(specs));
	for (size_t i = 0; i < array_size(specs); i++) {
		snprintf(names[i], sizeof(names[i]), "a%zu", i);
		specs[i].struct_size = sizeof(*specs);
		specs[i].name = names[i];
		specs[i].ndim = 1;
		specs[i].shape = shape;
		gpushm_dtype_parse("float32", &specs[i].dtype);
	}
	if (!good(gpushm_create_arrays(conn, "played", specs, array_size(specs), &o, &b)))
		return NULL;
	/* Under a name of 40 bytes, which is an allocation of its own. */
	if (good(gpushm_set_attrs(b, later, array_size(later))) &&
	    good(gpushm_publish_as(b, GPUSHM_SHARED, STAGE, 0)))
		good(gpushm_rename(conn, STAGE, "played", 0));
	return b;
}

static void watch(struct gpushm *conn, const struct gpushm_buffer *b)
{
	struct gpushm_watch *w = NULL;
	struct gpushm_event e = { .struct_size = sizeof(e) };

	if (good(gpushm_watch_new(conn, &w)) && good(gpushm_watch_buffer(w, b)) &&
	    good(gpushm_watch_name(w, "played")) && gpushm_wait(conn, "played", 0) == 0)
		good(gpushm_watch_next(w, GPUSHM_WAIT_FOREVER, &e));
	gpushm_watch_free(w);
}

/* A mempool has no streams. */
static void follow(struct gpushm *conn, struct gpushm *second, const char *pool)
{
	const int64_t shape[] = { 4 };
	struct gpushm_array_spec array = {
		.struct_size = sizeof(array), .name = "x", .ndim = 1, .shape = shape
	};
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	const struct gpushm_stream_spec spec = {
		.struct_size = sizeof(spec), .arrays = &array, .n_arrays = 1, .slots = 2
	};
	struct gpushm_stream *s = NULL, *reader = NULL;
	struct gpushm_stream_info **info = NULL;
	size_t n = 0;

	gpushm_dtype_parse("float32", &array.dtype);
	if (strcmp(pool, "mempool") == 0 ||
	    !good(gpushm_stream_create(conn, "stream", &spec, &o, &s)))
		return;
	if (second)
		good(gpushm_stream_open(second, "stream", GPUSHM_SHARE, 1, 0, NULL, &reader));
	if (good(gpushm_streams(conn, "", &info, &n)))
		gpushm_free(info);
	gpushm_stream_close(reader);
	gpushm_stream_close(s);
}

/* socket pool: plays the whole session, whatever fails, and prints the first failure. */
static int player_role(char **args)
{
	struct gpushm *conn = NULL, *second = NULL;
	struct gpushm_buffer *b = NULL, *reader = NULL;

	good(gpushm_connect(args[0], &conn));
	if (conn)
		b = make(conn, args[1]);
	if (conn)
		look_around(conn);
	if (b)
		watch(conn, b);
	good(gpushm_connect(args[0], &second));
	if (second && good(gpushm_open(second, "played", GPUSHM_WRITE, 0, NULL, &reader)))
		good(gpushm_close(reader));
	if (conn)
		follow(conn, second, args[1]);
	if (b)
		good(gpushm_close(b));
	if (conn) {
		gpushm_unlink(conn, "played");
		gpushm_unlink(conn, STAGE);
	}
	puts(trouble);
	gpushm_disconnect(second);
	gpushm_disconnect(conn);
	return 0;
}

static const struct role roles[] = { { "player", player_role } };

static bool is_honest(const char *said)
{
	/* After a failed step the next ones find no buffer, or no connection. */
	return strcmp(said, "NO_MEMORY") == 0 || strcmp(said, "RESET") == 0;
}

/* Plays with the n-th allocation failing; n 0: none fails. Returns whether there were fewer than n.
 */
static bool play(const char *pool, long n)
{
	struct role_process p;
	char said[64];
	bool untouched;

	atomic_store(&shared->left, n);
	role_start(&p, "player", (const char *[]){ d.socket, pool, NULL });
	role_read_line(&p, said, sizeof(said));
	role_finish(&p);
	untouched = n == 0 || atomic_load(&shared->left) > 0;
	atomic_store(&shared->left, 0);
	ck_assert_msg(strcmp(said, "OK") == 0 || (!untouched && is_honest(said)),
		      "pool %s, allocation %ld: %s", pool, n, said);
	/* If CLOSE or UNLINK could not be sent, the name still exists. */
	gpushm_unlink(c, "played");
	gpushm_unlink(c, STAGE);
	gpushm_unlink(c, "stream");
	return untouched;
}

static void play_on(const char *pool)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_buffer *held = NULL;
	struct census now;
	long n = 1;

	/* A pool keeps what it allocates at its first use. */
	play(pool, 0);
	do
		census_take(&d, c, &now);
	while (now.peers != before.peers);
	/* The pool's worker does one thing after the other: once this buffer exists, all that was
	 * freed before is gone. */
	ck_assert_int_eq(gpushm_create(c, "held", 100, &o, &held), 0);
	census_take(&d, c, &now);
	for (; !play(pool, n); n++) {
		ck_assert_int_lt(n, PLAYS_MAX);
		census_await(&d, c, &now);
	}
	ck_assert_int_gt(n, 15);
	ck_assert_int_eq(gpushm_discard(held), 0);
}

START_TEST(the_daemon_survives_each_failed_allocation)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	size_t n = 0;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	for (size_t i = 0; i < n; i++)
		if (!pools[i]->failed)
			play_on(pools[i]->name);
	ck_assert_uint_eq(census_violations(&d, c), 0);
}
END_TEST

/* Counts the daemon's allocations while f runs. */
static long count_allocations(void (*f)(void))
{
	const long plenty = 1l << 40;

	atomic_store(&shared->left, plenty);
	for (int i = 0; i < ASKED; i++)
		f();
	return plenty - atomic_exchange(&shared->left, 0);
}

static void look(void)
{
	struct gpushm_stat *st = NULL;

	ck_assert_int_eq(gpushm_stat(c, "hot", 0, 0, &st), 0);
	gpushm_free(st);
}

static void attach(void)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_int_eq(gpushm_open(c, "hot", GPUSHM_READ, 0, NULL, &b), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	look(); /* CLOSE has no reply */
}

START_TEST(a_stat_allocates_nothing_and_an_open_only_its_lease)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_int_eq(gpushm_create(c, "hot", 100, NULL, &b), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	look();
	ck_assert_int_eq(count_allocations(look), 0);
	ck_assert_int_eq(count_allocations(attach), ASKED);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "hot"), 0);
	census_await(&d, c, &before);
}
END_TEST

static unsigned reloads(void)
{
	return daemon_log_count(&d, "configuration reloaded") +
	       daemon_log_count(&d, "the old configuration stays in force");
}

START_TEST(a_reload_without_memory_keeps_the_configuration)
{
	struct gpushm_buffer *b = NULL;
	long n = 0;

	do {
		unsigned had = reloads();

		ck_assert_int_lt(++n, PLAYS_MAX);
		atomic_store(&shared->left, n);
		ck_assert_int_eq(kill(d.pid, SIGHUP), 0);
		for (int waited = 0; reloads() == had; waited += 10) {
			ck_assert_int_lt(waited, 60000);
			poll(NULL, 0, 10);
		}
		if (atomic_load(&shared->left) > 0)
			break;
		ck_assert_int_eq(gpushm_create(c, "x", 100, NULL, &b), 0);
		ck_assert_int_eq(gpushm_discard(b), 0);
	} while (true);
	atomic_store(&shared->left, 0);
	ck_assert_int_gt(n, 5);
	census_await(&d, c, &before);
}
END_TEST

/* ---- what was freed ---- */

/* So that the daemon's rings of events have all the memory that they ever take. */
static void fill_event_log(void)
{
	struct gpushm_buffer *b;

	for (int i = 0; i < EVENTS; i++) {
		ck_assert_int_eq(gpushm_create(c, "event", 100, NULL, &b), 0);
		ck_assert_int_eq(gpushm_discard(b), 0);
	}
}

START_TEST(freed_buffers_return_their_memory_to_the_system)
{
	static struct gpushm_buffer *all[HELD];
	struct gpushm *last = NULL;
	long idle, full;
	char name[24];

	if (suite_is_sanitized())
		return;
	fill_event_log();
	idle = census_anonymous(&d);
	for (int i = 0; i < HELD; i++) {
		snprintf(name, sizeof(name), "held/%d", i);
		ck_assert_msg(gpushm_create(c, name, 100, NULL, &all[i]) == 0, "%s",
			      gpushm_error());
	}
	/* What is allocated now lies above all of it and stays. */
	ck_assert_int_eq(gpushm_connect(d.socket, &last), 0);
	full = census_anonymous(&d);
	ck_assert_int_gt(full - idle, 1024);
	for (int i = 0; i < HELD; i++)
		ck_assert_int_ge(gpushm_close(all[i]), 0); /* 1: never published */
	while (census_anonymous(&d) - idle > (full - idle) / 4)
		poll(NULL, 0, 10);
	gpushm_disconnect(last);
	census_await(&d, c, &before);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *t = tcase_create("memory");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 600);
	tcase_add_test(t, the_daemon_survives_each_failed_allocation);
	tcase_add_test(t, a_stat_allocates_nothing_and_an_open_only_its_lease);
	tcase_add_test(t, a_reload_without_memory_keeps_the_configuration);
	tcase_add_test(t, freed_buffers_return_their_memory_to_the_system);
	return suite_run("memory", t, NULL);
}
