/* SPDX-License-Identifier: MIT
 *
 * systemd holds a duplicate of every fd that it is sent with FDSTORE=1, across the death of the
 * process, and hands all of them over at the next start, as it does the listening socket. FDPOLL=0
 * matters: poll() has its own meaning for an exported GPU fd, and systemd closes what seems to have
 * hung up. A notification is a datagram: it is on its way when the call returns, and systemd reads
 * what a process has sent before it handles the process's death (manager.c gives the notify socket
 * the higher priority).
 *
 * Names are used again. An fd that systemd was not told to forget, because it did not read for a
 * while, would be taken for the next one of its name: so it comes first, and what comes after it
 * fails until systemd reads again. At the start all of that waits for the new journal, and none of
 * these names is used before.
 */
#include "daemon/state/fdstore.h"

#include "daemon/util/log.h"
#include "proto/base/own.h"
#include "proto/systemd/systemd.h"

#include <stdio.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct named_fd *)a)->name, ((const struct named_fd *)b)->name);
}

static int receive_from_systemd(struct fd_list *l)
{
	_cleanup_(free_ptr) char **names = NULL;
	int n = systemd_receive_fds(&names), r = n < 0 ? n : 0;

	for (int i = 0; i < n; i++) {
		if (r == 0)
			r = fd_list_add(l, names[i], SYSTEMD_FIRST_FD + i);
		free(names[i]);
	}
	return r;
}

/* After an exec systemd hands over nothing: it has seen no start. */
int fdstore_open(struct fdstore *s)
{
	int r;

	*s = (struct fdstore){ .systemd = systemd_keeps_fds() };
	r = fd_list_receive(&s->received);
	if (r == 0)
		r = receive_from_systemd(&s->received);
	if (r < 0)
		return r;
	if (s->received.n)
		qsort(s->received.items, s->received.n, sizeof(*s->received.items), by_name);
	return fdstore_reset_indices(s);
}

void fdstore_close(struct fdstore *s)
{
	for (size_t i = 0; i < s->received.n; i++)
		close_fd(&s->received.items[i].fd);
	fd_list_done(&s->received);
	fd_list_done(&s->untold);
	free(s->buffers.bits);
	free(s->pages.bits);
	*s = (struct fdstore){ 0 };
}

/* ---- by name ---- */

struct fd_name fdstore_name(char kind, uint64_t number)
{
	char digits[16], *at = digits + sizeof(digits);
	struct fd_name ret = { { kind } };

	do
		*--at = "0123456789abcdefghijklmnopqrstuvwxyz"[number % 36];
	while ((number /= 36) != 0);
	memcpy(ret.text + 1, at, (size_t)(digits + sizeof(digits) - at));
	return ret;
}

int fdstore_take(struct fdstore *s, const char *name)
{
	struct named_fd key = { .fd = -1 }, *all = s->received.items, *found;

	snprintf(key.name, sizeof(key.name), "%s", name);
	found = all ? bsearch(&key, all, s->received.n, sizeof(key), by_name) : NULL;
	if (!found)
		return -1;
	/* A name that was sent twice has two fds; any one of them that is still there will do. */
	while (found > all && by_name(found - 1, &key) == 0)
		found--;
	while (found->fd < 0 && found + 1 < all + s->received.n && by_name(found + 1, &key) == 0)
		found++;
	return take_fd(&found->fd);
}

/* Whether one of the fds of this name was taken. They stand side by side, and the first is taken
 * first. */
static bool is_taken(const struct fd_list *l, size_t i)
{
	while (i > 0 && by_name(&l->items[i - 1], &l->items[i]) == 0)
		i--;
	return l->items[i].fd < 0;
}

size_t fdstore_drop_rest(struct fdstore *s)
{
	struct fd_list *l = &s->received;
	size_t n = 0;

	/* systemd forgets by name: with a copy it would forget the fd that is in use. */
	for (size_t i = 0; i < l->n; i++)
		if (l->items[i].fd >= 0 && !is_taken(l, i))
			fdstore_forget(s, l->items[i].name);
	for (size_t i = 0; i < l->n; i++) {
		n += l->items[i].fd >= 0;
		close_fd(&l->items[i].fd);
	}
	return n;
}

static void note_late(struct fdstore *s, int r)
{
	if (r == -ETIMEDOUT && !s->late)
		log_error_id(LOG_ID_STATE_NOT_WRITTEN,
			     "process %d, which keeps our file descriptors, has not read for five "
			     "seconds: what is published before it reads again does not survive "
			     "the daemon",
			     getppid());
	else if (r == 0 && s->late)
		log_notice("process %d keeps file descriptors again", getppid());
	s->late = r == -ETIMEDOUT || (s->late && r < 0);
}

int fdstore_keep(struct fdstore *s, const char *name, int fd)
{
	int r;

	if (!s->systemd)
		return 0;
	r = fdstore_tell(s);
	if (r == 0)
		r = systemd_notify_fd(fd, "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
	note_late(s, r);
	return r;
}

static int tell(const char *name)
{
	return systemd_notify("FDSTOREREMOVE=1\nFDNAME=%s", name);
}

void fdstore_forget(struct fdstore *s, const char *name)
{
	if (!s->systemd || (!s->holds && fdstore_tell(s) == 0 && tell(name) == 0))
		return;
	s->untold_lost |= fd_list_add(&s->untold, name, -1) < 0;
}

int fdstore_tell(struct fdstore *s)
{
	int r = s->untold_lost ? -ENOMEM : 0;

	while (r == 0 && s->untold.n > 0 && !s->holds) {
		r = tell(s->untold.items[s->untold.n - 1].name);
		s->untold.n -= r == 0;
	}
	return r;
}

/* ---- fd indices ---- */

#define WORD_BITS 64u
_Static_assert(FD_INDEX_KEPT % WORD_BITS == 0 && FD_PAGES_KEPT % WORD_BITS == 0,
	       "fd_indices_take()");

static int reset(struct fd_indices *x, uint32_t kept)
{
	free(x->bits);
	*x = (struct fd_indices){ .kept = kept, .first_beyond = kept };
	x->bits = calloc(FD_INDEX_MAX / WORD_BITS, sizeof(*x->bits));
	return x->bits ? 0 : -ENOMEM;
}

int fdstore_reset_indices(struct fdstore *s)
{
	int r = reset(&s->buffers, FD_INDEX_KEPT);

	return r < 0 ? r : reset(&s->pages, FD_PAGES_KEPT);
}

void fd_indices_mark(struct fd_indices *x, uint32_t index)
{
	if (index < FD_INDEX_MAX)
		x->bits[index / WORD_BITS] |= (uint64_t)1 << index % WORD_BITS;
}

uint32_t fd_indices_take(struct fd_indices *x, bool kept)
{
	uint32_t *first = kept ? &x->first_free : &x->first_beyond;
	uint32_t word = *first / WORD_BITS, index;

	while (word < FD_INDEX_MAX / WORD_BITS && x->bits[word] == UINT64_MAX)
		word++;
	*first = word * WORD_BITS;
	if (*first == FD_INDEX_MAX)
		return FD_INDEX_NONE;
	index = *first + (uint32_t)__builtin_ctzll(~x->bits[word]);
	fd_indices_mark(x, index);
	return index;
}

void fd_indices_give(struct fd_indices *x, uint32_t index)
{
	if (index >= FD_INDEX_MAX)
		return;
	x->bits[index / WORD_BITS] &= ~((uint64_t)1 << index % WORD_BITS);
	if (index < x->first_free)
		x->first_free = index;
	if (index >= x->kept && index < x->first_beyond)
		x->first_beyond = index;
}
