/* SPDX-License-Identifier: MIT
 *
 * What the daemon does with the words of a stream (proto/stream.h): joins, ends and deaths. Pure
 * functions on mapped pages: no system call, no memory of their own. The pages may hold rubbish,
 * which hurts those alone who wrote it. Each of them can be done again after a daemon that died in
 * it.
 *
 * Futexes: each function but the first two and stream_words_suspect() has changed head->wake, and
 * the caller wakes it; after stream_words_leave() and stream_words_drop() also released_count of
 * the reader's page, if there is one.
 */
#pragma once

#include "proto/stream.h"

/* What never changes. */
struct stream_shape {
	uint32_t slots, readers;
	enum stream_delivery delivery;
	bool keep_queue;
	uint64_t slot_bytes, limit_ms; /* limit_ms: UINT64_MAX: no limit */
};

struct stream_words {
	struct stream_head *head;
	struct stream_group_page *group;
	struct stream_shape shape; /* as the daemon knows it: the head may say anything */
};

/* Pages of zeros get what never changes. The stream is orphaned: stream_words_begin(). */
void stream_words_init(const struct stream_words *w);
void stream_words_init_reader(const struct stream_words *w, struct stream_reader_page *page);

/* A producer begins, or continues. */
void stream_words_begin(const struct stream_words *w, uint32_t producers);
/* The producer has closed the stream, or its process is really gone. A frame that is not finished
 * is told as broken. */
void stream_words_end(const struct stream_words *w);
void stream_words_orphan(const struct stream_words *w);

struct stream_join {
	uint64_t generation, now_ns; /* CLOCK_MONOTONIC */
	uint32_t max_held;
	enum stream_follow follow;
	int32_t pid;
};
/* The page is new. From here on the reader's claims count. */
void stream_words_join(const struct stream_words *w, uint32_t reader,
		       struct stream_reader_page *page, const struct stream_join *join);

/* The reader's process is really gone, or it has closed its lease. page: NULL: it has none; what
 * earlier daemons began is undone. Not after stream_words_drop(), but stream_words_free_seat(). */
void stream_words_leave(const struct stream_words *w, uint32_t reader,
			struct stream_reader_page *page);
/* The same with a reader that lives; its seat says that it was dropped. */
void stream_words_drop(const struct stream_words *w, uint32_t reader,
		       struct stream_reader_page *page);
/* The lease of a reader that was dropped has ended. */
void stream_words_free_seat(const struct stream_words *w, uint32_t reader,
			    struct stream_reader_page *page);

/* A member of the group may have died, and perhaps holds a frame: the group waits for what becomes
 * of it before it takes the end of the stream for its own. */
void stream_words_suspect(const struct stream_words *w, uint32_t reader);
/* It lives. */
void stream_words_return(const struct stream_words *w, uint32_t reader);
/* Looks which of those members hold a frame, and waits for these alone: before
 * stream_words_end() and stream_words_orphan(), and now and then behind them. pages: of those that
 * may have died; NULL: the others. Returns who holds one (bit i). */
uint64_t stream_words_find_leaving(const struct stream_words *w,
				   struct stream_reader_page *const *pages);

/* The readers (bit i) for whom the producer's GPU has waited for longer than the limit. Also ends
 * once more the claims of readers that were dropped, which they may have written over. pages: by
 * reader, NULL: none. */
uint64_t stream_words_stuck(const struct stream_words *w, struct stream_reader_page *const *pages,
			    uint64_t now_ns);

/* Frames that wait for the share group. */
uint64_t stream_words_queued(const struct stream_words *w);
