/* SPDX-License-Identifier: MIT
 *
 * What happens at the same time as a suspend, an eviction or a restore: another resume, an
 * eviction, a rename, an unlink, another generation of the name, a fork, the end of the process at
 * each of its system calls, a journal that is full. The bytes are right, and nothing is left.
 */
#include "client/gpushm_events.h"
#include "client/gpushm_memory.h"
#include "client/gpushm_query.h"
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/forked.h"
#include "tests/lib/kept.h"
#include "tests/lib/result.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 20000u
#define ROUNDS 40
#define WORKERS 3

#define ck_works(call) ck_assert_msg((call) == 0, "%s", gpushm_error())

static const char *pool = "host";

static unsigned char pattern(uint64_t i)
{
	return (unsigned char)(i * 59 + (i >> 8) + 3);
}

static bool bytes_are_right(const struct gpushm_buffer *b)
{
	unsigned char bytes[BYTES];

	if (gpushm_read(b, 0, bytes, BYTES) < 0)
		return false;
	for (uint64_t i = 0; i < BYTES; i++)
		if (bytes[i] != pattern(i))
			return false;
	return true;
}

/* Filled, and not published. */
static struct gpushm_buffer *fill(const char *name)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_buffer *b = client_create(name, BYTES, &o);
	unsigned char bytes[BYTES];

	for (uint64_t i = 0; i < BYTES; i++)
		bytes[i] = pattern(i);
	ck_works(gpushm_write(b, 0, bytes, BYTES));
	return b;
}

static struct gpushm_buffer *make(const char *name)
{
	struct gpushm_buffer *b = fill(name);

	ck_works(gpushm_publish(b, GPUSHM_SEALED));
	return b;
}

static struct gpushm_buffer *make_evicted(const char *name)
{
	struct gpushm_buffer *b = make(name);

	ck_works(gpushm_make_twin(c, name, "host"));
	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_evict(c, name));
	return b;
}

static enum gpushm_residence residence(const char *name)
{
	struct gpushm_stat *st = NULL;
	enum gpushm_residence r;

	ck_works(gpushm_stat(c, name, 0, 0, &st));
	r = st->residence;
	gpushm_free(st);
	return r;
}

static void is_right_and_ends(struct gpushm_buffer *b, const char *name)
{
	ck_assert_int_ge(gpushm_resume(b, 20000), 0);
	ck_assert(bytes_are_right(b));
	client_close_and_unlink(b, name);
	client_await(client_used_bytes() == 0);
}

/* ---- two at once ---- */

static void *resume_it(void *arg)
{
	ck_assert_msg(gpushm_resume(arg, 20000) >= 0, "%s", gpushm_error());
	ck_assert(bytes_are_right(arg));
	return NULL;
}

/* The first two are one open, the third has a connection of its own. */
START_TEST(threads_that_resume_at_once_all_get_it)
{
	struct gpushm_buffer *b = make_evicted("~/b"), *other = NULL;
	struct gpushm_buffer *const of[WORKERS] = { b, b, NULL };
	struct gpushm *second = NULL;
	pthread_t threads[WORKERS];

	ck_works(gpushm_connect(d.socket, &second));
	ck_works(gpushm_open(second, "~/b", GPUSHM_READ, 0, NULL, &other));
	for (int round = 0; round < ROUNDS; round++) {
		ck_works(gpushm_suspend(b, 0));
		ck_works(gpushm_suspend(other, 0));
		ck_works(gpushm_evict(c, "~/b"));
		for (int i = 0; i < WORKERS; i++)
			pthread_create(&threads[i], NULL, resume_it, of[i] ? of[i] : other);
		for (int i = 0; i < WORKERS; i++)
			pthread_join(threads[i], NULL);
	}
	ck_works(gpushm_close(other));
	gpushm_disconnect(second);
	is_right_and_ends(b, "~/b");
}
END_TEST

/* socket: suspends and resumes until it is told to end. */
static int worker_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	struct pollfd input = { .events = POLLIN };

	if (gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_open(conn, "~/b", GPUSHM_READ, 10000, NULL, &b) < 0)
		return fprintf(stderr, "%s\n", gpushm_error()), 1;
	puts("ready");
	while (poll(&input, 1, 0) == 0) {
		if (gpushm_suspend(b, 0) < 0 || gpushm_resume(b, 20000) < 0)
			return fprintf(stderr, "%s\n", gpushm_error()), 1;
		if (!bytes_are_right(b))
			return fprintf(stderr, "other bytes\n"), 1;
	}
	if (gpushm_close(b) < 0)
		return 1;
	gpushm_disconnect(conn);
	return 0;
}

static void start_workers(struct role_process workers[WORKERS])
{
	const char *args[] = { d.socket, NULL };
	char line[16];

	for (int i = 0; i < WORKERS; i++)
		role_start(&workers[i], "worker", args);
	for (int i = 0; i < WORKERS; i++)
		role_read_line(&workers[i], line, sizeof(line));
}

static void end_workers(struct role_process workers[WORKERS])
{
	for (int i = 0; i < WORKERS; i++)
		role_finish(&workers[i]);
}

/* Returns whether it was evicted. */
static bool evict(const char *name)
{
	int r = gpushm_evict(c, name);

	ck_assert_msg(r == 0 || r == -EBUSY, "%s", gpushm_error());
	return r == 0;
}

START_TEST(processes_resume_what_is_evicted_and_renamed)
{
	struct gpushm_buffer *b = make_evicted("~/b");
	struct role_process workers[WORKERS];
	unsigned evicted = 0;

	start_workers(workers);
	for (int tries = 0; evicted < ROUNDS && tries < 100 * ROUNDS; tries++) {
		evicted += evict("~/b");
		ck_works(gpushm_rename(c, "~/b", "~/other", 0));
		evicted += evict("~/other");
		ck_works(gpushm_rename(c, "~/other", "~/b", 0));
	}
	end_workers(workers);
	ck_assert_uint_gt(evicted, 0);
	is_right_and_ends(b, "~/b");
}
END_TEST

/* The twin of what has lost its name lives as long as that. */
START_TEST(processes_resume_what_was_unlinked_or_replaced)
{
	struct gpushm_buffer *b = make_evicted("~/b"), *next;
	struct role_process workers[WORKERS];

	start_workers(workers);
	for (int round = 0; round < ROUNDS / 4; round++) {
		evict("~/b");
		next = fill("~/next");
		ck_works(gpushm_publish_as(next, GPUSHM_SEALED, "~/b", GPUSHM_REPLACE));
		ck_assert_int_ge(gpushm_resume(b, 20000), 0);
		ck_assert(bytes_are_right(b));
		ck_works(gpushm_close(b));
		b = next;
		ck_works(gpushm_make_twin(c, "~/b", "host"));
		ck_works(gpushm_suspend(b, 0));
	}
	evict("~/b");
	ck_works(gpushm_unlink(c, "~/b"));
	poll(NULL, 0, 20);
	end_workers(workers);
	ck_assert_int_ge(gpushm_resume(b, 20000), 0);
	ck_assert(bytes_are_right(b));
	ck_works(gpushm_close(b));
	client_await(client_used_bytes() == 0);
}
END_TEST

START_TEST(a_restore_of_an_unlinked_buffer_works)
{
	struct gpushm_buffer *b = make_evicted("~/b");

	ck_works(gpushm_unlink(c, "~/b"));
	ck_assert_int_eq(gpushm_resume(b, 10000), GPUSHM_OTHER_PAGES);
	ck_assert(bytes_are_right(b));
	ck_works(gpushm_close(b));
	client_await(client_used_bytes() == 0);
}
END_TEST

/* This process seems to be one that restores and takes long. */
START_TEST(who_waits_for_another_restore_waits_no_longer_than_it_said)
{
	struct gpushm_buffer *b = make_evicted("~/b"), *other, *never = NULL;
	struct gpushm_create_options o = { .struct_size = sizeof(o),
					   .pool = pool,
					   .flags = GPUSHM_TRANSIENT };
	char name[64];

	snprintf(name, sizeof(name), "~/.restore-%" PRIu64, gpushm_buffer_id(b));
	other = client_create(name, BYTES, &o);
	ck_assert_int_eq(gpushm_resume(b, 0), -EAGAIN);
	ck_assert_int_eq(gpushm_resume(b, 250), -ETIMEDOUT);
	ck_assert_str_eq(gpushm_error_code(), "TIMED_OUT");
	ck_assert_int_eq(gpushm_open(c, "~/b", GPUSHM_READ, 0, NULL, &never), -EAGAIN);
	ck_assert_int_eq(gpushm_open(c, "~/b", GPUSHM_READ, 250, NULL, &never), -ETIMEDOUT);
	ck_assert_str_eq(gpushm_error_code(), "TIMED_OUT");
	ck_works(gpushm_discard(other));
	is_right_and_ends(b, "~/b");
}
END_TEST

START_TEST(the_end_of_an_evicted_buffer_is_an_event)
{
	struct gpushm_events_options o = { .struct_size = sizeof(o), .types = "unlinked,freed" };
	struct gpushm_buffer *b = make_evicted("~/b");
	struct gpushm_events *events = NULL;
	uint64_t id = gpushm_buffer_id(b);
	unsigned found = 0;

	client_close_and_unlink(b, "~/b");
	ck_works(gpushm_events(c, &o, &events));
	for (size_t i = 0; i < events->n_events; i++)
		found += events->events[i]->buffer == id;
	ck_assert_uint_eq(found, 2);
	gpushm_free(events);
}
END_TEST

/* ---- fork ---- */

static int resume_in_child(void *arg)
{
	if (gpushm_resume(arg, 1000) != -ECHILD || gpushm_suspend(arg, 0) != -ECHILD)
		return 1;
	return gpushm_buffer_suspended(arg) == 1 && gpushm_close(arg) == 0 ? 0 : 2;
}

static int suspend_in_child(void *arg)
{
	if (gpushm_suspend(arg, 0) != -ECHILD || gpushm_buffer_suspended(arg) != 0)
		return 1;
	return bytes_are_right(arg) ? 0 : 2;
}

START_TEST(a_forked_child_leaves_its_parents_buffers_as_they_are)
{
	struct gpushm_buffer *b = make("~/b");

	ck_assert_int_eq(forked(suspend_in_child, b), 0);
	ck_assert(bytes_are_right(b));
	ck_works(gpushm_suspend(b, 0));
	ck_assert_int_eq(forked(resume_in_child, b), 0);
	ck_works(gpushm_make_twin(c, "~/b", "host"));
	ck_works(gpushm_suspend(b, 0));
	ck_works(gpushm_evict(c, "~/b"));
	ck_assert_int_eq(forked(resume_in_child, b), 0);
	ck_assert_int_eq(residence("~/b"), GPUSHM_IN_TWIN);
	is_right_and_ends(b, "~/b");
}
END_TEST

/* ---- the end of the process, at each of its system calls ---- */

/* socket: what can be done with a buffer, from where it stops. */
static int dying_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;

	if (gpushm_connect(args[0], &conn) < 0 || ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0 ||
	    raise(SIGSTOP) != 0)
		return 2;
	if (gpushm_make_twin(conn, "~/b", "host") < 0 || gpushm_evict(conn, "~/b") < 0 ||
	    gpushm_open(conn, "~/b", GPUSHM_READ, 10000, NULL, &b) < 0 ||
	    gpushm_suspend(b, 0) < 0 || gpushm_evict(conn, "~/b") < 0 ||
	    gpushm_resume(b, 10000) < 0 || !bytes_are_right(b) || gpushm_close(b) < 0)
		return fprintf(stderr, "%s\n", gpushm_error()), 1;
	gpushm_disconnect(conn);
	_exit(0); /* LeakSanitizer can't be where a tracer is */
}

/* Kills it at the n-th stop, before or after a system call. Returns how far it came. */
static unsigned die_at(unsigned n)
{
	struct role_process p;
	unsigned stops = 0;
	int status = 0;

	role_start(&p, "dying", (const char *[]){ d.socket, NULL });
	ck_assert_int_eq(waitpid(p.pid, &status, 0), p.pid);
	ck_assert(WIFSTOPPED(status));
	while (stops < n && WIFSTOPPED(status)) {
		ck_assert_int_eq(ptrace(PTRACE_SYSCALL, p.pid, NULL, NULL), 0);
		ck_assert_int_eq(waitpid(p.pid, &status, 0), p.pid);
		stops += WIFSTOPPED(status);
	}
	if (WIFSTOPPED(status)) {
		kill(p.pid, SIGKILL);
		ck_assert_int_eq(waitpid(p.pid, NULL, 0), p.pid);
		status = 0;
	}
	ck_assert_int_eq(status, 0);
	close_fd(&p.to);
	close_fd(&p.from);
	return stops;
}

static unsigned leases(void)
{
	struct gpushm_status *st = NULL;
	unsigned n;

	ck_works(gpushm_status(c, &st));
	n = st->leases;
	gpushm_free(st);
	return n;
}

/* A GPU's, if there is one: the driver's system calls are among them. */
static bool choose_pool(void)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	size_t n;

	ck_works(gpushm_pools(c, &pools, &n));
	for (size_t i = 0; i < n; i++)
		if (!pools[i]->failed && pools[i]->kind == GPUSHM_VMM)
			pool = "gpu0";
	return strcmp(pool, "host") != 0;
}

/* Runs it to that stop, over a buffer that this process has suspended. Returns how far it came. */
static unsigned dies_well_at(unsigned n)
{
	struct gpushm_buffer *b = make("~/b");
	unsigned stops;

	ck_works(gpushm_suspend(b, 0));
	stops = die_at(n);
	client_await(leases() == 1);
	is_right_and_ends(b, "~/b");
	return stops;
}

/* Over a GPU there are so many that a run takes some 64 of them. */
START_TEST(a_process_may_die_at_each_of_its_system_calls)
{
	bool many = choose_pool();
	unsigned all = dies_well_at(UINT_MAX), step = many ? all / 64 + 1 : 1, died = 0;

	for (unsigned n = 1 + (unsigned)getpid() % step; n <= all; n += step)
		died += dies_well_at(n) == n;
	printf("restore: died at %u places of %u\n", died, all);
	ck_assert_uint_gt(died, 30);
}
END_TEST

/* ---- a full journal ---- */

static void limit_files(rlim_t most)
{
	ck_assert_int_eq(prlimit(k.pid, RLIMIT_FSIZE, &(struct rlimit){ most, RLIM_INFINITY },
				 NULL),
			 0);
}

/* The journal grows no more: a suspend and a resume are a record each. */
static void fill_journal(struct gpushm_buffer *b)
{
	int r, before = 0;

	limit_files(64 << 10);
	for (int i = 0; i < 4000; i++) {
		r = gpushm_buffer_suspended(b) ? gpushm_resume(b, 1000) : gpushm_suspend(b, 0);
		ck_assert_msg(r == 0 || r == -ENOMEM, "%s", gpushm_error());
		if (r < 0 && before < 0)
			break;
		before = r;
	}
	ck_assert_int_eq(r, -ENOMEM);
}

#define ck_is_full(call)                                                                \
	do {                                                                            \
		ck_assert_int_eq((call), -ENOMEM);                                      \
		ck_assert_msg(strstr(gpushm_error(), "journal"), "%s", gpushm_error()); \
	} while (0)

/* Each request is refused, and nothing has changed. */
static void nothing_works(struct gpushm_buffer *mapped, struct gpushm_buffer *idle,
			  struct gpushm_buffer *gone)
{
	struct gpushm_stat *st = NULL;

	ck_is_full(gpushm_suspend(mapped, 0));
	ck_assert_int_eq(gpushm_buffer_suspended(mapped), 0);
	ck_assert(bytes_are_right(mapped));
	ck_is_full(gpushm_make_twin(c, "~/mapped", "host"));
	ck_is_full(gpushm_evict(c, "~/idle"));
	ck_is_full(gpushm_set_keep(c, "~/idle", 1000, 5));
	ck_is_full(gpushm_resume(idle, 1000));
	ck_assert_int_eq(gpushm_buffer_suspended(idle), 1);
	ck_is_full(gpushm_resume(gone, 1000));
	ck_assert_int_eq(gpushm_buffer_suspended(gone), 1);
	ck_assert_int_eq(residence("~/gone"), GPUSHM_IN_TWIN);
	ck_works(gpushm_stat(c, "~/idle", 0, 0, &st));
	ck_assert(st->residence == GPUSHM_RESIDENT && st->away == 1 && st->keep_ms == 0 &&
		  st->priority == 0);
	gpushm_free(st);
}

START_TEST(a_full_journal_refuses_and_changes_nothing)
{
	struct gpushm_buffer *mapped = make("~/mapped"), *idle = make("~/idle");
	struct gpushm_buffer *gone = make_evicted("~/gone"), *filler = make("~/filler");
	uint64_t used;

	ck_works(gpushm_make_twin(c, "~/idle", "host"));
	ck_works(gpushm_suspend(idle, 0));
	used = client_used_bytes();
	fill_journal(filler);
	nothing_works(mapped, idle, gone);
	limit_files(RLIM_INFINITY);
	client_await(client_used_bytes() == used);
	ck_works(gpushm_suspend(mapped, 0));
	ck_works(gpushm_evict(c, "~/idle"));
	ck_assert_int_eq(gpushm_resume(gone, 1000), GPUSHM_OTHER_PAGES);
	kept_crash();
	ck_assert_int_eq(residence("~/gone"), GPUSHM_RESIDENT);
	ck_assert_int_eq(residence("~/idle"), GPUSHM_IN_TWIN);
	ck_assert_int_eq(gpushm_resume(idle, 1000), GPUSHM_OTHER_PAGES);
	ck_works(gpushm_resume(mapped, 1000));
	ck_assert(bytes_are_right(gone) && bytes_are_right(idle) && bytes_are_right(mapped));
	client_close_and_unlink(filler, "~/filler");
	client_close_and_unlink(gone, "~/gone");
	client_close_and_unlink(idle, "~/idle");
	client_close_and_unlink(mapped, "~/mapped");
}
END_TEST

int main(int argc, char **argv)
{
	static const struct role roles[] = { { "worker", worker_role }, { "dying", dying_role } };
	TCase *t = tcase_create("restore"), *kept = tcase_create("journal");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, client_setup, client_teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, threads_that_resume_at_once_all_get_it);
	tcase_add_test(t, processes_resume_what_is_evicted_and_renamed);
	tcase_add_test(t, processes_resume_what_was_unlinked_or_replaced);
	tcase_add_test(t, a_restore_of_an_unlinked_buffer_works);
	tcase_add_test(t, who_waits_for_another_restore_waits_no_longer_than_it_said);
	tcase_add_test(t, the_end_of_an_evicted_buffer_is_an_event);
	tcase_add_test(t, a_forked_child_leaves_its_parents_buffers_as_they_are);
	tcase_add_test(t, a_process_may_die_at_each_of_its_system_calls);
	tcase_add_checked_fixture(kept, kept_setup, kept_teardown);
	tcase_set_timeout(kept, 120);
	tcase_add_test(kept, a_full_journal_refuses_and_changes_nothing);
	return suite_run("restore", t, kept, NULL);
}
