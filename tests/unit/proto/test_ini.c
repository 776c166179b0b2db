/* SPDX-License-Identifier: MIT
 *
 * The form of a configuration file: what is an item, where it starts, and what is complained of.
 */
#include "proto/base/ini.h"
#include "proto/base/own.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <string.h>

/* Every item of a text as "line[section|argument]" or "line:key=value", one behind the other. The
 * text lies at the end of its memory, so that a read past it is seen by a sanitizer. */
static void parse(const char *text, size_t len, char *items, size_t size, char *diagnostics,
		  size_t diagnostics_size)
{
	_cleanup_(free_ptr) char *copy = malloc(len + 1);
	FILE *out = fmemopen(items, size, "w");
	FILE *errors = fmemopen(diagnostics, diagnostics_size, "w");
	struct diagnostics c = { .out = errors, .file = "f" };
	struct ini ini;
	struct ini_item item;
	enum ini_what what;

	ck_assert(copy && out && errors);
	memcpy(copy, text, len);
	memset(items, 0, size);
	memset(diagnostics, 0, diagnostics_size);
	ini_init(&ini, copy, len, &c);
	while ((what = ini_next(&ini, &item)) != INI_END) {
		if (what == INI_SECTION)
			fprintf(out, "%u[%s|%s]", item.line, item.section, item.argument);
		else
			fprintf(out, "%u:%s=%s;", item.line, item.key, item.value);
	}
	fclose(out);
	fclose(errors);
}

static const struct {
	const char *text, *items;
} good[] = {
	{ "", "" },
	{ "\n\n  \n\t\n", "" },
	{ "# a\n;b\n  # c\n", "" },
	{ "[daemon]", "1[daemon|]" },
	{ "  [ pool   gpu0 ] \n", "1[pool|gpu0]" },
	{ "[limits a b]", "1[limits|a b]" },
	{ "[allow b[!1]c]\n[allow b[]", "1[allow|b[!1]c]2[allow|b[]" },
	{ "a=b", "1:a=b;" },
	{ " a = b \n", "1:a=b;" },
	{ "a=\n", "1:a=;" },
	{ "a=b=c", "1:a=b=c;" },
	{ "a=b # c", "1:a=b;" },
	{ "a=b\t; c", "1:a=b;" },
	{ "a=b#c;d", "1:a=b#c;d;" },
	{ "a= # nothing", "1:a=;" },
	{ "[a] # b\nc=d", "1[a|]2:c=d;" },
	{ "a=b \\\nc\nd=e", "1:a=b  c;3:d=e;" },
	{ "a=b \\\n# a comment\nc", "1:a=b  c;" },
	{ "a=b \\ # a comment\nc", "1:a=b  c;" },
	{ "a=b \\\n\nd=e", "1:a=b;3:d=e;" },
	{ "# a comment \\\na=b", "2:a=b;" },
	{ "a=b # a comment \\\nc=d", "1:a=b;2:c=d;" },
	{ "a=b\\", "1:a=b;" },
	{ "\\\n\\\n\\", "" },
	{ "a=\xc3\xa9\n", "1:a=\xc3\xa9;" },
	{ "\xef\xbb\xbf[a]\nb=c\n", "1[a|]2:b=c;" },
	{ "\xef\xbb\xbf", "" },
	{ "a=\xef\xbb\xbf", "1:a=\xef\xbb\xbf;" },
};

START_TEST(a_text_is_read_as_exactly_these_items)
{
	char items[256], diagnostics[256];

	parse(good[_i].text, strlen(good[_i].text), items, sizeof(items), diagnostics,
	      sizeof(diagnostics));
	ck_assert_str_eq(items, good[_i].items);
	ck_assert_str_eq(diagnostics, "");
}
END_TEST

static const struct {
	const char *text;
	size_t len;
	const char *items, *diagnostic;
} bad[] = {
	{ "x\na=b", 5, "2:a=b;", "f:1: \"x\" is neither" },
	{ "=b\n", 3, "", "f:1: \"=b\" is neither" },
	{ "[a\nb=c", 6, "1[|]2:b=c;", "f:1: a section's name ends with ]" },
	{ "[a] b\n", 6, "1[|]", "f:1: a section's name ends with ]" },
	{ "[a b]c]\n", 8, "1[|]", "f:1: a section's name ends with ]" },
	{ "[ ]\n", 4, "1[|]", "f:1: a section without a name" },
	{ "a=b\r\nc=d\n", 9, "2:c=d;", "f:1: control character 0x0d; the file needs Unix" },
	{ "a=\x1b[31m\nc=d\n", 12, "2:c=d;", "f:1: control character 0x1b" },
	{ "a=b\\\n\x7f\nc=d\n", 11, "3:c=d;", "f:2: control character 0x7f" },
	{ "a=b\nc\0d=e\nf=g\n", 15, "1:a=b;", "f:2: control character 0x00; this is no text" },
};

START_TEST(a_malformed_line_is_reported_with_its_number_and_skipped)
{
	char items[256], diagnostics[256];

	parse(bad[_i].text, bad[_i].len, items, sizeof(items), diagnostics, sizeof(diagnostics));
	ck_assert_str_eq(items, bad[_i].items);
	ck_assert_msg(strncmp(diagnostics, bad[_i].diagnostic, strlen(bad[_i].diagnostic)) == 0,
		      "%s", diagnostics);
	ck_assert_ptr_eq(strchr(diagnostics, '\n'), diagnostics + strlen(diagnostics) - 1);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("ini");

	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_loop_test(tc, a_text_is_read_as_exactly_these_items, 0, array_size(good));
	tcase_add_loop_test(tc, a_malformed_line_is_reported_with_its_number_and_skipped, 0,
			    array_size(bad));
	return suite_run("ini", tc, NULL);
}
