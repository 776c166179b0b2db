/* SPDX-License-Identifier: MIT
 *
 * The Makefile links a gpushmd with --wrap, and this file kills it at the n-th place, n being
 * GPUSHM_CRASH_AT. Each call that writes the journal, sends an fd to the fd store, makes the store
 * forget one, or sends a reply has two places, one before its work and one after it. So has the
 * exec of a planned restart: its second place is in the successor, whose places
 * GPUSHM_CRASH_SUCCESSOR_AT counts. No handler runs and nothing is flushed, as in a crash or after
 * a SIGKILL.
 */
#include "daemon/ipc/reply.h"
#include "daemon/state/fd_list.h"
#include "daemon/state/fdstore.h"
#include "daemon/state/journal.h"

#include <signal.h>
#include <stdlib.h>

int __real_journal_append(struct journal *j, const struct journal_entry *entries, size_t n);
int __real_fdstore_keep(struct fdstore *s, const char *name, int fd);
void __real_fdstore_forget(struct fdstore *s, const char *name);
void __wrap_fdstore_forget(struct fdstore *s, const char *name);
int __real_reply_send(struct reply *a, int socket);
int __real_fd_list_exec(const struct fd_list *m, const char *program, char *const *argv);
int __real_fd_list_receive(struct fd_list *l);
int __wrap_fd_list_exec(const struct fd_list *m, const char *program, char *const *argv);
int __wrap_fd_list_receive(struct fd_list *l);
int __wrap_journal_append(struct journal *j, const struct journal_entry *entries, size_t n);
int __wrap_fdstore_keep(struct fdstore *s, const char *name, int fd);
int __wrap_reply_send(struct reply *a, int socket);

static unsigned long left;

__attribute__((constructor)) static void read_place(void)
{
	const char *text =
		getenv(getenv("GPUSHM_MANIFEST") ? "GPUSHM_CRASH_SUCCESSOR_AT" : "GPUSHM_CRASH_AT");

	left = text ? strtoul(text, NULL, 10) : 0;
}

static void place(void)
{
	if (left && --left == 0)
		raise(SIGKILL);
}

int __wrap_journal_append(struct journal *j, const struct journal_entry *entries, size_t n)
{
	int r;

	place();
	r = __real_journal_append(j, entries, n);
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
