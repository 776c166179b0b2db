/* SPDX-License-Identifier: MIT
 *
 * gpushm_connect: where it looks for the daemon, which servers it trusts, and how it checks the
 * reply to HELLO.
 */
#include "tests/lib/suite.h"
#include "tests/unit/lib/canned_fixture.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

/* ---- finding the server ---- */

START_TEST(connecting_to_a_missing_daemon_fails)
{
	ck_assert_int_eq(gpushm_connect("/nonexistent/gpushmd.sock", &c), -ENOENT);
	says("/nonexistent/gpushmd.sock");
	says("start gpushmd");
	ck_assert_ptr_null(c);
}
END_TEST

START_TEST(a_socket_without_a_listener_is_told_from_a_missing_one)
{
	char path[128];

	snprintf(path, sizeof(path), "%s", canned_path(server));
	server = canned_free(server);
	server = canned_new();
	/* The old folder is gone; a stale socket file stands in the new one's place. */
	snprintf(path, sizeof(path), "%s-stale", canned_path(server));
	{
		_cleanup_(close_fd) int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		struct sockaddr_un a = { .sun_family = AF_UNIX };

		strcpy(a.sun_path, path);
		ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	}
	ck_assert_int_eq(gpushm_connect(path, &c), -ECONNREFUSED);
	says("no daemon listens");
	unlink(path);
}
END_TEST

START_TEST(a_socket_of_another_type_is_refused)
{
	_cleanup_(close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	snprintf(a.sun_path, sizeof(a.sun_path), "%.90s-stream", canned_path(server));
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert_int_eq(gpushm_connect(a.sun_path, &c), -EPROTOTYPE);
	says("not gpushmd's");
	unlink(a.sun_path);
}
END_TEST

START_TEST(a_path_that_is_too_long_is_refused)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];

	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	ck_assert_int_eq(gpushm_connect(path, &c), -ENAMETOOLONG);
	says("107");
}
END_TEST

START_TEST(the_environment_names_the_socket)
{
	setenv("GPUSHM_SOCKET", canned_path(server), 1);
	canned_hello(server);
	canned_serve(server);
	ck_assert_msg(gpushm_connect(NULL, &c) == 0, "%s", gpushm_error());
}
END_TEST

START_TEST(the_socket_in_the_runtime_folder_is_found)
{
	char folder[128], path[160], *slash;

	if (access("/run/gpushm/gpushmd.sock", F_OK) == 0) {
		printf("skipped: a daemon of the system is there, and comes first\n");
		return;
	}
	snprintf(folder, sizeof(folder), "%s", canned_path(server));
	slash = strrchr(folder, '/');
	*slash = '\0';
	setenv("XDG_RUNTIME_DIR", folder, 1);
	snprintf(path, sizeof(path), "%s/gpushm", folder);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/gpushm/gpushmd.sock", folder);
	ck_assert_int_eq(symlink("../s", path), 0);
	canned_hello(server);
	canned_serve(server);
	ck_assert_msg(gpushm_connect(NULL, &c) == 0, "%s", gpushm_error());
	unlink(path);
	*strrchr(path, '/') = '\0';
	rmdir(path);
}
END_TEST

/* Listens as user 65534: by raw calls, which change this thread alone. Returns its socket. */
static void *listen_as_nobody(void *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strcpy(a.sun_path, path);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    syscall(SYS_setresuid, 65534, 65534, 65534) < 0 || listen(fd, 1) < 0)
		close_fd(&fd);
	return (void *)(intptr_t)fd;
}

START_TEST(a_server_of_another_user_is_refused)
{
	_cleanup_(close_fd) int fd = -1;
	char path[128];
	pthread_t thread;
	void *result;

	if (geteuid() != 0) {
		printf("skipped: needs root, to listen as another user\n");
		return;
	}
	snprintf(path, sizeof(path), "%s-nobody", canned_path(server));
	ck_assert_int_eq(pthread_create(&thread, NULL, listen_as_nobody, path), 0);
	pthread_join(thread, &result);
	fd = (int)(intptr_t)result;
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gpushm_connect(path, &c), -EPERM);
	says("uid 65534");
	says("not trusted");
	unlink(path);
}
END_TEST

/* ---- a socket without a daemon ---- */

START_TEST(connect_gives_up_on_a_daemon_that_never_replies)
{
	setenv("GPUSHM_RECONNECT_MS", "0", 1);
	ck_assert_int_eq(gpushm_connect(canned_path(server), &c), -ECONNREFUSED);
	says(canned_path(server));
	says("no daemon has answered");
	says("systemctl status gpushmd");
	ck_assert_str_eq(gpushm_error_code(), "");
	ck_assert_ptr_null(c);
}
END_TEST

/* Connects until the next connection would wait. */
static size_t fill_queue(int *fds, size_t size)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	size_t n = 0;

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", canned_path(server));
	do {
		ck_assert_uint_lt(n, size);
		fds[n] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		ck_assert_int_ge(fds[n], 0);
	} while (connect(fds[n++], (struct sockaddr *)&a, sizeof(a)) == 0);
	ck_assert_int_eq(errno, EAGAIN);
	return n;
}

START_TEST(connect_gives_up_on_a_daemon_that_accepts_no_connection)
{
	int fds[16];
	size_t n = fill_queue(fds, array_size(fds));

	setenv("GPUSHM_RECONNECT_MS", "0", 1);
	ck_assert_int_eq(gpushm_connect(canned_path(server), &c), -ECONNREFUSED);
	says(canned_path(server));
	says("nobody accepts");
	ck_assert_ptr_null(c);
	while (n > 0)
		close_fd(&fds[--n]);
}
END_TEST

/* ---- HELLO ---- */

static Gpushm__Proto__Pool pool, *pools[POOLS_MAX + 1];
static Gpushm__Proto__HelloReply hello;

/* A correct reply, which a test changes. */
static void a_hello(void)
{
	gpushm__proto__pool__init(&pool);
	gpushm__proto__hello_reply__init(&hello);
	pool.has_id = pool.has_name = pool.has_kind = pool.has_device_uuid = true;
	pool.id = 7;
	pool.name = bytes("gpu0", 4);
	pool.kind = GPUSHM__PROTO__KIND__KIND_VMM;
	pool.device_uuid = bytes("uuid of 16 bytes", 16);
	hello.has_version = hello.has_daemon = true;
	hello.version = 1;
	hello.daemon = bytes("id of a daemon..", 16);
	hello.pools = pools;
	hello.n_pools = 1;
	pools[0] = &pool;
}

static int say_hello(void)
{
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;

	reply.result_case = GPUSHM__PROTO__REPLY__RESULT_HELLO;
	reply.hello = &hello;
	canned_reply(server, &reply, NULL, 0);
	return connect_to_it();
}

START_TEST(hello_is_sent_and_its_reply_is_kept)
{
	const Gpushm__Proto__Request *r;

	a_hello();
	hello.uid = 1234;
	hello.has_uid = hello.has_admin = hello.admin = true;
	ck_assert_msg(say_hello() == 0, "%s", gpushm_error());
	ck_assert_uint_eq(c->uid, 1234);
	ck_assert(c->admin);
	ck_assert_uint_eq(c->server_uid, geteuid());
	ck_assert(c->pools && !c->pools->next);
	ck_assert_str_eq(connection_pool(c, 7)->name, "gpu0");
	ck_assert_int_eq(connection_pool(c, 7)->map.kind, GPUSHM_VMM);
	ck_assert_mem_eq(connection_pool(c, 7)->map.device_uuid, "uuid of 16 bytes", 16);
	ck_assert_mem_eq(connection_pool(c, 7)->map.daemon, "id of a daemon..", 16);
	ck_assert_ptr_null(connection_pool(c, 1));
	c = gpushm_disconnect(c);
	canned_join(server);
	r = canned_request(server, 0);
	ck_assert_int_eq(r->verb_case, GPUSHM__PROTO__REQUEST__VERB_HELLO);
	ck_assert_uint_eq(r->hello->version_min, 1);
	ck_assert_uint_eq(r->hello->version_max, 1);
	ck_assert_mem_eq(r->hello->software.data, "libgpushm ", 10);
}
END_TEST

START_TEST(hello_leaves_out_a_pool_of_a_later_kind)
{
	Gpushm__Proto__Pool later;

	a_hello();
	later = pool;
	later.id = 8;
	later.kind = (Gpushm__Proto__Kind)99;
	pools[0] = &later;
	pools[1] = &pool;
	hello.n_pools = 2;
	ck_assert_msg(say_hello() == 0, "%s", gpushm_error());
	ck_assert_ptr_null(connection_pool(c, 8));
	ck_assert_ptr_nonnull(connection_pool(c, 7));
}
END_TEST

START_TEST(a_daemon_of_another_version_is_refused)
{
	a_hello();
	hello.version = 2;
	ck_assert_int_eq(say_hello(), -EPROTONOSUPPORT);
	says("version 2");
	ck_assert_ptr_null(c);
}
END_TEST

static void short_id(void)
{
	hello.daemon.len = 15;
}
static void no_id(void)
{
	hello.has_daemon = false;
}
static void short_uuid(void)
{
	pool.device_uuid.len = 15;
}
static void long_uuid(void)
{
	pool.device_uuid = bytes("uuid of 17 bytes.", 17);
}
static void no_pool_id(void)
{
	pool.has_id = false;
}
static void no_pool_name(void)
{
	pool.has_name = false;
}
static void empty_pool_name(void)
{
	pool.name.len = 0;
}
static void pool_name_with_a_nul(void)
{
	pool.name = bytes("gp\0u", 4);
}
static void pool_name_of_64(void)
{
	static char name[POOL_NAME_MAX + 1];

	memset(name, 'x', sizeof(name));
	pool.name = bytes(name, sizeof(name));
}
static void too_many_pools(void)
{
	hello.n_pools = POOLS_MAX + 1;
	for (size_t i = 0; i < hello.n_pools; i++)
		pools[i] = &pool;
}

static void (*const spoil_hello[])(void) = {
	short_id,     no_id,	       short_uuid,	     long_uuid,	      no_pool_id,
	no_pool_name, empty_pool_name, pool_name_with_a_nul, pool_name_of_64, too_many_pools,
};

START_TEST(an_inconsistent_hello_is_refused)
{
	a_hello();
	spoil_hello[_i]();
	ck_assert_int_eq(say_hello(), -EPROTO);
	says("makes no sense");
	ck_assert_ptr_null(c);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("hello");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, connecting_to_a_missing_daemon_fails);
	tcase_add_test(tc, a_socket_without_a_listener_is_told_from_a_missing_one);
	tcase_add_test(tc, a_socket_of_another_type_is_refused);
	tcase_add_test(tc, a_path_that_is_too_long_is_refused);
	tcase_add_test(tc, the_environment_names_the_socket);
	tcase_add_test(tc, the_socket_in_the_runtime_folder_is_found);
	tcase_add_test(tc, a_server_of_another_user_is_refused);
	tcase_add_test(tc, connect_gives_up_on_a_daemon_that_never_replies);
	tcase_add_test(tc, connect_gives_up_on_a_daemon_that_accepts_no_connection);
	tcase_add_test(tc, hello_is_sent_and_its_reply_is_kept);
	tcase_add_test(tc, hello_leaves_out_a_pool_of_a_later_kind);
	tcase_add_test(tc, a_daemon_of_another_version_is_refused);
	tcase_add_loop_test(tc, an_inconsistent_hello_is_refused, 0, (int)array_size(spoil_hello));
	return suite_run("hello", tc, NULL);
}
