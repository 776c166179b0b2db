/* SPDX-License-Identifier: MIT
 *
 * Streams in a host pool, within one process: sleeps and what wakes them, the fd for poll(), stats,
 * lists and fork().
 */
#include "tests/lib/forked.h"
#include "tests/system/lib/stream_fixture.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* ---- waiting ---- */

static void *produce_later(void *arg)
{
	poll(NULL, 0, 30);
	produce();
	return NULL;
}

/* As the default, not for long enough, and for long enough. */
static const uint64_t spins[] = { 0, 200, 1000000 };

START_TEST(a_publication_wakes_a_reader)
{
	struct gpushm_frame *f = NULL;
	pthread_t thread;

	streamer_spin_us = spins[_i];
	create(4);
	r = follow(GPUSHM_EVERY, 1);
	for (int i = 0; i < 5; i++) {
		pthread_create(&thread, NULL, produce_later, NULL);
		ck_assert_int_eq(gpushm_frame_next(r, NULL, GPUSHM_WAIT_FOREVER, &f), 0);
		pthread_join(thread, NULL);
		gpushm_frame_release(f, NULL);
	}
	next_fails(r, 10, -ETIMEDOUT);
	says("no frame in that time");
}
END_TEST

static void *release_later(void *frame)
{
	poll(NULL, 0, 30);
	release(frame);
	return NULL;
}

START_TEST(a_release_wakes_the_producer)
{
	struct gpushm_frame *f, *g = NULL;
	pthread_t thread;

	streamer_spin_us = spins[_i];
	create(2);
	r = follow(GPUSHM_EVERY, 1);
	r2 = follow(GPUSHM_EVERY, 1);
	produce_many(2);
	for (int i = 0; i < 5; i++) {
		f = next(r);
		expect_next(r2, gpushm_frame_seq(f));
		pthread_create(&thread, NULL, release_later, f);
		ck_assert_int_eq(gpushm_frame_begin(p, NULL, GPUSHM_WAIT_FOREVER, &g), 0);
		pthread_join(thread, NULL);
		fill_and_publish(g);
	}
}
END_TEST

static void *close_later(void *arg)
{
	poll(NULL, 0, 30);
	gpushm_stream_close(arg);
	return NULL;
}

START_TEST(an_end_wakes_the_others)
{
	struct gpushm_frame *f = NULL;
	pthread_t thread;

	streamer_spin_us = spins[_i];
	create(2);
	r = follow(GPUSHM_EVERY, 1);
	produce_many(2);
	pthread_create(&thread, NULL, close_later, r);
	ck_assert_int_eq(gpushm_frame_begin(p, NULL, GPUSHM_WAIT_FOREVER, &f), 0);
	pthread_join(thread, NULL);
	gpushm_frame_cancel(f);
	r = follow(GPUSHM_EVERY, 1);
	pthread_create(&thread, NULL, close_later, p);
	next_fails(r, GPUSHM_WAIT_FOREVER, -EPIPE);
	pthread_join(thread, NULL);
	p = NULL;
}
END_TEST

/* The reader sleeps before each frame that is due, and spins. */
static void *produce_at_a_pace(void *arg)
{
	for (int i = 0; i < 100; i++) {
		usleep(3000);
		produce();
	}
	return NULL;
}

START_TEST(paced_frames_arrive)
{
	struct gpushm_frame *f = NULL;
	pthread_t thread;

	streamer_spin_us = 1000;
	create(128);
	r = follow(GPUSHM_EVERY, 1);
	pthread_create(&thread, NULL, produce_at_a_pace, NULL);
	for (uint64_t i = 1; i <= 100; i++) {
		int e = -ETIMEDOUT;

		/* Each second one is waited for in many calls. */
		while (e == -ETIMEDOUT)
			e = gpushm_frame_next(r, NULL, i % 2 ? 1 : GPUSHM_WAIT_FOREVER, &f);
		ck_assert_int_eq(e, 0);
		ck_assert_uint_eq(gpushm_frame_seq(f), i);
		release(f);
	}
	pthread_join(thread, NULL);
}
END_TEST

static uint64_t cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* One spin is much less than the processor's time for ten. */
START_TEST(a_spin_ends)
{
	uint64_t begun;

	streamer_spin_us = 60000;
	create(2);
	r = follow(GPUSHM_EVERY, 1);
	begun = cpu_ms();
	for (int i = 0; i < 10; i++)
		next_fails(r, 60, -ETIMEDOUT);
	ck_assert_uint_lt(cpu_ms() - begun, 300);
	produce_many(2);
	begun = cpu_ms();
	for (int i = 0; i < 10; i++)
		begin_fails(60, -ETIMEDOUT);
	ck_assert_uint_lt(cpu_ms() - begun, 300);
	r = gpushm_stream_close(r);
	streamer_spin_us = 1000000;
	r = follow(GPUSHM_EVERY, 1);
	begun = cpu_ms();
	next_fails(r, 10, -ETIMEDOUT);
	ck_assert_uint_lt(cpu_ms() - begun, 300);
}
END_TEST

/* ---- the fd ---- */

static bool readable(int fd, int ms)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, ms) > 0;
}

/* Calls next() until -EAGAIN. */
static unsigned drain(struct gpushm_stream *s)
{
	struct gpushm_frame *f = NULL;
	unsigned n = 0;

	while (gpushm_frame_next(s, NULL, 0, &f) == 0) {
		n++;
		gpushm_frame_release(f, NULL);
	}
	return n;
}

/* The thread may tell a change late, and for nothing. */
static void await_frame(int fd, struct gpushm_stream *s)
{
	unsigned n = 0;

	while (n == 0) {
		ck_assert(readable(fd, 10000));
		n = drain(s);
	}
}

START_TEST(the_fd_tells_of_each_frame)
{
	pthread_t thread;
	int fd, tries = 0;

	streamer_spin_us = spins[_i];
	create(4);
	r = follow(GPUSHM_LATEST, 1);
	fd = gpushm_stream_fd(r);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gpushm_stream_fd(r), fd);
	for (int i = 0; i < 8; i++) {
		pthread_create(&thread, NULL, produce_later, NULL);
		await_frame(fd, r);
		pthread_join(thread, NULL);
	}
	while (readable(fd, 0) && tries++ < 100)
		ck_assert_uint_eq(drain(r), 0);
	ck_assert(!readable(fd, 50));
	pthread_create(&thread, NULL, close_later, p);
	ck_assert(readable(fd, 10000));
	pthread_join(thread, NULL);
	p = NULL;
}
END_TEST

START_TEST(the_fd_tells_of_a_free_slot)
{
	struct gpushm_frame *f, *g = NULL;
	pthread_t thread;
	int fd;

	create(2);
	r = follow(GPUSHM_EVERY, 1);
	fd = gpushm_stream_fd(p);
	ck_assert_int_ge(fd, 0);
	produce_many(2);
	for (int i = 0; i < 8; i++) {
		f = next(r);
		pthread_create(&thread, NULL, release_later, f);
		while (gpushm_frame_begin(p, NULL, 0, &g) == -EAGAIN)
			ck_assert(readable(fd, 10000));
		pthread_join(thread, NULL);
		fill_and_publish(g);
	}
}
END_TEST

/* In place of the C library's, for the library: what happens between its two looks. */
static void (*between_looks)(int fd);

__attribute__((visibility("default"))) int eventfd_read(int fd, eventfd_t *value)
{
	void (*happens)(int) = between_looks;

	between_looks = NULL;
	if (happens)
		happens(fd);
	return read(fd, value, sizeof(*value)) == (ssize_t)sizeof(*value) ? 0 : -1;
}

/* And the thread has told it. */
static void end_the_stream(int fd)
{
	struct gpushm_stream_stats st = { .struct_size = sizeof(st) };

	p = gpushm_stream_close(p);
	while (st.state != GPUSHM_STREAM_ENDED)
		ck_assert_int_eq(gpushm_stream_stats(r, &st), 0);
	ck_assert(readable(fd, 10000));
}

START_TEST(an_end_between_two_looks_is_seen)
{
	create(4);
	r = follow(GPUSHM_EVERY, 1);
	ck_assert_int_ge(gpushm_stream_fd(r), 0);
	between_looks = end_the_stream;
	next_fails(r, 0, -EPIPE);
	ck_assert_ptr_null(between_looks);
}
END_TEST

/* ---- system calls ---- */

/* From now on any system call but the end kills the process. The clock is one where the kernel's
 * vdso can't read it. */
static bool forbid_system_calls(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { array_size(filter), filter };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* As an older kernel, or the filter of an older container engine. */
static bool refuse_waitv(int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 449 /* futex_waitv */, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { array_size(filter), filter };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static bool hand_over(struct gpushm_stream *from, struct gpushm_stream *const *to, int n)
{
	struct gpushm_frame *f = NULL;
	uint64_t seq;

	if (gpushm_frame_begin(from, NULL, 1000, &f) < 0 || streamer_fill(f) < 0)
		return false;
	seq = gpushm_frame_seq(f);
	if (gpushm_frame_publish(f, NULL, &seq, sizeof(seq)) < 0)
		return false;
	for (int i = 0; i < n; i++)
		if (gpushm_frame_next(to[i], NULL, 1000, &f) < 0 || !streamer_is_right(f) ||
		    gpushm_frame_ok(f) < 0 || gpushm_frame_release(f, NULL) < 0)
			return false;
	return true;
}

/* The socket; then a word if a reader has an fd, so that each publication is a system call. */
static int silent(char **args)
{
	static const enum gpushm_follow how[] = { GPUSHM_EVERY, GPUSHM_LATEST, GPUSHM_SHARE };
	struct gpushm_stream_spec spec = { .slots = 4 };
	struct gpushm_stream *s = NULL, *readers[3] = { NULL };
	struct gpushm *conn = NULL;

	if (gpushm_connect(args[0], &conn) < 0 || streamer_create(conn, "silent", &spec, &s) < 0)
		return 1;
	for (int i = 0; i < 3; i++)
		if (gpushm_stream_open(conn, "silent", how[i], 1, 0, NULL, &readers[i]) < 0)
			return 2;
	for (int i = 0; i < 10; i++)
		if (!hand_over(s, readers, 3))
			return 3;
	if (args[1] && gpushm_stream_fd(readers[0]) < 0)
		return 4;
	if (!forbid_system_calls())
		return 5;
	for (int i = 0; i < 10000; i++)
		if (!hand_over(s, readers, 3))
			_exit(6);
	_exit(0);
}

static bool hand_on(struct gpushm_stream *s)
{
	struct gpushm_frame *f = NULL;

	return gpushm_frame_begin(s, NULL, 10000, &f) == 0 &&
	       gpushm_frame_publish(f, NULL, NULL, 0) == 0;
}

static void *release_after_begin(void *frame)
{
	poll(NULL, 0, 20);
	gpushm_frame_release(frame, NULL);
	return NULL;
}

/* The socket and an error: the producer waits for two readers without futex_waitv(). */
static int without_waitv(char **args)
{
	struct gpushm_stream_spec spec = { .slots = 2 };
	struct gpushm_stream *s = NULL, *readers[2] = { NULL };
	struct gpushm *conn = NULL;
	struct gpushm_frame *f = NULL, *g = NULL;
	pthread_t thread;

	if (gpushm_connect(args[0], &conn) < 0 || streamer_create(conn, "old", &spec, &s) < 0)
		return 1;
	for (int i = 0; i < 2; i++)
		if (gpushm_stream_open(conn, "old", GPUSHM_EVERY, 1, 0, NULL, &readers[i]) < 0)
			return 2;
	if (!refuse_waitv(atoi(args[1])) || !hand_over(s, readers, 2))
		return 3;
	for (int i = 0; i < 5; i++) {
		if (!hand_on(s) || gpushm_frame_next(readers[0], NULL, 0, &f) < 0 ||
		    gpushm_frame_release(f, NULL) < 0 ||
		    gpushm_frame_next(readers[1], NULL, 0, &g) < 0 || !hand_on(s))
			return 4;
		/* The other slot has the newest frame. */
		pthread_create(&thread, NULL, release_after_begin, g);
		if (!hand_on(s) || pthread_join(thread, NULL) != 0)
			return 5;
		for (int k = 0; k < 4; k++)
			if (gpushm_frame_next(readers[k / 2], NULL, 0, &f) < 0 ||
			    gpushm_frame_release(f, NULL) < 0)
				return 6;
	}
	_exit(0);
}

START_TEST(streams_work_without_futex_waitv)
{
	static const char *const errors[] = { "38", "1" }; /* ENOSYS, EPERM */
	struct role_process role;

	role_start(&role, "without_waitv", (const char *[]){ d.socket, errors[_i], NULL });
	role_finish(&role);
}
END_TEST

static void *produce_or_release(void *frame)
{
	poll(NULL, 0, 30);
	if (frame)
		gpushm_frame_release(frame, NULL);
	else
		hand_on(p);
	return NULL;
}

/* The socket, for how long to spin, who waits, and whether what it waits for happens. Without a
 * system call it can't sleep. */
static int spinning(char **args)
{
	bool reads = strcmp(args[2], "reader") == 0;
	struct gpushm_stream_spec spec = { .slots = 2 };
	struct gpushm_frame *f = NULL, *g = NULL;
	struct gpushm *conn = NULL;
	pthread_t thread;
	int e;

	streamer_spin_us = strtoull(args[1], NULL, 10);
	if (gpushm_connect(args[0], &conn) < 0 || streamer_create(conn, "spin", &spec, &p) < 0 ||
	    gpushm_stream_open(conn, "spin", GPUSHM_EVERY, 1, 0,
			       &(struct gpushm_follow_options){
				       .struct_size = sizeof(struct gpushm_follow_options),
				       .spin_us = streamer_spin_us },
			       &r) < 0 ||
	    !hand_over(p, &r, 1))
		return 1;
	if (!reads && (!hand_on(p) || !hand_on(p) || gpushm_frame_next(r, NULL, 0, &f) < 0))
		return 2;
	if (strcmp(args[3], "comes") == 0 &&
	    pthread_create(&thread, NULL, produce_or_release, f) != 0)
		return 3;
	if (!forbid_system_calls())
		return 4;
	e = reads ? gpushm_frame_next(r, NULL, 10000, &g) : gpushm_frame_begin(p, NULL, 10000, &g);
	_exit(e == 0 ? 0 : 5);
}

START_TEST(a_wait_that_spins_makes_no_system_call)
{
	const char *who = _i ? "producer" : "reader";
	struct role_process role;

	if (suite_is_sanitized()) {
		puts("skipped: a sanitizer makes system calls");
		return;
	}
	role_start(&role, "spinning", (const char *[]){ d.socket, "1000000", who, "comes", NULL });
	role_finish(&role);
	/* So the test can fail. */
	role_start(&role, "spinning", (const char *[]){ d.socket, "1000", who, "never", NULL });
	ck_assert_int_eq(WTERMSIG(role_wait(&role)), SIGSYS);
}
END_TEST

static int run_silent(const char *with_fd)
{
	struct role_process role;

	role_start(&role, "silent", (const char *[]){ d.socket, with_fd, NULL });
	return role_wait(&role);
}

START_TEST(a_frame_makes_no_system_call)
{
	int status;

	if (suite_is_sanitized()) {
		puts("skipped: a sanitizer makes system calls");
		return;
	}
	status = run_silent(NULL);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status 0x%x", status);
	/* So the test can fail. */
	status = run_silent("fd");
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "status 0x%x", status);
}
END_TEST

/* ---- the rest ---- */

START_TEST(stats_count_what_happened)
{
	struct gpushm_stream_stats st = { .struct_size = sizeof(st) };
	struct gpushm_frame *f;

	hostile_reader_stays_away("readers are counted");
	create(8);
	r = follow(GPUSHM_EVERY, 2);
	r2 = follow(GPUSHM_LATEST, 2);
	produce_many(5);
	f = next(r);
	ck_assert_int_eq(gpushm_stream_stats(r, &st), 0);
	ck_assert_int_eq(st.state, GPUSHM_STREAM_RUNNING);
	ck_assert_uint_eq(st.newest, 5);
	ck_assert_uint_eq(st.readers, 2);
	ck_assert_uint_eq(st.taken, 1);
	ck_assert_uint_eq(st.held, 1);
	ck_assert_uint_eq(st.lag, 4);
	gpushm_frame_release(f, NULL);
	expect_next(r2, 5);
	for (int i = 0; i < 5; i++)
		expect_next(r, produce() - 4);
	expect_next(r2, 10);
	ck_assert_int_eq(gpushm_stream_stats(r2, &st), 0);
	ck_assert_uint_eq(st.skipped, 4);
	ck_assert_uint_eq(st.lag, 0);
	st.struct_size = 0;
	ck_assert_int_eq(gpushm_stream_stats(r2, &st), -EINVAL);
}
END_TEST

START_TEST(a_stream_is_listed)
{
	struct gpushm_stream_info **all = NULL, *it;
	size_t n = 0;

	hostile_reader_stays_away("readers are listed");
	ck_assert_int_eq(gpushm_streams(c, NULL, &all, &n), 0);
	ck_assert_uint_eq(n, 0);
	all = gpushm_free(all);
	create_with((struct gpushm_stream_spec){ .slots = 8,
						 .readers = 3,
						 .limit_ms = 77,
						 .flags = GPUSHM_KEEP_QUEUE,
						 .delivery = GPUSHM_AT_MOST_ONCE });
	r = follow(GPUSHM_EVERY, 2);
	produce_many(2);
	next(r);
	ck_assert_int_eq(gpushm_streams(c, "other", &all, &n), 0);
	ck_assert_uint_eq(n, 0);
	all = gpushm_free(all);
	ck_assert_int_eq(gpushm_streams(c, "s", &all, &n), 0);
	ck_assert_uint_eq(n, 1);
	it = all[0];
	ck_assert_str_eq(it->name, "s");
	ck_assert_uint_eq(it->buffer, gpushm_buffer_id(gpushm_stream_buffer(p)));
	ck_assert_uint_eq(it->slots, 8);
	ck_assert_uint_eq(it->readers_max, 3);
	ck_assert_uint_eq(it->limit_ms, 77);
	ck_assert_int_eq(it->keep_queue, 1);
	ck_assert_int_eq(it->delivery, GPUSHM_AT_MOST_ONCE);
	ck_assert_int_eq(it->state, GPUSHM_STREAM_RUNNING);
	ck_assert_int_eq(it->pid, getpid());
	ck_assert_uint_eq(it->newest, 2);
	ck_assert_uint_eq(it->producers, 1);
	ck_assert_uint_ge(it->now_ns, it->newest_ns);
	ck_assert_uint_eq(it->n_readers, 1);
	ck_assert_int_eq(it->readers[0]->follow, GPUSHM_EVERY);
	ck_assert_uint_eq(it->readers[0]->max_held, 2);
	ck_assert_uint_eq(it->readers[0]->held, 1);
	ck_assert_uint_eq(it->readers[0]->oldest, 1);
	ck_assert_uint_eq(it->readers[0]->taken, 1);
	ck_assert_uint_eq(it->readers[0]->lag, 1);
	ck_assert_int_eq(it->readers[0]->pid, getpid());
	gpushm_free(all);
}
END_TEST

static int in_child(void *arg)
{
	struct gpushm_frame *f = arg, *g = NULL;
	struct gpushm_stream_stats st = { .struct_size = sizeof(st) };

	if (gpushm_frame_begin(p, NULL, 0, &g) != -ECHILD ||
	    gpushm_frame_next(r, NULL, 0, &g) != -ECHILD || gpushm_frame_ok(f) != -ECHILD ||
	    gpushm_frame_release(f, NULL) != -ECHILD || gpushm_stream_fd(r) != -ECHILD ||
	    gpushm_stream_leave(r) != -ECHILD || gpushm_stream_stats(r, &st) != -ECHILD)
		return 1;
	gpushm_stream_close(r);
	gpushm_stream_close(p);
	return 0;
}

START_TEST(a_forked_child_cannot_use_its_parents_stream)
{
	struct gpushm_frame *f;

	create(4);
	r = follow(GPUSHM_EVERY, 1);
	ck_assert_int_ge(gpushm_stream_fd(r), 0);
	produce();
	f = next(r);
	ck_assert_int_eq(forked(in_child, f), 0);
	ck_assert_int_eq(gpushm_frame_ok(f), 0);
	release(f);
	expect_next(r, produce());
}
END_TEST

int main(int argc, char **argv)
{
	static const struct role roles[] = { { "silent", silent },
					     { "without_waitv", without_waitv },
					     { "spinning", spinning } };
	TCase *waiting = tcase_create("waiting"), *rest = tcase_create("rest");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(waiting, client_setup, teardown);
	tcase_add_checked_fixture(rest, client_setup, teardown);
	tcase_add_loop_test(waiting, a_publication_wakes_a_reader, 0, array_size(spins));
	tcase_add_loop_test(waiting, a_release_wakes_the_producer, 0, array_size(spins));
	tcase_add_loop_test(waiting, an_end_wakes_the_others, 0, array_size(spins));
	tcase_add_test(waiting, paced_frames_arrive);
	tcase_add_test(waiting, a_spin_ends);
	tcase_add_loop_test(waiting, the_fd_tells_of_each_frame, 0, array_size(spins));
	tcase_add_test(waiting, the_fd_tells_of_a_free_slot);
	tcase_add_test(waiting, an_end_between_two_looks_is_seen);
	tcase_add_loop_test(rest, streams_work_without_futex_waitv, 0, 2);
	tcase_add_test(rest, a_frame_makes_no_system_call);
	tcase_add_loop_test(rest, a_wait_that_spins_makes_no_system_call, 0, 2);
	tcase_add_test(rest, stats_count_what_happened);
	tcase_add_test(rest, a_stream_is_listed);
	tcase_add_test(rest, a_forked_child_cannot_use_its_parents_stream);
	return suite_run("stream_waits", waiting, rest, NULL);
}
