/* SPDX-License-Identifier: MIT
 *
 * Captured graphs: the operations of one stream, in their order.
 */
#pragma once

#include "tests/fakecuda/fake_queue.h"

/* Adds a node. Takes the operation. OUT_OF_MEMORY. */
CUresult graph_add(struct graph *g, struct op *op);
/* Adds a node of a checked batch. */
CUresult graph_add_batch(struct graph *g, unsigned int n, const CUstreamBatchMemOpParams *params);
/* Calls that a driver refuses while a stream captures, unless the thread has the relaxed mode:
 * STREAM_CAPTURE_UNSUPPORTED, and the captures have failed. */
CUresult graph_check_safe(void);
/* Graphs and instantiated graphs that were not destroyed. */
unsigned long graph_alive(void);
