/* SPDX-License-Identifier: MIT
 *
 * What a relay says about a buffer: what is written is read, and what disagrees with itself is
 * refused.
 */
#include "client/gpushm.h"
#include "client/models/web/manifest.h"
#include "client/relay/serve/range.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK (4u << 20)

static struct manifest example(uint64_t data)
{
	struct manifest m = { .name = strdup("a/b"),
			      .id = 42,
			      .etag = strdup("\"xxh3-1-2\""),
			      .size = data + 200,
			      .header = 200,
			      .data = data,
			      .complete = true };

	m.n_blocks = (data + BLOCK - 1) / BLOCK;
	m.blocks = calloc(m.n_blocks + 1, sizeof(*m.blocks));
	for (uint64_t i = 0; i < m.n_blocks; i++)
		m.blocks[i] = i * 7;
	m.attrs = calloc(2, sizeof(*m.attrs));
	m.attrs[0] = (struct manifest_attr){ strdup("key"), strdup("value"), 5 };
	m.n_attrs = 1;
	m.mirrors = calloc(1, sizeof(*m.mirrors));
	m.mirrors[m.n_mirrors++] = strdup("https://b:19401/v1/buffers/a/b");
	return m;
}

/* The text of the example, with its digest: what the parser has computed tells it. */
static char *text_of(struct manifest *m)
{
	struct manifest again;
	char *text;
	size_t n;

	ck_assert_int_eq(gpushm_private_manifest_format(m, &text, &n), 0);
	ck_assert_int_eq(manifest_parse("test", text, n, &again), -EBADMSG);
	memcpy(m->content, again.content, sizeof(m->content));
	gpushm_private_manifest_clear(&again);
	free(text);
	ck_assert_int_eq(gpushm_private_manifest_format(m, &text, &n), 0);
	return text;
}

START_TEST(what_is_written_is_read)
{
	const uint64_t sizes[] = { 0, 1, BLOCK, BLOCK + 1, 10 * (uint64_t)BLOCK };
	struct manifest m = example(sizes[_i]), again;
	char *text = text_of(&m);

	ck_assert_int_eq(manifest_parse("test", text, strlen(text), &again), 0);
	ck_assert_str_eq(again.name, m.name);
	ck_assert_str_eq(again.etag, m.etag);
	ck_assert_uint_eq(again.size, m.size);
	ck_assert_uint_eq(again.n_blocks, m.n_blocks);
	ck_assert_mem_eq(again.blocks, m.blocks, m.n_blocks * sizeof(*m.blocks));
	ck_assert_uint_eq(again.n_attrs, 1);
	ck_assert_uint_eq(again.attrs[0].size, 5);
	ck_assert_mem_eq(again.attrs[0].value, "value", 5);
	ck_assert_str_eq(again.mirrors[0], m.mirrors[0]);
	ck_assert(again.complete);
	gpushm_private_manifest_clear(&again);
	gpushm_private_manifest_clear(&again);
	gpushm_private_manifest_clear(&m);
	free(text);
}
END_TEST

/* Replaces one piece of the example's text; the result must be refused with a word of the reason.
 */
static void assert_refused(const char *from, const char *to, const char *word)
{
	struct manifest m = example(1000), bad;
	char *text = text_of(&m), *at = strstr(text, from), *changed;

	ck_assert_ptr_nonnull(at);
	ck_assert_int_gt(asprintf(&changed, "%.*s%s%s", (int)(at - text), text, to,
				  at + strlen(from)),
			 0);
	ck_assert_msg(manifest_parse("test", changed, strlen(changed), &bad) == -EBADMSG,
		      "taken: %s", changed);
	ck_assert_msg(strstr(gpushm_error(), word), "%s", gpushm_error());
	gpushm_private_manifest_clear(&bad);
	gpushm_private_manifest_clear(&m);
	free(changed);
	free(text);
}

START_TEST(what_disagrees_with_itself_is_refused)
{
	static const struct {
		const char *from, *to, *word;
	} cases[] = {
		{ "\"version\":1", "\"version\":2", "version" },
		{ "\"size\":1200", "\"size\":1201", "size" },
		{ "\"size\":1200", "\"size\":-1", "size" },
		{ "\"size\":1200", "\"size\":1e3", "size" },
		{ "\"header\":200", "\"header\":7", "header" },
		{ "\"header\":200", "\"header\":1201", "header" },
		{ "\"data\":1000", "\"data\":9223372036854775807", "size" },
		{ "\"block\":4194304", "\"block\":4096", "block" },
		{ "\"blocks\":\"", "\"blocks\":\"AAAA", "blocks" },
		{ "\"blocks\":\"", "\"blocks\":\"!", "blocks" },
		{ "\"content\":\"xxh3:", "\"content\":\"xxh3:0", "content" },
		{ "\\\"xxh3-1-2\\\"", "xxh3-1-2", "etag" },
		{ "\\\"xxh3-1-2\\\"", "W/\\\"x\\\"", "etag" },
		{ "\"name\":\"a/b\"", "\"name\":\"\"", "name" },
		{ "\"name\":\"a/b\"", "\"name\":\"a\\u000ab\"", "name" },
		{ "\"name\":\"a/b\"", "\"name\":7", "name" },
		{ "\"key\":\"", "\"key\":\"?", "attribute" },
		{ "\"key\"", "\"\"", "attribute" },
		{ "\"complete\":true", "\"complete\":1", "complete" },
		{ "[\"https", "[7,\"https", "mirrors" },
		{ "{\"version\":1,", "{\"version\":1,\"version\":1,", "JSON" },
		{ "{\"version\":1,", "[", "JSON" },
	};

	assert_refused(cases[_i].from, cases[_i].to, cases[_i].word);
}
END_TEST

START_TEST(a_text_that_ends_early_is_refused)
{
	struct manifest m = example(1000), bad;
	char *text = text_of(&m);

	for (size_t n = 0; n < strlen(text); n++) {
		ck_assert_int_eq(manifest_parse("test", text, n, &bad), -EBADMSG);
		gpushm_private_manifest_clear(&bad);
	}
	gpushm_private_manifest_clear(&m);
	free(text);
}
END_TEST

START_TEST(a_range_never_leaves_the_file)
{
	static const char *const texts[] = { "bytes=0-",   "bytes=5-9", "bytes=-5", "bytes=9-99",
					     "bytes=99-",  "bytes=-0",	"bytes=-",  "bytes=1-0",
					     "bytes=-999", "",		"bytes=0-0" };

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		for (uint64_t size = 0; size < 12; size++) {
			uint64_t begin = 0, n = 0;

			if (range_parse(texts[i], size, &begin, &n) != RANGE_PART)
				continue;
			ck_assert_uint_gt(n, 0);
			ck_assert_uint_lt(begin, size);
			ck_assert_uint_le(n, size - begin);
		}
	}
}
END_TEST

START_TEST(a_list_of_etags_is_read_to_its_end)
{
	ck_assert(range_has_etag("\"a\" , W/\"b\", \"c\"", "\"c\"", false));
	ck_assert(range_has_etag("\"a\",\"b,c\"", "\"b,c\"", false));
	ck_assert(!range_has_etag("W/\"b\"", "\"b\"", false));
	ck_assert(range_has_etag("W/\"b\"", "\"b\"", true));
	ck_assert(!range_has_etag("\"b", "\"b\"", true));
	ck_assert(!range_has_etag("b", "\"b\"", true));
	ck_assert(!range_has_etag("\"a\" \"b\"", "\"b\"", true));
	ck_assert(!range_has_etag("", "\"b\"", true));
	ck_assert(range_has_etag("*", "\"b\"", false));
}
END_TEST

int main(void)
{
	TCase *texts = tcase_create("texts"), *requests = tcase_create("requests");

	tcase_add_loop_test(texts, what_is_written_is_read, 0, 5);
	tcase_add_loop_test(texts, what_disagrees_with_itself_is_refused, 0, 22);
	tcase_add_test(texts, a_text_that_ends_early_is_refused);
	tcase_add_test(requests, a_range_never_leaves_the_file);
	tcase_add_test(requests, a_list_of_etags_is_read_to_its_end);
	return suite_run("manifest", texts, requests, NULL);
}
