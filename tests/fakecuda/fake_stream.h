/* SPDX-License-Identifier: MIT
 *
 * Streams and events: a stream has done its work when the call that queued it returns.
 */
#ifndef GPUSHM_TESTS_FAKECUDA_STREAM_H
#define GPUSHM_TESTS_FAKECUDA_STREAM_H

#include "tests/fakecuda/fake_call.h"

/* The physical GPU that a stream's work runs on: its own context's, or the current one's for the
 * default streams. INVALID_HANDLE: it is no stream (any more); else as context_current(). */
CUresult stream_gpu(CUstream stream, unsigned int *ret);

#endif
