/* SPDX-License-Identifier: MIT
 *
 * A board is mapped once a connection and stays mapped as long as that lives, for any thread may be
 * looking at it. It is held against what gpushm-protocol(7) promises before: its owner, its size,
 * and that nobody can cut it short, which would be a SIGBUS for who looks.
 */
#include "client/link/status_map.h"

#include "client/base/endpoint.h"
#include "client/base/error.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#define SLEEP_MS_MAX 1000000000u

static int check_file(int fd, uid_t server, struct stat *ret)
{
	int seals = fcntl(fd, F_GET_SEALS);

	if (fstat(fd, ret) < 0)
		return error_set(errno, "can't look at the daemon's board: %m");
	if (!S_ISREG(ret->st_mode) || ret->st_size != STATUS_PAGE_BYTES)
		return error_set(EPROTO, "the daemon's board has not the size that it must have");
	if (!endpoint_owns(server, ret->st_uid))
		return error_set(EPROTO, "the daemon's board belongs to uid %u", ret->st_uid);
	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return error_set(EPROTO, "the daemon's board is not sealed");
	return 0;
}

static int map(int fd, const struct stat *st, struct notice_board *b)
{
	void *memory = mmap(NULL, STATUS_PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		return error_set(errno, "can't map the daemon's board: %m");
	b->map = memory;
	b->dev = st->st_dev;
	b->ino = st->st_ino;
	if (b->map->magic == STATUS_PAGE_MAGIC && b->map->version == STATUS_PAGE_VERSION)
		return 0;
	munmap(memory, STATUS_PAGE_BYTES);
	return error_set(EPROTO, "the daemon's board is none");
}

int notice_map(int fd, uid_t server, struct notice_board **boards)
{
	_cleanup_(free_ptr) struct notice_board *b = NULL;
	struct stat st;
	int r = check_file(fd, server, &st);

	if (r < 0)
		return r;
	if (*boards && (*boards)->dev == st.st_dev && (*boards)->ino == st.st_ino)
		return 0;
	b = calloc(1, sizeof(*b));
	if (!b)
		return error_set(ENOMEM, "out of memory for a connection");
	r = map(fd, &st, b);
	if (r < 0)
		return r;
	b->next = *boards;
	*boards = take_ptr(b);
	return 0;
}

void notice_unmap(struct notice_board *boards)
{
	struct notice_board *next;

	for (; boards; boards = next) {
		next = boards->next;
		munmap((void *)boards->map, STATUS_PAGE_BYTES);
		free(boards);
	}
}

const struct status_page_cell *notice_slot(const struct notice_board *boards, uint32_t slot)
{
	return boards && slot < STATUS_PAGE_CELLS ? &boards->map->cells[slot] : NULL;
}

void notice_sleep(const struct status_page_cell *slot, uint32_t seen, uint64_t ms)
{
	uint64_t most = ms < SLEEP_MS_MAX ? ms : SLEEP_MS_MAX;
	struct timespec t = { .tv_sec = (time_t)(most / 1000u),
			      .tv_nsec = (long)(most % 1000u) * 1000000 };

	syscall(SYS_futex, &slot->word, FUTEX_WAIT, seen, &t, NULL, 0);
}
