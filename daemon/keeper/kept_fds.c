/* SPDX-License-Identifier: MIT
 *
 * The fds lie in the order in which they came, as a run of records without gaps: 10 bytes for each
 * fd of gpushmd, so that 17,000 of them take 170 KiB. Looking for a name reads them all, which
 * takes some 50 us for so many.
 */
#include "daemon/keeper/kept_fds.h"

#include "proto/base/own.h"
#include "proto/base/text.h"
#include "proto/systemd/systemd.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define STEP 4096u /* bytes by which the records grow */

static int fd_of(const char *record)
{
	int fd;

	memcpy(&fd, record, sizeof(fd));
	return fd;
}

static const char *name_of(const char *record)
{
	return record + sizeof(int);
}

static size_t size_of(const char *record)
{
	return sizeof(int) + strlen(name_of(record)) + 1;
}

#define records_foreach(at, k) \
	for (char *at = (k)->records; at < (k)->records + (k)->len; at += size_of(at))

static int make_space(struct kept_fds *k, size_t more)
{
	size_t had = (k->len + STEP - 1) / STEP, want = (k->len + more + STEP - 1) / STEP;
	char *records = had == want ? k->records : realloc(k->records, want * STEP);

	if (!records)
		return -ENOMEM;
	k->records = records;
	return 0;
}

/* A separator takes the place of each NUL. */
static size_t length_of_names(const struct kept_fds *k)
{
	return k->len - k->n * sizeof(int);
}

int kept_fds_add(struct kept_fds *k, const char *name, int *fd)
{
	size_t bytes = strlen(name) + 1;
	int r, moved = take_fd(fd);

	if (k->n >= k->max || length_of_names(k) + bytes > KEPT_FDS_NAMES_MAX)
		r = -ENOSPC;
	else
		r = make_space(k, sizeof(moved) + bytes);
	if (r < 0) {
		*fd = moved;
		return r;
	}
	memcpy(k->records + k->len, &moved, sizeof(moved));
	memcpy(k->records + k->len + sizeof(moved), name, bytes);
	k->len += sizeof(moved) + bytes;
	k->n++;
	return 0;
}

size_t kept_fds_remove(struct kept_fds *k, const char *name)
{
	char *to = k->records, *end = k->records + k->len;
	size_t before = k->n, size;

	for (char *at = k->records; at < end; at += size) {
		size = size_of(at);
		if (strcmp(name_of(at), name) == 0) {
			close(fd_of(at));
			k->n--;
			continue;
		}
		if (to != at)
			memmove(to, at, size);
		to += size;
	}
	k->len = (size_t)(to - k->records);
	return before - k->n;
}

int kept_fds_find(const struct kept_fds *k, const char *name)
{
	records_foreach (at, k)
		if (strcmp(name_of(at), name) == 0)
			return fd_of(at);
	return -1;
}

void kept_fds_describe(const struct kept_fds *k, char *ret, size_t size)
{
	unsigned counts[UCHAR_MAX + 1] = { 0 };

	*ret = '\0';
	records_foreach (at, k)
		counts[(unsigned char)*name_of(at)]++;
	for (int letter = 0; letter <= UCHAR_MAX; letter++)
		if (counts[letter])
			text_append(ret, size, "%s %c %u", *ret ? "," : "", letter, counts[letter]);
}

void kept_fds_done(struct kept_fds *k)
{
	records_foreach (at, k)
		close(fd_of(at));
	free(k->records);
	*k = (struct kept_fds){ 0 };
}

int kept_fds_receive(struct kept_fds *k)
{
	_cleanup_(free_ptr) char **names = NULL;
	int n = systemd_receive_fds(&names), r = n < 0 ? n : 0;

	for (int i = 0; i < n; i++) {
		int fd = SYSTEMD_FIRST_FD + i;

		if (r == 0)
			r = kept_fds_add(k, names[i], &fd);
		free(names[i]);
	}
	return r;
}

/* ---- to the next daemon ---- */

static int set_fd(struct kept_fds *k, size_t at, int fd)
{
	if (fd < 0)
		return -errno;
	memcpy(k->records + at, &fd, sizeof(fd));
	return 0;
}

/* Gives the fd of the record at `at` the number `to`. The fd that has this number now moves up;
 * users has the record of each number of the range, and 1 added; 0: the fd is not a kept one. Few
 * numbers above the range are in use at a time, so that nearly as many fds can be kept as may be
 * open. */
static int place(struct kept_fds *k, size_t at, int to, size_t *users)
{
	int fd = fd_of(k->records + at), end = SYSTEMD_FIRST_FD + (int)k->n, r = 0;
	size_t *user = &users[to - SYSTEMD_FIRST_FD];

	if (fd == to)
		return fcntl(fd, F_SETFD, 0) < 0 ? -errno : 0;
	if (*user)
		r = set_fd(k, *user - 1, fcntl(to, F_DUPFD_CLOEXEC, end));
	if (r == 0)
		r = set_fd(k, at, dup2(fd, to));
	if (r < 0)
		return r;
	close(fd);
	if (fd < end)
		users[fd - SYSTEMD_FIRST_FD] = 0;
	return 0;
}

static int place_all(struct kept_fds *k)
{
	_cleanup_(free_ptr) size_t *users = calloc(k->n, sizeof(*users));
	int to = SYSTEMD_FIRST_FD, end = to + (int)k->n, r = users ? 0 : -ENOMEM;

	if (r < 0)
		return r;
	records_foreach (at, k)
		if (fd_of(at) < end)
			users[fd_of(at) - SYSTEMD_FIRST_FD] = (size_t)(at - k->records) + 1;
	for (size_t at = 0; at < k->len && r == 0; at += size_of(k->records + at))
		r = place(k, at, to++, users);
	return r;
}

static int set_number(const char *variable, size_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%zu", number);
	return setenv(variable, text, 1) < 0 ? -errno : 0;
}

static int set_variables(const struct kept_fds *k)
{
	_cleanup_(free_ptr) char *names = malloc(length_of_names(k) + 1);
	char *end = names;
	int r;

	if (!names)
		return -ENOMEM;
	*names = '\0';
	records_foreach (at, k)
		end += sprintf(end, "%s%s", end == names ? "" : ":", name_of(at));
	r = set_number("LISTEN_FDS", k->n);
	if (r == 0)
		r = set_number("LISTEN_PID", (size_t)getpid());
	if (r == 0 && setenv("LISTEN_FDNAMES", names, 1) < 0)
		r = -errno;
	return r;
}

int kept_fds_pass_on(struct kept_fds *k)
{
	int r = k->n ? place_all(k) : 0;

	return r < 0 || k->n == 0 ? r : set_variables(k);
}
