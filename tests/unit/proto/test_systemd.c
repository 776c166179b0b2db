/* SPDX-License-Identifier: MIT
 *
 * The protocols of systemd: what reaches its sockets, what happens while it does not read them, and
 * which variables make a service believe that fds were passed to it. Linked with libsystemd it is
 * test_systemd, and without it test_nosystemd: one table for both.
 */
#include "proto/base/own.h"
#include "proto/systemd/systemd_internal.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static const char *const variables[] = { "NOTIFY_SOCKET",  "LISTEN_PID",   "LISTEN_FDS",
					 "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC" };

static void setup(void)
{
	systemd_wait_ms = 50;
	setenv("NOTIFY_SOCKET", "@nobody is there", 1);
	systemd_notify("the socket stays open");
	for (size_t i = 0; i < array_size(variables); i++)
		unsetenv(variables[i]);
	fds_mark();
}

/* ---- notifications ---- */

/* Binds a socket to `name`, which starts with '@' if it is abstract, and makes it $NOTIFY_SOCKET.
 */
static int listen_as_supervisor(const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	size_t len = offsetof(struct sockaddr_un, sun_path) + strlen(name);

	strcpy(a.sun_path, name);
	if (name[0] == '@')
		a.sun_path[0] = '\0';
	unlink(name);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, (socklen_t)len), 0);
	setenv("NOTIFY_SOCKET", name, 1);
	return fd;
}

/* Receives one datagram; *ret_fd is its fd, or -1. */
static void receive(int supervisor, char *text, size_t size, int *ret_fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { text, size - 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(supervisor, &m, MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	*ret_fd = -1;
	if (c)
		memcpy(ret_fd, CMSG_DATA(c), sizeof(*ret_fd));
}

static void notify_and_receive(const char *name)
{
	_cleanup_(close_fd) int supervisor = listen_as_supervisor(name), fd = -1, received = -1;
	struct stat sent, got;
	char text[4096];

	ck_assert_int_eq(systemd_notify("READY=1\nSTATUS=%d pools", 2), 0);
	receive(supervisor, text, sizeof(text), &received);
	ck_assert_str_eq(text, "READY=1\nSTATUS=2 pools");
	ck_assert_int_eq(received, -1);

	fd = memfd_create("kept", MFD_CLOEXEC);
	ck_assert_int_eq(systemd_notify_fd(fd, "FDSTORE=1\nFDNAME=%s", "m1"), 0);
	receive(supervisor, text, sizeof(text), &received);
	ck_assert_str_eq(text, "FDSTORE=1\nFDNAME=m1");
	ck_assert_int_eq(fstat(fd, &sent), 0);
	ck_assert_int_eq(fstat(received, &got), 0);
	ck_assert(sent.st_ino == got.st_ino);
}

START_TEST(a_notification_reaches_a_path_or_an_abstract_socket)
{
	char name[64];

	snprintf(name, sizeof(name), "@gpushm test_systemd %d", getpid());
	notify_and_receive(name);
	snprintf(name, sizeof(name), "/tmp/gpushm-test_systemd-%d", getpid());
	notify_and_receive(name);
	unlink(name);
}
END_TEST

START_TEST(a_notification_without_a_receiver_is_an_error)
{
	static const char *const not_unix[] = { "", "@", "relative", "vsock:2" };
	char name[200];

	ck_assert_int_eq(systemd_notify("READY=1"), 0);
	setenv("NOTIFY_SOCKET", "@gpushm nobody is there", 1);
	ck_assert_int_eq(systemd_notify("READY=1"), -ECONNREFUSED);
	setenv("NOTIFY_SOCKET", "/nonexistent/socket", 1);
	ck_assert_int_eq(systemd_notify("READY=1"), -ENOENT);
	for (size_t i = 0; i < array_size(not_unix); i++) {
		setenv("NOTIFY_SOCKET", not_unix[i], 1);
		ck_assert_int_lt(systemd_notify("READY=1"), 0);
	}
	memset(name, 'x', sizeof(name));
	name[0] = '/';
	name[sizeof(name) - 1] = '\0';
	setenv("NOTIFY_SOCKET", name, 1);
	ck_assert_int_eq(systemd_notify("READY=1"), -ENAMETOOLONG);
}
END_TEST

START_TEST(a_long_notification_is_cut_and_still_sent)
{
	char name[64], filler[3000], text[4096];
	_cleanup_(close_fd) int supervisor = -1, received = -1;

	snprintf(name, sizeof(name), "@gpushm test_systemd %d", getpid());
	supervisor = listen_as_supervisor(name);
	memset(filler, 'x', sizeof(filler));
	filler[sizeof(filler) - 1] = '\0';
	ck_assert_int_eq(systemd_notify("READY=1\nSTATUS=%s", filler), 0);
	receive(supervisor, text, sizeof(text), &received);
	ck_assert_uint_eq(strlen(text), SYSTEMD_NOTIFY_MAX - 1);
	ck_assert_int_eq(strncmp(text, "READY=1\n", 8), 0);
}
END_TEST

/* ---- a receiver that does not read ---- */

/* Sends until the queue is full, and returns how many were sent. */
static unsigned fill(void)
{
	unsigned n = 0;
	int r;

	while ((r = systemd_notify("WATCHDOG=1")) == 0)
		n++;
	ck_assert_int_eq(r, -ETIMEDOUT);
	return n;
}

START_TEST(a_full_queue_is_an_error_until_it_has_room)
{
	_cleanup_(close_fd) int supervisor = -1, fd = -1, received = -1;
	char name[64], text[64];
	unsigned n;

	snprintf(name, sizeof(name), "@gpushm test_systemd %d", getpid());
	supervisor = listen_as_supervisor(name);
	n = fill();
	ck_assert_uint_gt(n, 0);
	fd = memfd_create("kept", MFD_CLOEXEC);
	ck_assert_int_eq(systemd_notify_fd(fd, "FDSTORE=1"), -ETIMEDOUT);
	for (unsigned i = 0; i < n; i++)
		receive(supervisor, text, sizeof(text), &received);
	ck_assert_int_eq(systemd_notify_fd(fd, "FDSTORE=1"), 0);
	receive(supervisor, text, sizeof(text), &received);
	ck_assert_str_eq(text, "FDSTORE=1");
	ck_assert_int_ge(received, 0);
}
END_TEST

/* The queue that was full is another socket's. */
START_TEST(a_receiver_that_has_come_back_is_found)
{
	_cleanup_(close_fd) int supervisor = -1, received = -1;
	char name[64], text[64];

	snprintf(name, sizeof(name), "/tmp/gpushm-test_systemd-%d", getpid());
	supervisor = listen_as_supervisor(name);
	fill();
	close_fd(&supervisor);
	ck_assert_int_eq(systemd_notify("READY=1"), -ECONNREFUSED);
	supervisor = listen_as_supervisor(name);
	ck_assert_int_eq(systemd_notify("READY=1"), 0);
	receive(supervisor, text, sizeof(text), &received);
	ck_assert_str_eq(text, "READY=1");
	unlink(name);
}
END_TEST

/* ---- no descriptor is left ---- */

/* Opens all that may be opened, and returns how many they are. */
static unsigned use_up(int fds[], unsigned max)
{
	unsigned n = 0;

	while (n < max && (fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		n++;
	ck_assert_uint_lt(n, max);
	return n;
}

START_TEST(a_notification_needs_no_other_descriptor)
{
	_cleanup_(close_fd) int supervisor = -1;
	struct rlimit limit;
	char name[64], text[64];
	int fds[256], received;
	unsigned n;

	snprintf(name, sizeof(name), "@gpushm test_systemd %d", getpid());
	supervisor = listen_as_supervisor(name);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){ array_size(fds) - 1, limit.rlim_max });
	n = use_up(fds, array_size(fds));
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(systemd_notify_fd(fds[0], "FDSTORE=1"), 0);
		ck_assert_int_eq(systemd_notify("FDSTOREREMOVE=1"), 0);
	}
	ck_assert_int_lt(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
	while (n > 0)
		close(fds[--n]);
	for (unsigned i = 0; i < 3; i++) {
		receive(supervisor, text, sizeof(text), &received);
		ck_assert_str_eq(text, "FDSTORE=1");
		ck_assert_int_ge(received, 0);
		close(received);
		receive(supervisor, text, sizeof(text), &received);
		ck_assert_str_eq(text, "FDSTOREREMOVE=1");
	}
	setrlimit(RLIMIT_NOFILE, &limit);
	close_fd(&supervisor);
	/* The socket that is asked may be another one now. */
	ck_assert_int_le(fds_leaked(), 1);
	fds_mark();
}
END_TEST

/* ---- what is passed at the start ---- */

struct passing {
	const char *pid, *fds, *names; /* "" for our own pid; or NULL: not set */
	int expected;
};

static const struct passing passings[] = {
	{ NULL, "1", "a", 0 },
	{ "1", "1", "a", 0 },
	{ "", NULL, "a", 0 },
	{ "", "0", NULL, -EINVAL },
	{ "", "-1", NULL, -EINVAL },
	{ "", "1x", NULL, -EINVAL },
	{ "", "", NULL, -EINVAL },
	{ "", "99999999999999999999", NULL, -EINVAL },
	{ "", "2147483647", NULL, -EINVAL },
	{ "one", "1", NULL, -EINVAL },
	{ "", "1", NULL, 1 },
	{ "", "2", NULL, 2 },
	{ "", "1", "a", 1 },
	{ "", "2", "a:b", 2 },
	{ "", "2", "b:b", 2 },
	{ "", "2", ":b", 2 },
	{ "", "2", "a:", 2 },
	{ "", "2", "a", -EINVAL },
	{ "", "2", "a:b:c", -EINVAL },
	{ "", "1", "a:", -EINVAL },
	{ "", "1", "", 1 },
	{ "", "900", NULL, -EBADF },
};

static void pass(const struct passing *p)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", getpid());
	if (p->pid)
		setenv("LISTEN_PID", p->pid[0] ? p->pid : pid, 1);
	if (p->fds)
		setenv("LISTEN_FDS", p->fds, 1);
	if (p->names)
		setenv("LISTEN_FDNAMES", p->names, 1);
}

/* In a child, whose fds from 3 on are its own. 0 if all is as expected. */
static int receive_passed(const struct passing *p)
{
	char text[16] = "", *rest = text, **names = NULL;
	int n;

	for (int fd = SYSTEMD_FIRST_FD; fd < SYSTEMD_FIRST_FD + 2; fd++)
		if (dup2(STDERR_FILENO, fd) < 0)
			return 1;
	close_range(SYSTEMD_FIRST_FD + 2, ~0u, 0);
	pass(p);
	n = systemd_receive_fds(&names);
	strcpy(text, p->names ? p->names : "unknown:unknown");
	if (n != p->expected || (n > 0) != (names != NULL) || getenv("LISTEN_PID") ||
	    getenv("LISTEN_FDS") || getenv("LISTEN_FDNAMES")) {
		fprintf(stderr, "returned %d\n", n);
		return 2;
	}
	for (int i = 0; i < n; i++) {
		if (!(fcntl(SYSTEMD_FIRST_FD + i, F_GETFD) & FD_CLOEXEC))
			return 3;
		if (strcmp(names[i], strsep(&rest, ":")) != 0)
			return 4;
		free(names[i]);
	}
	if (n > 0 && names[n])
		return 5;
	free(names);
	return 0;
}

START_TEST(only_fds_passed_to_this_process_are_taken)
{
	int status = 0;
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child == 0)
		_exit(receive_passed(&passings[_i]));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(only_a_watchdog_of_this_process_is_answered)
{
	uint64_t usec = 0;

	ck_assert(!systemd_has_watchdog(&usec));
	setenv("WATCHDOG_USEC", "30000000", 1);
	ck_assert(systemd_has_watchdog(&usec));
	ck_assert_uint_eq(usec, 30000000);
	setenv("WATCHDOG_PID", "1", 1);
	ck_assert(!systemd_has_watchdog(&usec));
	unsetenv("WATCHDOG_PID");
	setenv("WATCHDOG_USEC", "0", 1);
	ck_assert(!systemd_has_watchdog(&usec));
	setenv("WATCHDOG_USEC", "soon", 1);
	ck_assert(!systemd_has_watchdog(&usec));
}
END_TEST

/* ---- the journal ---- */

/* Listens where journald would, in a mount namespace of its own with an empty /run. Returns the
 * socket, or -1 if this process has no right to do so. */
static int listen_as_journald(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = JOURNAL_SOCKET };
	int fd;

	if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) < 0 ||
	    mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", "/run", "tmpfs", 0, NULL) < 0)
		return -1;
	if (mkdir("/run/systemd", 0755) < 0 || mkdir("/run/systemd/journal", 0755) < 0)
		return -1;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ? -1 : fd;
}

static int write_line(void)
{
	static char message[] = "MESSAGE=a=b", priority[] = "PRIORITY=4",
		    identifier[] = "SYSLOG_IDENTIFIER=gpushmd";
	const struct iovec fields[] = { { message, strlen(message) },
					{ priority, strlen(priority) },
					{ identifier, strlen(identifier) } };

	return systemd_journal_write(fields, array_size(fields));
}

/* In a child. 0 as expected, 77 skipped. */
static int log_to_journald(void)
{
	static const char wanted[] = "MESSAGE=a=b\nPRIORITY=4\nSYSLOG_IDENTIFIER=gpushmd\n";
	int journald = listen_as_journald(), r;
	char text[256];
	unsigned n = 0;

	if (journald < 0)
		return 77;
	if (systemd_journal_open() < 0)
		return 1;
	while ((r = write_line()) == 0)
		n++;
	if (n == 0 || r != -ETIMEDOUT || write_line() != -ETIMEDOUT)
		return 2;
	while ((r = (int)read(journald, text, sizeof(text))) >= 0) {
		n -= r > 0;
		/* journald skips empty ones. */
		if (r > 0 &&
		    (r != (int)strlen(wanted) || memcmp(text, wanted, strlen(wanted)) != 0))
			return 3;
	}
	if (n > 0 || write_line() != 0)
		return 4;
	unlink(JOURNAL_SOCKET);
	return write_line() == -ENOENT ? 0 : 5;
}

START_TEST(a_line_reaches_a_journald_that_reads)
{
	int status = 0;
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child == 0)
		_exit(log_to_journald());
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		printf("skipped: the journal's socket needs a mount namespace of its own\n");
	else
		ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("systemd");

	tcase_add_checked_fixture(t, setup, fds_check);
	tcase_add_test(t, a_notification_reaches_a_path_or_an_abstract_socket);
	tcase_add_test(t, a_notification_without_a_receiver_is_an_error);
	tcase_add_test(t, a_long_notification_is_cut_and_still_sent);
	tcase_add_test(t, a_full_queue_is_an_error_until_it_has_room);
	tcase_add_test(t, a_receiver_that_has_come_back_is_found);
	tcase_add_test(t, a_notification_needs_no_other_descriptor);
	tcase_add_loop_test(t, only_fds_passed_to_this_process_are_taken, 0, array_size(passings));
	tcase_add_test(t, only_a_watchdog_of_this_process_is_answered);
	tcase_add_test(t, a_line_reaches_a_journald_that_reads);
	return suite_run(strncmp(systemd_library, "with ", 5) == 0 ? "systemd" : "nosystemd", t,
			 NULL);
}
