/* SPDX-License-Identifier: MIT
 *
 * suites.mk links a gpushmd with --wrap, and this file kills it at the n-th place. Each daemon
 * takes a line out of the file GPUSHM_CRASH_PLAN: its own n, and that of the program after an exec;
 * 0: nowhere. Each call that writes the journal, sends an fd to the fd store, makes the store
 * forget one, or sends a reply has two places, one before its work and one after it. So has the
 * exec of a planned restart: its second place is in the successor. No handler runs and nothing is
 * flushed, as in a crash or after a SIGKILL.
 */
#include "daemon/ipc/reply.h"
#include "daemon/state/fd_list.h"
#include "daemon/state/fdstore.h"
#include "daemon/state/journal.h"
#include "proto/systemd/systemd.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int __real_journal_append(struct journal *j, uint16_t type, const void *body, size_t len);
int __real_fdstore_keep(struct fdstore *s, const char *name, int fd);
void __real_fdstore_forget(struct fdstore *s, const char *name);
void __wrap_fdstore_forget(struct fdstore *s, const char *name);
int __real_reply_send(struct reply *a, int socket);
int __real_fd_list_exec(const struct fd_list *m, const char *program, char *const *argv);
int __real_fd_list_receive(struct fd_list *l);
int __wrap_fd_list_exec(const struct fd_list *m, const char *program, char *const *argv);
int __wrap_fd_list_receive(struct fd_list *l);
int __wrap_journal_append(struct journal *j, uint16_t type, const void *body, size_t len);
int __wrap_fdstore_keep(struct fdstore *s, const char *name, int fd);
int __wrap_reply_send(struct reply *a, int socket);

static unsigned long left;

static unsigned long number_of(const char *text)
{
	return text ? strtoul(text, NULL, 10) : 0;
}

/* Takes the first line out of the file; NULL: there is none. */
static char *take_line(const char *path)
{
	static char text[256];
	FILE *f = fopen(path, "r");
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
	char *rest = text, *line = n ? strsep(&rest, "\n") : NULL;

	if (f)
		fclose(f);
	f = line ? fopen(path, "w") : NULL;
	if (!f)
		return NULL;
	fputs(rest ? rest : "", f);
	fclose(f);
	return line;
}

/* Not in the keeper, and not in the check before a planned restart. */
__attribute__((constructor)) static void read_place(int argc, char **argv)
{
	const char *plan = getenv("GPUSHM_CRASH_PLAN");
	char *line;

	if (fd_list_is_passed()) {
		left = number_of(getenv("GPUSHM_CRASH_SUCCESSOR_AT"));
		return;
	}
	if (!plan || !systemd_keeps_fds() || (argc > 1 && strncmp(argv[1], "--check", 7) == 0))
		return;
	line = take_line(plan);
	left = number_of(line ? strsep(&line, " ") : NULL);
	setenv("GPUSHM_CRASH_SUCCESSOR_AT", line ? line : "0", 1);
}

static void place(void)
{
	if (left && --left == 0)
		raise(SIGKILL);
}

int __wrap_journal_append(struct journal *j, uint16_t type, const void *body, size_t len)
{
	int r;

	place();
	r = __real_journal_append(j, type, body, len);
	place();
	return r;
}

int __wrap_fdstore_keep(struct fdstore *s, const char *name, int fd)
{
	int r;

	place();
	r = __real_fdstore_keep(s, name, fd);
	place();
	return r;
}

void __wrap_fdstore_forget(struct fdstore *s, const char *name)
{
	place();
	__real_fdstore_forget(s, name);
	place();
}

int __wrap_reply_send(struct reply *a, int socket)
{
	int r;

	place();
	r = __real_reply_send(a, socket);
	place();
	return r;
}

int __wrap_fd_list_exec(const struct fd_list *m, const char *program, char *const *argv)
{
	place();
	return __real_fd_list_exec(m, program, argv);
}

int __wrap_fd_list_receive(struct fd_list *l)
{
	int r;

	place();
	r = __real_fd_list_receive(l);
	place();
	return r;
}
