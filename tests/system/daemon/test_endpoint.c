/* SPDX-License-Identifier: MIT
 *
 * The daemon as a program: its socket and files that are already in the socket's place, socket
 * activation, its end with clients attached, and its exit codes.
 */
#include "client/gpushm_query.h"
#include "proto/base/own.h"
#include "tests/lib/daemon.h"
#include "tests/lib/role.h"
#include "tests/lib/run.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define HOST "[pool host]\nkind=host\nsize=64M\n"

static struct daemon d;
static struct gpushm *c;

static void setup(void)
{
	daemon_start(&d, HOST, NULL);
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
}

static void teardown(void)
{
	c = gpushm_disconnect(c);
	daemon_stop(&d);
}

/* Starts a second gpushmd with this socket, which must end by itself; returns its status and its
 * output. */
static int start_another(const char *socket, char *text, size_t size)
{
	return run_program(build_path("gpushmd"),
			   (const char *[]){ "--config", d.config, "--socket", socket, NULL }, text,
			   size);
}

static void expect_words(const char *text, const char *word)
{
	ck_assert_msg(strstr(text, word), "\"%s\" is not in: %s", word, text);
}

START_TEST(a_closed_standard_stream_is_replaced_by_dev_null)
{
	char path[32], target[32] = "";
	struct daemon other;

	daemon_start_with(&other, HOST, &(struct daemon_options){ .no_stdin = true });
	snprintf(path, sizeof(path), "/proc/%d/fd/0", other.pid);
	ck_assert_int_gt(readlink(path, target, sizeof(target) - 1), 0);
	ck_assert_str_eq(target, "/dev/null");
	daemon_stop(&other);
}
END_TEST

START_TEST(a_second_daemon_is_refused_the_socket)
{
	char text[2048];

	ck_assert_int_eq(start_another(d.socket, text, sizeof(text)), 1);
	expect_words(text, d.socket);
	expect_words(text, "another gpushmd serves it");
	ck_assert_int_eq(gpushm_wait(c, "x", 0), -ENOENT);
}
END_TEST

START_TEST(a_stale_socket_is_replaced)
{
	struct gpushm *again = NULL;

	daemon_crash(&d);
	ck_assert_int_eq(access(d.socket, F_OK), 0);
	ck_assert_int_lt(gpushm_wait(c, "x", 0), 0);
	daemon_restart(&d);
	ck_assert_int_eq(gpushm_connect(d.socket, &again), 0);
	gpushm_disconnect(again);
}
END_TEST

/* As a socket of systemd's: without a lock. */
START_TEST(a_socket_that_somebody_listens_on_is_kept)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	char text[2048];
	struct stat before, after;

	snprintf(a.sun_path, sizeof(a.sun_path), "%.90s/other", d.folder);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	ck_assert_int_eq(listen(fd, 0), 0);
	ck_assert_int_eq(stat(a.sun_path, &before), 0);
	/* The second time its queue is full. */
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(start_another(a.sun_path, text, sizeof(text)), 1);
		expect_words(text, "somebody listens there");
		ck_assert_int_eq(stat(a.sun_path, &after), 0);
		ck_assert_uint_eq(after.st_ino, before.st_ino);
	}
	close(fd);
	unlink(a.sun_path);
	strcat(a.sun_path, ".lock");
	unlink(a.sun_path);
}
END_TEST

START_TEST(a_file_that_is_not_a_socket_is_kept)
{
	char path[128], target[160], text[2048];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/other", d.folder);
	snprintf(target, sizeof(target), "%s.target", path);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_eq(write(fd, "precious", 8), 8);
	close(fd);
	ck_assert_int_eq(start_another(path, text, sizeof(text)), 1);
	expect_words(text, "something else than a socket");
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(st.st_size, 8);
	/* A symbolic link, first to this file and then to no file. */
	ck_assert_int_eq(rename(path, target), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(symlink(target, path), 0);
		ck_assert_int_eq(start_another(path, text, sizeof(text)), 1);
		expect_words(text, "something else than a socket");
		ck_assert_int_eq(lstat(path, &st), 0);
		ck_assert(S_ISLNK(st.st_mode));
		ck_assert_int_eq(stat(target, &st), i == 0 ? 0 : -1);
		unlink(path);
		unlink(target);
	}
	ck_assert_int_eq(start_another("/nonexistent/gpushm/gpushmd.sock", text, sizeof(text)), 1);
	expect_words(text, "give another --socket");
	/* The name of the lock file. */
	snprintf(path, sizeof(path), "%s/other.lock", d.folder);
	unlink(path);
	ck_assert_int_eq(symlink("/dev/null", path), 0);
	*strrchr(path, '.') = '\0';
	ck_assert_int_eq(start_another(path, text, sizeof(text)), 1);
	expect_words(text, "its lock can't be opened");
	strcat(path, ".lock");
	unlink(path);
}
END_TEST

START_TEST(a_too_long_path_is_refused_and_leaves_no_lock)
{
	char path[300], text[2048];
	int n = snprintf(path, sizeof(path), "%s/", d.folder);

	memset(path + n, 'x', sizeof(path) - n);
	path[200] = '\0';
	ck_assert_int_eq(start_another(path, text, sizeof(text)), 1);
	expect_words(text, "longer than 107 bytes");
	strcpy(path + 200, ".lock");
	ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(the_socket_admits_every_user)
{
	struct stat st;

	ck_assert_int_eq(stat(d.socket, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0666);
	ck_assert(S_ISSOCK(st.st_mode));
}
END_TEST

/* The path ends in "/.", so that the daemon makes the folder and its lock, and no socket. */
START_TEST(the_sockets_new_folder_admits_every_user)
{
	char folder[96], path[128], text[2048];
	struct stat st;

	snprintf(folder, sizeof(folder), "%s/new", d.folder);
	snprintf(path, sizeof(path), "%s/.", folder);
	ck_assert_int_eq(start_another(path, text, sizeof(text)), 1);
	ck_assert_int_eq(stat(folder, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0755);
	strcat(path, ".lock");
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

/* ---- the end ---- */

START_TEST(mappings_outlive_the_daemon)
{
	struct gpushm_buffer *b = NULL, *r = NULL;
	char *memory, got[4];

	ck_assert_int_eq(gpushm_create(c, "x", 5000, NULL, &b), 0);
	ck_assert_int_eq(gpushm_write(b, 0, "abc", 4), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &r), 0);
	ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
	ck_assert_int_eq(daemon_wait(&d), 0);
	ck_assert_int_ne(access(d.socket, F_OK), 0);
	memory = gpushm_buffer_host_ptr(b);
	memory[1] = 'X';
	ck_assert_int_eq(gpushm_read(r, 0, got, 4), 0);
	ck_assert_str_eq(got, "aXc");
	ck_assert_int_eq(gpushm_wait(c, "x", 0), -ECONNRESET);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &r), -ECONNRESET);
	ck_assert_str_ne(gpushm_error(), "");
	ck_assert_int_eq(gpushm_close(r), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	daemon_restart(&d);
}
END_TEST

START_TEST(a_waiting_open_fails_when_the_daemon_ends)
{
	struct gpushm *other = NULL;
	struct gpushm_status *st = NULL;
	struct gpushm_buffer *b = NULL;
	uint32_t waiting = 0;
	pid_t child;
	int status;

	child = fork();
	if (child == 0)
		_exit(gpushm_connect(d.socket, &other) == 0 &&
				      gpushm_open(other, "x", GPUSHM_READ, GPUSHM_WAIT_FOREVER,
						  NULL, &b) == -ECONNRESET
			      ? 0
			      : 1);
	while (waiting == 0) {
		ck_assert_int_eq(gpushm_status(c, &st), 0);
		waiting = st->waiting;
		gpushm_free(st);
	}
	ck_assert_int_eq(kill(d.pid, SIGTERM), 0);
	ck_assert_int_eq(daemon_wait(&d), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	daemon_restart(&d);
}
END_TEST

/* ---- the command line ---- */

START_TEST(a_wrong_configuration_or_option_has_exit_code_2)
{
	char text[4096], word[160];

	ck_assert_int_eq(run_program(build_path("gpushmd"),
				     (const char *[]){ "--check-config", "--config", d.config,
						       NULL },
				     text, sizeof(text)),
			 0);
	daemon_write_config(&d, "[pool host]\nkind=hots\n");
	ck_assert_int_eq(run_program(build_path("gpushmd"),
				     (const char *[]){ "--check-config", "--config", d.config,
						       NULL },
				     text, sizeof(text)),
			 2);
	snprintf(word, sizeof(word), "%s:2: ", d.config);
	expect_words(text, word);
	ck_assert_int_eq(start_another("/dev/null/x", text, sizeof(text)), 2);
	expect_words(text, word);
	ck_assert_int_eq(run_program(build_path("gpushmd"),
				     (const char *[]){ "--config", "/nowhere", NULL }, text,
				     sizeof(text)),
			 2);
	expect_words(text, "/nowhere");
	ck_assert_int_eq(run_program(build_path("gpushmd"), (const char *[]){ "--nonsense", NULL },
				     text, sizeof(text)),
			 2);
	ck_assert_int_eq(run_program(build_path("gpushmd"), (const char *[]){ "x", NULL }, text,
				     sizeof(text)),
			 2);
	ck_assert_int_eq(run_program(build_path("gpushmd"), (const char *[]){ "--version", NULL },
				     text, sizeof(text)),
			 0);
}
END_TEST

/* A daemon with them starts, for what is missing may come back. */
START_TEST(a_configuration_that_this_machine_does_not_have_is_refused)
{
	static const char *const wrong[][2] = {
		{ "[daemon]\ndefault-pool=gpu9\n", ":2: default-pool=gpu9: " },
		{ "[daemon]\ndefault-pool=fast\n", ":2: default-pool=fast: " },
		{ "[pool a]\nkind=host\nsize=9000T\n",
		  ":3: [pool a]: size=8.8 PiB is more than the machine has; allowed: " },
		{ "[pool a]\nkind=pinned\nsize=9000T\n", ":3: [pool a]: size=" },
	};
	static const char *const good[] = {
		"[daemon]\ndefault-pool=host\n",
		"[daemon]\ndefault-pool=\n",
		"[pool a]\nkind=host\nsize=80%\n",
		"[daemon]\ndefault-pool=gpu9\n[pool gpu9]\nkind=host\n",
	};
	const char *args[] = { "--check-config", "--config", d.config, NULL };
	char text[4096];

	for (size_t i = 0; i < array_size(wrong); i++) {
		daemon_write_config(&d, wrong[i][0]);
		ck_assert_int_eq(run_program(build_path("gpushmd"), args, text, sizeof(text)), 2);
		expect_words(text, wrong[i][1]);
		expect_words(text, "allowed: ");
	}
	for (size_t i = 0; i < array_size(good); i++) {
		daemon_write_config(&d, good[i]);
		ck_assert_int_eq(run_program(build_path("gpushmd"), args, text, sizeof(text)), 0);
		ck_assert_str_eq(text, "");
	}
}
END_TEST

/* ---- the socket of a user's own daemon ---- */

#define STRANGER 4000018
#define STRANGERS_FOLDER "/tmp/gpushm-4000018"

/* An ordinary user without a session starts "gpushmd &". Its standard error is a pipe, which says
 * when it serves and ends with it. Returns what it is read from. */
static FILE *start_own_daemon(int program, const char *config, pid_t *ret)
{
	int out[2];

	if (pipe2(out, O_CLOEXEC) < 0 || (*ret = fork()) < 0)
		return NULL;
	if (*ret == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], STDERR_FILENO);
		fexecve(program,
			(char *const *)(const char *[]){ "gpushmd", "--no-keeper", "--config",
							 config, NULL },
			environ);
		_exit(127);
	}
	close(out[1]);
	return fdopen(out[0], "r");
}

/* Mounts that end with this process: /run of a machine that has a socket, or a /tmp that nobody can
 * write to. */
static bool change_machine(const char *how)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return false;
	if (strcmp(how, "read-only") == 0)
		return mount("/tmp", "/tmp", NULL, MS_BIND, NULL) == 0 &&
		       mount(NULL, "/tmp", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) == 0;
	return mount("tmpfs", "/run", "tmpfs", 0, "mode=755") == 0 &&
	       mkdir("/run/gpushm", 0755) == 0 &&
	       mknod("/run/gpushm/gpushmd.sock", S_IFREG, 0) == 0;
}

/* gpushmd config session [how]: prints what the daemon says first, whether a client finds it, and
 * what the daemon says next. */
static int own_role(char **args)
{
	int program = open(args[0], O_PATH | O_CLOEXEC);
	struct gpushm *own = NULL;
	char line[512] = "";
	pid_t pid = 0;
	FILE *f;

	if (args[3] && !change_machine(args[3]))
		return 1;
	if (program < 0 || !user_become(STRANGER, STRANGER))
		return 1;
	unsetenv("NOTIFY_SOCKET");
	f = start_own_daemon(program, args[1], &pid);
	if (!f || !fgets(line, sizeof(line), f))
		return 1;
	fputs(line, stdout);
	/* The client has a session by now. */
	setenv("XDG_RUNTIME_DIR", args[2], 1);
	puts(gpushm_connect(NULL, &own) == 0 ? "connected" : gpushm_error());
	gpushm_disconnect(own);
	kill(pid, SIGTERM);
	waitpid(pid, NULL, 0);
	fputs(fgets(line, sizeof(line), f) ? line : "nothing\n", stdout);
	fclose(f);
	return 0;
}

static void expect_own_daemon(const char *how, const char *says, const char *client,
			      const char *next)
{
	struct role_process p;
	char program[PATH_MAX], line[600];

	snprintf(program, sizeof(program), "%s", build_path("gpushmd"));
	role_start(&p, "own", (const char *[]){ program, d.config, d.folder, how, NULL });
	role_read_line(&p, line, sizeof(line));
	expect_words(line, says);
	role_read_line(&p, line, sizeof(line));
	expect_words(line, client);
	role_read_line(&p, line, sizeof(line));
	expect_words(line, next);
	role_finish(&p);
}

START_TEST(a_user_without_a_session_starts_a_daemon_that_his_clients_find)
{
	struct stat st;

	if (!user_may_change() || access("/run/gpushm/gpushmd.sock", F_OK) == 0)
		return;
	ck_assert_int_eq(chown(d.folder, STRANGER, STRANGER), 0);
	unsetenv("GPUSHM_SOCKET");
	/* As su(1) leaves it. */
	setenv("XDG_RUNTIME_DIR", "/root", 1);
	expect_own_daemon(NULL, "serves 1 pool at " STRANGERS_FOLDER "/gpushmd.sock", "connected",
			  "stopping");
	ck_assert_int_eq(stat(STRANGERS_FOLDER, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0700);
	/* Another user was there before. */
	ck_assert_int_eq(chown(STRANGERS_FOLDER, 0, 0), 0);
	ck_assert_int_eq(chmod(STRANGERS_FOLDER, 0777), 0);
	expect_own_daemon(NULL, "its folder must be your own, with mode 0700", "no daemon there",
			  "can't start");
	ck_assert_int_eq(access(STRANGERS_FOLDER "/gpushmd.sock", F_OK), -1);
	unlink(STRANGERS_FOLDER "/gpushmd.sock.lock");
	ck_assert_int_eq(rmdir(STRANGERS_FOLDER), 0);
}
END_TEST

START_TEST(a_user_hears_that_programs_look_for_the_daemon_of_the_machine_first)
{
	if (!user_may_change())
		return;
	ck_assert_int_eq(chown(d.folder, STRANGER, STRANGER), 0);
	unsetenv("GPUSHM_SOCKET");
	unsetenv("XDG_RUNTIME_DIR");
	expect_own_daemon("machine", "serves 1 pool at " STRANGERS_FOLDER "/gpushmd.sock",
			  "can't connect to /run/gpushm/gpushmd.sock",
			  "export GPUSHM_SOCKET=" STRANGERS_FOLDER "/gpushmd.sock");
	unlink(STRANGERS_FOLDER "/gpushmd.sock.lock");
	ck_assert_int_eq(rmdir(STRANGERS_FOLDER), 0);
}
END_TEST

START_TEST(a_folder_that_cannot_be_made_is_said_to_be_that)
{
	if (!user_may_change() || access("/run/gpushm/gpushmd.sock", F_OK) == 0)
		return;
	ck_assert_int_eq(chown(d.folder, STRANGER, STRANGER), 0);
	unsetenv("GPUSHM_SOCKET");
	unsetenv("XDG_RUNTIME_DIR");
	expect_own_daemon("read-only", "its folder can't be made", "no daemon there",
			  "can't start");
}
END_TEST

/* ---- socket activation ---- */

/* gpushmd config socket name type: becomes a daemon that gets a socket, as from systemd. */
static int activated_role(char **args)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int type = strcmp(args[4], "seqpacket") == 0 ? SOCK_SEQPACKET : SOCK_STREAM;
	int fd = socket(AF_UNIX, type, 0);
	char pid[16];

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", args[2]);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 10) < 0)
		return 1;
	/* Standard output passes to the daemon: the test sees when it ends. */
	if (fd != 3 && (dup2(fd, 3) < 0 || close(fd) < 0))
		return 1;
	snprintf(pid, sizeof(pid), "%d", getpid());
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", "1", 1);
	setenv("LISTEN_FDNAMES", args[3], 1);
	puts("ok");
	dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
	execl(args[0], "gpushmd", "--config", args[1], (char *)NULL);
	return 1;
}

static void start_activated(struct role_process *p, const char *socket, const char *name,
			    const char *type)
{
	char line[16], program[PATH_MAX];

	snprintf(program, sizeof(program), "%s", build_path("gpushmd"));
	role_start(p, "activated", (const char *[]){ program, d.config, socket, name, type, NULL });
	role_read_line(p, line, sizeof(line));
	ck_assert_str_eq(line, "ok");
}

START_TEST(a_socket_from_systemd_is_served_and_kept)
{
	struct role_process p;
	struct gpushm *other = NULL;
	char path[128];

	snprintf(path, sizeof(path), "%s/activated", d.folder);
	start_activated(&p, path, "gpushmd", "seqpacket");
	/* The socket listens already: a client that connects before the daemon is ready waits. */
	ck_assert_msg(gpushm_connect(path, &other) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_wait(other, "x", 0), -ENOENT);
	gpushm_disconnect(other);
	ck_assert_int_eq(kill(p.pid, SIGTERM), 0);
	role_finish(&p);
	/* The socket belongs to systemd: the daemon does not remove it. */
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_TEST(a_wrong_socket_from_systemd_is_refused)
{
	static const char *const wrong[][2] = { { "another", "seqpacket" },
						{ "gpushmd", "stream" } };
	struct role_process p;
	char path[128];
	int status;

	snprintf(path, sizeof(path), "%s/activated", d.folder);
	for (size_t i = 0; i < array_size(wrong); i++) {
		start_activated(&p, path, wrong[i][0], wrong[i][1]);
		status = role_wait(&p);
		ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
		ck_assert_int_eq(unlink(path), 0);
	}
}
END_TEST

/* With --debug the log has each request and its result; otherwise it has none. */
START_TEST(only_the_debug_log_has_requests)
{
	static const char *const lines[] = { "connection of ", "hello: done", "open: waits",
					     "stat: no buffer \"nope\"", "buffer freed" };
	struct gpushm_buffer *b = NULL;
	struct gpushm_stat *st = NULL;

	teardown();
	daemon_start(&d, HOST, "--debug");
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_open(c, "later", GPUSHM_READ, 1, NULL, &b), -ETIMEDOUT);
	ck_assert_msg(gpushm_create(c, "a", 1, NULL, &b) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_discard(b), 0);
	ck_assert_int_eq(gpushm_stat(c, "nope", 0, 0, &st), -ENOENT);
	for (size_t i = 0; i < array_size(lines); i++)
		ck_assert_msg(daemon_log_count(&d, lines[i]) > 0, "no line \"%s\"", lines[i]);
	teardown();
	setup();
	ck_assert_uint_eq(daemon_log_count(&d, "hello: done"), 0);
}
END_TEST

static const struct role roles[] = { { "activated", activated_role }, { "own", own_role } };

int main(int argc, char **argv)
{
	TCase *t = tcase_create("endpoint");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_closed_standard_stream_is_replaced_by_dev_null);
	tcase_add_test(t, a_second_daemon_is_refused_the_socket);
	tcase_add_test(t, a_stale_socket_is_replaced);
	tcase_add_test(t, a_socket_that_somebody_listens_on_is_kept);
	tcase_add_test(t, a_file_that_is_not_a_socket_is_kept);
	tcase_add_test(t, a_too_long_path_is_refused_and_leaves_no_lock);
	tcase_add_test(t, the_socket_admits_every_user);
	tcase_add_test(t, the_sockets_new_folder_admits_every_user);
	tcase_add_test(t, mappings_outlive_the_daemon);
	tcase_add_test(t, a_waiting_open_fails_when_the_daemon_ends);
	tcase_add_test(t, a_wrong_configuration_or_option_has_exit_code_2);
	tcase_add_test(t, only_the_debug_log_has_requests);
	tcase_add_test(t, a_configuration_that_this_machine_does_not_have_is_refused);
	tcase_add_test(t, a_user_without_a_session_starts_a_daemon_that_his_clients_find);
	tcase_add_test(t, a_user_hears_that_programs_look_for_the_daemon_of_the_machine_first);
	tcase_add_test(t, a_folder_that_cannot_be_made_is_said_to_be_that);
	tcase_add_test(t, a_socket_from_systemd_is_served_and_kept);
	tcase_add_test(t, a_wrong_socket_from_systemd_is_refused);
	return suite_run("endpoint", t, NULL);
}
