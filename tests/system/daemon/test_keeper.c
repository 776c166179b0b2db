/* SPDX-License-Identifier: MIT
 *
 * The keeper as users have it: gpushmd started by hand, or as process 1 of a container. It decides
 * itself when it starts the next daemon. The tests of other subjects that kill daemons run over it,
 * too, with SUPERVISOR=keeper.
 */
#include "client/gpushm.h"
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/fake.h"
#include "tests/lib/fds.h"
#include "tests/lib/keeper.h"
#include "tests/lib/run.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#define HOST "[pool host]\nkind=host\nsize=64M\n"
#define RSS_MAX_KIB 1024u

static struct supervisor k;

static void begin(void)
{
	supervisor_start(&k);
	ck_assert_msg(gpushm_connect(k.socket, &c) == 0, "%s", gpushm_error());
}

static void setup(void)
{
	fds_mark();
	supervisor_init(&k, HOST);
	k.never_held = true;
}

static void teardown(void)
{
	c = gpushm_disconnect(c);
	supervisor_done(&k);
	fds_check();
}

/* Whether it survives the daemon. */
static bool publish(const char *name)
{
	struct gpushm_buffer *b = client_create(name, 1, NULL);
	bool kept;

	ck_assert_int_eq(gpushm_write(b, 0, name, 1), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	kept = gpushm_buffer_kept(b) == 1;
	ck_assert_int_eq(gpushm_close(b), 0);
	return kept;
}

static void expect_there(const char *name)
{
	struct gpushm_buffer *b = NULL;
	char byte = 0;

	ck_assert_msg(gpushm_open(c, name, GPUSHM_READ, 0, NULL, &b) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_read(b, 0, &byte, 1), 0);
	ck_assert_int_eq(byte, name[0]);
	ck_assert_int_eq(gpushm_close(b), 0);
}

static void write_config(const char *text)
{
	FILE *f = fopen(k.config, "we");

	ck_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* Waits for the end of a process that is no child of this one. */
static void await_end(int pidfd)
{
	struct pollfd end = { pidfd, POLLIN, 0 };

	ck_assert_int_eq(poll(&end, 1, 60000), 1);
}

static int open_pid(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* ---- deaths ---- */

START_TEST(a_killed_daemon_is_started_again_and_loses_nothing)
{
	begin();
	publish("x");
	for (int i = 0; i < 3; i++) {
		supervisor_await(&k);
		ck_assert_int_eq(client_status().pid, k.pid);
		ck_assert(client_status().kept);
		ck_assert_int_ne(k.pid, k.keeper);
		supervisor_end(&k, i == 1 ? SIGTERM : SIGKILL);
		expect_there("x");
		supervisor_spawn(&k);
	}
	ck_assert_int_eq(gpushm_restart(c), 0);
	ck_assert_int_eq(client_status().pid, k.pid);
	expect_there("x");
	ck_assert_uint_eq(supervisor_log_count(&k, "killed by signal 9"), 2);
	ck_assert_uint_eq(supervisor_log_count(&k, "ended with status 0"), 1);
	ck_assert_uint_eq(supervisor_log_count(&k, "started again in 250 ms"), 3);
}
END_TEST

/* Clients would give up: they wait for 10 seconds. */
START_TEST(repeated_kills_keep_the_restart_delay_short)
{
	begin();
	for (int i = 0; i < 4; i++) {
		supervisor_end(&k, SIGKILL);
		/* Not until it is ready. */
		supervisor_spawn(&k);
	}
	ck_assert_uint_eq(supervisor_log_count(&k, "started again in 250 ms"), 4);
}
END_TEST

static void connect_raw(int *ret)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	*ret = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", k.socket);
	ck_assert_int_eq(connect(*ret, (struct sockaddr *)&a, sizeof(a)), 0);
}

START_TEST(a_client_is_queued_while_no_daemon_runs)
{
	_cleanup_(close_fd) int first = -1, second = -1;

	k.never_held = false;
	begin();
	for (int i = 0; i < 2; i++) {
		supervisor_end(&k, i == 0 ? SIGKILL : SIGTERM);
		connect_raw(i == 0 ? &first : &second);
		supervisor_start(&k);
		/* The queue is served in its order. */
		ck_assert_int_eq(gpushm_wait(c, "nope", 0), -ENOENT);
	}
}
END_TEST

static void limit_fds(rlim_t n)
{
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ n, n }), 0);
}

static const struct {
	rlim_t fds;
	int buffers;
} limits[] = { { 192, 64 }, { 64, 4 } };

/* Root makes buffers until the daemon has no descriptor left. */
START_TEST(the_keeper_keeps_all_buffers_that_the_daemon_takes)
{
	struct gpushm_buffer *b = NULL;
	char name[16];
	int n;

	limit_fds(limits[_i].fds);
	begin();
	for (n = 0;; n++) {
		snprintf(name, sizeof(name), "%d", n);
		if (gpushm_create(c, name, 1, NULL, &b) < 0)
			break;
		ck_assert_int_eq(gpushm_write(b, 0, name, 1), 0);
		ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
		ck_assert_int_eq(gpushm_close(b), 0);
	}
	ck_assert_int_ge(n, limits[_i].buffers);
	for (int i = 0; i < 3; i++) {
		supervisor_end(&k, SIGKILL);
		supervisor_spawn(&k);
		supervisor_await(&k);
		ck_assert_uint_eq(client_status().buffers, n);
	}
	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%d", i);
		expect_there(name);
	}
	ck_assert_uint_eq(supervisor_log_count(&k, "can't be kept"), 0);
}
END_TEST

/* When "a" ends, the daemon has no descriptor left. The memory of "b" gets the name that the keeper
 * had for that of "a". */
START_TEST(a_buffer_comes_back_with_its_own_contents)
{
	const struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "gpu" };
	struct gpushm_array_spec x = { .struct_size = sizeof(x), .name = "x", .ndim = 0 };
	struct gpushm_buffer *tables[4], *b[192];
	char name[16];
	int n = 0;

	if (!fake_is_here())
		return;
	limit_fds(192);
	write_config("[daemon]\ndefault-pool=host\n" HOST "[pool gpu]\nkind=vmm\n");
	begin();
	publish("a");
	ck_assert_int_eq(gpushm_dtype_parse("uint8", &x.dtype), 0);
	for (size_t i = 0; i < array_size(tables); i++) {
		snprintf(name, sizeof(name), "t%zu", i);
		ck_assert_int_eq(gpushm_create_arrays(c, name, &x, 1, &o, &tables[i]), 0);
	}
	do
		snprintf(name, sizeof(name), "%d", n);
	while (gpushm_create(c, name, 1, &o, &b[n]) == 0 && ++n < (int)array_size(b));
	ck_assert_int_lt(n, array_size(b));
	/* Each takes one descriptor more, for its table, until none is left. */
	for (size_t i = 0; i < array_size(tables); i++)
		if (gpushm_publish(tables[i], GPUSHM_SEALED) < 0)
			break;
	ck_assert_int_eq(gpushm_unlink(c, "a"), 0);
	while (n > 0)
		ck_assert_int_eq(gpushm_discard(b[--n]), 0);
	for (size_t i = 0; i < array_size(tables); i++)
		ck_assert_int_ge(gpushm_close(tables[i]), 0);
	ck_assert_int_eq(gpushm_flush(c, NULL), 0);
	publish("b");
	ck_assert_uint_eq(supervisor_log_count(&k, "would not survive a restart"), 0);
	supervisor_end(&k, SIGKILL);
	supervisor_spawn(&k);
	supervisor_await(&k);
	expect_there("b");
}
END_TEST

START_TEST(a_stopped_daemon_is_replaced_by_the_watchdog)
{
	setenv("WATCHDOG_USEC", "4000000", 1);
	begin();
	unsetenv("WATCHDOG_USEC");
	publish("x");
	ck_assert_int_eq(kill(k.pid, SIGSTOP), 0);
	k.deaths++;
	keeper_await_start(&k);
	expect_there("x");
	ck_assert_uint_eq(supervisor_log_count(&k, "has not reported within"), 1);
}
END_TEST

/* As Ctrl-Z stops both, or a container that is paused. */
START_TEST(a_daemon_frozen_with_its_keeper_is_left_alone)
{
	pid_t pid;

	setenv("WATCHDOG_USEC", "6000000", 1);
	begin();
	unsetenv("WATCHDOG_USEC");
	pid = k.pid;
	ck_assert_int_eq(kill(k.keeper, SIGSTOP) | kill(pid, SIGSTOP), 0);
	/* Longer than the watchdog's time, which is half of what was set. */
	poll(NULL, 0, 3500);
	ck_assert_int_eq(kill(k.keeper, SIGCONT), 0);
	ck_assert_uint_eq(supervisor_count(&k, 'b'), 1);
	ck_assert_int_eq(kill(pid, SIGCONT), 0);
	ck_assert_int_eq(client_status().pid, pid);
	ck_assert_uint_eq(supervisor_log_count(&k, "has not reported"), 0);
}
END_TEST

/* A daemon without a keeper would not survive its next death, and nobody would know. */
START_TEST(a_daemon_ends_with_its_keeper)
{
	_cleanup_(close_fd) int daemon = -1;

	begin();
	daemon = open_pid(k.pid);
	ck_assert_int_eq(kill(k.keeper, SIGKILL), 0);
	ck_assert_int_eq(waitpid(k.keeper, NULL, 0), k.keeper);
	k.keeper = 0;
	await_end(daemon);
	ck_assert_uint_eq(supervisor_log_count(&k, "the keeper was killed"), 1);
}
END_TEST

/* ---- a daemon that can't start ---- */

START_TEST(a_failed_first_start_ends_the_keeper_too)
{
	char text[4096];

	begin();
	ck_assert_int_eq(run_program(build_path("gpushmd"),
				     (const char *[]){ "--config", k.config, "--socket", k.socket,
						       NULL },
				     text, sizeof(text)),
			 1);
	ck_assert_msg(strstr(text, "another gpushmd serves it"), "%s", text);
	ck_assert_msg(!strstr(text, "keeper"), "%s", text);
	write_config("[pool host]\nkind=hots\n");
	ck_assert_int_eq(run_program(build_path("gpushmd"),
				     (const char *[]){ "--config", k.config, "--socket",
						       "/nowhere/socket", NULL },
				     text, sizeof(text)),
			 2);
	ck_assert_msg(strstr(text, ":2: ") && !strstr(text, "keeper"), "%s", text);
}
END_TEST

/* keeper: an option, or NULL. */
static void expect_too_few(rlim_t fds, const char *keeper, char *ret, size_t size)
{
	const char *args[] = { "--config", k.config, "--socket", k.socket, keeper, NULL };

	limit_fds(fds);
	ck_assert_int_eq(run_program(build_path("gpushmd"), args, ret, size), 1);
	ck_assert_msg(strstr(ret, "ulimit -Hn"), "%s", ret);
}

START_TEST(too_low_a_limit_of_open_files_is_named)
{
	char text[1024];

	expect_too_few(63, NULL, text, sizeof(text));
	ck_assert_msg(strstr(text, "only 63 files may be open") && strstr(text, "need 64") &&
			      strstr(text, "--no-keeper"),
		      "%s", text);
	expect_too_few(10, "--no-keeper", text, sizeof(text));
	ck_assert_msg(strstr(text, "Too many open files"), "%s", text);
}
END_TEST

START_TEST(too_low_a_limit_of_file_sizes_is_named)
{
	const char *args[] = { "--config", k.config, "--socket", k.socket, NULL };
	struct gpushm_create_options o = { .struct_size = sizeof(o) };
	struct gpushm_buffer *b = NULL;
	char text[1024];

	/* The status page has 16 MiB. */
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 8 << 20, 64 << 20 }), 0);
	ck_assert_int_eq(run_program(build_path("gpushmd"), args, text, sizeof(text)), 1);
	ck_assert_msg(strstr(text, "(ulimit -f)") && !strstr(text, "keeper"), "%s", text);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 32 << 20, 64 << 20 }), 0);
	begin();
	ck_assert_int_lt(gpushm_create(c, "large", 48 << 20, &o, &b), 0);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "(ulimit -f)"));
	publish("x");
	ck_assert_uint_eq(supervisor_log_count(&k, "was killed"), 0);
}
END_TEST

/* A daemon whose keeper was killed has its lock until the kernel has ended it. */
START_TEST(the_next_daemon_waits_for_the_lock_of_a_dying_one)
{
	char path[128];
	int lock;

	snprintf(path, sizeof(path), "%s.lock", k.socket);
	lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(lock, 0);
	ck_assert_int_eq(flock(lock, LOCK_EX), 0);
	supervisor_spawn(&k);
	poll(NULL, 0, 200);
	close(lock);
	supervisor_await(&k);
}
END_TEST

/* The delay grows; SIGHUP ends it. */
START_TEST(a_broken_configuration_at_a_restart_loses_nothing)
{
	begin();
	publish("x");
	write_config("[pool host]\nkind=hots\n");
	ck_assert_int_eq(kill(k.pid, SIGKILL), 0);
	client_await(supervisor_log_count(&k, "started again in 2000 ms"));
	ck_assert_uint_eq(supervisor_log_count(&k, "started again in 250 ms"), 1);
	ck_assert_uint_eq(supervisor_log_count(&k, "started again in 500 ms"), 1);
	ck_assert_uint_eq(supervisor_log_count(&k, "started again in 1000 ms"), 1);
	ck_assert_uint_eq(supervisor_log_count(&k, "ended with status 2"), 3);
	write_config(HOST);
	ck_assert_int_eq(kill(k.keeper, SIGHUP), 0);
	expect_there("x");
	supervisor_await(&k);
	/* A daemon that was ready makes the delay short again. */
	k.deaths = k.restarts;
	k.pid = keeper_child(k.keeper);
	supervisor_end(&k, SIGKILL);
	supervisor_spawn(&k);
	ck_assert_uint_eq(supervisor_log_count(&k, "started again in 250 ms"), 2);
}
END_TEST

static void copy_program(const char *to)
{
	char text[256];

	ck_assert_int_eq(run_program("/bin/cp", (const char *[]){ build_path("gpushmd"), to, NULL },
				     text, sizeof(text)),
			 0);
}

START_TEST(a_restart_takes_a_new_program_file)
{
	char program[96], other[96], away[96];
	struct stat st;

	snprintf(program, sizeof(program), "%s/gpushmd", k.folder);
	snprintf(other, sizeof(other), "%s/other", k.folder);
	snprintf(away, sizeof(away), "%s/away", k.folder);
	copy_program(program);
	copy_program(other);
	ck_assert_int_eq(stat(other, &st), 0);
	k.program = program;
	begin();
	publish("x");
	/* While it is missing, the keeper waits for it. */
	ck_assert_int_eq(rename(program, away), 0);
	ck_assert_int_eq(kill(k.pid, SIGKILL), 0);
	client_await(supervisor_log_count(&k, "ended with status 127"));
	ck_assert_uint_ge(supervisor_log_count(&k, "can't be run: No such file"), 1);
	ck_assert_int_eq(rename(other, program), 0);
	expect_there("x");
	snprintf(other, sizeof(other), "/proc/%d/exe", client_status().pid);
	ck_assert_uint_eq(st.st_ino, (stat(other, &st), st.st_ino));
	ck_assert_int_eq(unlink(program) | unlink(away), 0);
}
END_TEST

/* ---- signals ---- */

START_TEST(ctrl_c_ends_both_processes_silently)
{
	_cleanup_(close_fd) int daemon = -1;
	int status = 0;

	begin();
	daemon = open_pid(k.pid);
	/* A terminal sends it to both, and the keeper's own arrives at any later moment. */
	ck_assert_int_eq(kill(k.keeper, SIGINT), 0);
	do
		for (int i = 0; i < 100; i++)
			kill(k.pid, SIGINT);
	while (waitpid(k.keeper, &status, WNOHANG) == 0);
	ck_assert_int_eq(status, 0);
	k.keeper = 0;
	await_end(daemon);
	ck_assert_uint_eq(supervisor_log_count(&k, "stopping"), 1);
	ck_assert_uint_eq(supervisor_log_count(&k, "error"), 0);
	ck_assert_uint_eq(supervisor_log_count(&k, "warning"), 0);
	ck_assert_int_lt(access(k.socket, F_OK), 0);
}
END_TEST

/* The daemon has ended before the keeper gets to its own signal. */
START_TEST(a_slow_keeper_tells_ctrl_c_from_a_death)
{
	_cleanup_(close_fd) int daemon = -1;
	int status = 0;

	begin();
	daemon = open_pid(k.pid);
	ck_assert_int_eq(kill(k.keeper, SIGSTOP), 0);
	ck_assert_int_eq(kill(k.keeper, SIGINT) | kill(k.pid, SIGINT), 0);
	await_end(daemon);
	ck_assert_int_eq(kill(k.keeper, SIGCONT), 0);
	ck_assert_int_eq(waitpid(k.keeper, &status, 0), k.keeper);
	ck_assert_int_eq(status, 0);
	k.keeper = 0;
	ck_assert_uint_eq(supervisor_log_count(&k, "warning"), 0);
}
END_TEST

START_TEST(the_keeper_forwards_signals_to_the_daemon)
{
	begin();
	ck_assert_int_eq(kill(k.keeper, SIGHUP), 0);
	client_await(supervisor_log_count(&k, "configuration reloaded") == 1);
	ck_assert_int_eq(kill(k.keeper, SIGUSR2), 0);
	client_await(k.reloading == 1);
	expect_there((publish("x"), "x"));
	ck_assert_int_eq(client_status().pid, k.pid);
}
END_TEST

/* ---- others that send to the keeper ---- */

/* The value of the daemon's NOTIFY_SOCKET. */
static void find_address(struct sockaddr_un *ret, socklen_t *ret_len)
{
	static char text[1 << 18];
	char path[64], *at = text;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/environ", k.pid);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	while (at < text + n && strncmp(at, "NOTIFY_SOCKET=", 14) != 0)
		at += strlen(at) + 1;
	ck_assert(at < text + n);
	at += 14;
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(ret->sun_path, sizeof(ret->sun_path), "%s", at);
	*ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(at));
	if (*at == '@')
		ret->sun_path[0] = '\0';
}

START_TEST(the_keeper_ignores_messages_of_other_processes)
{
	static const char *const texts[] = { "FDSTOREREMOVE=1\nFDNAME=gpushmd",
					     "FDSTOREREMOVE=1\nFDNAME=b0",
					     "WATCHDOG=trigger",
					     "STOPPING=1",
					     "MAINPID=1",
					     "FDSTORE=1\nFDNAME=x" };
	_cleanup_(close_fd) int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un a;
	socklen_t len = 0;

	begin();
	publish("x");
	find_address(&a, &len);
	for (size_t i = 0; i < array_size(texts); i++)
		ck_assert_int_ge(sendto(fd, texts[i], strlen(texts[i]), 0, (struct sockaddr *)&a,
					len),
				 0);
	ck_assert_uint_eq(supervisor_count(&k, 'g'), 1);
	ck_assert_uint_eq(supervisor_count(&k, 'b'), 1);
	supervisor_end(&k, SIGKILL);
	supervisor_spawn(&k);
	expect_there("x");
	ck_assert_uint_eq(supervisor_log_count(&k, "has not reported"), 0);
}
END_TEST

/* ---- process 1 of a container ---- */

static unsigned count_children(pid_t pid)
{
	char path[64];
	unsigned n = 0;
	int child;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	while (fscanf(f, "%d", &child) == 1)
		n++;
	fclose(f);
	return n;
}

/* In the namespace of the keeper: the second process outlives the first one, and holds the pipe. */
static void leave_orphan(int pipe)
{
	pid_t pid = fork();

	if (pid > 0)
		_exit(0);
	while (getppid() != 1)
		poll(NULL, 0, 1);
	if (write(pipe, "x", 1) != 1)
		_exit(1);
	_exit(0);
}

static void make_orphan(void)
{
	_cleanup_(close_fd) int keeper = open_pid(k.keeper);
	int ends[2], status = 0;
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		pid_t inside = setns(keeper, CLONE_NEWPID) < 0 ? -1 : fork();

		if (inside == 0)
			leave_orphan(ends[1]);
		_exit(inside < 0 || waitpid(inside, NULL, 0) != inside);
	}
	close(ends[1]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	/* It was a child of the keeper, and has ended when the pipe has no writer. */
	ck_assert_int_eq(read(ends[0], &byte, 1), 1);
	ck_assert_int_eq(read(ends[0], &byte, 1), 0);
	close(ends[0]);
}

START_TEST(process_1_reaps_orphans_and_restarts_the_daemon)
{
	k.isolated = daemon_may_be_isolated();
	begin();
	publish("x");
	if (!k.isolated)
		return;
	make_orphan();
	client_await(count_children(k.keeper) == 1);
	supervisor_end(&k, SIGKILL);
	supervisor_spawn(&k);
	expect_there("x");
	/* Signals come from outside of the namespace; teardown sends SIGTERM. */
}
END_TEST

/* ---- it does not read ---- */

/* Until the queue is full, and a buffer is not kept. */
static void fill_queue(void)
{
	char name[16];

	for (unsigned i = 0, kept = 1; kept; i++) {
		snprintf(name, sizeof(name), "fill/%u", i);
		kept = publish(name);
	}
}

/* "old" gives its place to "new", and nobody may find the one in the other. */
START_TEST(while_a_keeper_does_not_read_the_daemon_serves)
{
	begin();
	publish("old");
	publish("x");
	kill(k.keeper, SIGSTOP);
	fill_queue();
	ck_assert(!publish("y"));
	ck_assert_int_eq(gpushm_unlink(c, "old"), 0);
	ck_assert_int_lt(gpushm_restart(c), 0);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "systemd does not read"));
	expect_there("x");
	expect_there("y");
	ck_assert_uint_eq(supervisor_log_count(&k, "has not read"), 1);
	kill(k.keeper, SIGCONT);
	/* The keeper reads again at some time from now on. */
	while (!publish("new"))
		ck_assert_int_eq(gpushm_unlink(c, "new"), 0);
	ck_assert_uint_eq(supervisor_log_count(&k, "keeps file descriptors again"), 1);
	supervisor_end(&k, SIGKILL);
	supervisor_spawn(&k);
	expect_there("x");
	expect_there("new");
	ck_assert_int_eq(gpushm_wait(c, "y", 0), -ENOENT);
	ck_assert_int_eq(gpushm_wait(c, "old", 0), -ENOENT);
}
END_TEST

/* ---- its size ---- */

static unsigned rss_kib(void)
{
	char path[64], line[128];
	unsigned kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", k.keeper);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f) && sscanf(line, "VmRSS: %u kB", &kib) != 1)
		continue;
	fclose(f);
	return kib;
}

/* A fifth of a second after some work it gives back what it does not need. */
START_TEST(the_keeper_takes_at_most_a_mebibyte)
{
	enum { BUFFERS = 1000 };
	char name[16];

	if (suite_is_sanitized())
		return;
	begin();
	client_await(rss_kib() <= RSS_MAX_KIB);
	for (unsigned i = 0; i < BUFFERS; i++) {
		snprintf(name, sizeof(name), "%u", i);
		publish(name);
	}
	supervisor_end(&k, SIGKILL);
	supervisor_spawn(&k);
	expect_there("999");
	ck_assert_uint_eq(supervisor_count(&k, 'm'), BUFFERS);
	client_await(rss_kib() <= RSS_MAX_KIB);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("keeper");

	setenv("SUPERVISOR", "keeper", 1);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_killed_daemon_is_started_again_and_loses_nothing);
	tcase_add_test(t, repeated_kills_keep_the_restart_delay_short);
	tcase_add_test(t, a_client_is_queued_while_no_daemon_runs);
	tcase_add_loop_test(t, the_keeper_keeps_all_buffers_that_the_daemon_takes, 0,
			    array_size(limits));
	tcase_add_test(t, a_buffer_comes_back_with_its_own_contents);
	tcase_add_test(t, a_stopped_daemon_is_replaced_by_the_watchdog);
	tcase_add_test(t, a_daemon_frozen_with_its_keeper_is_left_alone);
	tcase_add_test(t, a_daemon_ends_with_its_keeper);
	tcase_add_test(t, a_failed_first_start_ends_the_keeper_too);
	tcase_add_test(t, too_low_a_limit_of_open_files_is_named);
	tcase_add_test(t, too_low_a_limit_of_file_sizes_is_named);
	tcase_add_test(t, the_next_daemon_waits_for_the_lock_of_a_dying_one);
	tcase_add_test(t, a_broken_configuration_at_a_restart_loses_nothing);
	tcase_add_test(t, a_restart_takes_a_new_program_file);
	tcase_add_loop_test(t, ctrl_c_ends_both_processes_silently, 0, 5);
	tcase_add_test(t, a_slow_keeper_tells_ctrl_c_from_a_death);
	tcase_add_test(t, the_keeper_forwards_signals_to_the_daemon);
	tcase_add_test(t, the_keeper_ignores_messages_of_other_processes);
	tcase_add_test(t, process_1_reaps_orphans_and_restarts_the_daemon);
	tcase_add_test(t, while_a_keeper_does_not_read_the_daemon_serves);
	tcase_add_test(t, the_keeper_takes_at_most_a_mebibyte);
	return suite_run("keeper", t, NULL);
}
