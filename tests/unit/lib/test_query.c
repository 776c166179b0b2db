/* SPDX-License-Identifier: MIT
 *
 * STAT, LIST, POOLS and STATUS against a canned server: lists in pages, stats with all their parts,
 * and replies that make no sense. Every failure must free what it had allocated.
 */
#include "client/gpushm_query.h"
#include "tests/lib/suite.h"
#include "tests/unit/lib/canned_fixture.h"

#include "proto/code.h"

static Gpushm__Proto__Buffer buffers[3], *pointers[3];
static Gpushm__Proto__Holder holder, *holders[1] = { &holder };
static Gpushm__Proto__Attr attrs[2], *attr_pointers[2] = { &attrs[0], &attrs[1] };

/* Correct buffers of ids 1, 2, 3, with a holder each. */
static void some_buffers(void)
{
	gpushm__proto__holder__init(&holder);
	holder.has_access = holder.has_command = true;
	holder.access = GPUSHM__PROTO__ACCESS__ACCESS_READ;
	holder.command = bytes("fifteen letters", 15);
	for (uint64_t i = 0; i < array_size(buffers); i++) {
		gpushm__proto__buffer__init(&buffers[i]);
		buffers[i].has_id = buffers[i].has_name = buffers[i].has_state = true;
		buffers[i].has_pool = buffers[i].has_opens = true;
		buffers[i].opens = UINT32_MAX;
		buffers[i].pool = 1;
		buffers[i].id = i + 1;
		buffers[i].name = bytes("name", 4);
		buffers[i].state = GPUSHM__PROTO__STATE__STATE_SEALED;
		buffers[i].n_holders = 1;
		buffers[i].holders = holders;
		pointers[i] = &buffers[i];
	}
}

static void reply_list(size_t first, size_t n, bool more)
{
	Gpushm__Proto__ListReply list = GPUSHM__PROTO__LIST_REPLY__INIT;
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;

	list.n_buffers = n;
	list.buffers = pointers + first;
	list.has_more = true;
	list.more = more;
	reply.result_case = GPUSHM__PROTO__REPLY__RESULT_LIST;
	reply.list = &list;
	canned_reply(server, &reply, NULL, 0);
}

static void reply_stat(void)
{
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;

	reply.result_case = GPUSHM__PROTO__REPLY__RESULT_STAT;
	reply.stat = &buffers[0];
	canned_reply(server, &reply, NULL, 0);
}

START_TEST(a_list_of_several_pages_is_whole)
{
	struct gpushm_stat **stats = NULL;
	size_t n = 0;

	some_buffers();
	canned_hello(server);
	reply_list(0, 2, true);
	reply_list(2, 1, false);
	connected();
	ck_assert_msg(gpushm_list(c, "na", GPUSHM_HOLDERS, &stats, &n) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(n, 3);
	for (size_t i = 0; i < n; i++) {
		ck_assert_uint_eq(stats[i]->id, i + 1);
		ck_assert_str_eq(stats[i]->pool, "host");
		ck_assert_int_eq(stats[i]->kind, GPUSHM_HOST);
		ck_assert_str_eq(stats[i]->holders[0]->command, "fifteen letters");
	}
	ck_assert_ptr_null(gpushm_free(stats));
	c = gpushm_disconnect(c);
	canned_join(server);
	ck_assert_uint_eq(canned_request(server, 1)->list->after, 0);
	ck_assert_uint_eq(canned_request(server, 2)->list->after, 2);
	ck_assert_mem_eq(canned_request(server, 2)->list->prefix.data, "na", 2);
	ck_assert(canned_request(server, 2)->list->holders);
}
END_TEST

START_TEST(an_empty_list_succeeds)
{
	struct gpushm_stat **stats = NULL;
	size_t n = 9;

	canned_hello(server);
	reply_list(0, 0, false);
	connected();
	ck_assert_int_eq(gpushm_list(c, NULL, 0, &stats, &n), 0);
	ck_assert_uint_eq(n, 0);
	gpushm_free(stats);
}
END_TEST

static void list_is_refused(const char *why)
{
	struct gpushm_stat **stats = NULL;
	size_t n = 0;

	connected();
	refuses_for_good(gpushm_list(c, NULL, 0, &stats, &n), EPROTO, why);
	ck_assert_ptr_null(stats);
}

START_TEST(a_list_without_progress_is_refused)
{
	some_buffers();
	canned_hello(server);
	reply_list(0, 2, true);
	reply_list(1, 1, true);
	list_is_refused("not in order");
}
END_TEST

START_TEST(a_page_without_buffers_is_refused)
{
	some_buffers();
	canned_hello(server);
	reply_list(0, 2, true);
	reply_list(0, 0, true);
	list_is_refused("without buffers");
}
END_TEST

START_TEST(a_list_that_fails_frees_its_first_page)
{
	struct gpushm_stat **stats = NULL;
	size_t n = 0;

	some_buffers();
	canned_hello(server);
	reply_list(0, 2, true);
	canned_error(server, CODE_NO_MEMORY, "out of memory");
	connected();
	ck_assert_int_eq(gpushm_list(c, NULL, 0, &stats, &n), -ENOMEM);
	ck_assert_str_eq(gpushm_error_code(), "NO_MEMORY");
	ck_assert_ptr_null(stats);
}
END_TEST

static void two_attrs(void)
{
	for (int i = 0; i < 2; i++) {
		gpushm__proto__attr__init(&attrs[i]);
		attrs[i].has_key = attrs[i].has_value = true;
	}
	attrs[0].key = bytes("k", 1);
	attrs[0].value = bytes("v\0v", 3);
	attrs[1].key = bytes("empty", 5);
	buffers[0].n_attrs = 2;
	buffers[0].attrs = attr_pointers;
}

START_TEST(a_stat_keeps_all_attributes_and_their_bytes)
{
	struct gpushm_stat *s = NULL;

	some_buffers();
	two_attrs();
	canned_hello(server);
	reply_stat();
	connected();
	ck_assert_msg(gpushm_stat(c, "name", 0, GPUSHM_HOLDERS, &s) == 0, "%s", gpushm_error());
	ck_assert_str_eq(s->name, "name");
	ck_assert_uint_eq(s->opens, UINT32_MAX);
	ck_assert_uint_eq(s->n_attrs, 2);
	ck_assert_str_eq(s->attrs[0]->key, "k");
	ck_assert_uint_eq(s->attrs[0]->size, 3);
	ck_assert_mem_eq(s->attrs[0]->value, "v\0v", 3);
	ck_assert_str_eq(s->attrs[1]->key, "empty");
	ck_assert_uint_eq(s->attrs[1]->size, 0);
	ck_assert_uint_eq(s->n_holders, 1);
	gpushm_free(s);
}
END_TEST

static void long_command(void)
{
	holder.command = bytes("sixteen letters!", 16);
}
static void unknown_access(void)
{
	holder.access = (Gpushm__Proto__Access)7;
}
static void unknown_state(void)
{
	buffers[0].state = (Gpushm__Proto__State)0;
}
static void name_with_a_nul(void)
{
	buffers[0].name = bytes("na\0me", 5);
}
static void long_name(void)
{
	static char name[300];

	memset(name, 'x', sizeof(name));
	buffers[0].name = bytes(name, sizeof(name));
}
static void key_with_a_nul(void)
{
	attrs[1].key = bytes("em\0ty", 5);
}

static void (*const spoil[])(void) = {
	long_command, unknown_access, unknown_state, name_with_a_nul, long_name, key_with_a_nul,
};

START_TEST(an_inconsistent_stat_is_refused_and_leaks_nothing)
{
	struct gpushm_stat *s = NULL;

	some_buffers();
	two_attrs();
	spoil[_i]();
	canned_hello(server);
	reply_stat();
	connected();
	refuses_for_good(gpushm_stat(c, "name", 0, GPUSHM_HOLDERS, &s), EPROTO, "makes no sense");
	ck_assert_ptr_null(s);
}
END_TEST

START_TEST(a_wait_succeeds_only_for_a_published_buffer)
{
	some_buffers();
	canned_hello(server);
	reply_stat();
	buffers[0].state = GPUSHM__PROTO__STATE__STATE_FILLING;
	reply_stat();
	connected();
	ck_assert_int_eq(gpushm_wait(c, "name", 10), 0);
	ck_assert_int_eq(gpushm_wait(c, "name", 0), -EAGAIN);
	says("being filled");
	c = gpushm_disconnect(c);
	canned_join(server);
	ck_assert_uint_eq(canned_request(server, 1)->stat->wait_ms, 10);
	ck_assert(!canned_request(server, 2)->stat->has_wait_ms);
}
END_TEST

static void reply_pools(Gpushm__Proto__Pool **pools, size_t n)
{
	Gpushm__Proto__PoolsReply reply_pools = GPUSHM__PROTO__POOLS_REPLY__INIT;
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;

	reply_pools.n_pools = n;
	reply_pools.pools = pools;
	reply.result_case = GPUSHM__PROTO__REPLY__RESULT_POOLS;
	reply.pools = &reply_pools;
	canned_reply(server, &reply, NULL, 0);
}

START_TEST(a_pool_of_a_later_kind_is_left_out)
{
	Gpushm__Proto__Pool known = GPUSHM__PROTO__POOL__INIT, later = GPUSHM__PROTO__POOL__INIT;
	Gpushm__Proto__Pool *both[] = { &later, &known };
	struct gpushm_pool **pools = NULL;
	size_t n = 0;

	known.has_id = known.has_name = known.has_kind = known.has_used_bytes = true;
	known.name = bytes("host", 4);
	known.kind = GPUSHM__PROTO__KIND__KIND_HOST;
	known.used_bytes = 12;
	later.has_kind = true;
	later.kind = (Gpushm__Proto__Kind)KIND_END;
	canned_hello(server);
	reply_pools(both, 2);
	known.has_name = false;
	reply_pools(both, 2);
	connected();
	ck_assert_msg(gpushm_pools(c, &pools, &n) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(n, 1);
	ck_assert_str_eq(pools[0]->name, "host");
	ck_assert_uint_eq(pools[0]->used_bytes, 12);
	ck_assert_int_eq(pools[0]->device, -1);
	pools = gpushm_free(pools);
	refuses_for_good(gpushm_pools(c, &pools, &n), EPROTO, "makes no sense");
	ck_assert_ptr_null(pools);
}
END_TEST

START_TEST(a_status_has_all_its_users_and_frees_them)
{
	Gpushm__Proto__Usage usage = GPUSHM__PROTO__USAGE__INIT, *users[] = { &usage, &usage };
	Gpushm__Proto__StatusReply status = GPUSHM__PROTO__STATUS_REPLY__INIT;
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;
	struct gpushm_status *s = NULL;

	usage.has_bytes_max = true;
	usage.bytes_max = 99;
	status.has_software = status.has_daemon = true;
	status.software = bytes("gpushmd 9", 9);
	status.daemon = bytes("id of a daemon..", 16);
	status.n_usage = 2;
	status.usage = users;
	reply.result_case = GPUSHM__PROTO__REPLY__RESULT_STATUS;
	reply.status = &status;
	canned_hello(server);
	canned_reply(server, &reply, NULL, 0);
	status.daemon.len = 3;
	canned_reply(server, &reply, NULL, 0);
	connected();
	ck_assert_msg(gpushm_status(c, &s) == 0, "%s", gpushm_error());
	ck_assert_str_eq(s->software, "gpushmd 9");
	ck_assert_uint_eq(s->n_usage, 2);
	ck_assert_uint_eq(s->usage[1]->bytes_max, 99);
	s = gpushm_free(s);
	refuses_for_good(gpushm_status(c, &s), EPROTO, "makes no sense");
	ck_assert_ptr_null(s);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("query");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_list_of_several_pages_is_whole);
	tcase_add_test(tc, an_empty_list_succeeds);
	tcase_add_test(tc, a_list_without_progress_is_refused);
	tcase_add_test(tc, a_page_without_buffers_is_refused);
	tcase_add_test(tc, a_list_that_fails_frees_its_first_page);
	tcase_add_test(tc, a_stat_keeps_all_attributes_and_their_bytes);
	tcase_add_loop_test(tc, an_inconsistent_stat_is_refused_and_leaks_nothing, 0,
			    (int)array_size(spoil));
	tcase_add_test(tc, a_wait_succeeds_only_for_a_published_buffer);
	tcase_add_test(tc, a_pool_of_a_later_kind_is_left_out);
	tcase_add_test(tc, a_status_has_all_its_users_and_frees_them);
	return suite_run("query", tc, NULL);
}
