/* SPDX-License-Identifier: MIT
 *
 * Workers: order, the threads on which functions run, what keeps the loop alive, and that freeing a
 * worker loses no job.
 */
#include "daemon/pool/worker.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#define JOBS 100

struct probe {
	struct job job;
	int number;
	pthread_t ran_on, done_on;
	bool ran, done;
	char name[16];
	sigset_t blocked;
	struct probe *next; /* the job that on_done submits */
};

static uv_loop_t loop;
static struct worker *worker;
static struct probe probes[JOBS];
static int ran[JOBS], n_ran, finished[JOBS], n_finished;

static void run_probe(struct job *job)
{
	struct probe *p = container_of(job, struct probe, job);

	p->ran_on = pthread_self();
	pthread_getname_np(pthread_self(), p->name, sizeof(p->name));
	pthread_sigmask(SIG_BLOCK, NULL, &p->blocked);
	p->ran = true;
	ran[n_ran++] = p->number;
}

static void on_probe_done(struct job *job)
{
	struct probe *p = container_of(job, struct probe, job);

	ck_assert(p->ran);
	p->done_on = pthread_self();
	p->done = true;
	finished[n_finished++] = p->number;
	if (p->next)
		worker_submit(worker, &p->next->job);
}

/* libuv's first loop opens a pipe for signals that stays until the process ends. */
static void warm_up_libuv(void)
{
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void setup(void)
{
	warm_up_libuv();
	fds_mark();
	memset(probes, 0, sizeof(probes));
	n_ran = n_finished = 0;
	for (int i = 0; i < JOBS; i++) {
		probes[i].number = i;
		probes[i].job.run = run_probe;
		probes[i].job.on_done = on_probe_done;
	}
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	ck_assert_int_eq(worker_new(&loop, "a name of more than 15 bytes", &worker), 0);
}

static void teardown(void)
{
	worker = worker_free(worker);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	fds_check();
}

static void submit(int first, int n)
{
	for (int i = first; i < first + n; i++)
		worker_submit(worker, &probes[i].job);
}

static void check_all_in_order(void)
{
	ck_assert_int_eq(n_ran, JOBS);
	ck_assert_int_eq(n_finished, JOBS);
	for (int i = 0; i < JOBS; i++) {
		ck_assert_int_eq(ran[i], i);
		ck_assert_int_eq(finished[i], i);
	}
}

START_TEST(jobs_run_and_finish_in_the_order_submitted)
{
	submit(0, JOBS);
	uv_run(&loop, UV_RUN_DEFAULT);
	check_all_in_order();
}
END_TEST

START_TEST(run_is_on_the_workers_thread_and_on_done_on_the_loops)
{
	submit(0, 1);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert(!pthread_equal(probes[0].ran_on, pthread_self()));
	ck_assert(pthread_equal(probes[0].done_on, pthread_self()));
}
END_TEST

START_TEST(on_done_never_comes_before_submit_has_returned)
{
	submit(0, 1);
	ck_assert(!probes[0].done);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert(probes[0].done);
}
END_TEST

START_TEST(an_idle_worker_does_not_keep_the_loop_alive)
{
	ck_assert_int_eq(uv_loop_alive(&loop), 0);
	submit(0, 1);
	ck_assert_int_ne(uv_loop_alive(&loop), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_alive(&loop), 0);
}
END_TEST

START_TEST(a_job_that_on_done_submits_is_run)
{
	for (int i = 0; i + 1 < JOBS; i++)
		probes[i].next = &probes[i + 1];
	submit(0, 1);
	uv_run(&loop, UV_RUN_DEFAULT);
	check_all_in_order();
}
END_TEST

START_TEST(free_of_a_busy_worker_delivers_every_job)
{
	submit(0, JOBS);
	worker = worker_free(worker);
	ck_assert_ptr_null(worker);
	check_all_in_order();
}
END_TEST

START_TEST(free_delivers_what_on_done_submits_meanwhile)
{
	for (int i = 0; i + 1 < JOBS; i++)
		probes[i].next = &probes[i + 1];
	submit(0, 1);
	worker = worker_free(worker);
	check_all_in_order();
}
END_TEST

START_TEST(the_thread_takes_no_signal_and_leaves_our_mask_alone)
{
	sigset_t ours;

	submit(0, 1);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(sigismember(&probes[0].blocked, SIGTERM), 1);
	ck_assert_int_eq(sigismember(&probes[0].blocked, SIGHUP), 1);
	ck_assert_int_eq(sigismember(&probes[0].blocked, SIGCHLD), 1);

	pthread_sigmask(SIG_BLOCK, NULL, &ours);
	ck_assert_int_eq(sigismember(&ours, SIGTERM), 0);
}
END_TEST

START_TEST(a_long_thread_name_is_cut_to_what_the_kernel_takes)
{
	submit(0, 1);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_str_eq(probes[0].name, "a name of more ");
}
END_TEST

START_TEST(free_takes_null_and_returns_null)
{
	ck_assert_ptr_null(worker_free(NULL));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("worker");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, jobs_run_and_finish_in_the_order_submitted);
	tcase_add_test(tc, run_is_on_the_workers_thread_and_on_done_on_the_loops);
	tcase_add_test(tc, on_done_never_comes_before_submit_has_returned);
	tcase_add_test(tc, an_idle_worker_does_not_keep_the_loop_alive);
	tcase_add_test(tc, a_job_that_on_done_submits_is_run);
	tcase_add_test(tc, free_of_a_busy_worker_delivers_every_job);
	tcase_add_test(tc, free_delivers_what_on_done_submits_meanwhile);
	tcase_add_test(tc, the_thread_takes_no_signal_and_leaves_our_mask_alone);
	tcase_add_test(tc, a_long_thread_name_is_cut_to_what_the_kernel_takes);
	tcase_add_test(tc, free_takes_null_and_returns_null);
	return suite_run("worker", tc, NULL);
}
