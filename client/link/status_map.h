/* SPDX-License-Identifier: MIT
 *
 * The daemon's board in this process: where it is mapped, and how a change on it is waited for.
 */
#ifndef GPUSHM_CLIENT_LINK_STATUS_MAP_H
#define GPUSHM_CLIENT_LINK_STATUS_MAP_H

#include "proto/status_page.h"

#include <stdbool.h>
#include <sys/types.h>

struct notice_board {
	struct notice_board
		*next; /* one that the daemon had before; buffers may still look there */
	const struct status_page_layout *map;
	dev_t dev;
	ino_t ino;
};

/* Maps the board that the fd stands for, and puts it before the others in *boards; unless it is the
 * first one there already. The fd stays the caller's. 0, -EPROTO for what is no board of that
 * server, -errno; with gpushm_error() set. */
int notice_map(int fd, uid_t server, struct notice_board **boards);
void notice_unmap(struct notice_board *boards);

/* NULL where there is no board, or no such slot on it. */
const struct status_page_cell *notice_slot(const struct notice_board *boards, uint32_t slot);

/* Sleeps until the word is changed, or for so long; may return early. */
void notice_sleep(const struct status_page_cell *slot, uint32_t seen, uint64_t ms);

#endif
