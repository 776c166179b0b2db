/* SPDX-License-Identifier: MIT
 *
 * The log: the parts of a line on stderr, the fields that reach the journal's socket, and that text
 * from a client can't forge a line.
 */
#include "daemon/util/log.h"
#include "proto/base/own.h"
#include "proto/base/text.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

/* Runs fn with stderr going to a pipe, and returns its output. */
static void with_stderr(void (*fn)(void), char *ret, size_t size)
{
	_cleanup_(close_fd) int saved = dup(STDERR_FILENO);
	int ends[2];
	ssize_t n;

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	dup2(ends[1], STDERR_FILENO);
	fn();
	dup2(saved, STDERR_FILENO);
	close(ends[1]);
	n = read(ends[0], ret, size - 1);
	close(ends[0]);
	ret[n > 0 ? n : 0] = '\0';
}

static void write_about(void)
{
	struct log_about about = { .message_id = LOG_ID_SUSPECT,
				   .pool = "gpu0",
				   .name = "m/llama",
				   .pid = 12,
				   .uid = 1001,
				   .buffer = 7 };

	log_open(LOG_INFO);
	log_write(LOG_WARNING, &about, "lease %d is suspect", 3);
}

START_TEST(a_line_on_stderr_names_its_level_and_its_subject)
{
	char line[512];

	unsetenv("JOURNAL_STREAM");
	with_stderr(write_about, line, sizeof(line));
	ck_assert_str_eq(line, "gpushmd: warning: lease 3 is suspect "
			       "[pool=gpu0 name=m/llama pid=12 uid=1001 buffer=7]\n");
}
END_TEST

static void write_about_root(void)
{
	log_open(LOG_INFO);
	log_write(LOG_INFO, &(struct log_about){ .pid = 12 }, "seen");
	log_write(LOG_INFO, &(struct log_about){ .of_user = true }, "not seen");
	log_write(LOG_INFO, &(struct log_about){ .pool = "p" }, "nobody");
}

START_TEST(a_line_about_root_has_no_uid)
{
	char line[512];

	unsetenv("JOURNAL_STREAM");
	with_stderr(write_about_root, line, sizeof(line));
	ck_assert_str_eq(line, "gpushmd: info: seen [pid=12 uid=0]\n"
			       "gpushmd: info: not seen [uid=0]\n"
			       "gpushmd: info: nobody [pool=p]\n");
}
END_TEST

static void write_levels(void)
{
	log_open(LOG_NOTICE);
	log_info("not this");
	log_notice("this");
	log_open(LOG_DEBUG);
	log_debug("and this");
}

START_TEST(lines_below_the_level_are_dropped)
{
	char line[512];

	unsetenv("JOURNAL_STREAM");
	with_stderr(write_levels, line, sizeof(line));
	ck_assert_str_eq(line, "gpushmd: notice: this\ngpushmd: debug: and this\n");
}
END_TEST

static void write_forgery(void)
{
	struct log_about about = { .name = "a\n\x1b[2J\xc2\x9b" };

	log_open(LOG_INFO);
	log_write(LOG_ERR, &about, "b\ngpushmd: error: forged\t\\");
}

START_TEST(a_newline_or_an_escape_sequence_can_not_forge_a_line)
{
	char line[512];

	unsetenv("JOURNAL_STREAM");
	with_stderr(write_forgery, line, sizeof(line));
	ck_assert_str_eq(line, "gpushmd: error: b\\x0agpushmd: error: forged\\x09\\x5c "
			       "[name=a\\x0a\\x1b[2J\\xc2\\x9b]\n");
}
END_TEST

static void write_long(void)
{
	static char text[70000];
	struct log_about about = { .pool = text, .name = text };

	memset(text, '\n', sizeof(text) - 1);
	log_open(LOG_INFO);
	log_write(LOG_ERR, &about, "%s", text);
}

START_TEST(a_line_longer_than_a_pipe_takes_in_one_piece_is_cut)
{
	static char line[80000];

	unsetenv("JOURNAL_STREAM");
	with_stderr(write_long, line, sizeof(line));
	ck_assert_uint_le(strlen(line), 4096);
	ck_assert_uint_gt(strlen(line), 3000);
	ck_assert_ptr_eq(strchr(line, '\n'), line + strlen(line) - 1);
}
END_TEST

static void write_errno(void)
{
	errno = EDOM;
	log_open(LOG_INFO);
	log_warning("x");
	ck_assert_int_eq(errno, EDOM);
}

START_TEST(a_line_between_a_failed_call_and_its_report_keeps_errno)
{
	char line[64];

	with_stderr(write_errno, line, sizeof(line));
}
END_TEST

START_TEST(a_journal_stream_that_stderr_has_left_is_not_used)
{
	char line[512];

	setenv("JOURNAL_STREAM", "1:2", 1);
	with_stderr(write_about, line, sizeof(line));
	ck_assert_ptr_nonnull(strstr(line, "gpushmd: warning: lease 3"));
	setenv("JOURNAL_STREAM", "garbage", 1);
	with_stderr(write_about, line, sizeof(line));
	ck_assert_ptr_nonnull(strstr(line, "gpushmd: warning: lease 3"));
}
END_TEST

/* Listens where journald would, in a mount namespace of its own with an empty /run. Returns the
 * socket, or -1 if this process has no right to do so. */
static int listen_as_journald(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX,
				       .sun_path = "/run/systemd/journal/socket" };
	int fd;

	if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) < 0 ||
	    mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", "/run", "tmpfs", 0, NULL) < 0)
		return -1;
	if (mkdir("/run/systemd", 0755) < 0 || mkdir("/run/systemd/journal", 0755) < 0)
		return -1;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -1 : fd;
}

/* To a real socket, in a child. 0 as expected, 1 not, 77 skipped. */
static int log_to_journal(void)
{
	static const char *const wanted[] = { "MESSAGE=lease 3 is suspect\n",
					      "PRIORITY=4\n",
					      "MESSAGE_ID=" LOG_ID_SUSPECT "\n",
					      "SYSLOG_IDENTIFIER=gpushmd\n",
					      "GPUSHM_POOL=gpu0\n",
					      "GPUSHM_NAME=m/llama\n",
					      "GPUSHM_PID=12\n",
					      "GPUSHM_UID=1001\n",
					      "GPUSHM_BUFFER=7\n" };
	char datagram[4096] = "", stream[64];
	struct stat st;
	int journal = listen_as_journald();

	if (journal < 0)
		return 77;
	fstat(STDERR_FILENO, &st);
	snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	write_about();
	if (read(journal, datagram, sizeof(datagram) - 1) < 0)
		return 1;
	for (size_t i = 0; i < array_size(wanted); i++) {
		if (strstr(datagram, wanted[i]))
			continue;
		fprintf(stderr, "no %s in:\n%s", wanted[i], datagram);
		return 1;
	}
	return 0;
}

START_TEST(a_line_reaches_the_journal_with_all_its_fields)
{
	int status = 0;
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child == 0)
		_exit(log_to_journal());
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		printf("skipped: the journal's socket needs a mount namespace of its own\n");
	else
		ck_assert_int_eq(status, 0);
}
END_TEST

static const struct {
	const char *text, *safe;
} escapes[] = {
	{ "", "" },
	{ "plain text", "plain text" },
	{ "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80" },
	{ "\xc3", "\\xc3" },
	{ "\xc0\x80", "\\xc0\\x80" },
	{ "\xe0\x80\x80", "\\xe0\\x80\\x80" },
	{ "\xed\xa0\x80", "\\xed\\xa0\\x80" },
	{ "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80" },
	{ "\xff\x80", "\\xff\\x80" },
	{ "\xc2\x85\xc2\xa0", "\\xc2\\x85\xc2\xa0" },
	{ "\x01\x7f", "\\x01\\x7f" },
	{ "a\xe2\x80\x8b\xe2\x80\xa8", "a\\xe2\\x80\\x8b\\xe2\\x80\\xa8" },
	{ "\xf3\xa0\x81\x81\xef\xbb\xbf", "\\xf3\\xa0\\x81\\x81\\xef\\xbb\\xbf" },
};

START_TEST(bytes_that_can_not_be_printed_are_escaped_one_by_one)
{
	char safe[64];

	text_escape(escapes[_i].text, safe, sizeof(safe));
	ck_assert_str_eq(safe, escapes[_i].safe);
}
END_TEST

START_TEST(a_cut_never_splits_a_character)
{
	char safe[5];

	text_escape("ab\xe2\x82\xac", safe, sizeof(safe));
	ck_assert_str_eq(safe, "ab");
	text_escape("a\n", safe, sizeof(safe));
	ck_assert_str_eq(safe, "a");
	text_escape("abcdef", safe, sizeof(safe));
	ck_assert_str_eq(safe, "abcd");
	text_escape("abc", safe, 1);
	ck_assert_str_eq(safe, "");
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("log");

	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_test(tc, a_line_on_stderr_names_its_level_and_its_subject);
	tcase_add_test(tc, a_line_about_root_has_no_uid);
	tcase_add_test(tc, lines_below_the_level_are_dropped);
	tcase_add_test(tc, a_newline_or_an_escape_sequence_can_not_forge_a_line);
	tcase_add_test(tc, a_line_longer_than_a_pipe_takes_in_one_piece_is_cut);
	tcase_add_test(tc, a_line_between_a_failed_call_and_its_report_keeps_errno);
	tcase_add_test(tc, a_journal_stream_that_stderr_has_left_is_not_used);
	tcase_add_test(tc, a_line_reaches_the_journal_with_all_its_fields);
	tcase_add_loop_test(tc, bytes_that_can_not_be_printed_are_escaped_one_by_one, 0,
			    array_size(escapes));
	tcase_add_test(tc, a_cut_never_splits_a_character);
	return suite_run("log", tc, NULL);
}
