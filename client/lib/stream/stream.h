/* SPDX-License-Identifier: MIT
 *
 * A stream as this process has it: its buffer and pages, the half of the protocol that it plays,
 * and the frames that it has.
 */
#pragma once

#include "client/gpushm_stream.h"
#include "client/lib/array/array.h"
#include "client/lib/buffer/buffer.h"
#include "client/lib/map/order.h"
#include "client/lib/stream/pace.h"
#include "client/lib/stream/reader.h"
#include "client/lib/stream/writer.h"
#include "proto/base/list.h"

#include <pthread.h>

struct notify;

struct gpushm_frame {
	struct list link; /* gpushm_stream::frames, or ::spare */
	struct gpushm_stream *stream;
	bool in_graph;		/* a launched graph ends it: publish and release queue nothing */
	uint64_t taken_ns;	/* CLOCK_MONOTONIC_COARSE; of a reader's frame */
	struct reader_frame at; /* of the producer's frame: slot and seq */
};

/* A reader's page that was replaced while a GPU may still wait for a word of it. */
struct retired_page {
	struct retired_page *next;
	struct order_page page;
	uint32_t slot; /* when the frame `seq` of this slot is ready, no GPU waits any more */
	uint64_t seq;
};

struct producer {
	struct writer writer;
	struct writer_slot slot; /* of the frame that is being filled */
	struct gpushm_frame *filling;
	struct order_page pages[STREAM_READERS_MAX];
	/* The last frame whose slot a GPU has waited for on that page; 0: none. */
	struct {
		uint32_t slot;
		uint64_t seq;
	} waited[STREAM_READERS_MAX];
	struct retired_page *retired;
	uint64_t maps; /* so far, of readers' pages */
	/* CLOCK_MONOTONIC in ns: no slot is free since; 0: one was free at the last look. */
	uint64_t stalled_since;
	uint64_t drop_after; /* CLOCK_MONOTONIC in ns: no reader could be dropped before, without a
				daemon */
	/* The time from which a reader's limit counts, how often it was put off in this wait, and
	 * who of the share group was in the way at the last look, as in struct writer_blocker. */
	uint64_t blamed_since, blamed_generation;
	uint32_t blamed, extensions;
};

struct follower {
	struct reader reader;
	struct order_page page;
	uint64_t joined_at; /* the newest frame when it joined */
	/* A frame that was taken for the host, whose producer's GPU had not finished it. */
	struct gpushm_frame *pending;
	uint32_t told_orphaned; /* -EOWNERDEAD was returned for so many producers; 0: never */
	struct pace pace;	/* if it spins for longer than by default */
	uint64_t spin_begun;	/* CLOCK_MONOTONIC in ns, for the next frame; 0: not yet */
};

struct gpushm_stream {
	struct gpushm_buffer *buffer; /* counted by buffer_get() */
	bool is_producer, keep_name;
	bool has_left; /* only gpushm_stream_close() is left to do */
	bool has_told; /* the daemon knows that, or never will */
	bool on_gpu; /* the memory can be used on a GPU; else GPUSHM_ON_HOST is all that there is */
	int device;  /* whose streams wait and write; -1 */
	uint32_t slots, readers; /* these and the next two: as checked once */
	uint64_t slot_bytes, limit_ms;
	uint64_t outage;	      /* for wait_check_daemon() */
	uint64_t idle_since;	      /* see stream_is_idle(); 0: not idle */
	uint64_t spin_ns;	      /* a wait looks all the time for so long, and then sleeps */
	struct gpushm_array **arrays; /* owned; sorted by name; with the slots as first dimension */
	size_t n_arrays;
	/* Owned; by slot: the CUDA stream that this process queued the slot's last word on
	 * (order_stream_id()). What is queued there later comes after it without a wait, which
	 * would make the GPU read the host's memory. 0: not known. NULL: a host pool. */
	uint64_t *ended_on;
	struct order_page head, group; /* group: not of an `every` or `latest` reader */
	struct producer producer;
	struct follower follower;
	pthread_mutex_t lock; /* frames, spare, notify; the pages' registration and replacement */
	struct list frames, spare;
	struct gpushm_frame *fresh;    /* owned; frame_new(); NULL: none */
	struct notify *_Atomic notify; /* NULL before gpushm_stream_fd() */
};

#define stream_error(s, number, ...) error_of("stream", (s)->buffer->name, number, __VA_ARGS__)

/* 0; -EINVAL for NULL, -ECHILD in a forked child, -EBADF after gpushm_stream_leave(), with
 * gpushm_error() set. No system call. */
static inline int stream_check(const struct gpushm_stream *s)
{
	int r = error_null(s, "stream");

	if (r == 0)
		r = buffer_check(s->buffer);
	if (r < 0 || !s->has_left)
		return r;
	return stream_error(s, EBADF, "this process has left it: close it");
}

/* The same, and -EBADF if this process is not the stream's producer, or not a reader. */
int stream_check_role(const struct gpushm_stream *s, bool producer);

static inline struct stream_head *stream_head(const struct gpushm_stream *s)
{
	return s->head.host;
}

/* Counts itself on b. NULL: no memory. */
struct gpushm_stream *client_stream_new(struct gpushm_buffer *b);

/* spin_us is that of the options; stream_check_spin(): 0, or -EINVAL with gpushm_error() set. */
int stream_check_spin(uint64_t spin_us);
void stream_set_spin(struct gpushm_stream *s, uint64_t spin_us);
/* When to stop spinning for what is waited for since `begun`: not before the default time from now
 * on is over, and not after the deadline. */
uint64_t stream_spin_end(const struct gpushm_stream *s, uint64_t begun, uint64_t now,
			 uint64_t deadline);

/* After a nap in which nothing has come: whether the naps since the last true, or since something
 * came, have taken so long in all. A wait may be made of many short calls. begun: CLOCK_MONOTONIC
 * in ns, of this nap. */
bool stream_is_idle(struct gpushm_stream *s, uint64_t begun, uint64_t ns);
/* The same for a call that does not wait and finds nothing, as those of an event loop: looks for
 * the daemon from time to time. -EAGAIN; -ECONNRESET and others with gpushm_error() set. */
int stream_check_daemon(struct gpushm_stream *s);

/* The steps of making one. 0 or -errno with gpushm_error() set. */
int stream_check_pool(const struct gpushm_buffer *b);
int stream_map_head(struct gpushm_stream *s);
int stream_map_group(struct gpushm_stream *s);
void stream_unmap(const struct gpushm_stream *s, struct order_page *p);
int stream_check_writable(const struct gpushm_stream *s, const struct order_page *p);
int stream_get_arrays(struct gpushm_stream *s);
void stream_free_arrays(struct gpushm_stream *s);

/* Closes a half-made stream, and keeps gpushm_error(). Returns r. */
int stream_give_up(struct gpushm_stream *s, int r);

/* Whether that cuda_stream is the host: *ret. 0; -ENOTSUP: a CUDA stream for a host pool;
 * -EINVAL: one of another GPU. */
int stream_on_host(const struct gpushm_stream *s, void *cuda_stream, bool *ret);

/* A frame for what is taken next: for the thread that takes frames, and the same one until
 * frame_keep(). NULL: no memory. */
struct gpushm_frame *frame_new(struct gpushm_stream *s);
/* It has been taken; frame_free() ends that. Both keep the memory for other frames. */
void frame_keep(struct gpushm_frame *f);
void frame_free(struct gpushm_frame *f);

/* Queues a frame's last operations, and keeps in mind where. 0 or -errno. */
int frame_enqueue_end(struct gpushm_frame *f, void *cuda_stream);
/* producer_begin() or follower_next(). */
int frame_take(struct gpushm_stream *s, bool on_host, uint64_t timeout_ms, struct order_op *ops,
	       size_t *ret_n, struct gpushm_frame **ret);
/* Cancels or releases it, after the work that this process has queued. Keeps gpushm_error(). */
void frame_give_back(struct gpushm_frame *f);

/* Registers a page of the stream with the driver, if it is not yet. 0 or -errno. */
int stream_register(struct gpushm_stream *s, struct order_page *p);

/* ---- the producer: producer.c ---- */

/* gpushm_frame_begin(). With on_host the memory is the CPU's when it returns; else *ret_ops gets at
 * most ORDER_OPS_MAX waits that a GPU is to do first. */
int producer_begin(struct gpushm_stream *s, bool on_host, uint64_t timeout_ms, struct order_op *ops,
		   size_t *ret_n, struct gpushm_frame **ret);
/* Drops the frame that is being filled, after the work that this process has queued on the GPU:
 * also the frame that the slot had before may still be unfinished. */
void producer_cancel(struct gpushm_frame *f);
void producer_done(struct gpushm_stream *s);
/* What a producer sleeps on: at most WAIT_WORDS_MAX - 1 words. From now on each release of a reader
 * changes one of them. Any thread. */
struct wait_word;
size_t producer_words(struct gpushm_stream *s, struct wait_word *ret);

/* ---- a reader: follower.c ---- */

/* gpushm_frame_next(), likewise. */
int follower_next(struct gpushm_stream *s, bool on_host, uint64_t timeout_ms, struct order_op *ops,
		  size_t *ret_n, struct gpushm_frame **ret);
int follower_release(struct gpushm_frame *f, void *cuda_stream);
void follower_done(struct gpushm_stream *s);

/* What ends the frame on a GPU, its publication or its release: a write, and perhaps a wait before
 * it. 0 or -errno. */
#define FRAME_END_OPS 2u
int frame_end_ops(struct gpushm_frame *f, struct order_op *ops, size_t *ret_n);

/* ---- layout.c ---- */

/* The arrays of a stream's buffer: each array of a frame, with the slots as one more dimension
 * before the others. */
struct layout {
	struct gpushm_array_spec *specs; /* owned; n of them, with offsets */
	struct layout_numbers *numbers;	 /* owned; the specs' shapes and strides */
	size_t n;
	uint64_t slot_bytes, bytes; /* of a slot, and of all */
};

/* 0 or -errno with gpushm_error() set: as gpushm_layout(), and -ENOTSUP for elements narrower than
 * a byte. */
int layout_init(struct layout *l, const struct gpushm_array_spec *arrays, size_t n, uint32_t slots);
void layout_done(struct layout *l);

/* gpushm_buffer_digest() of a buffer with this layout. 0 or -errno. */
int layout_digest(const struct layout *l, uint64_t *ret);

/* ---- notify.c: gpushm_stream_fd(), an eventfd, and a thread that makes it readable ---- */

/* Ends the thread and closes the fd. No-op without them. */
void notify_stop(struct gpushm_stream *s);

/* Before the last look of a call that returns -EAGAIN or -ETIMEDOUT: the fd is not readable any
 * more. poll_ns: what the caller waits for changes without waking the thread, which then makes the
 * fd readable at such intervals; 0: it wakes the thread. No-op without an fd. */
#define NOTIFY_GPU_NS 1000000ull     /* for what a GPU writes */
#define NOTIFY_DAEMON_NS 20000000ull /* for a daemon; each look at it may take some ms */
void notify_clear(struct gpushm_stream *s, uint64_t poll_ns);
