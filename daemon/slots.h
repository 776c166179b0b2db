/* SPDX-License-Identifier: MIT
 *
 * Small numbers that are taken and given back: the names of kept fds. They have to be short:
 * systemd hands all of them over in one environment variable, and the kernel takes no string above
 * 128 KiB (MAX_ARG_STRLEN).
 */
#ifndef GPUSHM_DAEMON_SLOTS_H
#define GPUSHM_DAEMON_SLOTS_H

#include <stddef.h>
#include <stdint.h>

#define SLOTS_MAX 8192u /* buffers; with two fds each, and names like "m6bj:", 80 KiB */
#define SLOT_NONE UINT32_MAX

struct slots {
	uint32_t *free; /* owned; a stack of those given back */
	size_t n_free;
	uint32_t next; /* never taken so far */
};

/* 0 or -ENOMEM. Zeroed slots may be done, too. */
int slots_init(struct slots *s);
void slots_done(struct slots *s);

/* Those that are taken from the start: each is marked, in any order, then settled, before any other
 * is taken. */
void slots_mark(struct slots *s, uint32_t slot);
void slots_settle(struct slots *s);

/* The next one, or SLOT_NONE when all are taken. */
uint32_t slots_take(struct slots *s);
void slots_give(struct slots *s, uint32_t slot); /* SLOT_NONE is allowed */

#endif
