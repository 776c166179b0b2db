/* SPDX-License-Identifier: MIT
 *
 * A mapping of what the reply to a CREATE or OPEN brought, made by driver calls without the
 * library. It does not depend on the daemon, so it can outlive its lease. No correct client does
 * that, but a test must, to see a block as its former and its next owner do. Failures end the Check
 * test.
 */
#pragma once

#include "client/gpushm.h"
#include "tests/gpu/driver.h"
#include "tests/lib/raw.h"

struct mapped {
	const struct driver *gpu; /* borrowed */
	enum gpushm_kind kind;
	int numa_node;	   /* pinned */
	CUmemoryPool pool; /* mempool: imported, once */
	CUdeviceptr ptr; /* 0: nothing is mapped; for pinned memory it is the CPU's address, too */
	size_t bytes;
	unsigned *words; /* owned; host memory of the same size, registered with the driver */
};

/* pool: from the reply to HELLO. bytes: the size of the buffers to be mapped. */
void mapped_init(struct mapped *m, const struct driver *gpu, const Gpushm__Proto__Pool *pool,
		 size_t bytes);
void mapped_done(struct mapped *m);

/* Imports a mempool by its fd, which came with the connection's first attach to it. */
void mapped_import_pool(struct mapped *m, int fd);

/* Maps the memory of an attach; the fd remains the caller's. */
void mapped_open(struct mapped *m, const Gpushm__Proto__Attach *attach, int fd);
void mapped_close(struct mapped *m);

/* Copies all of it to m->words, or sets each word to `value`. The copy engines do this, or the CPU
 * if it can: a kernel that occupies the GPU does not delay them. */
void mapped_read(struct mapped *m);
void mapped_fill(struct mapped *m, unsigned value);
