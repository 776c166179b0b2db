/* SPDX-License-Identifier: MIT
 *
 * A client that lives through the daemon's death: a process in a role. It makes buffers of each
 * kind, reads them without end, and says what it has seen when it is asked.
 */
#ifndef GPUSHM_TESTS_GPU_READER_H
#define GPUSHM_TESTS_GPU_READER_H

#include "tests/lib/role.h"

#include <stdint.h>

struct reader_load {
	uint64_t vmm_bytes, pinned_bytes, mempool_bytes; /* of one buffer */
	unsigned mempools;				 /* so many of these */
};

/* For the program's table of roles: { "reader", reader_role }. args: socket, id, pools of kind vmm,
 * pinned and mempool, and the load's four numbers. */
int reader_role(char **args);

/* Its buffers are called "ID/vmm", "ID/pinned" and "ID/mempool/N", are published as shared, and
 * each word of them is reader_word(). */
void reader_start(struct role_process *p, const char *socket, unsigned id, const char *const *pools,
		  const struct reader_load *load);
unsigned reader_word(unsigned id, unsigned number);

/* Lines that it is sent, one by one, each answered by "ok": "check" compares all that it has, word
 * by word, and that it has lost no lease; "neighbour N" opens N's buffers by name and compares
 * them; "drop" closes and unlinks everything. In between it reads. */
void reader_ask(struct role_process *p, const char *line);

#endif
