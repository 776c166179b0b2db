/* SPDX-License-Identifier: MIT
 *
 * METRICS against a canned server: a daemon that is older or newer than the library, and replies
 * that make no sense. Every failure must free what it had allocated.
 */
#include "client/gpushm_metrics.h"
#include "tests/lib/suite.h"
#include "tests/unit/lib/canned_fixture.h"

#include "proto/code.h"

static uint64_t bounds[2], counts[3], codes[CODE_COUNT + 2];
static Gpushm__Proto__VerbMetrics verb, *verbs[] = { &verb };
static Gpushm__Proto__DriverCall call, *calls[] = { &call };
static Gpushm__Proto__Pool pool;
static Gpushm__Proto__PoolMetrics pool_metrics, *pools[] = { &pool_metrics };
static Gpushm__Proto__MetricsReply metrics;

static void prepare(void)
{
	setup();
	memset(codes, 0, sizeof(codes));
	bounds[0] = 10;
	bounds[1] = 20;
	memcpy(counts, (uint64_t[]){ 4, 5, 6 }, sizeof(counts));
	gpushm__proto__verb_metrics__init(&verb);
	verb.has_verb = true;
	verb.verb = bytes("open", 4);
	verb.n_results = array_size(codes);
	verb.results = codes;
	verb.n_buckets = array_size(counts);
	verb.buckets = counts;
	gpushm__proto__driver_call__init(&call);
	call.has_call = true;
	call.call = bytes("cuInit", 6);
	gpushm__proto__pool__init(&pool);
	pool.has_id = pool.has_kind = pool.has_name = true;
	pool.kind = GPUSHM__PROTO__KIND__KIND_HOST;
	pool.name = bytes("host", 4);
	gpushm__proto__pool_metrics__init(&pool_metrics);
	pool_metrics.pool = &pool;
	gpushm__proto__metrics_reply__init(&metrics);
	metrics.n_bounds_ns = array_size(bounds);
	metrics.bounds_ns = bounds;
	metrics.n_verbs = metrics.n_driver_calls = metrics.n_pools = 1;
	metrics.verbs = verbs;
	metrics.driver_calls = calls;
	metrics.pools = pools;
}

static int ask(struct gpushm_metrics **ret)
{
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;

	reply.result_case = GPUSHM__PROTO__REPLY__RESULT_METRICS;
	reply.metrics = &metrics;
	canned_hello(server);
	canned_reply(server, &reply, NULL, 0);
	connected();
	return gpushm_metrics(c, ret);
}

START_TEST(codes_of_a_later_daemon_are_one_result)
{
	struct gpushm_metrics *m = NULL;
	const struct gpushm_verb_metrics *v;

	codes[CODE_OK] = 7;
	codes[CODE_NOT_FOUND] = 2;
	codes[CODE_COUNT] = 3;
	codes[CODE_COUNT + 1] = 4;
	ck_assert_msg(ask(&m) == 0, "%s", gpushm_error());
	v = m->verbs[0];
	ck_assert_uint_eq(v->n_results, 3);
	ck_assert_str_eq(v->results[0]->code, "OK");
	ck_assert_uint_eq(v->results[0]->count, 7);
	ck_assert_str_eq(v->results[1]->code, "NOT_FOUND");
	ck_assert_str_eq(v->results[2]->code, "UNKNOWN");
	ck_assert_uint_eq(v->results[2]->count, 7);
	ck_assert_uint_eq(v->buckets[2], 6);
	ck_assert_uint_eq(m->bounds_ns[1], 20);
	ck_assert_str_eq(m->driver_calls[0]->call, "cuInit");
	ck_assert_str_eq(m->pools[0]->pool->name, "host");
	ck_assert_ptr_null(gpushm_free(m));
}
END_TEST

START_TEST(a_pool_of_a_later_kind_is_left_out)
{
	struct gpushm_metrics *m = NULL;

	pool.kind = (Gpushm__Proto__Kind)9;
	ck_assert_msg(ask(&m) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(m->n_pools, 0);
	gpushm_free(m);
}
END_TEST

START_TEST(an_old_daemon_is_told_from_a_broken_one)
{
	struct gpushm_metrics *m = NULL;

	canned_hello(server);
	canned_error(server, CODE_UNKNOWN_VERB, "gpushmd 0.2.0 does not know this verb");
	canned_done(server);
	connected();
	ck_assert_int_eq(gpushm_metrics(c, &m), -ENOSYS);
	ck_assert_str_eq(gpushm_error_code(), "UNKNOWN_VERB");
	ck_assert_ptr_null(m);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
}
END_TEST

static void fewer_buckets(void)
{
	verb.n_buckets--;
}
static void falling_bounds(void)
{
	bounds[1] = bounds[0];
}
static void verb_with_a_nul(void)
{
	verb.verb = bytes("op\0n", 4);
}
static void long_verb(void)
{
	verb.verb = bytes("a-verb-that-has-thirty-two-bytes", 32);
}
static void call_with_a_nul(void)
{
	call.call = bytes("cu\0nit", 6);
}
static void pool_with_a_nul(void)
{
	pool.name = bytes("ho\0t", 4);
}

static void no_pool(void)
{
	pool_metrics.pool = NULL;
}

static void (*const spoil[])(void) = {
	fewer_buckets,	 falling_bounds,  verb_with_a_nul, long_verb,
	call_with_a_nul, pool_with_a_nul, no_pool,
};

START_TEST(metrics_that_make_no_sense_are_refused_and_leak_nothing)
{
	struct gpushm_metrics *m = NULL;

	spoil[_i]();
	refuses_for_good(ask(&m), EPROTO, "makes no sense");
	ck_assert_ptr_null(m);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("metrics");

	tcase_add_checked_fixture(tc, prepare, teardown);
	tcase_add_test(tc, codes_of_a_later_daemon_are_one_result);
	tcase_add_test(tc, a_pool_of_a_later_kind_is_left_out);
	tcase_add_test(tc, an_old_daemon_is_told_from_a_broken_one);
	tcase_add_loop_test(tc, metrics_that_make_no_sense_are_refused_and_leak_nothing, 0,
			    array_size(spoil));
	return suite_run("metrics", tc, NULL);
}
