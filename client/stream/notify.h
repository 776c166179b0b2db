/* SPDX-License-Identifier: MIT
 *
 * gpushm_stream_fd(): an eventfd, and a thread that makes it readable.
 */
#pragma once

#include <stdbool.h>

struct gpushm_stream;

/* Ends the thread and closes the fd. No-op without them. */
void notify_stop(struct gpushm_stream *s);

/* Before the last look of a call that returns -EAGAIN or -ETIMEDOUT: the fd is not readable any
 * more. polls: what the caller waits for changes without waking the thread, which then looks at
 * short intervals. No-op without an fd. */
void notify_clear(struct gpushm_stream *s, bool polls);
