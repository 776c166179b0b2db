/* SPDX-License-Identifier: MIT
 *
 * Well-formed requests with fields that are missing, out of range, or of another client. Each is
 * refused with its own error, the connection stays open, and nothing has changed.
 */
#include "proto/base/own.h"
#include "tests/lib/counted.h"
#include "tests/lib/raw.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <string.h>

static struct raw r;

static void setup(void)
{
	counted_setup(CENSUS_CONFIG);
	raw_greet(&r, d.socket);
}

static void teardown(void)
{
	ck_assert_int_eq(raw_call(&r, REQUEST(STATUS, Status, status)), 0);
	ck_assert_uint_eq(census_violations(&d, c), 0);
	raw_close(&r);
	counted_teardown();
}

static void refused(const Gpushm__Proto__Request *q, enum code code)
{
	int got = raw_call(&r, q);

	ck_assert_msg(got == (int)code, "%s, expected %s (%s)", code_name(got), code_name(code),
		      r.text);
}

#define CREATE_WITH(...) \
	REQUEST(CREATE, Create, create, BYTES(name, "x"), SET(size_bytes, 100), ##__VA_ARGS__)

START_TEST(an_invalid_create_is_refused)
{
	char long_name[300];

	memset(long_name, 'n', sizeof(long_name));
	long_name[256] = '\0';
	refused(REQUEST(CREATE, Create, create), CODE_BAD_REQUEST);
	refused(REQUEST(CREATE, Create, create, BYTES(name, "x")), CODE_BAD_REQUEST);
	refused(REQUEST(CREATE, Create, create, SET(size_bytes, 1)), CODE_BAD_REQUEST);
	refused(REQUEST(CREATE, Create, create, BYTES(name, "x"), SET(size_bytes, 0)),
		CODE_BAD_REQUEST);
	refused(REQUEST(CREATE, Create, create, BYTES(name, "x"), SET(size_bytes, UINT64_MAX)),
		CODE_TOO_LARGE);
	refused(REQUEST(CREATE, Create, create, BYTES(name, "x"), SET(size_bytes, INT64_MAX)),
		CODE_TOO_LARGE);
	refused(REQUEST(CREATE, Create, create, BYTES(name, ""), SET(size_bytes, 1)), CODE_NAME);
	refused(REQUEST(CREATE, Create, create, BYTES(name, "a/../b"), SET(size_bytes, 1)),
		CODE_NAME);
	refused(REQUEST(CREATE, Create, create, BYTES(name, long_name), SET(size_bytes, 1)),
		CODE_NAME);
	refused(REQUEST(CREATE, Create, create,
			SET(name, ((ProtobufCBinaryData){ 3, (uint8_t *)"a\0b" })),
			SET(size_bytes, 1)),
		CODE_NAME);
	refused(CREATE_WITH(SET(mode, 07777)), CODE_BAD_REQUEST);
	refused(CREATE_WITH(SET(mode, UINT32_MAX)), CODE_BAD_REQUEST);
	refused(CREATE_WITH(BYTES(pool, "nowhere")), CODE_NOT_FOUND);
	refused(CREATE_WITH(BYTES(pool, "no/pool")), CODE_NAME);
	refused(CREATE_WITH(BYTES(pool, long_name)), CODE_NAME);
}
END_TEST

START_TEST(invalid_attributes_are_refused)
{
	static char long_key[256], long_value[4096];
	Gpushm__Proto__Attr attrs[65], *list[65];

	memset(long_key, 'k', sizeof(long_key));
	for (size_t i = 0; i < array_size(attrs); i++) {
		list[i] = &attrs[i];
		attrs[i] = MESSAGE(Attr, attr, BYTES(key, "k"), BYTES(value, "v"));
	}
	refused(CREATE_WITH(.n_attrs = 65, .attrs = list), CODE_LIMIT);
	attrs[0] = MESSAGE(Attr, attr, BYTES(value, "v"));
	refused(CREATE_WITH(.n_attrs = 1, .attrs = list), CODE_NAME);
	attrs[0] = MESSAGE(Attr, attr, BYTES(key, "\n"));
	refused(CREATE_WITH(.n_attrs = 1, .attrs = list), CODE_NAME);
	attrs[0] =
		MESSAGE(Attr, attr, SET(key, ((ProtobufCBinaryData){ 256, (uint8_t *)long_key })));
	refused(CREATE_WITH(.n_attrs = 1, .attrs = list), CODE_NAME);
	attrs[0] = MESSAGE(Attr, attr, BYTES(key, "k"),
			   SET(value, ((ProtobufCBinaryData){ 4096, (uint8_t *)long_value })));
	refused(CREATE_WITH(.n_attrs = 1, .attrs = list), CODE_LIMIT);
}
END_TEST

START_TEST(a_lease_of_another_connection_is_refused)
{
	struct raw other;
	uint64_t lease;

	raw_greet(&other, d.socket);
	lease = raw_create(&other, "x", 100);
	refused(REQUEST(DESCRIBE, Describe, describe, SET(lease, lease)), CODE_NO_LEASE);
	refused(REQUEST(PUBLISH, Publish, publish, SET(lease, lease), SET(state, 2)),
		CODE_NO_LEASE);
	refused(REQUEST(CLOSE, Close, close, SET(lease, lease)), CODE_NO_LEASE);
	ck_assert_int_eq(raw_call(&other, REQUEST(CLOSE, Close, close, SET(lease, lease))), 0);
	ck_assert_int_eq(raw_call(&other, REQUEST(CLOSE, Close, close, SET(lease, lease))),
			 CODE_NO_LEASE);
	raw_close(&other);
}
END_TEST

START_TEST(invalid_leases_states_and_accesses_are_refused)
{
	uint64_t lease = raw_create(&r, "x", 100);

	refused(REQUEST(DESCRIBE, Describe, describe), CODE_BAD_REQUEST);
	refused(REQUEST(PUBLISH, Publish, publish), CODE_BAD_REQUEST);
	refused(REQUEST(CLOSE, Close, close), CODE_BAD_REQUEST);
	refused(REQUEST(CLOSE, Close, close, SET(lease, 0)), CODE_NO_LEASE);
	refused(REQUEST(CLOSE, Close, close, SET(lease, UINT64_MAX)), CODE_NO_LEASE);
	refused(REQUEST(PUBLISH, Publish, publish, SET(lease, lease)), CODE_BAD_REQUEST);
	refused(REQUEST(PUBLISH, Publish, publish, SET(lease, lease), SET(state, 1)),
		CODE_BAD_REQUEST);
	refused(REQUEST(PUBLISH, Publish, publish, SET(lease, lease),
			SET(state, (Gpushm__Proto__State)-1)),
		CODE_BAD_REQUEST);
	refused(REQUEST(OPEN, Open, open, BYTES(name, "x"), SET(access, 7)), CODE_BAD_REQUEST);
	refused(REQUEST(OPEN, Open, open, BYTES(name, "x")), CODE_NOT_PUBLISHED);
	refused(REQUEST(OPEN, Open, open), CODE_BAD_REQUEST);
	refused(REQUEST(STAT, Stat, stat), CODE_BAD_REQUEST);
	refused(REQUEST(UNLINK, Unlink, unlink), CODE_BAD_REQUEST);
	refused(REQUEST(UNLINK, Unlink, unlink, BYTES(name, "x"), SET(buffer, 1)), CODE_NOT_FOUND);
	raw_publish(&r, lease, GPUSHM__PROTO__STATE__STATE_SEALED);
	refused(REQUEST(PUBLISH, Publish, publish, SET(lease, lease), SET(state, 3)), CODE_STATE);
	refused(REQUEST(DESCRIBE, Describe, describe, SET(lease, lease)), CODE_STATE);
	refused(REQUEST(OPEN, Open, open, BYTES(name, "x"), SET(access, 2)), CODE_READ_ONLY);
	refused(CREATE_WITH(), CODE_EXISTS);
	ck_assert_int_eq(raw_call(&r, REQUEST(UNLINK, Unlink, unlink, BYTES(name, "x"))), 0);
	refused(REQUEST(UNLINK, Unlink, unlink, BYTES(name, "x")), CODE_NOT_FOUND);
	ck_assert_int_eq(raw_call(&r, REQUEST(CLOSE, Close, close, SET(lease, lease))), 0);
	refused(REQUEST(CLOSE, Close, close, SET(lease, lease)), CODE_NO_LEASE);
}
END_TEST

#define RENAME_WITH(...) REQUEST(RENAME, Rename, rename, ##__VA_ARGS__)
#define DESCRIBE_WITH(lease_, ...) \
	REQUEST(DESCRIBE, Describe, describe, SET(lease, lease_), ##__VA_ARGS__)
#define PUBLISH_AS(lease_, ...) \
	REQUEST(PUBLISH, Publish, publish, SET(lease, lease_), SET(state, 2), ##__VA_ARGS__)

START_TEST(an_invalid_name_or_attribute_changes_nothing)
{
	uint64_t lease = raw_create(&r, "x", 100), other = raw_create(&r, "y", 100);
	Gpushm__Proto__Attr attr = MESSAGE(Attr, attr, BYTES(key, "k"), BYTES(value, "v")),
			    bad = MESSAGE(Attr, attr, BYTES(key, "\n"), BYTES(value, "v")),
			    *attrs[] = { &attr, &bad };

	refused(RENAME_WITH(), CODE_BAD_REQUEST);
	refused(RENAME_WITH(BYTES(name, "x")), CODE_BAD_REQUEST);
	refused(RENAME_WITH(BYTES(to, "x")), CODE_BAD_REQUEST);
	refused(RENAME_WITH(BYTES(name, ""), BYTES(to, "z")), CODE_NAME);
	refused(RENAME_WITH(BYTES(name, "x"), BYTES(to, "a//b")), CODE_NAME);
	refused(RENAME_WITH(BYTES(name, "x"), BYTES(to, "z")), CODE_NOT_PUBLISHED);
	refused(RENAME_WITH(BYTES(name, "no"), BYTES(to, "z")), CODE_NOT_FOUND);
	refused(PUBLISH_AS(lease, BYTES(name, "")), CODE_NAME);
	refused(PUBLISH_AS(lease, BYTES(name, "y")), CODE_EXISTS);
	refused(PUBLISH_AS(lease, BYTES(name, "y"), SET(replace, 1)), CODE_NOT_PUBLISHED);
	refused(DESCRIBE_WITH(lease, .n_attrs = 2, .attrs = attrs), CODE_NAME);
	refused(REQUEST(OPEN, Open, open, BYTES(name, "no"), SET(while_filling, 1),
			SET(wait_ms, UINT64_MAX)),
		CODE_NOT_FOUND);
	refused(REQUEST(OPEN, Open, open, BYTES(name, "x"), SET(while_filling, 1), SET(wait_ms, 1)),
		CODE_TIMED_OUT);
	raw_publish(&r, other, GPUSHM__PROTO__STATE__STATE_SHARED);
	refused(RENAME_WITH(BYTES(name, "y"), BYTES(to, "x"), SET(replace, 1)), CODE_NOT_PUBLISHED);
	/* `replace` alone means nothing. */
	ck_assert_int_eq(raw_call(&r, PUBLISH_AS(lease, SET(replace, 1))), 0);
	ck_assert_int_eq(raw_call(&r, REQUEST(STAT, Stat, stat, BYTES(name, "x"))), 0);
	ck_assert_uint_eq(r.reply->stat->n_attrs, 0);
	refused(RENAME_WITH(BYTES(name, "y"), BYTES(to, "x")), CODE_EXISTS);
	ck_assert_int_eq(raw_call(&r,
				  RENAME_WITH(BYTES(name, "y"), BYTES(to, "x"), SET(replace, 1))),
			 0);
	refused(REQUEST(STAT, Stat, stat, BYTES(name, "y")), CODE_NOT_FOUND);
	ck_assert_int_eq(raw_call(&r, REQUEST(UNLINK, Unlink, unlink, BYTES(name, "x"))), 0);
	ck_assert_int_eq(raw_call(&r, REQUEST(CLOSE, Close, close, SET(lease, lease))), 0);
	ck_assert_int_eq(raw_call(&r, REQUEST(CLOSE, Close, close, SET(lease, other))), 0);
}
END_TEST

/* Two requests in one message: the last one counts (protobuf's rule for oneof). */
START_TEST(the_last_of_two_requests_in_a_message_is_served)
{
	unsigned char frame[2 * FRAME_MAX];
	size_t n = raw_pack(CREATE_WITH(), frame);

	n += raw_pack(REQUEST(STATUS, Status, status), frame + n);
	ck_assert_int_eq(raw_send(&r, frame, n), 0);
	ck_assert_int_eq(raw_receive(&r), 0);
	ck_assert_int_eq(r.reply->result_case, GPUSHM__PROTO__REPLY__RESULT_STATUS);
}
END_TEST

#define LEASE(VERB, Type, type, lease_) REQUEST(VERB, Type, type, SET(lease, lease_))

static void works(const Gpushm__Proto__Request *q)
{
	refused(q, CODE_OK);
}

/* A twin that is older than its buffer would end before it where all buffers end. */
START_TEST(what_can_not_be_a_twin_is_refused)
{
	uint64_t older = raw_create(&r, "older", 100), b = raw_create(&r, "b", 100), twin, third;

	refused(PUBLISH_AS(older, SET(twin_of, b)), CODE_STATE); /* b may change */
	raw_publish(&r, b, GPUSHM__PROTO__STATE__STATE_SEALED);
	refused(PUBLISH_AS(older, SET(twin_of, b)), CODE_STATE);
	refused(PUBLISH_AS(b, SET(twin_of, b)), CODE_STATE);
	refused(PUBLISH_AS(older, SET(twin_of, b), SET(restores, b)), CODE_BAD_REQUEST);
	refused(PUBLISH_AS(older, SET(twin_of, 1)), CODE_NO_LEASE);
	refused(PUBLISH_AS(older, SET(restores, b)), CODE_EXISTS); /* it is not evicted */
	works(LEASE(CLOSE, Close, close, older));
	twin = raw_create(&r, "twin", 101);
	refused(PUBLISH_AS(twin, SET(twin_of, b)), CODE_LAYOUT);
	works(LEASE(CLOSE, Close, close, twin));
	twin = raw_create(&r, "twin", 100);
	works(PUBLISH_AS(twin, SET(twin_of, b)));
	works(PUBLISH_AS(twin, SET(twin_of, b))); /* as a client that had no reply */
	third = raw_create(&r, "third", 100);
	refused(PUBLISH_AS(third, SET(twin_of, b)), CODE_EXISTS);
	refused(PUBLISH_AS(third, SET(twin_of, twin)), CODE_STATE);
	works(LEASE(CLOSE, Close, close, third));
	works(LEASE(CLOSE, Close, close, twin));
	works(REQUEST(UNLINK, Unlink, unlink, BYTES(name, "b")));
	works(LEASE(CLOSE, Close, close, b));
}
END_TEST

START_TEST(what_has_restored_a_buffer_is_of_no_use)
{
	uint64_t b = raw_create(&r, "b", 100), twin, fresh;

	raw_publish(&r, b, GPUSHM__PROTO__STATE__STATE_SEALED);
	twin = raw_create(&r, "twin", 100);
	works(PUBLISH_AS(twin, SET(twin_of, b)));
	works(LEASE(SUSPEND, Suspend, suspend, b));
	works(REQUEST(EVICT, Evict, evict, BYTES(name, "b")));
	works(LEASE(RESUME, Resume, resume, b)); /* without memory */
	fresh = raw_create(&r, "fresh", 100);
	refused(LEASE(RESUME, Resume, resume, fresh), CODE_STATE);
	works(PUBLISH_AS(fresh, SET(restores, b)));
	refused(PUBLISH_AS(fresh, SET(restores, b)), CODE_STATE);
	refused(PUBLISH_AS(fresh, SET(twin_of, b)), CODE_STATE);
	refused(PUBLISH_AS(fresh), CODE_STATE);
	refused(LEASE(RESUME, Resume, resume, fresh), CODE_STATE);
	works(LEASE(RESUME, Resume, resume, b));
	works(LEASE(CLOSE, Close, close, fresh));
	works(LEASE(CLOSE, Close, close, twin));
	works(REQUEST(UNLINK, Unlink, unlink, BYTES(name, "b")));
	works(LEASE(CLOSE, Close, close, b));
}
END_TEST

START_TEST(an_unlinked_buffer_is_not_found)
{
	uint64_t lease = raw_create(&r, "x", 100);

	ck_assert_int_eq(raw_call(&r, REQUEST(UNLINK, Unlink, unlink, BYTES(name, "x"))), 0);
	raw_publish(&r, lease, GPUSHM__PROTO__STATE__STATE_SHARED);
	refused(REQUEST(OPEN, Open, open, BYTES(name, "x")), CODE_NOT_FOUND);
	refused(REQUEST(OPEN, Open, open, BYTES(name, "x"), SET(wait_ms, 1)), CODE_TIMED_OUT);
	ck_assert_int_eq(raw_call(&r, REQUEST(CLOSE, Close, close, SET(lease, lease))), 0);
}
END_TEST

START_TEST(a_list_has_only_later_ids_and_matching_names)
{
	uint64_t lease = raw_create(&r, "x", 100), id = r.reply->attach->buffer;
	static char prefix[60000];

	ck_assert_int_eq(raw_call(&r, REQUEST(LIST, List, list, SET(after, id - 1))), 0);
	ck_assert_uint_eq(r.reply->list->n_buffers, 1);
	ck_assert_int_eq(raw_call(&r, REQUEST(LIST, List, list, SET(after, id))), 0);
	ck_assert_uint_eq(r.reply->list->n_buffers, 0);
	ck_assert_int_eq(raw_call(&r, REQUEST(LIST, List, list, SET(after, UINT64_MAX))), 0);
	ck_assert_uint_eq(r.reply->list->n_buffers, 0);
	memset(prefix, 'x', sizeof(prefix) - 1);
	ck_assert_int_eq(raw_call(&r, REQUEST(LIST, List, list, BYTES(prefix, prefix))), 0);
	ck_assert_uint_eq(r.reply->list->n_buffers, 0);
	ck_assert_int_eq(raw_call(&r, REQUEST(CLOSE, Close, close, SET(lease, lease))), 0);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("fields");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, an_invalid_create_is_refused);
	tcase_add_test(t, invalid_attributes_are_refused);
	tcase_add_test(t, a_lease_of_another_connection_is_refused);
	tcase_add_test(t, invalid_leases_states_and_accesses_are_refused);
	tcase_add_test(t, an_invalid_name_or_attribute_changes_nothing);
	tcase_add_test(t, the_last_of_two_requests_in_a_message_is_served);
	tcase_add_test(t, what_can_not_be_a_twin_is_refused);
	tcase_add_test(t, what_has_restored_a_buffer_is_of_no_use);
	tcase_add_test(t, an_unlinked_buffer_is_not_found);
	tcase_add_test(t, a_list_has_only_later_ids_and_matching_names);
	return suite_run("fields", t, NULL);
}
