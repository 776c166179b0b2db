/* SPDX-License-Identifier: MIT
 *
 * gpushm_stream_fd(): an eventfd, and a thread that makes it readable.
 */
#pragma once

#include <stdint.h>

struct gpushm_stream;

/* Ends the thread and closes the fd. No-op without them. */
void notify_stop(struct gpushm_stream *s);

/* Before the last look of a call that returns -EAGAIN or -ETIMEDOUT: the fd is not readable any
 * more. poll_ns: what the caller waits for changes without waking the thread, which then makes the
 * fd readable at such intervals; 0: it wakes the thread. No-op without an fd. */
#define NOTIFY_GPU_NS 1000000ull     /* for what a GPU writes */
#define NOTIFY_DAEMON_NS 20000000ull /* for a daemon; each look at it may take some ms */
void notify_clear(struct gpushm_stream *s, uint64_t poll_ns);
