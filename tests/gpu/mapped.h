/* SPDX-License-Identifier: MIT
 *
 * A raw client's mapping of what a reply to CREATE or OPEN brought, made by the driver's calls
 * themselves. It asks no daemon, so it can outlive the lease: what no correct client does, and a
 * test must, to see a block with the eyes of its former and its next owner. Failures end the Check
 * test.
 */
#ifndef GPUSHM_TESTS_GPU_MAPPED_H
#define GPUSHM_TESTS_GPU_MAPPED_H

#include "client/gpushm.h"
#include "tests/gpu/driver.h"
#include "tests/lib/raw.h"

struct mapped {
	const struct driver *gpu; /* borrowed */
	enum gpushm_kind kind;
	int numa_node;	   /* pinned */
	CUmemoryPool pool; /* mempool: imported, once */
	CUdeviceptr ptr;   /* 0: nothing is mapped; of pinned memory, the CPU's address as well */
	size_t bytes;
	unsigned *words; /* owned; host memory of the same size, registered with the driver */
};

/* pool: of HELLO's reply. bytes: of the buffers to come. */
void mapped_init(struct mapped *m, const struct driver *gpu, const Gpushm__Proto__Pool *pool,
		 size_t bytes);
void mapped_done(struct mapped *m);

/* A mempool's fd, which came with the connection's first attach to it. */
void mapped_import_pool(struct mapped *m, int fd);

/* Maps what an attach brought; the fd stays the caller's. */
void mapped_open(struct mapped *m, const Gpushm__Proto__Attach *attach, int fd);
void mapped_close(struct mapped *m);

/* All of it into m->words; sets each word to `value`. By the copy engines, or by the CPU where it
 * can: a kernel that occupies the GPU does not hold them up. */
void mapped_read(struct mapped *m);
void mapped_fill(struct mapped *m, unsigned value);

#endif
