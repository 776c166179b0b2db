/* SPDX-License-Identifier: MIT
 *
 * Words of host memory by which GPUs of several processes wait for each other: memory of a memfd
 * that is registered with the driver, and the waits and writes that are queued on a CUDA stream.
 */
#pragma once

#include "client/lib/map/map.h"

/* A mapped page. Its owner registers it once for all GPUs, when the first wait or write needs it.
 */
struct order_page {
	void *host;
	size_t bytes;
	bool writable;	  /* else a GPU may wait for its words and not write them */
	uint64_t address; /* for the GPU; 0: not registered */
};

/* A wait until the 64-bit word is at least `value` (compared cyclically), or a write of it, behind
 * all that is queued before. */
struct order_op {
	bool write;
	uint64_t address;
	uint64_t value;
};
#define ORDER_OPS_MAX 66u /* 64 readers, the producer, and one more */

/* Whether the GPU has 64-bit stream memory operations, and can use read-only host memory. 0;
 * -ENOTSUP with gpushm_error() set: it can't, or the driver is too old; -ENODEV. Starts the driver.
 */
int order_check(int device);

/* 0, also if it is registered; or -errno with gpushm_error() set. Takes some 100 us. */
int order_register(struct order_page *p, int device);
/* After the work that uses it has ended. No-op if it is not registered. 0, or -EIO and it is
 * registered still. */
int order_unregister(struct order_page *p, int device);

/* The address of a word in a registered page. */
static inline uint64_t order_address(const struct order_page *p, const void *word)
{
	return p->address + (uint64_t)((const char *)word - (const char *)p->host);
}

/* The number of a CUstream, which no other one of this process ever has; 0: the driver does not
 * tell. */
uint64_t order_stream_id(int device, void *stream);

/* 0, or -EINVAL with gpushm_error() set: the CUstream is another GPU's. Words are registered for
 * all GPUs, but frames are mapped for one, and who ends the use of words waits for that one. -EIO.
 */
int order_check_stream(int device, void *stream);

/* Queues the operations, in their order, on a CUstream of that GPU (NULL: the legacy default
 * stream). Never waits. 0 or -EIO with gpushm_error() set. */
int order_enqueue(int device, void *stream, const struct order_op *ops, size_t n);

/* ---- in a captured graph ---- */

/* Adds the operations to the graph that the stream captures, as one node. -EINVAL: the stream does
 * not capture. */
int order_capture(int device, void *stream, const struct order_op *ops, size_t n, void **ret_node);
/* Gives an instantiated graph's node, of order_capture(), other operations: as many, and writes
 * where it has writes. The graph that the node was captured in must live still. 0 or -EIO. */
int order_set_node(int device, void *graph_exec, void *node, const struct order_op *ops, size_t n);
