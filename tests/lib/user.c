/* SPDX-License-Identifier: MIT
 *
 * The other user. It uses the library, as a stranger's program would. It keeps its buffers until a
 * command closes them, or until it ends.
 */
#include "tests/lib/user.h"

#include "client/gpushm_query.h"
#include "proto/base/own.h"

#include <check.h>
#include <dlfcn.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>

#define HELD_MAX 64

struct user {
	const char *socket;
	struct gpushm *conns[HELD_MAX]; /* owned; the last one is in use */
	size_t n_conns;
	struct gpushm_buffer *held[HELD_MAX]; /* owned */
	size_t n_held;
};

static int connect_again(struct user *u)
{
	int r = gpushm_connect(u->socket, &u->conns[u->n_conns]);

	if (r == 0)
		u->n_conns++;
	return r;
}

static int create(struct user *u, const char *name, uint64_t bytes, const char *mode,
		  const char *pool)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	int r;

	if (mode)
		o.mode = (unsigned)strtoul(mode, NULL, 8);
	r = gpushm_create(u->conns[u->n_conns - 1], name, bytes, &o, &u->held[u->n_held]);
	if (r == 0)
		u->n_held++;
	return r;
}

static int open_named(struct user *u, const char *name, const char *access)
{
	int r = gpushm_open(u->conns[u->n_conns - 1], name,
			    access[0] == 'w' ? GPUSHM_WRITE : GPUSHM_READ, 0, NULL,
			    &u->held[u->n_held]);

	if (r == 0)
		u->n_held++;
	return r;
}

/* Returns 1: the reply is printed already. */
static int print_owner(struct user *u, const char *name)
{
	int r = open_named(u, name, "read");

	if (r < 0)
		return r;
	printf("%u\n", gpushm_buffer_uid(u->held[--u->n_held]));
	gpushm_close(u->held[u->n_held]);
	return 1;
}

static int count(struct user *u, const char *what, const char *name)
{
	struct gpushm *conn = u->conns[u->n_conns - 1];
	struct gpushm_stat **all = NULL, *st = NULL;
	size_t n = 1;
	int r = what[0] == 'l' ? gpushm_list(conn, name, 0, &all, &n)
			       : gpushm_stat(conn, name, 0, GPUSHM_HOLDERS, &st);

	if (r < 0)
		return r;
	printf("%zu\n", st ? st->n_holders : n);
	gpushm_free(all);
	gpushm_free(st);
	return 1;
}

static int obey(struct user *u, const char *request, const char *a, const char *b)
{
	struct gpushm *conn = u->n_conns ? u->conns[u->n_conns - 1] : NULL;

	if (strcmp(request, "create") == 0)
		return create(u, a, 100, b, NULL);
	if (strcmp(request, "create-in") == 0)
		return create(u, a, 100, NULL, b);
	if (strcmp(request, "create-of") == 0)
		return create(u, a, strtoull(b, NULL, 10), NULL, NULL);
	if (strcmp(request, "publish") == 0)
		return gpushm_publish(u->held[u->n_held - 1],
				      strcmp(a, "sealed") == 0 ? GPUSHM_SEALED : GPUSHM_SHARED);
	if (strcmp(request, "open") == 0)
		return open_named(u, a, b);
	if (strcmp(request, "close") == 0)
		return gpushm_close(u->held[--u->n_held]) < 0 ? -1 : 0;
	if (strcmp(request, "unlink") == 0)
		return gpushm_unlink(conn, a);
	if (strcmp(request, "rename") == 0 || strcmp(request, "replace") == 0)
		return gpushm_rename(conn, a, b, request[2] == 'p' ? GPUSHM_REPLACE : 0);
	if (strcmp(request, "publish-over") == 0)
		return gpushm_publish_as(u->held[u->n_held - 1], GPUSHM_SEALED, a, GPUSHM_REPLACE);
	if (strcmp(request, "flush") == 0)
		return gpushm_flush(conn, a);
	if (strcmp(request, "owner") == 0)
		return print_owner(u, a);
	if (strcmp(request, "restart") == 0)
		return gpushm_restart(conn);
	if (strcmp(request, "clean") == 0)
		return gpushm_clean(conn, a);
	if (strcmp(request, "stat") == 0)
		return gpushm_wait(conn, a, 0);
	if (strcmp(request, "connect") == 0)
		return connect_again(u);
	if (strcmp(request, "disconnect") == 0) {
		gpushm_disconnect(u->conns[--u->n_conns]);
		return 0;
	}
	return count(u, request, a ? a : "");
}

/* socket uid gid */
int user_role(char **args)
{
	struct user u = { .socket = args[0] };
	uid_t uid = (uid_t)atoi(args[1]);
	gid_t gid = (gid_t)atoi(args[2]);
	char line[512];

	if (uid != getuid() && !user_become(uid, gid))
		return 1;
	while (fgets(line, sizeof(line), stdin)) {
		char *rest = line, *request, *a, *b;
		int r;

		line[strcspn(line, "\n")] = '\0';
		request = strsep(&rest, " ");
		a = strsep(&rest, " ");
		b = strsep(&rest, " ");
		if (strcmp(request, "error") == 0) {
			puts(gpushm_error());
			continue;
		}
		r = obey(&u, request, a, b);
		if (r <= 0)
			puts(r == 0 ? "OK" : gpushm_error_code());
	}
	while (u.n_held)
		gpushm_close(u.held[--u.n_held]);
	while (u.n_conns)
		gpushm_disconnect(u.conns[--u.n_conns]);
	return 0;
}

bool user_may_change(void)
{
	static bool printed;

	if (getuid() == 0)
		return true;
	if (!printed)
		puts("skipped: only root can become other users");
	printed = true;
	return false;
}

bool user_become(uid_t uid, gid_t gid)
{
	/* dlopen(3) finds a library that is loaded by its soname, without its file. */
	dlopen("libcuda.so.1", RTLD_NOW);
	return setgroups(0, NULL) == 0 && setresgid(gid, gid, gid) == 0 &&
	       setresuid(uid, uid, uid) == 0;
}

void user_start(struct role_process *p, const char *socket, uid_t uid, gid_t gid)
{
	char uid_text[16], gid_text[16];

	snprintf(uid_text, sizeof(uid_text), "%u", uid);
	snprintf(gid_text, sizeof(gid_text), "%u", gid);
	role_start(p, "user", (const char *[]){ socket, uid_text, gid_text, NULL });
	user_does(p, "connect", "OK");
}

void user_does(struct role_process *p, const char *command, const char *expected)
{
	char reply[64], text[512];

	role_write_line(p, command);
	role_read_line(p, reply, sizeof(reply));
	if (strcmp(reply, expected) == 0)
		return;
	user_error(p, text, sizeof(text));
	ck_abort_msg("%s: %s, expected %s (%s)", command, reply, expected, text);
}

void user_error(struct role_process *p, char *text, size_t size)
{
	role_write_line(p, "error");
	role_read_line(p, text, size);
}

void user_end(struct role_process *p)
{
	role_finish(p);
}
