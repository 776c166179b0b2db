/* SPDX-License-Identifier: MIT
 *
 * A daemon and clients in containers of their own, which share the folder of the daemon's socket
 * and nothing else: no PID, IPC, network or user namespace, no /dev/shm, no list of users. Needs
 * root, to make them. Runs over every pool of the machine.
 */
#include "client/gpushm_query.h"
#include "proto/base/own.h"
#include "tests/lib/container.h"
#include "tests/lib/daemon.h"
#include "tests/lib/result.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"
#include "tests/lib/userns.h"

#include <check.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { DAEMON = 65530, ALICE = 65531, BOB = 65532 };

#define SOCKET "/run/gpushm/gpushmd.sock"
#define BYTES 300000u

static struct daemon d;

/* ---- in the containers ---- */

static int complain(const char *what)
{
	printf("%s: %s\n", what, gpushm_error());
	return 1;
}

static void fill(unsigned char *bytes)
{
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (unsigned char)(i * 131 + (i >> 8) * 17 + 5);
}

static bool wait_for_end(void)
{
	char line[8];

	return fgets(line, sizeof(line), stdin) == NULL;
}

/* pool name: makes a shared buffer for everybody, and looks for what the other one has written when
 * it gets a line. */
static int maker_role(char **args)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o),
					   .pool = args[0],
					   .mode = 0666 };
	_cleanup_(free_ptr) unsigned char *bytes = malloc(BYTES);
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	char line[8];

	fill(bytes);
	if (gpushm_connect(NULL, &conn) < 0 || gpushm_create(conn, args[1], BYTES, &o, &b) < 0 ||
	    gpushm_write(b, 0, bytes, BYTES) < 0 || gpushm_publish(b, GPUSHM_SHARED) < 0)
		return complain("make");
	puts("ok");
	if (!fgets(line, sizeof(line), stdin) || gpushm_read(b, BYTES - 1, bytes, 1) < 0)
		return complain("read");
	printf("%d\n", bytes[0]);
	if (!wait_for_end() || gpushm_close(b) < 0)
		return complain("close");
	gpushm_disconnect(conn);
	return 0;
}

/* name: compares all of it and writes a 77 to its end. */
static int reader_role(char **args)
{
	_cleanup_(free_ptr) unsigned char *bytes = malloc(BYTES);
	_cleanup_(free_ptr) unsigned char *expected = malloc(BYTES);
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;

	fill(expected);
	if (gpushm_connect(NULL, &conn) < 0 ||
	    gpushm_open(conn, args[0], GPUSHM_WRITE, 0, NULL, &b) < 0 ||
	    gpushm_read(b, 0, bytes, BYTES) < 0)
		return complain("open");
	if (memcmp(bytes, expected, BYTES) != 0)
		return puts("the contents differ"), 1;
	bytes[0] = 77;
	if (gpushm_write(b, BYTES - 1, bytes, 1) < 0)
		return complain("write");
	puts("ok");
	if (!wait_for_end() || gpushm_close(b) < 0)
		return complain("close");
	gpushm_disconnect(conn);
	return 0;
}

/* name: the first process of its container; its child holds the buffer for writing. */
static int init_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	pid_t child = fork();

	if (child > 0)
		return waitpid(child, NULL, 0) < 0;
	if (gpushm_connect(NULL, &conn) < 0 ||
	    gpushm_open(conn, args[0], GPUSHM_WRITE, 0, NULL, &b) < 0)
		return complain("open");
	puts("ok");
	for (;;)
		pause();
}

/* Prints whether the library takes the daemon at args[0], or why not. */
static int connect_role(char **args)
{
	struct gpushm *conn = NULL;

	puts(gpushm_connect(args[0], &conn) == 0 ? "OK" : gpushm_error());
	gpushm_disconnect(conn);
	return 0;
}

/* Prints its pid and the namespaces that it is in. */
static int where_role(char **args)
{
	static const char *const kinds[] = { "mnt", "pid", "ipc", "net", "uts", "cgroup" };
	char path[32], ns[64];

	printf("%d", getpid());
	for (size_t i = 0; i < array_size(kinds); i++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/ns/%s", kinds[i]);
		n = readlink(path, ns, sizeof(ns) - 1);
		printf(" %.*s", (int)n, ns);
	}
	puts("");
	return !wait_for_end();
}

/* gpushmd config: the daemon with a socket that somebody else has made, as systemd does. */
static int activated_role(char **args)
{
	dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
	setenv("LISTEN_FDS", "1", 1);
	setenv("LISTEN_PID", "1", 1);
	setenv("LISTEN_FDNAMES", "gpushmd", 1);
	execl(args[0], "gpushmd", "--config", args[1], (char *)NULL);
	return 127;
}

/* Prints the names of the pools that work. */
static int pools_role(char **args)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	struct gpushm *conn = NULL;
	size_t n = 0;

	if (gpushm_connect(NULL, &conn) < 0 || gpushm_pools(conn, &pools, &n) < 0)
		return complain("pools");
	for (size_t i = 0; i < n; i++)
		if (!pools[i]->failed)
			printf("%s ", pools[i]->name);
	puts("");
	gpushm_disconnect(conn);
	return 0;
}

/* Waits until the pools are empty, for a minute; prints the bytes that they have then. */
static int used_role(char **args)
{
	struct gpushm *conn = NULL;
	uint64_t used = 1;

	if (gpushm_connect(NULL, &conn) < 0)
		return complain("connect");
	for (int tries = 0; used && tries < 6000; tries++) {
		_cleanup_(free_result) struct gpushm_pool **pools = NULL;
		size_t n = 0;

		if (tries)
			poll(NULL, 0, 10);
		if (gpushm_pools(conn, &pools, &n) < 0)
			return complain("pools");
		used = 0;
		for (size_t i = 0; i < n; i++)
			used += pools[i]->used_bytes;
	}
	printf("%" PRIu64 "\n", used);
	gpushm_disconnect(conn);
	return 0;
}

/* ---- helpers ---- */

static const char config[] = "[limits]\nmax-pool-share=100%\n"
			     "[pool host]\nkind=host\nsize=64M\n"
			     "[pool vmm]\nkind=vmm\nsize=256M\n"
			     "[pool mempool]\nkind=mempool\nsize=256M\nallow-users=*\n"
			     "[pool pinned]\nkind=pinned\nsize=256M\n";

static struct container app_of(uid_t uid)
{
	return (struct container){ .uid = uid, .sockets = d.folder };
}

static void start_daemon(void)
{
	struct container c = { .uid = DAEMON, .user = "gpushm", .folder = d.folder };

	daemon_start_with(&d, config, &(struct daemon_options){ .container = &c });
}

static void read_line(struct role_process *p, char line[512])
{
	role_read_line(p, line, 512);
}

static void expect_line(struct role_process *p, const char *expected)
{
	char line[512];

	read_line(p, line);
	ck_assert_str_eq(line, expected);
}

/* A user of the daemon in a container, with the commands of user.h. */
static void begin(struct role_process *p, const struct container *c)
{
	char uid[16];

	snprintf(uid, sizeof(uid), "%u", c->userns ? 0 : c->uid);
	container_start(p, c, "user", (const char *[]){ SOCKET, uid, uid, NULL });
	user_does(p, "connect", "OK");
}

/* The reply of the library in a container to the daemon at that path. */
static void connect_from(const struct container *c, const char *path, char line[512])
{
	struct role_process p;

	container_start(&p, c, "connect", (const char *[]){ path, NULL });
	read_line(&p, line);
	role_finish(&p);
}

static void is_trusted(const struct container *c, const char *path)
{
	char line[512];

	connect_from(c, path, line);
	ck_assert_str_eq(line, "OK");
}

static void is_refused(const struct container *c, const char *path, const char *why)
{
	char line[512];

	connect_from(c, path, line);
	ck_assert_msg(strstr(line, why) != NULL, "%s", line);
}

/* Calls fn for each pool that works. */
static void for_each_pool(void (*fn)(const char *pool))
{
	struct container c = app_of(ALICE);
	struct role_process p;
	char line[512], *rest = line, *name;

	container_start(&p, &c, "pools", NULL);
	read_line(&p, line);
	role_finish(&p);
	ck_assert_msg(strncmp(line, "host ", 5) == 0 || strstr(line, " host "), "%s", line);
	while ((name = strsep(&rest, " ")) && *name)
		fn(name);
}

/* Waits until all pools are empty. */
static void nothing_is_left(void)
{
	struct container c = app_of(BOB);
	struct role_process p;

	container_start(&p, &c, "used", NULL);
	expect_line(&p, "0");
	role_finish(&p);
}

/* ---- tests ---- */

START_TEST(containers_have_namespaces_of_their_own)
{
	static const struct container bare[2] = { { .uid = ALICE }, { .uid = BOB } };
	char here[512], there[2][512], *a = there[0], *b = there[1], *word;
	struct role_process p[2];

	for (size_t i = 0; i < array_size(bare); i++) {
		container_start(&p[i], &bare[i], "where", NULL);
		read_line(&p[i], there[i]);
	}
	ck_assert_str_eq(strsep(&a, " "), "1");
	ck_assert_str_eq(strsep(&b, " "), "1");
	while ((word = strsep(&a, " "))) {
		char path[64] = "/proc/self/ns/";
		ssize_t n;

		ck_assert_str_ne(word, strsep(&b, " "));
		strncat(path, word, strcspn(word, ":"));
		n = readlink(path, here, sizeof(here) - 1);
		here[n] = '\0';
		ck_assert_str_ne(word, here);
	}
	for (size_t i = 0; i < array_size(p); i++)
		role_finish(&p[i]);
}
END_TEST

static void shared_by(const char *pool, bool userns)
{
	struct container a = app_of(ALICE), b = app_of(BOB);
	struct role_process maker, reader;

	a.userns = b.userns = userns;
	container_start(&maker, &a, "maker", (const char *[]){ pool, "x", NULL });
	expect_line(&maker, "ok");
	container_start(&reader, &b, "reader", (const char *[]){ "x", NULL });
	expect_line(&reader, "ok");
	role_write_line(&maker, "look");
	expect_line(&maker, "77");
	role_finish(&reader);
	role_finish(&maker);
	begin(&maker, &a);
	user_does(&maker, "unlink x", "OK");
	user_end(&maker);
	nothing_is_left();
}

static void shared(const char *pool)
{
	shared_by(pool, false);
}

static void shared_by_users_of_their_own(const char *pool)
{
	shared_by(pool, true);
}

START_TEST(two_containers_share_a_buffer)
{
	start_daemon();
	for_each_pool(shared);
	daemon_stop(&d);
}
END_TEST

/* As rootless containers are: each is root inside, and the daemon's user is not mapped. */
START_TEST(two_containers_with_user_namespaces_share_a_buffer)
{
	struct container c;

	if (!userns_may_enter())
		return;
	start_daemon();
	c = app_of(ALICE);
	c.userns = true;
	is_refused(&c, SOCKET, "GPUSHM_UNMAPPED_DAEMON");
	setenv("GPUSHM_UNMAPPED_DAEMON", "trust", 1);
	for_each_pool(shared_by_users_of_their_own);
	unsetenv("GPUSHM_UNMAPPED_DAEMON");
	daemon_stop(&d);
}
END_TEST

START_TEST(root_in_a_user_namespace_is_no_administrator)
{
	struct container a, b;
	struct role_process alice, bob;

	if (!userns_may_enter())
		return;
	start_daemon();
	a = app_of(ALICE);
	b = app_of(BOB);
	a.userns = b.userns = true;
	setenv("GPUSHM_UNMAPPED_DAEMON", "trust", 1);
	begin(&alice, &a);
	begin(&bob, &b);
	unsetenv("GPUSHM_UNMAPPED_DAEMON");
	user_does(&alice, "create x 0600", "OK");
	user_does(&alice, "publish sealed", "OK");
	user_does(&bob, "open x read", "ACCESS");
	user_does(&bob, "unlink x", "ACCESS");
	user_does(&alice, "unlink x", "OK");
	user_end(&alice);
	user_end(&bob);
	daemon_stop(&d);
}
END_TEST

static void await_reply(struct role_process *p, const char *command, const char *expected)
{
	char line[512] = "";

	for (int tries = 0; strcmp(line, expected) != 0; tries++) {
		ck_assert_msg(tries < 6000, "%s: %s, expected %s", command, line, expected);
		if (tries)
			poll(NULL, 0, 10);
		role_write_line(p, command);
		read_line(p, line);
	}
}

static void killed(const char *pool)
{
	struct container a = app_of(ALICE), b = app_of(BOB);
	struct role_process maker, holder, user;

	container_start(&maker, &a, "maker", (const char *[]){ pool, "x", NULL });
	expect_line(&maker, "ok");
	container_start(&holder, &b, "init", (const char *[]){ "x", NULL });
	expect_line(&holder, "ok");
	begin(&user, &a);
	user_does(&user, "holders x", "2");
	/* The kernel kills the other processes of the namespace with the first one. */
	ck_assert_int_eq(kill(holder.pid, SIGKILL), 0);
	ck_assert(WIFSIGNALED(role_wait(&holder)));
	await_reply(&user, "holders x", "1");
	user_does(&user, "unlink x", "OK");
	user_end(&user);
	ck_assert_int_eq(kill(maker.pid, SIGKILL), 0);
	ck_assert(WIFSIGNALED(role_wait(&maker)));
	nothing_is_left();
}

START_TEST(a_killed_container_loses_its_leases)
{
	start_daemon();
	for_each_pool(killed);
	daemon_stop(&d);
}
END_TEST

/* ---- whom the library trusts in a container that knows no user "gpushm" ---- */

START_TEST(the_owner_of_run_gpushm_is_trusted)
{
	struct container c;

	start_daemon();
	c = app_of(ALICE);
	is_trusted(&c, SOCKET);
	daemon_stop(&d);
}
END_TEST

START_TEST(a_folder_that_anybody_can_make_is_not_trusted)
{
	struct container c;

	start_daemon();
	c = app_of(ALICE);
	c.open_run = true;
	is_refused(&c, SOCKET, "not trusted");
	c.open_run = false;
	c.at = "/run/other";
	is_refused(&c, "/run/other/gpushmd.sock", "/run/gpushm");
	daemon_stop(&d);
}
END_TEST

static int activated_socket;

static void enter_with_socket(const void *c)
{
	container_enter(c);
	if (dup2(activated_socket, 3) < 0)
		_exit(1);
}

static int listen_as_root(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 4);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	ck_assert_int_eq(chmod(path, 0666), 0);
	ck_assert_int_eq(listen(fd, 10), 0);
	return fd;
}

/* systemd listens as root, and the daemon's files belong to its user: a service of the host. */
START_TEST(the_files_of_the_hosts_service_are_trusted)
{
	struct container service = { .uid = DAEMON, .user = "gpushm" }, c;
	struct role_process p;
	char path[100], program[PATH_MAX];

	start_daemon();
	snprintf(program, sizeof(program), "%s", build_path("gpushmd"));
	snprintf(path, sizeof(path), "%s/system.sock", d.folder);
	service.folder = d.folder;
	activated_socket = listen_as_root(path);
	role_start_in(&p, "activated", (const char *[]){ program, d.config, NULL },
		      container_flags(), enter_with_socket, &service);
	c = app_of(ALICE);
	is_trusted(&c, "/run/gpushm/system.sock");
	ck_assert_int_eq(kill(p.pid, SIGTERM), 0);
	role_finish(&p);
	close(activated_socket);
	ck_assert_int_eq(unlink(path), 0);
	daemon_stop(&d);
}
END_TEST

static const struct role roles[] = { { "maker", maker_role },	     { "reader", reader_role },
				     { "init", init_role },	     { "user", user_role },
				     { "connect", connect_role },    { "where", where_role },
				     { "used", used_role },	     { "pools", pools_role },
				     { "activated", activated_role } };

int main(int argc, char **argv)
{
	TCase *t = tcase_create("containers");

	role_dispatch(argc, argv, roles, array_size(roles));
	if (!container_may_start())
		return 0;
	tcase_set_timeout(t, 120);
	tcase_add_test(t, containers_have_namespaces_of_their_own);
	tcase_add_test(t, two_containers_share_a_buffer);
	tcase_add_test(t, two_containers_with_user_namespaces_share_a_buffer);
	tcase_add_test(t, root_in_a_user_namespace_is_no_administrator);
	tcase_add_test(t, a_killed_container_loses_its_leases);
	tcase_add_test(t, the_owner_of_run_gpushm_is_trusted);
	tcase_add_test(t, a_folder_that_anybody_can_make_is_not_trusted);
	tcase_add_test(t, the_files_of_the_hosts_service_are_trusted);
	return suite_run("containers", t, NULL);
}
