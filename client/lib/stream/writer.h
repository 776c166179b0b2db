/* SPDX-License-Identifier: MIT
 *
 * The producer's half of the protocol of proto/stream.h: which slot may be filled, and the words
 * that make a frame of it. It works on mapped pages, makes no system call, and knows neither
 * the daemon nor a GPU: its caller enqueues the waits and the write that it asks for. One thread at
 * a time.
 */
#pragma once

#include "proto/stream.h"

#include <stddef.h>

/* A reader's page, as the producer has mapped it. */
struct writer_page {
	const struct stream_reader_page *page; /* NULL: not mapped */
	uint64_t generation;		       /* of the seat that it belongs to */
};

struct writer {
	struct stream_head *head;
	const struct stream_group_page *group;
	uint32_t slots, order_size, readers; /* checked: the head may say anything later */
	uint64_t seq;			     /* of the next frame */
	uint64_t passed;		     /* nobody is to take a frame before this one, */
	bool knows_passed;		     /* if this is set */
	struct writer_page pages[STREAM_READERS_MAX];
	/* Owned; the slots that are not being filled, the one with the oldest frame first. A ring
	 * of `slots` entries. */
	uint32_t *queue;
	uint32_t first, n;
};

/* A wait for the GPU: until reader `reader`'s released word of this slot is at least `value`. */
struct writer_wait {
	uint32_t reader;
	uint64_t value;
};

/* A slot that was taken. */
struct writer_slot {
	uint32_t slot;
	uint64_t seq;	   /* that the frame will get */
	uint64_t finished; /* the slot's ready word must be at least this (its last frame); 0: it is
			    */
	size_t n_waits;	   /* only if the caller can let a GPU wait */
	struct writer_wait waits[STREAM_READERS_MAX];
};

/* Which reader is in the way. */
struct writer_blocker {
	uint32_t reader; /* STREAM_READERS_MAX: the share group, or nobody */
	uint64_t generation;
	/* Also after a success: a reader sleeps that may have missed a frame while this looked at
	 * its slot. The caller wakes head->wake. */
	bool wake;
};

/* Begins with the frame after head->newest, with the slots as the head has them, which an earlier
 * producer may have left in any state. slots, readers: as the page's size allows. 0 or -ENOMEM. */
int writer_init(struct writer *w, struct stream_head *head, const struct stream_group_page *group,
		uint32_t slots, uint32_t readers);
void writer_done(struct writer *w);

/* Whether a reader has joined whose page is not mapped: *ret is its index. The caller maps
 * it with writer_map() before writer_take(). */
bool writer_unmapped(const struct writer *w, uint32_t *ret);
/* Uses that page from now on; returns the one that it replaces, or NULL. */
const struct stream_reader_page *writer_map(struct writer *w, uint32_t reader, uint64_t generation,
					    const struct stream_reader_page *page);

/* Takes the oldest slot that nobody needs. now_ns: CLOCK_MONOTONIC; without gpu 0. gpu: the caller
 * can let a GPU wait for *ret's waits and `finished`; else only slots that need no wait are taken.
 * 0; -EAGAIN: no slot is free, *blocker says why; -ESTALE: a reader has joined meanwhile whose page
 * is not mapped. */
int writer_take(struct writer *w, bool gpu, uint64_t now_ns, struct writer_slot *ret,
		struct writer_blocker *blocker);

/* Makes a frame of the slot. The caller has enqueued the write of the slot's ready word, or
 * on_host: the memory is finished and this writes the ready word. Returns whether somebody sleeps:
 * the caller wakes head->wake. */
bool writer_publish(struct writer *w, const struct writer_slot *slot, bool on_host,
		    uint64_t time_ns, const void *meta, size_t n);

/* Gives the slot back, which has no frame any more: it is the next to be taken. No GPU uses it. */
void writer_cancel(struct writer *w, const struct writer_slot *slot);
