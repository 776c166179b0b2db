/* SPDX-License-Identifier: MIT
 *
 * One watch for a test, and a process to be killed.
 */
#include "tests/lib/watcher.h"

#include "tests/lib/client.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

struct gpushm_watch *w;

/* socket name how: opens for writing, or watches, prints ok, and waits to be killed. */
int watcher_holder_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	struct gpushm_watch *watch = NULL;
	struct gpushm_event e = { .struct_size = sizeof(e) };

	if (gpushm_connect(args[0], &conn) < 0)
		return 1;
	if (strcmp(args[2], "write") == 0 &&
	    gpushm_open(conn, args[1], GPUSHM_WRITE, 0, NULL, &b) < 0)
		return 2;
	if (strcmp(args[2], "watch") == 0 &&
	    (gpushm_watch_new(conn, &watch) < 0 || gpushm_watch_name(watch, args[1]) < 0))
		return 3;
	puts("ok");
	if (watch)
		return gpushm_watch_next(watch, GPUSHM_WAIT_FOREVER, &e);
	return fgets((char[8]){ 0 }, 8, stdin) ? 4 : 0;
}

void watcher_hear(struct role_process *p, const char *expected)
{
	char line[64];

	role_read_line(p, line, sizeof(line));
	ck_assert_str_eq(line, expected);
}

void watcher_start(struct role_process *p, const char *socket, const char *name, const char *how)
{
	role_start(p, "holder", (const char *[]){ socket, name, how, NULL });
	watcher_hear(p, "ok");
}

void watcher_kill(struct role_process *p)
{
	ck_assert_int_eq(kill(p->pid, SIGKILL), 0);
	ck_assert(WIFSIGNALED(role_wait(p)));
}

/* ---- events ---- */

struct gpushm_event watcher_next(struct gpushm_watch *watch)
{
	struct gpushm_event e = { .struct_size = sizeof(e) };

	ck_assert_msg(gpushm_watch_next(watch, WATCHER_LONG_MS, &e) == 0, "%s", gpushm_error());
	return e;
}

uint64_t watcher_expect(enum gpushm_event_kind what, const char *name, uint64_t id)
{
	struct gpushm_event e = watcher_next(w);

	ck_assert_msg(e.what == what && strcmp(e.name, name) == 0 && e.buffer == id,
		      "event %d of \"%s\", buffer %lu; expected %d of \"%s\", %lu", e.what, e.name,
		      e.buffer, what, name, id);
	return e.previous;
}

void watcher_expect_nothing(void)
{
	struct gpushm_event e = { .struct_size = sizeof(e) };

	ck_assert_int_eq(gpushm_watch_next(w, 0, &e), -ETIMEDOUT);
}

struct gpushm_buffer *watcher_shared(const char *name)
{
	struct gpushm_buffer *b = client_create(name, 100, NULL);

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	return b;
}

void watcher_settle(void)
{
	struct gpushm_event e = { .struct_size = sizeof(e) };

	do
		ck_assert_int_eq(gpushm_watch_next(w, 0, &e), -ETIMEDOUT);
	while (client_waiting() == 0);
}

void watcher_begin(void)
{
	ck_assert_msg(gpushm_watch_new(c, &w) == 0, "%s", gpushm_error());
}
