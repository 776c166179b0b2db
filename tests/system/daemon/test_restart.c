/* SPDX-License-Identifier: MIT
 *
 * The daemon dies and another one starts: published buffers exist again, on every kind of pool,
 * with their leases and charges; unpublished ones are gone. A stand-in for systemd keeps the fds.
 */
#include "client/gpushm.h"
#include "proto/base/own.h"
#include "tests/lib/fake.h"
#include "tests/lib/fds.h"
#include "tests/lib/kept.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

#define MIB ((uint64_t)1 << 20)

static struct gpushm_pool **pools;
static size_t n_pools;

static void look(void)
{
	pools = gpushm_free(pools);
	ck_assert_msg(gpushm_pools(c, &pools, &n_pools) == 0, "%s", gpushm_error());
}

static void setup(void)
{
	kept_setup();
	look();
}

static void teardown(void)
{
	pools = gpushm_free(pools);
	kept_teardown();
}

/* Ends the daemon by a signal, starts the next one, and connects again. */
static void crash(int signal)
{
	supervisor_end(&k, signal);
	supervisor_start(&k);
	gpushm_disconnect(c);
	c = NULL;
	ck_assert_msg(gpushm_connect(k.socket, &c) == 0, "%s", gpushm_error());
}

static unsigned char pattern(uint64_t i)
{
	return (unsigned char)(i * 37 + (i >> 9) + 11);
}

static struct gpushm_buffer *make(const char *pool, const char *name, int64_t n)
{
	struct gpushm_attr attr = { sizeof(attr), "epoch", "12", 2 };
	struct gpushm_create_options o = {
		.struct_size = sizeof(o), .pool = pool, .attrs = &attr, .n_attrs = 1
	};
	struct gpushm_array_spec spec = {
		.struct_size = sizeof(spec), .name = "data", .ndim = 1, .shape = &n
	};
	struct gpushm_buffer *b = NULL;
	_cleanup_(free_ptr) unsigned char *bytes = malloc((size_t)n);

	for (int64_t i = 0; i < n; i++)
		bytes[i] = pattern((uint64_t)i);
	ck_assert_int_eq(gpushm_dtype_parse("uint8", &spec.dtype), 0);
	ck_assert_msg(gpushm_create_arrays(c, name, &spec, 1, &o, &b) == 0, "%s: %s", pool,
		      gpushm_error());
	ck_assert_msg(gpushm_write(b, 0, bytes, (uint64_t)n) == 0, "%s", gpushm_error());
	return b;
}

static void fill(unsigned char *bytes, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		bytes[i] = pattern(i);
}

static void check_contents(struct gpushm_buffer *b, uint64_t n)
{
	_cleanup_(free_ptr) unsigned char *bytes = malloc(n), *want = malloc(n);

	fill(want, n);
	ck_assert_int_eq(gpushm_read(b, 0, bytes, n), 0);
	ck_assert_mem_eq(bytes, want, n);
}

/* The library reconnects by itself: the same connection, the same buffer, the same lease. */
static void survive(const char *pool, int signal)
{
	const uint64_t n = MIB + 5;
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_buffer *old = make(pool, "kept", (int64_t)n), *b = NULL, *fresh = NULL;
	uint64_t id = gpushm_buffer_id(old);
	struct gpushm_stat *st = NULL;
	const void *value;
	size_t size;

	ck_assert_int_eq(gpushm_publish(old, GPUSHM_SEALED), 0);
	supervisor_end(&k, signal);
	check_contents(old, n);
	supervisor_spawn(&k);
	ck_assert_msg(gpushm_stat(c, "kept", 0, GPUSHM_HOLDERS, &st) == 0, "%s: %s", pool,
		      gpushm_error());
	ck_assert_uint_eq(st->id, id);
	ck_assert_uint_eq(st->digest, gpushm_buffer_digest(old));
	ck_assert_uint_eq(st->n_attrs, 1);
	ck_assert_uint_eq(st->readers, 1);
	ck_assert_uint_eq(st->suspects, 0);
	gpushm_free(st);
	ck_assert_int_eq(gpushm_buffer_lost(old), 0);
	ck_assert_msg(gpushm_open(c, "kept", GPUSHM_READ, 0, NULL, &b) == 0, "%s: %s", pool,
		      gpushm_error());
	ck_assert_uint_eq(gpushm_buffer_id(b), id);
	ck_assert_int_eq(gpushm_buffer_attr(b, "epoch", &value, &size), 0);
	check_contents(b, n);
	/* The driver may not have started yet: a create waits for it. */
	ck_assert_msg(gpushm_create(c, "~/new", 100, &o, &fresh) == 0, "%s: %s", pool,
		      gpushm_error());
	ck_assert_int_eq(gpushm_discard(fresh), 0);
	supervisor_await(&k);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_close(old), 0);
	ck_assert_int_eq(gpushm_unlink(c, "kept"), 0);
}

/* socket name state: creates and publishes, prints ok, waits for the end of its input. */
static int maker_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	char word[8];

	if (gpushm_connect(args[0], &conn) < 0 || gpushm_create(conn, args[1], 5000, NULL, &b) < 0)
		return 1;
	if (strcmp(args[2], "filling") != 0 && gpushm_publish(b, GPUSHM_SHARED) < 0)
		return 2;
	puts("ok");
	_exit(fgets(word, sizeof(word), stdin) == NULL ? 0 : 3);
}

static const struct role roles[] = { { "maker", maker_role } };

static void start_maker(struct role_process *p, const char *name, const char *how)
{
	char line[16];

	role_start(p, "maker", (const char *[]){ k.socket, name, how, NULL });
	role_read_line(p, line, sizeof(line));
	ck_assert_str_eq(line, "ok");
}

START_TEST(a_published_buffer_outlives_the_daemon)
{
	struct role_process maker;
	struct gpushm_stat *st = NULL;

	start_maker(&maker, "kept", "shared");
	crash(SIGKILL);
	ck_assert_msg(gpushm_stat(c, "kept", 0, GPUSHM_HOLDERS, &st) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(st->writers, 1);
	ck_assert_uint_eq(st->suspects, 1);
	ck_assert_int_eq(st->holders[0]->pid, maker.pid);
	gpushm_free(st);
	ck_assert_int_eq(gpushm_unlink(c, "kept"), 0);
	/* Its memory exists until its last holder has gone. */
	ck_assert_uint_ne(client_used_bytes(), 0);
	role_finish(&maker);
	client_await(client_used_bytes() == 0);
}
END_TEST

START_TEST(the_lease_of_a_holder_that_died_without_a_daemon_ends)
{
	struct gpushm_stat *st = NULL;
	struct role_process maker;

	start_maker(&maker, "kept", "shared");
	supervisor_end(&k, SIGKILL);
	role_finish(&maker);
	supervisor_start(&k);
	gpushm_disconnect(c);
	ck_assert_int_eq(gpushm_connect(k.socket, &c), 0);
	/* The process had it open for writing, and no daemon saw it die. */
	ck_assert_int_eq(gpushm_stat(c, "kept", 0, 0, &st), 0);
	ck_assert_int_eq(st->dirty, 1);
	ck_assert_int_eq(st->dirty_pid, maker.pid);
	gpushm_free(st);
	ck_assert_int_eq(gpushm_unlink(c, "kept"), 0);
	ck_assert_uint_eq(client_used_bytes(), 0);
}
END_TEST

START_TEST(a_half_made_buffer_ends_with_the_daemon)
{
	struct role_process maker;
	struct gpushm_buffer *b;

	start_maker(&maker, "half", "filling");
	crash(SIGKILL);
	ck_assert_uint_eq(client_used_bytes(), 0);
	b = client_create("half", 10, NULL);
	ck_assert_int_eq(gpushm_discard(b), 0);
	role_finish(&maker);
}
END_TEST

START_TEST(contents_and_leases_survive_on_each_pool)
{
	for (size_t i = 0; i < n_pools; i++) {
		if (pools[i]->failed)
			continue;
		survive(pools[i]->name, SIGKILL);
		survive(pools[i]->name, SIGTERM);
		survive(pools[i]->name, SIGKILL);
	}
}
END_TEST

/* An empty mempool that no client has is made anew, so that its memory goes back to the GPU. */
static void renew_mempool(const char *pool)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	unsigned before = supervisor_log_count(&k, "went back to GPU 0");
	struct gpushm *client = NULL;
	struct gpushm_buffer *b = NULL;

	ck_assert_int_eq(gpushm_connect(k.socket, &client), 0);
	ck_assert_msg(gpushm_create(client, "~/large", 64 * MIB, &o, &b) == 0, "%s",
		      gpushm_error());
	ck_assert_int_eq(gpushm_discard(b), 0);
	ck_assert_int_eq(gpushm_flush(client, pool), 0);
	gpushm_disconnect(client);
	client_await(supervisor_log_count(&k, "went back to GPU 0") > before);
}

START_TEST(a_successor_knows_a_mempool_that_was_made_anew)
{
	size_t kept = supervisor_count(&k, 'p');

	if (!fake_is_here())
		return;
	renew_mempool("gpu0-mempool");
	survive("gpu0-mempool", SIGKILL);
	gpushm_disconnect(c);
	c = NULL;
	renew_mempool("gpu0-mempool");
	ck_assert_int_eq(gpushm_connect(k.socket, &c), 0);
	survive("gpu0-mempool", SIGTERM);
	client_await(supervisor_count(&k, 'p') == kept);
}
END_TEST

/* The mempool of an earlier daemon has the name, too, while it has buffers. */
START_TEST(a_default_mempool_makes_buffers_after_a_restart)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "gpu0-mempool" };
	struct gpushm_buffer *b, *fresh;
	FILE *f = fopen(k.config, "we");

	ck_assert_ptr_nonnull(f);
	fputs("[daemon]\ndefault-pool=gpu0-mempool\n", f);
	fclose(f);
	if (!fake_is_here())
		return;
	b = client_create("kept", 100, &o);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	crash(SIGKILL);
	fresh = client_create("~/new", 100, NULL);
	ck_assert_int_eq(gpushm_discard(fresh), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "kept"), 0);
}
END_TEST

START_TEST(a_buffer_that_was_being_filled_must_be_created_again)
{
	struct gpushm_buffer *b = client_create("half", 100, NULL), *again;

	supervisor_end(&k, SIGKILL);
	supervisor_spawn(&k);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), -ECONNRESET);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "create it again"));
	ck_assert_int_eq(gpushm_buffer_lost(b), 1);
	again = client_create("half", 100, NULL);
	ck_assert_int_eq(gpushm_discard(b), 0);
	ck_assert_int_eq(gpushm_discard(again), 0);
}
END_TEST

#define DEATHS_MAX 100
#define DYING_ARRAYS 50000

struct dying {
	struct gpushm *own;
	_Atomic bool done;
	int r;
	char error[256];
};

static void *create_dying(void *arg)
{
	struct gpushm_array_spec *specs = calloc(DYING_ARRAYS, sizeof(*specs));
	char(*names)[16] = calloc(DYING_ARRAYS, sizeof(*names));
	struct dying *it = arg;
	struct gpushm_buffer *b = NULL;

	for (size_t i = 0; i < DYING_ARRAYS; i++) {
		snprintf(names[i], sizeof(names[i]), "%zu", i);
		specs[i].struct_size = sizeof(*specs);
		specs[i].name = names[i];
		gpushm_dtype_parse("int8", &specs[i].dtype);
	}
	it->r = gpushm_create_arrays(it->own, "dying", specs, DYING_ARRAYS, NULL, &b);
	snprintf(it->error, sizeof(it->error), "%s", gpushm_error());
	if (it->r == 0)
		gpushm_discard(b);
	free(names);
	free(specs);
	it->done = true;
	return NULL;
}

/* Each daemon dies while the arrays are described, as if that killed it. */
START_TEST(a_create_that_kills_daemons_gives_up)
{
	struct dying it = { 0 };
	struct gpushm_stat *st;
	pthread_t thread;
	int deaths = 0;

	/* Each daemon takes long to start there. */
	if (suite_is_sanitized())
		return;
	ck_assert_int_eq(gpushm_connect(k.socket, &it.own), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, create_dying, &it), 0);
	while (!it.done && deaths < DEATHS_MAX) {
		st = NULL;
		if (gpushm_stat(c, "dying", 0, 0, &st) == 0) {
			/* The create has its reply by now, and describes for much longer. */
			poll(NULL, 0, 10);
			kept_crash();
			deaths++;
		}
		gpushm_free(st);
	}
	pthread_join(thread, NULL);
	gpushm_disconnect(it.own);
	ck_assert_int_lt(deaths, DEATHS_MAX);
	ck_assert_msg(it.r == -ECONNRESET || it.r == 0, "%s", it.error);
	ck_assert(it.r == 0 || strstr(it.error, "create it again"));
}
END_TEST

/* A close has no reply, so a daemon can die before it reads one. The next request then reaches the
 * successor, and leases that are not reclaimed there have ended. */
START_TEST(a_close_that_died_with_the_daemon_ends_the_lease)
{
	struct gpushm_buffer *b = make("host", "a", 4096), *kept = make("host", "b", 4096);
	struct gpushm_stat *st = NULL;

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_publish(kept, GPUSHM_SHARED), 0);
	ck_assert_int_eq(kill(k.pid, SIGSTOP), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	supervisor_end(&k, SIGKILL);
	supervisor_start(&k);
	ck_assert_msg(gpushm_stat(c, "a", 0, 0, &st) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(st->readers + st->writers, 0);
	ck_assert_int_eq(st->dirty, 0);
	gpushm_free(take_ptr(st));
	ck_assert_msg(gpushm_stat(c, "b", 0, 0, &st) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(st->writers, 1);
	gpushm_free(st);
	ck_assert_int_eq(gpushm_close(kept), 0);
	ck_assert_int_eq(gpushm_unlink(c, "a"), 0);
	ck_assert_int_eq(gpushm_unlink(c, "b"), 0);
}
END_TEST

/* A daemon that ends in order reads what was sent before: here three closes, of which one turn of
 * its loop reads one. Their process sends nothing more. */
START_TEST(an_orderly_end_reads_the_closes_sent_before)
{
	static const char *const names[] = { "a", "b", "c" };
	struct gpushm_buffer *all[array_size(names)];
	struct gpushm *idle = c;

	for (size_t i = 0; i < array_size(names); i++) {
		all[i] = make("host", names[i], 4096);
		ck_assert_int_eq(gpushm_publish(all[i], GPUSHM_SHARED), 0);
	}
	ck_assert_int_eq(kill(k.pid, SIGSTOP), 0);
	for (size_t i = 0; i < array_size(names); i++)
		ck_assert_int_eq(gpushm_close(all[i]), 0);
	ck_assert_int_eq(kill(k.pid, SIGTERM), 0);
	supervisor_end(&k, SIGCONT);
	supervisor_start(&k);
	ck_assert_msg(gpushm_connect(k.socket, &c) == 0, "%s", gpushm_error());
	for (size_t i = 0; i < array_size(names); i++) {
		struct gpushm_stat *st = NULL;

		ck_assert_int_eq(gpushm_stat(c, names[i], 0, 0, &st), 0);
		ck_assert_msg(st->readers + st->writers == 0, "\"%s\" is held", names[i]);
		gpushm_free(st);
		ck_assert_int_eq(gpushm_unlink(c, names[i]), 0);
	}
	gpushm_disconnect(idle);
}
END_TEST

/* As with a /proc that is mounted with hidepid=, for a daemon that is not root. */
static bool hide_from_proc(const char *path)
{
	return unshare(CLONE_NEWNS) == 0 &&
	       mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("none", path, "tmpfs", 0, NULL) == 0;
}

START_TEST(a_process_that_proc_hides_keeps_its_leases)
{
	struct gpushm_buffer *b;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d", getpid());
	fds_mark();
	supervisor_init(&k, "[pool host]\nkind=host\nsize=64M\n");
	if (!hide_from_proc(path)) {
		printf("skipped: no mount namespace\n");
		supervisor_done(&k);
		return;
	}
	supervisor_start(&k);
	ck_assert_msg(gpushm_connect(k.socket, &c) == 0, "%s", gpushm_error());
	b = client_create("x", MIB, NULL);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	for (int i = 0; i < 2; i++) {
		kept_crash();
		ck_assert_uint_eq(client_status().leases, 1);
		ck_assert_uint_eq(client_status().suspects, 0);
		ck_assert_int_eq(gpushm_buffer_lost(b), 0);
	}
	client_close_and_unlink(b, "x");
	ck_assert_int_eq(umount(path), 0);
	kept_teardown();
}
END_TEST

/* The connection learns of the restart by this request, which nobody has carried out. */
static void rename_after_restart(const char *from, int wanted)
{
	kept_crash();
	ck_assert_int_eq(gpushm_rename(c, from, "model", GPUSHM_REPLACE), wanted);
}

static void expect_model(const struct gpushm_buffer *b)
{
	struct gpushm_stat *st = NULL;

	ck_assert_msg(gpushm_stat(c, "model", 0, 0, &st) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(st->id, gpushm_buffer_id(b));
	gpushm_free(st);
}

START_TEST(a_rename_of_nothing_fails_after_a_restart)
{
	struct gpushm_buffer *old = make("host", "model", 100), *new = make("host", "new", 100);

	ck_assert_int_eq(gpushm_publish(old, GPUSHM_SEALED), 0);
	rename_after_restart("new", -ENOENT);
	expect_model(old);
	ck_assert_int_eq(gpushm_discard(new), 0);

	new = make("host", "new", 100);
	ck_assert_int_eq(gpushm_publish(new, GPUSHM_SEALED), 0);
	rename_after_restart("new", 0);
	expect_model(new);
	rename_after_restart("new", -ENOENT);
	expect_model(new);
	ck_assert_int_eq(gpushm_close(old), 0);
	client_close_and_unlink(new, "model");
}
END_TEST

int main(int argc, char **argv)
{
	TCase *t = tcase_create("restart"), *u = tcase_create("hidden");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_published_buffer_outlives_the_daemon);
	tcase_add_test(t, the_lease_of_a_holder_that_died_without_a_daemon_ends);
	tcase_add_test(t, a_half_made_buffer_ends_with_the_daemon);
	tcase_add_test(t, contents_and_leases_survive_on_each_pool);
	tcase_add_test(t, a_successor_knows_a_mempool_that_was_made_anew);
	tcase_add_test(t, a_default_mempool_makes_buffers_after_a_restart);
	tcase_add_test(t, a_buffer_that_was_being_filled_must_be_created_again);
	tcase_add_test(t, a_rename_of_nothing_fails_after_a_restart);
	tcase_add_test(t, a_create_that_kills_daemons_gives_up);
	tcase_add_test(t, a_close_that_died_with_the_daemon_ends_the_lease);
	tcase_add_test(t, an_orderly_end_reads_the_closes_sent_before);
	tcase_set_timeout(u, 120);
	tcase_add_test(u, a_process_that_proc_hides_keeps_its_leases);
	return suite_run("restart", t, u, NULL);
}
