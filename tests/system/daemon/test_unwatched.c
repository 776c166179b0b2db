/* SPDX-License-Identifier: MIT
 *
 * Clients whose end is hard to see: in a PID namespace that is not the daemon's, and on a kernel
 * without SO_PEERPIDFD. A filter of system calls plays such a kernel.
 */
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/fds.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define TRUST "[daemon]\nunwatched-clients=trust\n"
#define REFUSE "[daemon]\nunwatched-clients=refuse\n"

/* ---- roles ---- */

/* socket name access: opens, prints ok, after a line closes the socket without the library and
 * prints so, and lives until its input ends. */
static int holder_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	char line[8];

	if (gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_open(conn, args[1], args[2][0] == 'w' ? GPUSHM_WRITE : GPUSHM_READ, 0, NULL,
			&b) < 0)
		return 1;
	puts("ok");
	if (!fgets(line, sizeof(line), stdin))
		return 2;
	shutdown(gpushm_fd(conn), SHUT_RDWR);
	puts("ok");
	_exit(fgets(line, sizeof(line), stdin) ? 3 : 0);
}

static const struct role roles[] = { { "holder", holder_role } };

static void hear_ok(struct role_process *p)
{
	char line[8];

	role_read_line(p, line, sizeof(line));
	ck_assert_str_eq(line, "ok");
}

static void hold(struct role_process *p, const char *access)
{
	role_start(p, "holder", (const char *[]){ d.socket, "x", access, NULL });
	hear_ok(p);
}

static void hang_up(struct role_process *p)
{
	role_write_line(p, "go");
	hear_ok(p);
}

/* ---- the daemon ---- */

static void start(const char *config, bool isolated, bool no_peer_pidfd)
{
	struct daemon_options o = { .isolated = isolated, .no_peer_pidfd = no_peer_pidfd };

	daemon_start_with(&d, config, &o);
}

static void join(void)
{
	struct gpushm_buffer *b;

	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
	b = client_create("x", 100, NULL);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
}

static struct gpushm_stat look(void)
{
	struct gpushm_stat *st = NULL, copy;

	ck_assert_msg(gpushm_stat(c, "x", 0, 0, &st) == 0, "%s", gpushm_error());
	copy = *st;
	gpushm_free(st);
	return copy;
}

static void leave(void)
{
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	client_teardown();
}

static bool kernel_tells_peer_pidfds(void)
{
	socklen_t len = sizeof(int);
	int pair[2], fd = -1, r;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	r = getsockopt(pair[0], SOL_SOCKET, DAEMON_SO_PEERPIDFD, &fd, &len);
	close_fd(&fd);
	close(pair[0]);
	close(pair[1]);
	if (r < 0)
		puts("skipped: this kernel tells no peer's pidfd");
	return r == 0;
}

/* ---- tests ---- */

/* A closed socket does not end the lease; the end of the process does. */
static void expect_watched(void)
{
	struct role_process holder;

	hold(&holder, "write");
	hang_up(&holder);
	client_await(look().suspects == 1);
	ck_assert_uint_eq(look().writers, 1);
	role_finish(&holder);
	client_await(look().writers == 0);
	ck_assert_int_eq(look().dirty, 1);
}

START_TEST(processes_are_watched_on_an_old_kernel)
{
	start("", false, true);
	join();
	expect_watched();
	leave();
}
END_TEST

START_TEST(a_process_of_another_namespace_is_watched)
{
	if (!daemon_may_be_isolated() || !kernel_tells_peer_pidfds())
		return;
	start("", true, false);
	join();
	expect_watched();
	ck_assert_int_eq(look().dirty_pid, 0);
	leave();
}
END_TEST

START_TEST(a_process_that_cant_be_watched_is_refused)
{
	if (!daemon_may_be_isolated())
		return;
	start("", true, true);
	ck_assert_int_eq(gpushm_connect(d.socket, &c), -EPERM);
	ck_assert_str_eq(gpushm_error_code(), "UNIDENTIFIED");
	ck_assert_msg(strstr(gpushm_error(), "unwatched-clients"), "%s", gpushm_error());
	daemon_stop(&d);
}
END_TEST

START_TEST(a_trusted_process_loses_its_leases_with_its_socket)
{
	struct role_process reader, writer;

	if (!daemon_may_be_isolated())
		return;
	start(TRUST, true, true);
	join();
	hold(&reader, "read");
	hold(&writer, "write");
	ck_assert_uint_eq(look().readers, 1);
	hang_up(&reader);
	client_await(look().readers == 0);
	ck_assert_int_eq(look().dirty, 0);
	ck_assert_int_eq(kill(writer.pid, SIGKILL), 0);
	ck_assert(WIFSIGNALED(role_wait(&writer)));
	client_await(look().writers == 0);
	ck_assert_int_eq(look().dirty, 1);
	role_finish(&reader);
	/* One log line for all connections of a user. */
	ck_assert_uint_eq(daemon_log_count(&d, "can't be watched and is trusted"), 1);
	leave();
}
END_TEST

START_TEST(a_reload_changes_the_policy)
{
	struct gpushm *late = NULL;

	if (!daemon_may_be_isolated())
		return;
	start(REFUSE, true, true);
	ck_assert_int_eq(gpushm_connect(d.socket, &c), -EPERM);
	daemon_write_config(&d, TRUST);
	daemon_reload(&d, "configuration reloaded");
	join();
	daemon_write_config(&d, REFUSE);
	daemon_reload(&d, "configuration reloaded");
	ck_assert_int_eq(gpushm_connect(d.socket, &late), -EPERM);
	leave();
}
END_TEST

int main(int argc, char **argv)
{
	TCase *t = tcase_create("unwatched");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, fds_mark, fds_check);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, processes_are_watched_on_an_old_kernel);
	tcase_add_test(t, a_process_of_another_namespace_is_watched);
	tcase_add_test(t, a_process_that_cant_be_watched_is_refused);
	tcase_add_test(t, a_trusted_process_loses_its_leases_with_its_socket);
	tcase_add_test(t, a_reload_changes_the_policy);
	return suite_run("unwatched", t, NULL);
}
