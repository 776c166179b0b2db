/* SPDX-License-Identifier: MIT
 *
 * Threads of one process: eight that share a connection, and eight with one each. They make, fill,
 * look up, open and drop buffers, some of the same names. The test is made for a thread sanitizer,
 * also in the daemon; without one it still finds replies that reach the wrong thread.
 */
#include "proto/base/own.h"
#include "tests/lib/counted.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 8, ROUNDS = 60, FLOATS = 256 };

static pthread_barrier_t barrier;

static void setup(void)
{
	counted_setup(CENSUS_CONFIG);
	pthread_barrier_init(&barrier, NULL, THREADS);
}

static void teardown(void)
{
	pthread_barrier_destroy(&barrier);
	counted_teardown();
}

/* A thread reports a failure as the number of its step and an errno; only the main thread may use
 * Check. */
struct worker {
	struct gpushm *conn; /* shared, or its own */
	int number, step, result;
	char error[256];
};

static bool did(struct worker *w, int step, int r)
{
	if (r >= 0 || w->result < 0)
		return r >= 0;
	w->step = step;
	w->result = r;
	snprintf(w->error, sizeof(w->error), "%s", gpushm_error());
	return false;
}

static void wrong(struct worker *w, int step, const char *what)
{
	if (w->result == 0)
		snprintf(w->error, sizeof(w->error), "%s", what);
	w->step = step;
	w->result = -1;
}

static float value_of(const struct worker *w, int round)
{
	return (float)(w->number * ROUNDS + round);
}

static struct gpushm_buffer *make(struct worker *w, const char *name, int round)
{
	const int64_t shape[] = { FLOATS };
	struct gpushm_array_spec spec = {
		.struct_size = sizeof(spec), .name = "values", .ndim = 1, .shape = shape
	};
	struct gpushm_array *a = NULL;
	struct gpushm_buffer *b = NULL;
	float values[FLOATS];

	gpushm_dtype_parse("float32", &spec.dtype);
	for (int i = 0; i < FLOATS; i++)
		values[i] = value_of(w, round);
	if (!did(w, 1, gpushm_create(w->conn, name, sizeof(values), NULL, &b)))
		return NULL;
	did(w, 2, gpushm_describe(b, &spec, 1));
	did(w, 3, gpushm_write(b, 0, values, sizeof(values)));
	did(w, 4, gpushm_publish(b, round % 2 ? GPUSHM_SEALED : GPUSHM_SHARED));
	if (did(w, 5, gpushm_array_get(b, "values", &a)) && gpushm_array_size(a) != FLOATS)
		wrong(w, 5, "an array of another size");
	gpushm_array_free(a);
	return b;
}

/* Looks at another thread's buffer of that round, which may exist or not. */
static void look_at(struct worker *w, int number, int round)
{
	struct gpushm_buffer *b = NULL;
	struct worker its = { .number = number };
	float values[FLOATS];
	char name[32];

	snprintf(name, sizeof(name), "t%d/%d", number, round % 4);
	if (gpushm_open(w->conn, name, GPUSHM_READ, 0, NULL, &b) < 0)
		return;
	if (did(w, 6, gpushm_read(b, 0, values, sizeof(values))) &&
	    (values[0] != values[FLOATS - 1] || values[0] < value_of(&its, 0) ||
	     values[0] >= value_of(&its, ROUNDS)))
		wrong(w, 6, "another buffer's contents");
	did(w, 7, gpushm_close(b));
}

static void ask(struct worker *w, const char *name)
{
	struct gpushm_status *status = NULL;
	struct gpushm_stat *st = NULL, **all = NULL;
	size_t n = 0;

	if (did(w, 8, gpushm_stat(w->conn, name, 0, GPUSHM_HOLDERS, &st))) {
		if (strcmp(st->name, name) != 0)
			wrong(w, 8, "the answer to another's question");
		gpushm_free(st);
	}
	if (did(w, 9, gpushm_list(w->conn, "t", 0, &all, &n)))
		gpushm_free(all);
	if (did(w, 10, gpushm_status(w->conn, &status)))
		gpushm_free(status);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct gpushm_buffer *b, *again = NULL;
	char name[32];

	pthread_barrier_wait(&barrier);
	for (int round = 0; round < ROUNDS && w->result == 0; round++) {
		snprintf(name, sizeof(name), "t%d/%d", w->number, round % 4);
		b = make(w, name, round);
		if (!b)
			break;
		look_at(w, (w->number + round) % THREADS, round);
		ask(w, name);
		if (did(w, 11, gpushm_open(w->conn, name, GPUSHM_READ, 0, NULL, &again)))
			did(w, 12, gpushm_close(again));
		did(w, 13, gpushm_close(b));
		did(w, 14, gpushm_unlink(w->conn, name));
	}
	return NULL;
}

static void run(bool shared)
{
	struct worker all[THREADS] = { 0 };
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++) {
		all[i].number = i;
		all[i].conn = c;
		if (!shared)
			ck_assert_int_eq(gpushm_connect(d.socket, &all[i].conn), 0);
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &all[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < THREADS; i++) {
		if (!shared)
			gpushm_disconnect(all[i].conn);
		ck_assert_msg(all[i].result == 0, "thread %d, step %d: %d, %s", i, all[i].step,
			      all[i].result, all[i].error);
	}
}

START_TEST(threads_on_one_connection_get_their_own_replies)
{
	run(true);
}
END_TEST

START_TEST(threads_on_their_own_connections_are_independent)
{
	run(false);
}
END_TEST

/* All threads create one name: one succeeds, the others get EEXIST. */
static atomic_int winners;

static void *race(void *arg)
{
	struct worker *w = arg;
	struct gpushm_buffer *b = NULL;

	for (int round = 0; round < ROUNDS; round++) {
		pthread_barrier_wait(&barrier);
		if (gpushm_create(w->conn, "one", 100, NULL, &b) == 0)
			atomic_fetch_add(&winners, 1);
		else if (strcmp(gpushm_error_code(), "EXISTS") != 0)
			wrong(w, round, gpushm_error());
		pthread_barrier_wait(&barrier);
		if (b)
			did(w, round, gpushm_close(b));
		b = NULL;
	}
	return NULL;
}

START_TEST(one_thread_wins_a_name)
{
	struct worker all[THREADS] = { 0 };
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++) {
		all[i].conn = i % 2 ? c : NULL;
		if (!all[i].conn)
			ck_assert_int_eq(gpushm_connect(d.socket, &all[i].conn), 0);
		pthread_create(&threads[i], NULL, race, &all[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < THREADS; i++) {
		if (all[i].conn != c)
			gpushm_disconnect(all[i].conn);
		ck_assert_msg(all[i].result == 0, "thread %d: %s", i, all[i].error);
	}
	ck_assert_int_eq(atomic_load(&winners), ROUNDS);
}
END_TEST

/* ---- a mempool, whose fd comes once a connection ---- */

static void *open_first(void *arg)
{
	struct worker *w = arg;
	struct gpushm_buffer *b = NULL;
	char name[32];

	snprintf(name, sizeof(name), "first/%d", w->number);
	pthread_barrier_wait(&barrier);
	if (did(w, 1, gpushm_open(w->conn, name, GPUSHM_READ, 0, NULL, &b)))
		did(w, 2, gpushm_close(b));
	return NULL;
}

static void make_in_a_mempool(void)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "gpu0-mempool" };
	struct gpushm *own = NULL;
	char name[32];

	/* A connection of its own: when it ends, the process closes the pool. */
	ck_assert_int_eq(gpushm_connect(d.socket, &own), 0);
	for (int i = 0; i < THREADS; i++) {
		struct gpushm_buffer *b = NULL;

		snprintf(name, sizeof(name), "first/%d", i);
		ck_assert_msg(gpushm_create(own, name, 100, &o, &b) == 0, "%s", gpushm_error());
		ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
		ck_assert_int_eq(gpushm_close(b), 0);
	}
	gpushm_disconnect(own);
}

START_TEST(threads_that_meet_in_a_new_mempool_are_served)
{
	char name[32];

	if (!dlopen("libcuda.so.1", RTLD_NOW)) {
		printf("skipped: needs a driver\n");
		return;
	}
	make_in_a_mempool();
	for (int round = 0; round < ROUNDS; round++) {
		struct worker all[THREADS] = { 0 };
		pthread_t threads[THREADS];
		struct gpushm *fresh = NULL;

		ck_assert_int_eq(gpushm_connect(d.socket, &fresh), 0);
		for (int i = 0; i < THREADS; i++) {
			all[i] = (struct worker){ .conn = fresh, .number = i };
			pthread_create(&threads[i], NULL, open_first, &all[i]);
		}
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		gpushm_disconnect(fresh);
		for (int i = 0; i < THREADS; i++)
			ck_assert_msg(all[i].result == 0, "round %d: %s", round, all[i].error);
	}
	for (int i = 0; i < THREADS; i++) {
		snprintf(name, sizeof(name), "first/%d", i);
		ck_assert_int_eq(gpushm_unlink(c, name), 0);
	}
}
END_TEST

static void setup_pools(void)
{
	client_setup();
	pthread_barrier_init(&barrier, NULL, THREADS);
}

static void teardown_pools(void)
{
	pthread_barrier_destroy(&barrier);
	client_teardown();
}

int main(void)
{
	TCase *t = tcase_create("threads"), *pools = tcase_create("threads in pools");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 600);
	tcase_add_test(t, threads_on_one_connection_get_their_own_replies);
	tcase_add_test(t, threads_on_their_own_connections_are_independent);
	tcase_add_test(t, one_thread_wins_a_name);

	tcase_add_checked_fixture(pools, setup_pools, teardown_pools);
	tcase_set_timeout(pools, 600);
	tcase_add_test(pools, threads_that_meet_in_a_new_mempool_are_served);
	return suite_run("threads", t, pools, NULL);
}
