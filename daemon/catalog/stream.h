/* SPDX-License-Identifier: MIT
 *
 * A stream, as the daemon has it: the pages of its words, who its producer is, and the seats of its
 * readers. Its buffer owns it. Nothing here runs for a frame: the words of proto/stream.h do that.
 *
 * A process may write rubbish into the pages that it has writable. So the daemon decides by what is
 * in these structs; it reads the words for people and in stream_words.h alone.
 */
#pragma once

#include "daemon/catalog/stream_page.h"
#include "daemon/catalog/stream_words.h"
#include "daemon/catalog/turns.h"

struct buffer;
struct catalog;
struct lease;

/* A seat. */
struct stream_reader {
	struct stream_page *page; /* owned; NULL: the seat is free */
	struct lease *lease;	  /* borrowed */
	uint64_t generation;
	uint64_t joined_ns; /* CLOCK_REALTIME */
	enum stream_follow follow;
	uint32_t max_held;
	bool dropped; /* it held up the producer: it keeps the seat until its lease ends */
};

/* What the words count, for people. */
struct stream_counts {
	uint64_t frames, stalls, stalled_ns, drops, redone, lost;
};

struct stream {
	struct list link;		  /* catalog::streams, in the order of the buffers' ids */
	struct catalog *catalog;	  /* borrowed */
	struct buffer *buffer;		  /* borrowed: its owner */
	struct stream_page *head, *group; /* owned */
	struct stream_words words;	  /* in them */
	struct stream_reader *readers;	  /* owned; as many as words.shape.readers */
	struct lease *producer;		  /* borrowed; only while it is running */
	enum stream_state state;
	uint32_t n_readers;
	uint32_t producers, drops;   /* so far */
	uint64_t joins;		     /* so far: the last generation */
	bool leaving;		     /* the words name members that may have died */
	struct work work;	     /* the look for readers that hold it up, and at such members */
	struct stream_counts before; /* what they were when this daemon began */
};

/* 0, or -errno with *f filled in. */
int stream_check_shape(const struct stream_shape *spec, uint64_t bytes, struct fault *f);

/* A stream without a producer and without readers; its pages are charged to that user. 0, or -errno
 * with *f filled in. */
int stream_new(struct accounts *a, uid_t uid, const struct stream_shape *spec, struct stream **ret,
	       struct fault *f);

/* The stream of an earlier daemon, by the fds of its head and its group's page, which the function
 * owns. 0 or -errno. */
int stream_adopt(struct accounts *a, uid_t uid, const struct stream_shape *spec, int head,
		 int group, struct stream **ret);

/* It is published, and systemd has its pages. */
void stream_drop_originals(struct stream *s);

/* NULL is allowed. Returns NULL. The first frees the pages as stream_page_retire(). */
struct stream *stream_retire(struct stream *s, struct retired_pages *retired);
struct stream *stream_free(struct stream *s);

/* ---- the producer ---- */

/* There is a new one, which continues after the newest frame; nobody sees it before
 * stream_begin(). */
void stream_take_producer(struct stream *s, struct lease *producer);
void stream_refuse_producer(struct stream *s);
void stream_begin(struct stream *s);

/* The producer of an earlier daemon, which may have died before stream_begin(). */
void stream_adopt_producer(struct stream *s, struct lease *producer);

/* It has closed the stream, or died. */
void stream_end(struct stream *s);
void stream_orphan(struct stream *s);

/* Whether a producer has said itself that no frame follows. */
bool stream_says_ended(const struct stream *s);

/* ---- a reader ---- */

/* Gives it a seat with a page, charged to that user; nobody sees it before stream_join(). 0;
 * -EUSERS; -errno; with *f filled in. */
int stream_take_seat(struct accounts *a, struct stream *s, uid_t uid,
		     const struct stream_reader *reader, uint32_t *ret, struct fault *f);

/* The same of a reader of an earlier daemon, in that seat, by the fd of its page, which the
 * function owns. 0 or -errno. */
int stream_adopt_seat(struct accounts *a, struct stream *s, uid_t uid,
		      const struct stream_reader *reader, uint32_t index, int page);

/* Its claims count from now on. pid: for people. */
void stream_join(struct stream *s, uint32_t index, pid_t pid);

/* Whether the words say so already: an earlier daemon may have died before it wrote them, or before
 * it wrote the journal. */
bool stream_has_joined(const struct stream *s, uint32_t index);
bool stream_was_dropped(const struct stream *s, uint32_t index);

/* It has held up the producer for too long: its claims end, its seat stays taken. */
void stream_drop(struct stream *s, uint32_t index);

/* Its lease has ended: its claims end, if it was not dropped. */
void stream_leave(struct stream *s, uint32_t index);

/* The reader's connection has ended, or it has come back. */
void stream_suspect(struct stream *s, uint32_t index);
void stream_return(struct stream *s, uint32_t index);

/* Tells the group for which of its members' frames it waits when the stream has no producer any
 * more. left: bit i: the connection of reader i has ended. */
void stream_find_leaving(struct stream *s, uint64_t left);

/* Nobody has this seat; if the words say otherwise, the page of its reader is lost. */
void stream_clear_seat(struct stream *s, uint32_t index);

/* Frees the seat. */
void stream_free_seat(struct stream *s, uint32_t index, struct retired_pages *retired);

/* The readers (bit i) whose GPU has held up the producer's for longer than the limit. */
uint64_t stream_find_stuck(struct stream *s, uint64_t now_ns);

/* ---- for people ---- */

static inline const struct stream_reader_page *stream_reader_page(const struct stream_reader *r)
{
	return r->page->map;
}

struct stream_counts stream_counts(const struct stream *s);
/* What it counted since this daemon began. */
void stream_counts_add(struct stream_counts *to, const struct stream *s);

/* CLOCK_MONOTONIC of the newest frame; 0: no frame is published. */
uint64_t stream_newest_ns(const struct stream *s);
