/* SPDX-License-Identifier: MIT
 *
 * Streams and events: the handles, and whose context each belongs to.
 */
#pragma once

#include "tests/fakecuda/fake_queue.h"

/* The physical GPU that a stream's work runs on: its own context's, or the current one's for the
 * default streams. Errors as context_current(). A destroyed stream is misuse: the driver crashes.
 */
CUresult stream_gpu(CUstream stream, unsigned int *ret);
/* The same with the stream's queue, borrowed. */
CUresult stream_queue(CUstream stream, struct queue **ret, unsigned int *ret_gpu);
/* The physical GPU of a context. */
unsigned int stream_context_gpu(const struct context *context);
