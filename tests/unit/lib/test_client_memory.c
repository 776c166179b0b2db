/* SPDX-License-Identifier: MIT
 *
 * The n-th allocation of the library fails, for n = 1, 2, ... until none is left, in each operation
 * of a client. Each time the result is -ENOMEM with a text, and nothing stays open.
 */
#include "client/gpushm_metrics.h"
#include "client/gpushm_query.h"
#include "tests/lib/suite.h"
#include "tests/unit/lib/buffer_fixture.h"
#include "tests/unit/memory_fixture.h"

#define ALLOCATIONS_MAX 200

/* ---- a client's operations: 0, or the first error ---- */

static int close_all(int result)
{
	int closing = gpushm_close(b);

	b = NULL;
	c = gpushm_disconnect(c);
	return result < 0 ? result : closing;
}

static void put_up_open(void)
{
	canned_hello(server);
	reply_to_open(GPUSHM_SEALED, GPUSHM_READ, memory_fd(ALLOCATED, MEMORY_SEALS));
	canned_done(server);
}

static int do_open(void)
{
	struct gpushm_array *a = NULL;
	int r = gpushm_connect(canned_path(server), &c);

	if (r == 0)
		r = gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &b);
	if (r == 0)
		r = gpushm_array_get(b, "a", &a);
	gpushm_array_free(a);
	return close_all(r);
}

static uint64_t digest;

/* Correct replies to DESCRIBE and PUBLISH, and Done for all other requests. */
static void fill_along(const Gpushm__Proto__Request *request, Gpushm__Proto__Reply *reply)
{
	static Gpushm__Proto__PublishReply published;
	static Gpushm__Proto__Error error;

	if (request->verb_case == GPUSHM__PROTO__REQUEST__VERB_STAT) {
		gpushm__proto__error__init(&error);
		error.has_code = true;
		error.code = GPUSHM__PROTO__CODE__CODE_NOT_FOUND;
		reply->result_case = GPUSHM__PROTO__REPLY__RESULT_ERROR;
		reply->error = &error;
		return;
	}
	if (request->verb_case != GPUSHM__PROTO__REQUEST__VERB_PUBLISH) {
		count_arrays(request, reply);
		return;
	}
	gpushm__proto__publish_reply__init(&published);
	published.has_digest = true;
	published.digest = digest;
	reply->result_case = GPUSHM__PROTO__REPLY__RESULT_PUBLISHED;
	reply->published = &published;
}

static void put_up_create(void)
{
	uint64_t n;

	close(table_fd(&n, &digest));
	described = 0;
	canned_hello(server);
	reply_to_create();
	canned_respond(server, fill_along, 9);
}

static int do_create(void)
{
	const struct gpushm_attr attr = {
		.struct_size = sizeof(attr), .key = "k", .value = "v", .size = 1
	};
	const struct gpushm_attr later = {
		.struct_size = sizeof(later), .key = "l", .value = "w", .size = 1
	};
	const struct gpushm_create_options o = { .struct_size = sizeof(o),
						 .attrs = &attr,
						 .n_attrs = 1 };
	struct gpushm_array_spec spec = float_spec("a");
	struct gpushm_array *a = NULL;
	int r = gpushm_connect(canned_path(server), &c);

	if (r == 0)
		r = gpushm_create(c, "a", SIZE, &o, &b);
	if (r == 0)
		r = gpushm_describe(b, &spec, 1);
	if (r == 0)
		r = gpushm_array_get(b, "a", &a);
	gpushm_array_free(a);
	if (r == 0)
		r = gpushm_set_attrs(b, &later, 1);
	if (r == 0)
		r = gpushm_publish_as(b, GPUSHM_SEALED, "b", 0);
	if (r == 0)
		r = gpushm_rename(c, "b", "a", 0);
	return close_all(r);
}

/* ---- queries ---- */

static void look_around(const Gpushm__Proto__Request *request, Gpushm__Proto__Reply *reply)
{
	static Gpushm__Proto__Attr attr, *attrs[] = { &attr };
	static Gpushm__Proto__Holder holder, *holders[] = { &holder };
	static Gpushm__Proto__Buffer buffer, *buffers[] = { &buffer };
	static Gpushm__Proto__ListReply list;
	static Gpushm__Proto__StatusReply status;
	static Gpushm__Proto__PoolsReply pools;
	static uint64_t number = 1;
	static Gpushm__Proto__VerbMetrics verb, *verbs[] = { &verb };
	static Gpushm__Proto__MetricsReply metrics;

	gpushm__proto__attr__init(&attr);
	gpushm__proto__holder__init(&holder);
	holder.has_access = true;
	holder.access = GPUSHM__PROTO__ACCESS__ACCESS_READ;
	gpushm__proto__buffer__init(&buffer);
	buffer.has_id = buffer.has_state = true;
	buffer.state = GPUSHM__PROTO__STATE__STATE_SEALED;
	buffer.n_attrs = buffer.n_holders = 1;
	buffer.attrs = attrs;
	buffer.holders = holders;
	gpushm__proto__list_reply__init(&list);
	gpushm__proto__status_reply__init(&status);
	gpushm__proto__pools_reply__init(&pools);
	gpushm__proto__verb_metrics__init(&verb);
	verb.n_results = verb.n_buckets = 1;
	verb.results = verb.buckets = &number;
	gpushm__proto__metrics_reply__init(&metrics);
	metrics.n_verbs = 1;
	metrics.verbs = verbs;
	status.has_daemon = true;
	status.daemon = bytes("id of a daemon..", 16);
	switch (request->verb_case) {
	case GPUSHM__PROTO__REQUEST__VERB_LIST:
		buffer.id = request->list->after + 1;
		list.n_buffers = 1;
		list.buffers = buffers;
		list.has_more = true;
		list.more = buffer.id < 3;
		reply->result_case = GPUSHM__PROTO__REPLY__RESULT_LIST;
		reply->list = &list;
		break;
	case GPUSHM__PROTO__REQUEST__VERB_STAT:
		reply->result_case = GPUSHM__PROTO__REPLY__RESULT_STAT;
		reply->stat = &buffer;
		break;
	case GPUSHM__PROTO__REQUEST__VERB_STATUS:
		reply->result_case = GPUSHM__PROTO__REPLY__RESULT_STATUS;
		reply->status = &status;
		break;
	case GPUSHM__PROTO__REQUEST__VERB_METRICS:
		reply->result_case = GPUSHM__PROTO__REPLY__RESULT_METRICS;
		reply->metrics = &metrics;
		break;
	default:
		reply->result_case = GPUSHM__PROTO__REPLY__RESULT_POOLS;
		reply->pools = &pools;
	}
}

static void put_up_look(void)
{
	canned_hello(server);
	canned_respond(server, look_around, 8);
}

static int do_look(void)
{
	struct gpushm_status *status = NULL;
	struct gpushm_metrics *metrics = NULL;
	struct gpushm_pool **pools = NULL;
	struct gpushm_stat **stats = NULL, *stat = NULL;
	size_t n = 0;
	int r = gpushm_connect(canned_path(server), &c);

	if (r == 0)
		r = gpushm_list(c, NULL, GPUSHM_HOLDERS, &stats, &n);
	gpushm_free(stats);
	if (r == 0)
		r = gpushm_stat(c, "a", 0, GPUSHM_HOLDERS, &stat);
	gpushm_free(stat);
	if (r == 0)
		r = gpushm_pools(c, &pools, &n);
	gpushm_free(pools);
	if (r == 0)
		r = gpushm_status(c, &status);
	gpushm_free(status);
	if (r == 0)
		r = gpushm_metrics(c, &metrics);
	gpushm_free(metrics);
	return close_all(r);
}

static const struct {
	void (*put_up)(void);
	int (*run)(void);
	unsigned long at_least; /* allocations */
} deeds[] = {
	{ put_up_open, do_open, 5 },
	{ put_up_create, do_create, 8 },
	{ put_up_look, do_look, 8 },
};

START_TEST(a_failed_allocation_is_reported_and_leaks_nothing)
{
	unsigned long n;

	for (n = 1; n < ALLOCATIONS_MAX; n++) {
		bool reached;
		int r;

		canned_free(server);
		server = canned_new();
		deeds[_i].put_up();
		canned_serve(server);
		memory_left = n;
		r = WITHOUT_MEMORY(deeds[_i].run());
		reached = memory_left == 0;
		memory_left = 0;
		ck_assert_msg(r == (reached ? -ENOMEM : 0), "allocation %lu: %d (%s)", n, r,
			      gpushm_error());
		if (!reached)
			break;
		ck_assert_str_ne(gpushm_error(), "");
	}
	ck_assert_uint_lt(n, ALLOCATIONS_MAX);
	ck_assert_uint_gt(n, deeds[_i].at_least);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("client memory");

	tcase_add_checked_fixture(tc, setup_buffer, teardown_buffer);
	tcase_add_loop_test(tc, a_failed_allocation_is_reported_and_leaks_nothing, 0,
			    (int)array_size(deeds));
	return suite_run("client memory", tc, NULL);
}
