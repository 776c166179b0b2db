/* SPDX-License-Identifier: MIT
 *
 * The output of gpushmctl: escapes, tables, JSON, progress; and its input: times and command lines.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/json.h"
#include "client/ctl/model/progress.h"
#include "client/ctl/output.h"
#include "client/ctl/table.h"
#include "proto/base/args.h"
#include "proto/base/own.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <locale.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <termios.h>

/* Returns the text that a function writes to a stream; the caller frees it. */
static char *written(void (*write)(FILE *))
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	ck_assert_ptr_nonnull(out);
	write(out);
	fclose(out);
	return text;
}

START_TEST(a_control_character_is_escaped)
{
	static const char in[] = "a\033[2J\x9b\xc2\x9b\x7f\n\xe2\x80\xae\xc3\xa9\0z";
	_cleanup_(free_ptr) char *out = output_escape(in, sizeof(in) - 1);

	ck_assert_str_eq(out, "a\\x1b[2J\\x9b\\xc2\\x9b\\x7f\\x0a\\xe2\\x80\\xae\xc3\xa9\\x00z");
}
END_TEST

static void write_invisible(FILE *out)
{
	struct json j;

	/* Zero width space, line separator, byte order mark, tag A. */
	output_line(out, "%s", "a\xe2\x80\x8b\xe2\x80\xa8\xef\xbb\xbf\xf3\xa0\x81\x81");
	json_init(&j, out, false);
	json_open(&j, NULL, '[');
	json_string(&j, NULL, "a\xe2\x80\x8b\xe2\x80\xa8\xef\xbb\xbf\xf3\xa0\x81\x81");
	json_close(&j, ']');
}

START_TEST(an_invisible_character_is_escaped)
{
	_cleanup_(free_ptr) char *text = written(write_invisible);

	ck_assert_str_eq(text,
			 "a\\xe2\\x80\\x8b\\xe2\\x80\\xa8\\xef\\xbb\\xbf\\xf3\\xa0\\x81\\x81\n"
			 "[\"a\\u200b\\u2028\\ufeff\\udb40\\udc41\"]\n");
}
END_TEST

START_TEST(sizes_and_ages_are_rounded_sensibly)
{
	ck_assert_str_eq(output_size(0, false).text, "0 B");
	ck_assert_str_eq(output_size(1023, false).text, "1023 B");
	ck_assert_str_eq(output_size(4ull << 30, false).text, "4.0 GiB");
	ck_assert_str_eq(output_size(UINT64_MAX, true).text, "18446744073709551615");
	ck_assert_str_eq(output_age(119000000000).text, "119s");
	ck_assert_str_eq(output_age(120000000000).text, "2m");
	ck_assert_str_eq(output_age(UINT64_MAX).text, "213503d");
	ck_assert_str_eq(output_since(UINT64_MAX).text, "0s");
	ck_assert_str_eq(output_time(1700000000000000001).text, "2023-11-14T22:13:20.000000001Z");
}
END_TEST

START_TEST(an_error_shows_the_names_of_users)
{
	_cleanup_(free_ptr) char *out =
		output_name_users("buffer \"uid 0\" belongs to uid 0 with mode 0600: not open to "
				  "uid 4294967293, uid 0");

	ck_assert_str_eq(out, "buffer \"uid 0\" belongs to uid 0 (root) with mode 0600: not open "
			      "to uid 4294967293, uid 0 (root)");
}
END_TEST

START_TEST(a_mode_is_written_as_by_stat)
{
	ck_assert_str_eq(output_mode(0640).text, "0640 (rw-r-----)");
	ck_assert_str_eq(output_mode(0606).text, "0606 (rw----rw-)");
	ck_assert_str_eq(output_mode(0).text, "0000 (---------)");
}
END_TEST

START_TEST(a_time_is_read_in_its_unit)
{
	uint64_t v;

	ck_assert_int_eq(args_parse_time("5", &v), 0);
	ck_assert_uint_eq(v, 5000);
	ck_assert_int_eq(args_parse_time("2.5s", &v), 0);
	ck_assert_uint_eq(v, 2500);
	ck_assert_int_eq(args_parse_time("300ms", &v), 0);
	ck_assert_uint_eq(v, 300);
	ck_assert_int_eq(args_parse_time("0.1ms", &v), 0);
	ck_assert_uint_eq(v, 1); /* rounded up */
	ck_assert_int_eq(args_parse_time("2m", &v), 0);
	ck_assert_uint_eq(v, 120000);
	ck_assert_int_eq(args_parse_time("inf", &v), 0);
	ck_assert_uint_eq(v, UINT64_MAX);
	ck_assert_int_eq(args_parse_time("5 s", &v), -EINVAL);
	ck_assert_int_eq(args_parse_time("-5", &v), -EINVAL);
	ck_assert_int_eq(args_parse_time("99999999999999999999h", &v), -EINVAL);
}
END_TEST

struct values {
	bool flag;
	const char *text, *json;
	uint64_t size;
	unsigned mode;
	struct arg_list list;
};

static const struct arg table[] = {
	{ "flag", ARG_FLAG, 'f', NULL, "a flag", offsetof(struct values, flag) },
	{ "text", ARG_TEXT, 't', "TEXT", "a text", offsetof(struct values, text) },
	{ "json", ARG_JSON, 0, "HOW", "json", offsetof(struct values, json) },
	{ "size", ARG_SIZE, 's', "SIZE", "a size", offsetof(struct values, size) },
	{ "mode", ARG_MODE, 'm', "MODE", "a mode", offsetof(struct values, mode) },
	{ "list", ARG_LIST, 'l', "ITEM", "a list", offsetof(struct values, list) },
	{ "help", ARG_HELP, 'h', NULL, "help", 0 },
	{ .name = NULL },
};

static char err[256];

static int parse(struct values *v, bool first_word_ends, size_t *ret_words, char **argv)
{
	const struct arg_target target = { table, v };

	err[0] = '\0';
	return args_parse(argv, &target, 1, first_word_ends, ret_words, err, sizeof(err));
}

#define ARGV(...) ((char **)(const char *[]){ __VA_ARGS__, NULL })

START_TEST(an_option_is_stored_in_its_variable)
{
	struct values v = { 0 };
	size_t n;
	char **argv = ARGV("one", "-ft", "x", "--size=4K", "--json", "-", "--mode", "0640", "-la",
			   "--list=b", "--", "--flag", "-s");

	ck_assert_int_eq(parse(&v, false, &n, argv), 0);
	ck_assert_uint_eq(n, 4);
	ck_assert_str_eq(argv[0], "one");
	ck_assert_str_eq(argv[1], "-");
	ck_assert_str_eq(argv[2], "--flag");
	ck_assert_str_eq(argv[3], "-s");
	ck_assert_ptr_null(argv[4]);
	ck_assert(v.flag);
	ck_assert_str_eq(v.text, "x");
	ck_assert_str_eq(v.json, "short");
	ck_assert_uint_eq(v.size, 4096);
	ck_assert_uint_eq(v.mode, 0640);
	ck_assert_uint_eq(v.list.n, 2);
	ck_assert_str_eq(v.list.v[0], "a");
	ck_assert_str_eq(v.list.v[1], "b");
}
END_TEST

START_TEST(options_of_a_subcommand_are_left_to_it)
{
	struct values v = { 0 };
	size_t n;
	char **argv = ARGV("-f", "command", "--unknown", "word");

	ck_assert_int_eq(parse(&v, true, &n, argv), 0);
	ck_assert_uint_eq(n, 3);
	ck_assert_str_eq(argv[0], "command");
	ck_assert_str_eq(argv[1], "--unknown");
}
END_TEST

START_TEST(a_wrong_option_is_refused_with_an_explanation)
{
	static const struct {
		const char *word, *says;
	} cases[] = {
		{ "--flga", "did you mean --flag?" }, { "--nothing", "no such option" },
		{ "-x", "-x: no such option" },	      { "--flag=1", "takes no value" },
		{ "--text", "needs a value" },	      { "-t", "needs a value" },
		{ "--json=tall", "--json=pretty" },   { "--size=big", "1.5G" },
		{ "--mode=0777", "octal" },	      { "--mode=9", "octal" },
	};
	struct values v = { 0 };
	size_t n;

	for (size_t i = 0; i < array_size(cases); i++) {
		char **argv = ARGV(cases[i].word);

		ck_assert_int_eq(parse(&v, false, &n, argv), -EINVAL);
		ck_assert_msg(strstr(err, cases[i].says), "%s: %s", cases[i].word, err);
	}
	ck_assert_int_eq(parse(&v, false, &n, ARGV("-h")), -ECANCELED);
}
END_TEST

START_TEST(a_list_with_too_many_items_is_refused)
{
	const char *argv[ARG_LIST_MAX + 2] = { NULL };
	struct values v = { 0 };
	size_t n;

	for (size_t i = 0; i < ARG_LIST_MAX + 1; i++)
		argv[i] = "-lx";
	ck_assert_int_eq(parse(&v, false, &n, (char **)argv), -EINVAL);
	ck_assert_uint_eq(v.list.n, ARG_LIST_MAX);
}
END_TEST

START_TEST(a_mistyped_command_gets_the_right_suggestion)
{
	ck_assert_str_eq(command_suggest("stats"), "status");
	ck_assert_str_eq(command_suggest("promtoe"), "promote");
	ck_assert_str_eq(command_suggest("craete"), "create");
	ck_assert_ptr_null(command_suggest("xy"));
	ck_assert_ptr_null(command_suggest("frobnicate"));
	ck_assert_ptr_null(command_suggest("a very long word that is no command at all"));
}
END_TEST

static void write_document(FILE *out)
{
	struct json j;

	json_init(&j, out, false);
	json_open(&j, NULL, '{');
	json_bytes(&j, "a\"\\\n", "\0\x1f\x7f/\xc3\xa9\xff\xc2\x9b", 9);
	json_open(&j, "empty", '[');
	json_close(&j, ']');
	json_open(&j, "list", '[');
	json_uint(&j, NULL, UINT64_MAX);
	json_int(&j, NULL, INT64_MIN);
	json_bool(&j, NULL, true);
	json_string(&j, NULL, NULL);
	json_hex(&j, NULL, 0xab);
	json_time(&j, NULL, 0);
	json_close(&j, ']');
	json_base64(&j, "b", "\xff\0\x10\x80", 4);
	json_close(&j, '}');
}

START_TEST(json_is_escaped_and_divided_correctly)
{
	_cleanup_(free_ptr) char *text = written(write_document);

	ck_assert_str_eq(text,
			 "{\"a\\\"\\\\\\n\":\"\\u0000\\u001f\\u007f/\xc3\xa9\\ufffd\\u009b\","
			 "\"empty\":[],\"list\":[18446744073709551615,-9223372036854775808,"
			 "true,null,\"00000000000000ab\",null],\"b\":{\"base64\":\"/wAQgA==\"}}\n");
}
END_TEST

static void write_pretty(FILE *out)
{
	struct json j;

	json_init(&j, out, true);
	json_open(&j, NULL, '[');
	json_open(&j, NULL, '{');
	json_uint(&j, "a", 1);
	json_uint(&j, "b", 2);
	json_close(&j, '}');
	json_close(&j, ']');
}

START_TEST(pretty_json_is_indented)
{
	_cleanup_(free_ptr) char *text = written(write_pretty);

	ck_assert_str_eq(text, "[\n  {\n    \"a\": 1,\n    \"b\": 2\n  }\n]\n");
}
END_TEST

static void write_table(FILE *out)
{
	struct table *t = table_new("NAME >SIZE NOTE");

	table_cell(t, TABLE_PLAIN, "a\n");
	table_cell(t, TABLE_GOOD, "%d", 12345);
	table_cell(t, TABLE_PLAIN, "%s", "");
	table_cell(t, TABLE_PLAIN, "\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2");
	table_cell(t, TABLE_PLAIN, "1");
	table_cell(t, TABLE_PLAIN, "e\xcc\x81");
	ck_assert_int_eq(table_print(t, TABLE_WIDE, out), 0);
}

START_TEST(a_name_is_shortened_in_its_middle_between_characters)
{
	static const struct {
		const char *text, *shown;
		size_t columns;
	} cases[] = {
		{ "abcdef", "abcdef", 6 },
		{ "abcdefg",
		  "ab\xe2\x80\xa6"
		  "efg",
		  6 },
		{ "abcdefgh", "\xe2\x80\xa6", 1 },
		{ "abcdefgh", "\xe2\x80\xa6h", 2 },
		/* Two columns each; an accent stays with its letter. */
		{ "\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2", "\xe6\xbc\xa2\xe2\x80\xa6\xe6\xbc\xa2",
		  5 },
		{ "\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2", "\xe2\x80\xa6\xe6\xbc\xa2", 4 },
		{ "xe\xcc\x81yyyye\xcc\x81z",
		  "xe\xcc\x81\xe2\x80\xa6"
		  "e\xcc\x81z",
		  5 },
	};

	ck_assert_ptr_nonnull(setlocale(LC_CTYPE, "C.UTF-8"));
	for (size_t i = 0; i < array_size(cases); i++) {
		_cleanup_(free_ptr) char *out = output_shorten(cases[i].text, cases[i].columns);

		ck_assert_str_eq(out, cases[i].shown);
	}
}
END_TEST

static void write_coloured(FILE *out)
{
	struct table *t = table_new("");

	table_fact(t, "key", TABLE_BAD, "value");
	ck_assert_int_eq(table_print(t, TABLE_WIDE | TABLE_COLOUR, out), 0);
}

static void write_empty(FILE *out)
{
	ck_assert_int_eq(table_print(table_new("NAME >SIZE"), TABLE_WIDE, out), 0);
}

START_TEST(columns_of_a_table_are_aligned)
{
	_cleanup_(free_ptr) char *text = NULL, *empty = NULL, *coloured = NULL;

	ck_assert_ptr_nonnull(setlocale(LC_CTYPE, "C.UTF-8"));
	text = written(write_table);
	ck_assert_str_eq(text, "NAME     SIZE  NOTE\n"
			       "a\\x0a   12345\n"
			       "\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2      1  e\xcc\x81\n");
	empty = written(write_empty);
	ck_assert_str_eq(empty, "NAME  SIZE\n");
	coloured = written(write_coloured);
	ck_assert_str_eq(coloured, "\033[1mkey\033[0m  \033[31mvalue\033[0m\n");
}
END_TEST

/* Prints a table of a name, a size and a note to a terminal with lines of that many columns. */
static void print_to_terminal(size_t columns, char *ret, size_t size)
{
	struct winsize window = { .ws_row = 24, .ws_col = (unsigned short)columns };
	_cleanup_(close_fd) int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	struct table *t = table_new("~NAME 1>SIZE |NOTE");
	struct termios mode;
	FILE *out;
	size_t len = 0;
	ssize_t n;

	ck_assert_int_eq(grantpt(master), 0);
	ck_assert_int_eq(unlockpt(master), 0);
	out = fopen(ptsname(master), "re+");
	ck_assert_ptr_nonnull(out);
	ck_assert_int_eq(ioctl(fileno(out), TIOCSWINSZ, &window), 0);
	ck_assert_int_eq(tcgetattr(fileno(out), &mode), 0);
	cfmakeraw(&mode);
	ck_assert_int_eq(tcsetattr(fileno(out), TCSANOW, &mode), 0);
	table_cell(t, TABLE_PLAIN, "frames/0123456789/left");
	table_cell(t, TABLE_PLAIN, "1");
	table_cell(t, TABLE_PLAIN, "the pool has failed: \xe6\xbc\xa2\xe5\xad\x97 is gone");
	ck_assert_int_eq(table_print(t, 0, out), 0);
	ck_assert_int_eq(fclose(out), 0);
	/* In pieces, until the kernel says that the other end is closed (EIO). */
	while ((n = read(master, ret + len, size - 1 - len)) > 0)
		len += (size_t)n;
	ret[len] = '\0';
}

START_TEST(prose_is_wrapped_between_words_to_the_terminals_width)
{
	char text[1024];

	ck_assert_ptr_nonnull(setlocale(LC_CTYPE, "C.UTF-8"));
	print_to_terminal(200, text, sizeof(text));
	ck_assert_str_eq(text, "NAME                    SIZE  NOTE\n"
			       "frames/0123456789/left     1  the pool has failed: "
			       "\xe6\xbc\xa2\xe5\xad\x97 is gone\n");
	print_to_terminal(44, text, sizeof(text));
	ck_assert_str_eq(text, "NAME                    SIZE  NOTE\n"
			       "frames/0123456789/left     1  the pool has\n"
			       "                              failed: \xe6\xbc\xa2\xe5\xad\x97\n"
			       "                              is gone\n");
	/* The size is left out first, and a word of two columns a character has no space in it. */
	print_to_terminal(33, text, sizeof(text));
	ck_assert_str_eq(text, "NAME                    NOTE\n"
			       "frames/0123456789/left  the pool\n"
			       "                        has\n"
			       "                        failed:\n"
			       "                        \xe6\xbc\xa2\xe5\xad\x97 is\n"
			       "                        gone\n");
}
END_TEST

static void write_two_names(FILE *out)
{
	static const char name[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEF";
	struct table *t = table_new("~NAME ~HELD_BY");

	table_cell(t, TABLE_PLAIN, "%s", name);
	table_cell(t, TABLE_PLAIN, "%s", name);
	table_fit(t, 80);
	ck_assert_int_eq(table_print(t, 0, out), 0);
}

START_TEST(two_names_share_a_line)
{
	_cleanup_(free_ptr) char *text = written(write_two_names);

	ck_assert_str_eq(text,
			 "NAME                                        HELD BY\n"
			 "0123456789abcdefghijklmnopqrstuvwxyzABCDEF  0123456789abcdefg\xe2\x80\xa6"
			 "opqrstuvwxyzABCDEF\n");
}
END_TEST

START_TEST(a_progress_bar_fits_the_terminal)
{
	struct progress p = { .label = "weights.npy with a name that is much too long to show it",
			      .total = 8ull << 30,
			      .done = 3ull << 30,
			      .elapsed = 3000000000u };
	char buf[4 * 160];

	ck_assert_ptr_nonnull(setlocale(LC_CTYPE, "C.UTF-8"));
	for (size_t columns = 1; columns <= 160; columns++) {
		progress_format_bar(&p, columns, buf, sizeof(buf));
		ck_assert_uint_lt(output_columns(buf), columns + (columns == 1));
	}
	/* Any user may choose a name, which may be in any script. */
	p.label = "\xe6\xbc\xa2\xe5\xad\x97\033[2J";
	progress_format_bar(&p, 100, buf, sizeof(buf));
	ck_assert_ptr_nonnull(strstr(buf, "\xe6\xbc\xa2\xe5\xad\x97\\x1b[2J"));
	ck_assert_uint_eq(output_columns(buf), 99);
	progress_format_bar(&p, 100, buf, sizeof(buf));
	ck_assert_ptr_nonnull(strstr(buf, " 37% 3.0 GiB of 8.0 GiB, 1.0 GiB/s, 0:05"));
	p.done = p.elapsed = 0;
	progress_format_bar(&p, 100, buf, sizeof(buf));
	ck_assert_ptr_nonnull(strstr(buf, "  0% 0 B of 8.0 GiB, 0 B/s, -:--"));
}
END_TEST

START_TEST(a_progress_line_makes_sense_without_bytes_or_time)
{
	struct progress p = { .label = "llama", .total = 15ull << 30, .done = 5ull << 30 };
	char buf[160];

	p.elapsed = 2000000000u;
	progress_format_line(&p, buf, sizeof(buf));
	ck_assert_str_eq(buf, "llama: 33%, 5.0 GiB of 15.0 GiB, 2.5 GiB/s, 0:04 left");
	p.done = p.elapsed = 0;
	progress_format_line(&p, buf, sizeof(buf));
	ck_assert_str_eq(buf, "llama: 0%, 0 B of 15.0 GiB, 0 B/s, -:-- left");
	p.total = 0;
	progress_format_line(&p, buf, sizeof(buf));
	ck_assert_str_eq(buf, "llama: 100%, 0 B of 0 B, 0 B/s, -:-- left");
	p.total = UINT64_MAX;
	p.done = 1000;
	p.elapsed = 1000000000u;
	progress_format_line(&p, buf, sizeof(buf));
	ck_assert_ptr_nonnull(strstr(buf, "llama: 0%, 1000 B of 16.0 EiB, 1000 B/s, "));
}
END_TEST

/* What is written to stderr, which is a file here. */
static char *progress_of(const char *asked, bool quiet)
{
	_cleanup_(close_fd) int fd = memfd_create("stderr", MFD_CLOEXEC);
	_cleanup_(close_fd) int before = dup(STDERR_FILENO);
	struct progress p;
	char *text = calloc(1, 8192);

	ck_assert(fd >= 0 && before >= 0 && text);
	dup2(fd, STDERR_FILENO);
	progress_begin(&p, asked, quiet, "x", 400);
	for (uint64_t i = 0; i <= 40; i++)
		progress_step(&p, 10 * i, i * 100000000u);
	progress_step(&p, 400, 4000000000u);
	progress_end(&p);
	dup2(before, STDERR_FILENO);
	ck_assert_int_ge(pread(fd, text, 8191, 0), 0);
	return text;
}

START_TEST(progress_is_printed_only_on_request_and_to_the_end)
{
	_cleanup_(free_ptr) char *automatic = progress_of(NULL, false);
	_cleanup_(free_ptr) char *never = progress_of("never", false);
	_cleanup_(free_ptr) char *always = progress_of("always", false);
	_cleanup_(free_ptr) char *json = progress_of("json", true);

	ck_assert_str_eq(automatic, "");
	ck_assert_str_eq(never, "");
	ck_assert_str_eq(always, "gpushmctl: x: 50%, 200 B of 400 B, 100 B/s, 0:02 left\n"
				 "gpushmctl: x: 100%, 400 B of 400 B, 100 B/s, 0:00 left\n");
	ck_assert_ptr_nonnull(
		strstr(json, "{\"event\":\"progress\",\"name\":\"x\",\"bytes\":0,\"total\":400,"
			     "\"seconds\":0.000,\"rate\":0,\"left\":null,\"file\":null}\n"));
	ck_assert_ptr_nonnull(strstr(json, "\"bytes\":400,\"total\":400,\"seconds\":4.000,"
					   "\"rate\":100,\"left\":0,\"file\":null}\n"));
	ck_assert_ptr_null(strstr(strstr(json, "\"bytes\":400,"), "}\n{"));
}
END_TEST

START_TEST(a_choice_that_does_not_exist_is_refused)
{
	static const char *const wrong[] = { "", "a", "auto|", "auto|always", "always ", "alway" };
	const struct arg args[] = { { "progress", ARG_CHOICE, 0, "auto|always", "", 0 },
				    { .name = NULL } };
	const char *chosen = NULL;
	const struct arg_target target = { args, &chosen };
	char word[64] = "--progress=always", text[128];
	size_t n;

	ck_assert_int_eq(args_parse((char *[]){ word, NULL }, &target, 1, false, &n, text,
				    sizeof(text)),
			 0);
	ck_assert_str_eq(chosen, "always");
	for (size_t i = 0; i < array_size(wrong); i++) {
		snprintf(word, sizeof(word), "--progress=%s", wrong[i]);
		ck_assert_int_eq(args_parse((char *[]){ word, NULL }, &target, 1, false, &n, text,
					    sizeof(text)),
				 -EINVAL);
		ck_assert_ptr_nonnull(strstr(text, "is not one of auto|always"));
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("output");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_test(tc, a_control_character_is_escaped);
	tcase_add_test(tc, an_invisible_character_is_escaped);
	tcase_add_test(tc, sizes_and_ages_are_rounded_sensibly);
	tcase_add_test(tc, an_error_shows_the_names_of_users);
	tcase_add_test(tc, a_mode_is_written_as_by_stat);
	tcase_add_test(tc, a_time_is_read_in_its_unit);
	tcase_add_test(tc, an_option_is_stored_in_its_variable);
	tcase_add_test(tc, options_of_a_subcommand_are_left_to_it);
	tcase_add_test(tc, a_wrong_option_is_refused_with_an_explanation);
	tcase_add_test(tc, a_list_with_too_many_items_is_refused);
	tcase_add_test(tc, a_mistyped_command_gets_the_right_suggestion);
	tcase_add_test(tc, json_is_escaped_and_divided_correctly);
	tcase_add_test(tc, pretty_json_is_indented);
	tcase_add_test(tc, a_name_is_shortened_in_its_middle_between_characters);
	tcase_add_test(tc, columns_of_a_table_are_aligned);
	tcase_add_test(tc, prose_is_wrapped_between_words_to_the_terminals_width);
	tcase_add_test(tc, two_names_share_a_line);
	tcase_add_test(tc, a_progress_bar_fits_the_terminal);
	tcase_add_test(tc, a_progress_line_makes_sense_without_bytes_or_time);
	tcase_add_test(tc, progress_is_printed_only_on_request_and_to_the_end);
	tcase_add_test(tc, a_choice_that_does_not_exist_is_refused);
	return suite_run("output", tc, NULL);
}
