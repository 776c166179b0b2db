/* SPDX-License-Identifier: MIT
 *
 * Streams and events: a stream has done its work when the call that queued it returns.
 */
#pragma once

#include "tests/fakecuda/fake_call.h"

/* The physical GPU that a stream's work runs on: its own context's, or the current one's for the
 * default streams. Errors as context_current(). A destroyed stream is misuse: the driver crashes.
 */
CUresult stream_gpu(CUstream stream, unsigned int *ret);
