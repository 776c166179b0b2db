/* SPDX-License-Identifier: MIT
 *
 * The fd store. systemd holds a duplicate of every fd that it is sent with FDSTORE=1, across the
 * death of the process, and hands all of them over at the next start, with their names, as it does
 * the listening socket. FDPOLL=0 matters: an exported GPU fd answers poll() in its own way, and
 * systemd closes what seems to have hung up. A notification is a datagram: it is on its way when
 * the call returns, and systemd reads what a process has sent before it looks after the process's
 * death (manager.c gives the notify socket the higher priority).
 */
#include "daemon/state/fdstore.h"

#include "daemon/state/fd_list.h"
#include "daemon/util/log.h"
#include "proto/base/own.h"

#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct fdstore_fd *)a)->name, ((const struct fdstore_fd *)b)->name);
}

static void take_over(struct fdstore *s, char **names, int n)
{
	for (int i = 0; i < n; i++) {
		struct fdstore_fd *to = &s->inherited[s->n_inherited++];

		to->fd = SD_LISTEN_FDS_START + i; /* close-on-exec: sd_listen_fds(3) */
		snprintf(to->name, sizeof(to->name), "%s", names[i]);
		free(names[i]);
	}
}

/* systemd sets FDSTORE from version 254 on; the unit says GPUSHM_FDSTORE=1 for older ones. A
 * supervisor that only knows READY=1 would not read what we send, and in the end we would wait for
 * it. */
static bool has_keeper(void)
{
	return getenv("NOTIFY_SOCKET") && (getenv("FDSTORE") || getenv("GPUSHM_FDSTORE"));
}

static int receive_from_keeper(struct fdstore *s)
{
	char **names = NULL;
	int n = sd_listen_fds_with_names(1, &names);

	if (n < 0)
		return n;
	s->inherited = calloc((size_t)n + 1, sizeof(*s->inherited));
	if (!s->inherited)
		return -ENOMEM;
	take_over(s, names, n);
	free(names);
	return 0;
}

/* Who was handed everything by its predecessor is handed nothing by a keeper, which sees no start.
 */
int fdstore_open(struct fdstore *s)
{
	int r;

	*s = (struct fdstore){ .systemd = has_keeper() };
	r = fd_list_receive(&s->inherited, &s->n_inherited);
	if (r == 0)
		r = receive_from_keeper(s);
	if (r < 0)
		return r;
	qsort(s->inherited, s->n_inherited, sizeof(*s->inherited), by_name);
	return 0;
}

void fdstore_name(char name[FDSTORE_NAME_MAX + 1], char kind, uint64_t number)
{
	char digits[16], *at = digits + sizeof(digits);

	do
		*--at = "0123456789abcdefghijklmnopqrstuvwxyz"[number % 36];
	while ((number /= 36) != 0);
	*name++ = kind;
	memcpy(name, at, (size_t)(digits + sizeof(digits) - at));
	name[digits + sizeof(digits) - at] = '\0';
}

int fdstore_take(struct fdstore *s, const char *name)
{
	struct fdstore_fd key = { .fd = -1 }, *found;

	snprintf(key.name, sizeof(key.name), "%s", name);
	found = bsearch(&key, s->inherited, s->n_inherited, sizeof(key), by_name);
	if (!found)
		return -1;
	/* A name that was sent twice has two fds; any one of them will do, if it is still there. */
	while (found > s->inherited && by_name(found - 1, &key) == 0)
		found--;
	while (found->fd < 0 && found + 1 < s->inherited + s->n_inherited &&
	       by_name(found + 1, &key) == 0)
		found++;
	return take_fd(&found->fd);
}

/* One of several fds of a name was taken. They stand side by side, and the first is taken first. */
static bool is_taken(const struct fdstore *s, size_t i)
{
	while (i > 0 && by_name(&s->inherited[i - 1], &s->inherited[i]) == 0)
		i--;
	return s->inherited[i].fd < 0;
}

size_t fdstore_drop_rest(struct fdstore *s)
{
	size_t n = 0;

	/* A keeper forgets by name, and would forget what is in use with what is not. */
	for (size_t i = 0; i < s->n_inherited; i++)
		if (s->inherited[i].fd >= 0 && !is_taken(s, i))
			fdstore_forget(s, s->inherited[i].name);
	for (size_t i = 0; i < s->n_inherited; i++) {
		if (s->inherited[i].fd < 0)
			continue;
		close_fd(&s->inherited[i].fd);
		n++;
	}
	return n;
}

void fdstore_close(struct fdstore *s)
{
	for (size_t i = 0; i < s->n_inherited; i++)
		close_fd(&s->inherited[i].fd);
	free(s->inherited);
	*s = (struct fdstore){ 0 };
}

int fdstore_keep(struct fdstore *s, const char *name, int fd)
{
	char text[96];
	int r;

	if (!s->systemd)
		return 0;
	snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
	r = sd_pid_notify_with_fds(0, 0, text, &fd, 1);
	return r < 0 ? r : 0;
}

void fdstore_forget(struct fdstore *s, const char *name)
{
	if (s->systemd)
		sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", name);
}
