/* SPDX-License-Identifier: MIT
 *
 * Metadata of frames as JSON: the examples of RFC 8949, and bytes that only look like CBOR.
 */
#include "client/ctl/stream/cbor.h"
#include "proto/base/own.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define TAG "\xd9\xd9\xf7"
#define CASE(bytes, json)                      \
	{                                      \
		bytes, sizeof(bytes) - 1, json \
	}

static const struct {
	const char *bytes;
	size_t n;
	const char *json; /* NULL: it is no CBOR that we know */
} cases[] = {
	CASE(TAG "\xa0", "{}"),
	CASE(TAG "\xa1\x63pts\xfb\x3f\xa4\x7a\xe1\x47\xae\x14\x7b",
	     "{\"pts\":0.040000000000000001}"),
	CASE(TAG "\xa2\x61\x61\x01\x61\x62\x82\x02\x03", "{\"a\":1,\"b\":[2,3]}"),
	CASE(TAG "\xa1\x00\x82\x18\x6c\x18\xc0", "{\"0\":[108,192]}"),
	CASE(TAG "\xa1\x20\x43\x01\x02\x03", "{\"-1\":{\"base64\":\"AQID\"}}"),
	CASE(TAG "\x1b\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615"),
	CASE(TAG "\x3b\x7f\xff\xff\xff\xff\xff\xff\xff", "-9223372036854775808"),
	CASE(TAG "\x38\x63", "-100"),
	CASE(TAG "\x19\x03\xe8", "1000"),
	CASE(TAG "\x83\xf4\xf5\xf6", "[false,true,null]"),
	CASE(TAG "\xf9\x3e\x00", "1.5"),
	CASE(TAG "\xf9\x00\x01", "5.96046448e-08"),
	CASE(TAG "\xf9\x7c\x00", "null"),
	CASE(TAG "\xfa\x47\xc3\x50\x00", "100000"),
	CASE(TAG "\xfb\xc0\x10\x66\x66\x66\x66\x66\x66", "-4.0999999999999996"),
	CASE(TAG "\x62\xc3\xbc", "\"\xc3\xbc\""),
	CASE(TAG "\x62\"\n", "\"\\\"\\n\""),
	CASE("plain text", NULL),
	CASE("", NULL),
	CASE(TAG, NULL),
	CASE(TAG "\xa1\x61\x61", NULL),				/* a value is missing */
	CASE(TAG "\xa0\x00", NULL),				/* something follows */
	CASE(TAG "\x65\x61", NULL),				/* a text that is cut */
	CASE(TAG "\x61\xff", NULL),				/* not UTF-8 */
	CASE(TAG "\xa1\x62\x61\x00\x01", NULL),			/* a NUL in a key */
	CASE(TAG "\xa1\x80\x01", NULL),				/* a list as a key */
	CASE(TAG "\x9f\xff", NULL),				/* indefinite length */
	CASE(TAG "\xc1\x00", NULL),				/* another tag */
	CASE(TAG "\xf7", NULL),					/* undefined */
	CASE(TAG "\x3b\xff\xff\xff\xff\xff\xff\xff\xff", NULL), /* below 64 bits */
	CASE(TAG "\x9b\xff\xff\xff\xff\xff\xff\xff\xff", NULL),
	CASE(TAG "\x5b\xff\xff\xff\xff\xff\xff\xff\xff", NULL),
};

START_TEST(metadata_become_the_right_json)
{
	_cleanup_(free_ptr) char *json = cbor_to_json(cases[_i].bytes, cases[_i].n);

	if (cases[_i].json) {
		ck_assert_ptr_nonnull(json);
		ck_assert_str_eq(json, cases[_i].json);
	} else {
		ck_assert_msg(!json, "case %d: %s", _i, json);
	}
}
END_TEST

START_TEST(the_reader_survives_random_bytes)
{
	unsigned char bytes[64];

	srand(1);
	for (int i = 0; i < 200000; i++) {
		size_t n = (size_t)rand() % sizeof(bytes);
		_cleanup_(free_ptr) char *json = NULL;

		for (size_t k = 0; k < sizeof(bytes); k++)
			bytes[k] = (unsigned char)(rand() >> 8);
		memcpy(bytes, TAG, 3);
		json = cbor_to_json(bytes, n);
		ck_assert(!json || !strchr(json, '\n'));
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("cbor");

	tcase_add_loop_test(tc, metadata_become_the_right_json, 0, array_size(cases));
	tcase_add_test(tc, the_reader_survives_random_bytes);
	return suite_run("cbor", tc, NULL);
}
