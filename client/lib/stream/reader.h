/* SPDX-License-Identifier: MIT
 *
 * A reader's half of the protocol of proto/stream.h: which frame comes next, and the claim that
 * keeps its slot. As writer.h, it works on mapped pages and makes no system call. One thread at a
 * time takes frames; any thread may release one.
 */
#pragma once

#include "proto/stream.h"

struct reader {
	const struct stream_head *head;
	struct stream_reader_page *page;
	struct stream_group_page *group; /* share only; else NULL */
	enum stream_follow follow;
	uint32_t slots, order_size; /* checked: the head may say anything later */
	uint32_t index, max_held;
	uint64_t generation;
	_Atomic uint32_t held;
	uint64_t ticket; /* of the last claim */
	uint64_t last;	 /* the last frame that was taken; 0: none */
	uint64_t cursor; /* every: the first frame that was not taken */
	uint64_t redos;	 /* share: of the group's page, when no slot had a frame to be redone */
};

/* A frame that was taken. */
struct reader_frame {
	uint32_t slot;
	uint64_t seq, ticket, time_ns, skipped;
	uint64_t before; /* the slot's claim word that this one took the place of, or 0 */
	uint32_t meta_bytes;
	unsigned char meta[STREAM_META_MAX];
};

/* After JOIN. The page is as the daemon made it; the group's may be anything. */
void reader_init(struct reader *r, const struct stream_head *head, uint32_t slots,
		 struct stream_reader_page *page, struct stream_group_page *group, uint32_t index,
		 uint64_t generation);

/* Takes the next frame; it stays as it is until it is released. Its memory is finished when the
 * slot's ready word is at least seq (reader_is_ready()), for which a GPU may wait. 0; -EAGAIN:
 * no frame is due yet; -EPIPE, -EOWNERDEAD, -ESTALE, -ENOBUFS as for gpushm_frame_next().
 * *ret_wake, in each case: a claim was taken back and the producer sleeps: the caller wakes
 * page->released_count. Keeps the page's taken, skipped and held. */
int reader_take(struct reader *r, struct reader_frame *ret, bool *ret_wake);
/* One look of reader_take()'s: -EINPROGRESS: look again. *ret_wake is only ever set. */
int reader_try(struct reader *r, struct reader_frame *ret, bool *ret_wake);

bool reader_is_ready(const struct reader *r, const struct reader_frame *f);

/* The value that a GPU is to write to the claim's released word, before
 * reader_release_enqueued(). */
uint64_t reader_release_value(const struct reader_frame *f);
/* What the released word must be at least before the GPU writes it: an earlier release of this slot
 * is still queued, perhaps on another CUDA stream. 0: the GPU need not wait. */
uint64_t reader_release_after(const struct reader *r, const struct reader_frame *f);

/* The write is enqueued. Returns whether the producer sleeps: the caller wakes
 * page->released_count. */
bool reader_release_enqueued(struct reader *r, const struct reader_frame *f);
/* The memory is not used any more. Returns as above. */
bool reader_release(struct reader *r, const struct reader_frame *f);

/* As gpushm_frame_ok(). */
int reader_check(const struct reader *r, const struct reader_frame *f);

/* Around a sleep on head->wake: says that the reader sleeps, so that what is published afterwards
 * wakes it; *ret_wake is the value to sleep on. The caller looks once more before it sleeps. */
void reader_sleeps(struct reader *r, uint32_t *ret_wake);
void reader_is_awake(struct reader *r);
