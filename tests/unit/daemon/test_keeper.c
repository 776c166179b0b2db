/* SPDX-License-Identifier: MIT
 *
 * The parts of the keeper: the datagrams that it reads, and the fds that it keeps.
 */
#include "daemon/keeper/kept_fds.h"
#include "daemon/keeper/notify.h"
#include "proto/base/own.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static struct notify notify;
static struct notification m;
static struct kept_fds kept;

static void setup(void)
{
	fds_mark();
	ck_assert_int_eq(notify_open(&notify), 0);
	kept = (struct kept_fds){ .max = 100 };
}

static void teardown(void)
{
	kept_fds_done(&kept);
	notify_close(&notify);
	fds_check();
}

/* ---- the text of a datagram ---- */

static int parse(const char *text, size_t len)
{
	memcpy(m.text, text, len);
	m.text[len] = '\0';
	m.len = len;
	return notification_parse(&m);
}

static int parse_text(const char *text)
{
	return parse(text, strlen(text));
}

START_TEST(each_line_of_a_notification_sets_its_own_field)
{
	ck_assert_int_eq(parse_text("READY=1\nSTATUS=2 pools"), 0);
	ck_assert(m.ready && m.status && !m.alive && !m.store && !m.reloading);
	ck_assert_int_eq(parse_text("FDSTORE=1\nFDNAME=m6bj\nFDPOLL=0"), 0);
	ck_assert(m.store && !m.forget && !m.ready && !m.status);
	ck_assert_str_eq(m.name, "m6bj");
	ck_assert_int_eq(parse_text("FDSTOREREMOVE=1\nFDNAME=t0\n"), 0);
	ck_assert(m.forget && !m.store);
	ck_assert_str_eq(m.name, "t0");
	ck_assert_int_eq(parse_text("WATCHDOG=1"), 0);
	ck_assert(m.alive && !m.hung && m.name[0] == '\0');
	ck_assert_int_eq(parse_text("WATCHDOG=trigger"), 0);
	ck_assert(m.hung && !m.alive);
	ck_assert_int_eq(parse_text("WATCHDOG_USEC=20000000"), 0);
	ck_assert(m.interval_us == 20000000 && !m.alive);
	ck_assert_int_eq(parse_text("RELOADING=1\nMONOTONIC_USEC=17"), 0);
	ck_assert(m.reloading && !m.stopping);
	ck_assert_int_eq(parse_text("STOPPING=1\nMAINPID=1\nBARRIER=1\nERRNO=5"), 0);
	ck_assert(m.stopping && !m.ready);
}
END_TEST

START_TEST(a_word_counts_only_as_a_whole_line)
{
	static const char *const texts[] = {
		"STATUS=READY=1",     "XREADY=1", "READY=11", "READY=0", "READY", "",
		"FDSTORE=1 FDNAME=x", "\n\n\n",	  "="
	};

	for (size_t i = 0; i < array_size(texts); i++) {
		ck_assert_int_eq(parse_text(texts[i]), 0);
		ck_assert_msg(!m.ready && !m.store && !m.forget && m.name[0] == '\0', "%s",
			      texts[i]);
	}
}
END_TEST

START_TEST(a_malformed_text_is_refused_whole)
{
	static const char with_nul[] = "READY=1\0FDSTORE=1";
	static const char *const texts[] = { "READY=1\nFDNAME=",
					     "READY=1\nFDNAME=a:b",
					     "READY=1\nFDNAME=a\tb",
					     "READY=1\nFDNAME=\xc3\xa4",
					     "READY=1\nWATCHDOG_USEC=0",
					     "READY=1\nWATCHDOG_USEC=",
					     "READY=1\nWATCHDOG_USEC=-1",
					     "READY=1\nWATCHDOG_USEC=1s",
					     "READY=1\nWATCHDOG_USEC=99999999999999999999" };

	for (size_t i = 0; i < array_size(texts); i++) {
		ck_assert_msg(parse_text(texts[i]) == -EBADMSG, "%s", texts[i]);
		ck_assert(!m.ready);
	}
	ck_assert_int_eq(parse(with_nul, sizeof(with_nul) - 1), -EBADMSG);
	ck_assert(!m.ready && !m.store);
}
END_TEST

START_TEST(a_name_that_is_too_long_is_refused)
{
	char text[NOTIFY_NAME_MAX + 32] = "FDSTORE=1\nFDNAME=";
	size_t len = strlen(text);

	memset(text + len, 'x', NOTIFY_NAME_MAX);
	ck_assert_int_eq(parse(text, len + NOTIFY_NAME_MAX), 0);
	ck_assert_uint_eq(strlen(m.name), NOTIFY_NAME_MAX);
	text[len + NOTIFY_NAME_MAX] = 'x';
	ck_assert_int_eq(parse(text, len + NOTIFY_NAME_MAX + 1), -EBADMSG);
	ck_assert(!m.store);
}
END_TEST

/* ---- the socket ---- */

static void send_text(const char *text, size_t len, const int *fds, size_t n_fds)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(NOTIFY_FDS_MAX * sizeof(int))] = { 0 };
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	size_t name = strlen(notify.address);
	struct iovec io = { (void *)(uintptr_t)text, len };
	struct msghdr out = { .msg_name = &a,
			      .msg_namelen =
				      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + name),
			      .msg_iov = &io,
			      .msg_iovlen = 1 };
	_cleanup_(close_fd) int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct cmsghdr *c;

	memcpy(a.sun_path, notify.address, name);
	if (a.sun_path[0] == '@')
		a.sun_path[0] = '\0';
	if (n_fds) {
		out.msg_control = control;
		out.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&out);
		*c = (struct cmsghdr){ CMSG_LEN(n_fds * sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	ck_assert_int_eq(sendmsg(fd, &out, 0), (int)len);
}

START_TEST(a_notification_carries_its_senders_pid)
{
	pid_t pid;

	ck_assert_int_eq(notify_receive(&notify, &m), 0);
	send_text("READY=1", 7, NULL, 0);
	ck_assert_int_eq(notify_receive(&notify, &m), 1);
	ck_assert_int_eq(m.sender, getpid());
	ck_assert_str_eq(m.text, "READY=1");
	pid = fork();
	if (pid == 0) {
		send_text("READY=1", 7, NULL, 0);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	/* Also when the sender has ended. */
	ck_assert_int_eq(notify_receive(&notify, &m), 1);
	ck_assert_int_eq(m.sender, pid);
	ck_assert_int_eq(notify_receive(&notify, &m), 0);
}
END_TEST

static int connect_as(uid_t uid)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

		strcpy(a.sun_path, notify.address);
		if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
		    setresuid(uid, uid, uid) < 0)
			_exit(1);
		_exit(connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ? errno : 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

START_TEST(another_user_can_not_send_to_the_socket)
{
	if (geteuid() != 0) {
		puts("skipped: not root");
		return;
	}
	ck_assert_int_eq(notify.address[0], '/');
	ck_assert_int_eq(connect_as(0), 0);
	ck_assert_int_eq(connect_as(65534), EACCES);
}
END_TEST

START_TEST(a_read_only_container_gets_an_abstract_socket)
{
	struct notify other;
	char tmp[] = "TMPDIR=/proc";
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		putenv(tmp);
		unsetenv("XDG_RUNTIME_DIR");
		if (prctl(PR_SET_DUMPABLE, 0) < 0 || notify_open(&other) < 0)
			_exit(1);
		_exit(other.address[0] == '@' && other.file < 0 ? 0 : 2);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(received_fds_close_with_their_notification)
{
	int fds[NOTIFY_FDS_MAX];

	for (size_t i = 0; i < NOTIFY_FDS_MAX; i++)
		fds[i] = STDERR_FILENO;
	send_text("BARRIER=1", 9, fds, 1);
	send_text("FDSTORE=1", 9, fds, NOTIFY_FDS_MAX);
	ck_assert_int_eq(notify_receive(&notify, &m), 1);
	ck_assert_uint_eq(m.n_fds, 1);
	ck_assert_int_eq(fcntl(m.fds[0], F_GETFD), FD_CLOEXEC);
	notification_done(&m);
	ck_assert_int_eq(notify_receive(&notify, &m), 1);
	ck_assert_uint_eq(m.n_fds, NOTIFY_FDS_MAX);
	ck_assert_int_eq(m.sender, getpid());
	ck_assert(!m.truncated);
	notification_done(&m);
}
END_TEST

START_TEST(a_datagram_that_is_too_long_is_marked_as_truncated)
{
	static char text[NOTIFY_TEXT_MAX + 1];
	int fd = STDERR_FILENO;

	memset(text, '\n', sizeof(text));
	send_text(text, NOTIFY_TEXT_MAX, &fd, 1);
	send_text(text, NOTIFY_TEXT_MAX + 1, &fd, 1);
	ck_assert_int_eq(notify_receive(&notify, &m), 1);
	ck_assert(!m.truncated);
	notification_done(&m);
	ck_assert_int_eq(notify_receive(&notify, &m), 1);
	ck_assert(m.truncated);
	notification_done(&m);
}
END_TEST

/* ---- kept fds ---- */

static int file(const char *contents)
{
	int fd = memfd_create(contents, MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static int add(const char *name)
{
	int fd = file(name), r = kept_fds_add(&kept, name, &fd);

	close_fd(&fd);
	return r;
}

static bool is_file(int fd, const char *name)
{
	char path[64], target[128] = "", want[128];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	snprintf(want, sizeof(want), "/memfd:%s (deleted)", name);
	return readlink(path, target, sizeof(target) - 1) > 0 && strcmp(target, want) == 0;
}

START_TEST(only_the_fds_of_that_name_are_forgotten)
{
	static const char *const names[] = { "a", "b", "ab", "b", "c" };
	char text[64];

	for (size_t i = 0; i < array_size(names); i++)
		ck_assert_int_eq(add(names[i]), 0);
	kept_fds_describe(&kept, text, sizeof(text));
	ck_assert_str_eq(text, " a 2, b 2, c 1");
	ck_assert_uint_eq(kept_fds_remove(&kept, "b"), 2);
	ck_assert_uint_eq(kept_fds_remove(&kept, "b"), 0);
	ck_assert_uint_eq(kept_fds_remove(&kept, ""), 0);
	ck_assert_uint_eq(kept.n, 3);
	ck_assert_int_lt(kept_fds_find(&kept, "b"), 0);
	ck_assert(is_file(kept_fds_find(&kept, "a"), "a"));
	ck_assert(is_file(kept_fds_find(&kept, "ab"), "ab"));
	ck_assert(is_file(kept_fds_find(&kept, "c"), "c"));
	kept_fds_describe(&kept, text, 5);
	ck_assert_str_eq(text, " a 2");
}
END_TEST

START_TEST(an_fd_above_the_limit_is_refused)
{
	char name[16];

	for (unsigned i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "%u", i);
		ck_assert_int_eq(add(name), 0);
	}
	ck_assert_int_eq(add("x"), -ENOSPC);
	ck_assert_uint_eq(kept_fds_remove(&kept, "50"), 1);
	ck_assert_int_eq(add("x"), 0);
	ck_assert_uint_eq(kept.n, 100);
}
END_TEST

/* The kernel would not start a program with a longer variable. */
START_TEST(names_stay_within_the_length_of_a_variable)
{
	char name[200]; /* a memfd has at most 249 */
	size_t n = 0;
	int r;

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	kept.max = 10000;
	while ((r = add(name)) == 0)
		n++;
	ck_assert_int_eq(r, -ENOSPC);
	ck_assert_uint_gt((n + 1) * sizeof(name), KEPT_FDS_NAMES_MAX);
	ck_assert_uint_le(n * sizeof(name), KEPT_FDS_NAMES_MAX);
}
END_TEST

/* In the child; not by Check, whose failures would be lost. */
static void pass_on(void)
{
	static const char *const names[] = { "a", "bb", "c", "bb" };
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", getpid());
	if (kept_fds_pass_on(&kept) < 0 || strcmp(getenv("LISTEN_FDS"), "4") != 0 ||
	    strcmp(getenv("LISTEN_PID"), pid) != 0 ||
	    strcmp(getenv("LISTEN_FDNAMES"), "a:bb:c:bb") != 0)
		_exit(1);
	for (int i = 0; i < 4; i++)
		if (!is_file(3 + i, names[i]) || fcntl(3 + i, F_GETFD) != 0)
			_exit(2 + i);
	_exit(0);
}

/* The fds have numbers of the range that they are moved to, in another order; other fds have others
 * of these numbers. */
START_TEST(the_next_daemon_gets_the_kept_fds_in_order)
{
	int fds[4], status = 0;
	pid_t pid;

	for (int i = 0; i < 4; i++)
		fds[i] = file((const char *[]){ "c", "a", "bb", "bb" }[i]);
	ck_assert_int_eq(kept_fds_add(&kept, "a", &fds[1]), 0);
	ck_assert_int_eq(kept_fds_add(&kept, "bb", &fds[3]), 0);
	ck_assert_int_eq(kept_fds_add(&kept, "c", &fds[0]), 0);
	ck_assert_int_eq(kept_fds_add(&kept, "bb", &fds[2]), 0);
	pid = fork();
	if (pid == 0)
		pass_on();
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(status == 0, "0x%x", status);
}
END_TEST

START_TEST(a_daemon_gets_no_fds_where_none_are_kept)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(kept_fds_pass_on(&kept) != 0 || getenv("LISTEN_FDS") != NULL);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* The keeper was started with a listening socket by somebody else. */
static void receive(void)
{
	char pid[16];
	int a = fcntl(file("first"), F_DUPFD, 100), b = fcntl(file("second"), F_DUPFD, 100);

	dup2(a, 3);
	dup2(b, 4);
	snprintf(pid, sizeof(pid), "%d", getpid());
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", "2", 1);
	setenv("LISTEN_FDNAMES", "gpushmd:other", 1);
	if (kept_fds_receive(&kept) < 0 || kept.n != 2)
		_exit(1);
	_exit(!is_file(kept_fds_find(&kept, "gpushmd"), "first") ||
	      !is_file(kept_fds_find(&kept, "other"), "second"));
}

START_TEST(passed_fds_are_kept_by_their_names)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		receive();
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("keeper");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, each_line_of_a_notification_sets_its_own_field);
	tcase_add_test(t, a_word_counts_only_as_a_whole_line);
	tcase_add_test(t, a_malformed_text_is_refused_whole);
	tcase_add_test(t, a_name_that_is_too_long_is_refused);
	tcase_add_test(t, a_notification_carries_its_senders_pid);
	tcase_add_test(t, another_user_can_not_send_to_the_socket);
	tcase_add_test(t, a_read_only_container_gets_an_abstract_socket);
	tcase_add_test(t, received_fds_close_with_their_notification);
	tcase_add_test(t, a_datagram_that_is_too_long_is_marked_as_truncated);
	tcase_add_test(t, only_the_fds_of_that_name_are_forgotten);
	tcase_add_test(t, an_fd_above_the_limit_is_refused);
	tcase_add_test(t, names_stay_within_the_length_of_a_variable);
	tcase_add_test(t, the_next_daemon_gets_the_kept_fds_in_order);
	tcase_add_test(t, a_daemon_gets_no_fds_where_none_are_kept);
	tcase_add_test(t, passed_fds_are_kept_by_their_names);
	return suite_run("keeper", t, NULL);
}
