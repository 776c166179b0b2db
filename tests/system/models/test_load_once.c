/* SPDX-License-Identifier: MIT
 *
 * Many processes that want one model: one loads it, the others attach, and a process that dies
 * while it loads is followed by another one. Whose buffer is attached to, and when it is loaded
 * anew.
 */
#include "client/gpushm_load.h"
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/model_files.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { RACERS = 50, OWNER = 65531 };

#define ONCE GPUSHM_LOAD_IF_MISSING
#define ANEW (GPUSHM_LOAD_IF_MISSING | GPUSHM_LOAD_REPLACE)

static void setup(void)
{
	model_files_open();
	client_setup();
}

static void teardown(void)
{
	unsetenv("GPUSHM_TRUST");
	model_files_close();
	client_teardown();
}

/* ---- a process that loads ---- */

/* When it loads, and not while it waits for another process. */
static int hang(void *user, const struct gpushm_load_progress *p)
{
	if (p->done == 0)
		return 0;
	puts("hangs");
	fflush(stdout);
	while (pause() < 0)
		;
	return 0;
}

/* socket uid flags source [hang]: waits for a line, loads "m", prints how that ended, and keeps the
 * buffer until its input ends. */
static int loader_role(char **args)
{
	struct gpushm_load_options load = { .struct_size = sizeof(load),
					    .flags = (uint32_t)atoi(args[2]),
					    .progress = args[4] ? hang : NULL };
	struct gpushm_create_options o = { .struct_size = sizeof(o), .mode = 0644 };
	const char *source = args[3];
	uid_t uid = (uid_t)atoi(args[1]);
	struct gpushm_buffer *b = NULL;
	struct gpushm *conn = NULL;
	char line[8];
	int r;

	if (uid != 0 && !user_become(uid, uid))
		return 1;
	if (gpushm_connect(args[0], &conn) < 0 || !fgets(line, sizeof(line), stdin))
		return 1;
	r = gpushm_load(conn, &source, 1, "m", &o, &load, &b);
	if (r < 0)
		fprintf(stderr, "%s\n", gpushm_error());
	printf("%s\n", r == 0 ? "loaded" : r == GPUSHM_LOAD_ATTACHED ? "attached" : "failed");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		;
	gpushm_close(b);
	gpushm_disconnect(conn);
	return 0;
}

static const struct role roles[] = { { "loader", loader_role }, { "user", user_role } };

static void start(struct role_process *p, uid_t uid, uint32_t flags, const char *source,
		  const char *how)
{
	char user[16], number[16];

	snprintf(user, sizeof(user), "%u", uid);
	snprintf(number, sizeof(number), "%u", flags);
	role_start(p, "loader", (const char *const[]){ d.socket, user, number, source, how, NULL });
}

static void expect_line(struct role_process *p, const char *wanted)
{
	char line[32];

	role_read_line(p, line, sizeof(line));
	ck_assert_str_eq(line, wanted);
}

/* Lets them go, and counts those that loaded; the others have attached. */
static unsigned race(struct role_process *racers, unsigned n)
{
	unsigned loaded = 0;

	for (unsigned i = 0; i < n; i++)
		role_write_line(&racers[i], "go");
	for (unsigned i = 0; i < n; i++) {
		char line[32];

		role_read_line(&racers[i], line, sizeof(line));
		loaded += strcmp(line, "loaded") == 0;
		ck_assert(strcmp(line, "loaded") == 0 || strcmp(line, "attached") == 0);
	}
	for (unsigned i = 0; i < n; i++)
		role_finish(&racers[i]);
	return loaded;
}

static uint64_t id_of(const char *name)
{
	struct gpushm_stat *st = NULL;
	uint64_t id;

	ck_assert_msg(gpushm_stat(c, name, 0, 0, &st) == 0, "%s", gpushm_error());
	id = st->id;
	gpushm_free(st);
	return id;
}

static unsigned count_buffers(void)
{
	struct gpushm_stat **stats = NULL;
	size_t n;

	ck_assert_int_eq(gpushm_list(c, NULL, 0, &stats, &n), 0);
	gpushm_free(stats);
	return n;
}

static void expect_model(const char *array, const char *tensor)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(gpushm_open(c, "m", GPUSHM_READ, 0, NULL, &b) == 0, "%s", gpushm_error());
	model_expect(b, array, tensor);
	ck_assert_int_eq(gpushm_close(b), 0);
}

/* Another file of the same header: the tensor has the bytes of another one. */
static const char *write_other(const char *name, const char *tensor, const char *shape)
{
	const char *path = model_write(name, tensor, shape);
	FILE *f = fopen(path, "r+e");
	int last;

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fseek(f, -1, SEEK_END), 0);
	last = getc(f);
	ck_assert_int_eq(fseek(f, -1, SEEK_END), 0);
	fputc(last ^ 1, f);
	ck_assert_int_eq(fclose(f), 0);
	return path;
}

/* ---- races ---- */

START_TEST(one_of_fifty_processes_loads)
{
	const char *source = model_write("m.safetensors", "a", "3000000");
	struct role_process racers[RACERS];

	for (unsigned i = 0; i < RACERS; i++)
		start(&racers[i], 0, ONCE, source, NULL);
	ck_assert_uint_eq(race(racers, RACERS), 1);
	ck_assert_uint_eq(count_buffers(), 1);
	expect_model("a", "a");
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
}
END_TEST

START_TEST(another_process_loads_after_the_loader_has_died)
{
	const char *source = model_write("m.safetensors", "a", "3000000");
	struct role_process racers[40], dying[10];

	for (unsigned i = 0; i < array_size(dying); i++) {
		start(&dying[i], 0, ONCE, source, "hang");
		role_write_line(&dying[i], "go");
		if (i == 0)
			expect_line(&dying[0], "hangs");
	}
	for (unsigned i = 0; i < array_size(racers); i++) {
		start(&racers[i], 0, ONCE, source, NULL);
		role_write_line(&racers[i], "go");
	}
	client_await(client_waiting() == array_size(racers) + array_size(dying) - 1);
	for (unsigned i = 0; i < array_size(dying); i++) {
		kill(dying[i].pid, SIGKILL);
		role_wait(&dying[i]);
	}
	for (unsigned i = 0, loaded = 0; i < array_size(racers); i++) {
		char line[32];

		role_read_line(&racers[i], line, sizeof(line));
		loaded += strcmp(line, "loaded") == 0;
		ck_assert_uint_le(loaded, 1);
		ck_assert_str_ne(line, "failed");
		role_finish(&racers[i]);
	}
	expect_model("a", "a");
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
}
END_TEST

START_TEST(one_of_many_processes_replaces_the_buffer)
{
	const char *source = model_write("m.safetensors", "old", "3000000");
	struct role_process racers[12], dying;
	uint64_t old;

	ck_assert_int_eq(model_load(c, source, "m", 0, NULL), 0);
	old = id_of("m");
	model_write("m.safetensors", "new", "4000000");
	/* One dies on the way, and leaves the old one. */
	start(&dying, 0, ANEW, source, "hang");
	role_write_line(&dying, "go");
	expect_line(&dying, "hangs");
	ck_assert_uint_ge(count_buffers(), 2); /* and the pinned ring */
	ck_assert_uint_eq(id_of("m"), old);
	kill(dying.pid, SIGKILL);
	role_wait(&dying);
	for (unsigned i = 0; i < array_size(racers); i++)
		start(&racers[i], 0, ANEW, source, NULL);
	ck_assert_uint_eq(race(racers, array_size(racers)), 1);
	ck_assert_uint_eq(count_buffers(), 1);
	ck_assert_uint_ne(id_of("m"), old);
	expect_model("new", "new");
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
}
END_TEST

static int stop_later(void *user, const struct gpushm_load_progress *p)
{
	unsigned *calls = user;

	ck_assert_uint_eq(p->done, 0);
	ck_assert_uint_ge(p->total, 3000000);
	return ++*calls == 3;
}

struct thread_load {
	struct gpushm *conn; /* shared with the test's own thread */
	const char *source;
	pthread_t thread;
	bool started;
};

static void *load_in_thread(void *arg)
{
	struct gpushm_load_options load = { .struct_size = sizeof(load), .flags = ONCE };
	const struct thread_load *t = arg;
	int r = gpushm_load(t->conn, &t->source, 1, "m", NULL, &load, NULL);

	ck_assert_msg(r == GPUSHM_LOAD_ATTACHED, "%d: %s", r, gpushm_error());
	return NULL;
}

/* All is copied and not yet published. */
static int start_another(void *user, const struct gpushm_load_progress *p)
{
	struct thread_load *t = user;

	if (t->started)
		return 0;
	t->started = true;
	ck_assert_int_eq(pthread_create(&t->thread, NULL, load_in_thread, t), 0);
	client_await(client_waiting() > 0);
	return 0;
}

START_TEST(two_threads_of_one_connection_load_once)
{
	struct thread_load t = { .source = model_write("m.safetensors", "a", "3000000") };
	struct gpushm_load_options load = {
		.struct_size = sizeof(load), .flags = ONCE, .progress = start_another, .user = &t
	};

	ck_assert_int_eq(gpushm_connect(d.socket, &t.conn), 0);
	ck_assert_int_eq(gpushm_load(t.conn, &t.source, 1, "m", NULL, &load, NULL), 0);
	ck_assert_int_eq(pthread_join(t.thread, NULL), 0);
	gpushm_disconnect(t.conn);
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
}
END_TEST

START_TEST(a_wait_for_another_loader_can_time_out_or_be_canceled)
{
	unsigned calls = 0;
	const char *source = model_write("m.safetensors", "old", "3000000");
	struct gpushm_load_options load = { .struct_size = sizeof(load),
					    .flags = ONCE,
					    .wait_ms = 50 };
	struct role_process dying;

	start(&dying, 0, ONCE, source, "hang");
	role_write_line(&dying, "go");
	expect_line(&dying, "hangs");
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, NULL), -ETIMEDOUT);
	load = (struct gpushm_load_options){
		.struct_size = sizeof(load), .flags = ONCE, .progress = stop_later, .user = &calls
	};
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, NULL), -ECANCELED);
	ck_assert_uint_eq(calls, 3);
	kill(dying.pid, SIGKILL);
	role_wait(&dying);
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, NULL, NULL), 0);
	/* The same where it is to be replaced. */
	model_write("m.safetensors", "new", "3000000");
	start(&dying, 0, ANEW, source, "hang");
	role_write_line(&dying, "go");
	expect_line(&dying, "hangs");
	load.flags = ANEW;
	calls = 0;
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, NULL), -ECANCELED);
	load.progress = NULL;
	load.wait_ms = 50;
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, NULL), -ETIMEDOUT);
	kill(dying.pid, SIGKILL);
	role_wait(&dying);
	expect_model("old", "old");
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
}
END_TEST

/* ---- which buffer ---- */

START_TEST(only_a_buffer_of_the_same_contents_is_attached_to)
{
	const char *source = model_write("m.safetensors", "a", "300000"), *other;
	const struct timespec times[] = { { 5, 0 }, { 5, 0 } };
	struct gpushm_buffer *b = NULL;
	uint64_t first;

	ck_assert_int_eq(model_load(c, source, "m", ONCE, NULL), 0);
	first = id_of("m");
	ck_assert_int_eq(model_load(c, source, "m", ONCE, &b), GPUSHM_LOAD_ATTACHED);
	ck_assert_int_eq(gpushm_buffer_access(b), GPUSHM_READ);
	model_expect(b, "a", "a");
	ck_assert_int_eq(gpushm_close(b), 0);
	/* The same bytes in another file, and at another time. */
	other = model_write("copy.safetensors", "a", "300000");
	ck_assert_int_eq(model_load(c, other, "m", ONCE, NULL), GPUSHM_LOAD_ATTACHED);
	ck_assert_int_eq(utimensat(AT_FDCWD, source, times, 0), 0);
	ck_assert_int_eq(model_load(c, source, "m", ANEW, NULL), GPUSHM_LOAD_ATTACHED);
	/* The same header, other bytes. */
	other = write_other("other.safetensors", "a", "300000");
	ck_assert_int_eq(model_load(c, other, "m", ONCE, NULL), -EEXIST);
	model_expect_error("the same headers and other contents");
	/* Another header. */
	other = model_write("other.safetensors", "b", "300000");
	ck_assert_int_eq(model_load(c, other, "m", ONCE, NULL), -EEXIST);
	model_expect_error("was not loaded from these files");
	ck_assert_uint_eq(id_of("m"), first);
	ck_assert_int_eq(model_load(c, other, "m", ANEW, NULL), 0);
	expect_model("b", "b");
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
}
END_TEST

START_TEST(only_a_sealed_buffer_of_a_load_in_the_pool_is_attached_to)
{
	const char *source = model_write("m.safetensors", "a", "300000");
	struct gpushm_attr attrs[2];
	struct gpushm_create_options o = { .struct_size = sizeof(o), .attrs = attrs };
	struct gpushm_buffer *b = client_create("m", 300000, NULL);
	struct gpushm_load_options load = { .struct_size = sizeof(load), .flags = ONCE };
	char key[65];

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	ck_assert_int_eq(model_load(c, source, "m", ONCE, NULL), -EEXIST);
	client_close_and_unlink(b, "m");
	/* Not sealed. */
	ck_assert_int_eq(gpushm_load_key(&source, 1, NULL, key), 0);
	attrs[0] = (struct gpushm_attr){ sizeof(struct gpushm_attr), "gpushm.files", key, 64 };
	o.n_attrs = 1;
	b = client_create("m", 300000, &o);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	ck_assert_int_eq(model_load(c, source, "m", ONCE, NULL), -EEXIST);
	model_expect_error("not sealed");
	client_close_and_unlink(b, "m");
	/* In another pool than was asked for. */
	ck_assert_int_eq(model_load(c, source, "m", 0, NULL), 0);
	o = (struct gpushm_create_options){ .struct_size = sizeof(o), .pool = "another" };
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", &o, &load, NULL), -EEXIST);
	model_expect_error("\"another\"");
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
}
END_TEST

START_TEST(a_stream_of_the_same_contents_is_attached_to)
{
	const char *path = model_write("m.safetensors", "a", "30000");
	char bytes[40000], source[32];
	const struct {
		uint32_t flags;
		int result, changed;
	} steps[] = {
		{ ONCE, 0, 0 },	      { ONCE, GPUSHM_LOAD_ATTACHED, 0 },
		{ ONCE, -EEXIST, 1 }, { ANEW, 0, 1 },
		{ ANEW, 0, 1 },
	};
	FILE *f = fopen(path, "re");
	size_t n = fread(bytes, 1, sizeof(bytes), f);
	uint64_t id = 0;

	fclose(f);
	for (size_t i = 0; i < array_size(steps); i++) {
		int fds[2];

		ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
		bytes[n - 1] = (char)steps[i].changed;
		ck_assert_int_eq(write(fds[1], bytes, n), n);
		close(fds[1]);
		snprintf(source, sizeof(source), "/dev/fd/%d", fds[0]);
		ck_assert_int_eq(model_load(c, source, "m", steps[i].flags, NULL), steps[i].result);
		close(fds[0]);
		ck_assert(steps[i].result == 0 ? id_of("m") != id : id_of("m") == id);
		id = id_of("m");
	}
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
}
END_TEST

/* ---- whose buffer ---- */

START_TEST(only_a_trusted_owners_buffer_is_attached_to)
{
	static const char *const trusts[] = { "65531", "nobody,65531", "root, 65531" };
	static const char *const not [] = { "", "65532", "655310", "no-such-user", "65531x" };
	const char *source = model_write("m.safetensors", "a", "300000");
	struct role_process owner;

	if (!user_may_change())
		return;
	start(&owner, OWNER, 0, source, NULL);
	role_write_line(&owner, "go");
	expect_line(&owner, "loaded");
	ck_assert_int_eq(model_load(c, source, "m", ONCE, NULL), -EEXIST);
	model_expect_error("GPUSHM_TRUST");
	for (size_t i = 0; i < array_size(not ); i++) {
		setenv("GPUSHM_TRUST", not [i], 1);
		ck_assert_int_eq(model_load(c, source, "m", ONCE, NULL), -EEXIST);
	}
	for (size_t i = 0; i < array_size(trusts); i++) {
		setenv("GPUSHM_TRUST", trusts[i], 1);
		ck_assert_int_eq(model_load(c, source, "m", ONCE, NULL), GPUSHM_LOAD_ATTACHED);
	}
	role_finish(&owner);
	/* Root's is everybody's. */
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
	start(&owner, 0, 0, source, NULL);
	role_write_line(&owner, "go");
	expect_line(&owner, "loaded");
	role_finish(&owner);
	unsetenv("GPUSHM_TRUST");
	start(&owner, OWNER, ONCE, source, NULL);
	role_write_line(&owner, "go");
	expect_line(&owner, "attached");
	role_finish(&owner);
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
}
END_TEST

/* ---- replacing ---- */

START_TEST(holders_of_a_replaced_buffer_keep_it)
{
	const char *source = model_write("m.safetensors", "old", "300000");
	struct gpushm_buffer *old = NULL, *new = NULL;
	uint64_t used;

	/* Also if there was none. */
	ck_assert_int_eq(model_load(c, source, "m", GPUSHM_LOAD_REPLACE, &old), 0);
	used = client_used_bytes();
	model_write("m.safetensors", "new", "300000");
	ck_assert_int_eq(model_load(c, source, "m", GPUSHM_LOAD_REPLACE, &new), 0);
	ck_assert_str_eq(gpushm_buffer_name(new), "m");
	ck_assert_uint_eq(gpushm_buffer_notice(old) & GPUSHM_NOTICE_UNLINKED,
			  GPUSHM_NOTICE_UNLINKED);
	model_expect(old, "old", "old");
	model_expect(new, "new", "new");
	expect_model("new", "new");
	ck_assert_int_eq(gpushm_close(old), 0);
	ck_assert_int_eq(gpushm_close(new), 0);
	ck_assert_uint_eq(client_used_bytes(), used);
	/* A file that is broken replaces nothing. */
	ck_assert_int_eq(truncate(source, 100000), 0);
	ck_assert_int_eq(model_load(c, source, "m", GPUSHM_LOAD_REPLACE, NULL), -EBADMSG);
	expect_model("new", "new");
	ck_assert_uint_eq(count_buffers(), 1);
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *tc = tcase_create("load_once");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, one_of_fifty_processes_loads);
	tcase_add_test(tc, another_process_loads_after_the_loader_has_died);
	tcase_add_test(tc, one_of_many_processes_replaces_the_buffer);
	tcase_add_test(tc, two_threads_of_one_connection_load_once);
	tcase_add_test(tc, a_wait_for_another_loader_can_time_out_or_be_canceled);
	tcase_add_test(tc, only_a_buffer_of_the_same_contents_is_attached_to);
	tcase_add_test(tc, only_a_sealed_buffer_of_a_load_in_the_pool_is_attached_to);
	tcase_add_test(tc, a_stream_of_the_same_contents_is_attached_to);
	tcase_add_test(tc, only_a_trusted_owners_buffer_is_attached_to);
	tcase_add_test(tc, holders_of_a_replaced_buffer_keep_it);
	return suite_run("load_once", tc, NULL);
}
