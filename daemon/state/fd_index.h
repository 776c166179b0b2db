/* SPDX-License-Identifier: MIT
 *
 * Small numbers that are taken and given back: the names of fds that are handed on. Those that a
 * keeper keeps have to be short and few: systemd hands all of them over in one environment
 * variable, and the kernel takes no string above 128 KiB (MAX_ARG_STRLEN). Across an exec there may
 * be more.
 */
#ifndef GPUSHM_DAEMON_STATE_FD_INDEX_H
#define GPUSHM_DAEMON_STATE_FD_INDEX_H

#include <stddef.h>
#include <stdint.h>

#define FD_INDEX_KEPT 8192u /* buffers; with two fds each, and names like "m6bj:", 80 KiB */
#define FD_INDEX_MAX (1u << 20)
#define FD_INDEX_NONE UINT32_MAX

struct slot_range {
	uint32_t *free; /* borrowed; a stack of those given back */
	size_t n_free;
	uint32_t first, next, end; /* next: never taken so far */
};

struct fd_index {
	uint32_t *memory;	      /* owned; of both stacks */
	struct slot_range kept, rest; /* below FD_INDEX_KEPT, and above */
};

/* 0 or -ENOMEM. Zeroed slots may be done, too. */
int fd_index_init(struct fd_index *s);
void fd_index_done(struct fd_index *s);

/* Those that are taken from the start: each is marked, in any order, then settled, before any other
 * is taken. */
void fd_index_mark(struct fd_index *s, uint32_t slot);
void fd_index_settle(struct fd_index *s);

/* One that a keeper may keep, while there is one; else any other; FD_INDEX_NONE when all are taken.
 */
uint32_t fd_index_take(struct fd_index *s);
void fd_index_give(struct fd_index *s, uint32_t slot); /* FD_INDEX_NONE is allowed */

#endif
