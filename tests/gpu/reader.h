/* SPDX-License-Identifier: MIT
 *
 * A client that survives the daemon's death: a process in a role. It makes buffers of each kind,
 * reads them without a pause, and reports on request what it has seen.
 */
#pragma once

#include "tests/lib/role.h"

#include <stdint.h>

struct reader_load {
	uint64_t vmm_bytes, pinned_bytes, mempool_bytes; /* of one buffer */
	unsigned mempools;				 /* how many of these */
};

/* For the program's table of roles: { "reader", reader_role }. args: socket, id, pools of kind vmm,
 * pinned and mempool, and the load's four numbers. */
int reader_role(char **args);

/* Its buffers are named "ID/vmm", "ID/pinned" and "ID/mempool/N" and are published as shared; each
 * of their words is reader_word(). */
void reader_start(struct role_process *p, const char *socket, unsigned id, const char *const *pools,
		  const struct reader_load *load);
unsigned reader_word(unsigned id, unsigned number);

/* Sends a line and waits for the reply "ok". "check" compares all its buffers, word by word, and
 * checks that it has lost no lease; "neighbour N" opens N's buffers by name and compares them;
 * "drop" closes and unlinks all. Between the lines it reads. */
void reader_ask(struct role_process *p, const char *line);
