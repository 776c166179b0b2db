/* SPDX-License-Identifier: MIT
 *
 * Everything that a state of the model is made of, which is copied and hashed: the pages of words,
 * what each thread knows, the queues of the GPUs, and what the checks remember.
 */
#pragma once

#include "client/lib/stream/reader.h"
#include "client/lib/stream/writer.h"
#include "daemon/catalog/stream_words.h"

#define SLOTS_MAX 3u
#define READERS 3u
#define PAGES 2u /* of a reader: it may leave and join again */
#define FRAMES_MAX 8u
#define HELD_MAX 2u

enum thread_id { PRODUCER, READER, DAEMON = READER + READERS, THREADS };
#define PROCESSES DAEMON /* all but the daemon may die */

/* The pages, as large as they are for SLOTS_MAX slots. */
#define HEAD_WORDS                                                             \
	(sizeof(struct stream_head) + SLOTS_MAX * sizeof(struct stream_slot) + \
	 2 * SLOTS_MAX * sizeof(uint32_t) + SLOTS_MAX * READERS * sizeof(uint64_t))
struct memory {
	_Alignas(64) unsigned char head[HEAD_WORDS];
	_Alignas(64) unsigned char group[sizeof(struct stream_group_page) + SLOTS_MAX * 8];
	_Alignas(64) unsigned char page[READERS][PAGES][sizeof(struct stream_reader_page) +
							SLOTS_MAX * sizeof(struct stream_claim)];
};

/* Why a thread does not run. */
enum block {
	BLOCK_STEP, /* it does not wait: its next step is one that others may notice */
	BLOCK_FUTEX,
	BLOCK_READY,   /* a reader on the host, for its frame's memory */
	BLOCK_IDLE,    /* for a daemon that does nothing */
	BLOCK_REQUEST, /* for the daemon's reply */
	BLOCK_QUEUE,   /* for its own GPU */
	BLOCK_HEIR,    /* for the end of the first reader */
	BLOCK_DONE
};

enum request { NO_REQUEST, JOIN, LEAVE, DROP, END, ORPHAN, BEGIN, SUSPECT, WATCH };

struct thread {
	uint8_t phase, block, paused, request; /* paused: the reason before it was woken */
	uint8_t dead, gone, buried; /* buried: the daemon has seen that the process is gone */
	uint8_t suspected;	    /* the daemon has seen that its connection has ended */
	uint8_t begun;		    /* others may have noticed a step of this phase */
	uint16_t n_log;		    /* results of the steps of this phase */
};

struct sleep_word {
	const _Atomic uint32_t *word;
	uint32_t value;
};

struct producer {
	uint64_t seq, passed;
	bool knows_passed;
	uint32_t first, n, queue[SLOTS_MAX];
	uint64_t mapped[READERS]; /* generations; 0: none */
	uint32_t mapped_page[READERS];
	uint32_t slot, number; /* number: which producer this is, from 1 */
	uint64_t slot_seq, finished;
	uint32_t n_waits, n_sleeps;
	struct writer_wait waits[READERS];
	struct sleep_word sleeps[READERS + 1];
	bool prepared, wake;
	bool missed; /* a GPU has released something, which a host sees when it looks next */
	int32_t result;
};

struct follower {
	struct reader reader;
	struct reader_frame held[HELD_MAX];
	uint32_t n_held, wake_value, page;
	bool prepared, wake, bad;	 /* bad: of the frame it looks at, the contents were */
	bool dropped, releasing, napped; /* releasing: the oldest frame that it holds */
	int32_t result;
	uint8_t joins, frames;
	uint64_t low, high; /* the newest frame before and after the join */
	uint64_t last;
};

/* ---- GPUs ---- */

enum queued_kind { QUEUED_WAIT, QUEUED_FILL, QUEUED_FILLED, QUEUED_WRITE, QUEUED_READ };
struct queued {
	_Atomic uint64_t *word;
	uint64_t value; /* of READ: the frame */
	uint32_t kind, slot, number;
};
#define QUEUED_MAX 24u
struct queue {
	uint32_t n;
	struct queued op[QUEUED_MAX];
};

/* ---- what the checks remember ---- */

#define NOBODY 255u
struct frame {
	uint8_t number; /* the producer whose contents a reader has seen; 0: none */
	uint8_t holder; /* share: who got it last */
	bool done, releasing, published;
};

struct world {
	struct memory m;
	/* Below here is no padding that is not always 0. */
	struct thread thread[THREADS];
	struct producer producer;
	struct frame frame[FRAMES_MAX];
	uint64_t contents[SLOTS_MAX]; /* contents_of(), or DIRTY */
	uint8_t daemon_op, daemon_for, deaths, drops, restarts, producers, scribbles;
	/* Bit i: reader i had died when the daemon began to end the producer; left: and nobody had
	 * seen an end before. */
	uint8_t leavers, left;
	uint64_t generations;
};
#define DIRTY UINT64_MAX
#define LOG_MAX 512u

extern struct world world;
extern struct follower world_followers[READERS];
extern struct queue world_queues[PROCESSES];
extern uint64_t logs[THREADS][LOG_MAX];
/* 0, or 1 + the futex that was read. */
extern uint8_t log_futex[THREADS][LOG_MAX];

/* ---- a configuration ---- */

struct reader_plan {
	enum stream_follow follow; /* 0: there is no such reader */
	uint8_t max_held;
	bool gpu;
	bool late;	      /* joins while the others run */
	uint8_t leaves_after; /* frames; 0: stays */
	bool returns;	      /* joins once more after that */
	bool heir;	      /* joins when the first reader is dead */
	bool hangs;	      /* its GPU never ends its first work */
	bool bad;	      /* it writes rubbish: rubbish.c */
	bool naps;	      /* its first sleep for each frame ends by itself, at any time */
};

/* What a bad reader writes to a claim; or to its cursor: a frame that comes much later. A bad
 * member of the group also writes to the group's page. */
enum rubbish {
	RUBBISH_NONE = 1,
	RUBBISH_CLAIMED = 2,
	RUBBISH_RELEASING = 4,
	RUBBISH_TICKET = 8, /* releasing, and the claim ends behind STREAM_RELEASED_ALL */
	RUBBISH_RELEASED = 16,
	RUBBISH_CURSOR = 32,
	RUBBISH_NO_NEXT = 64,	/* 0, which is no frame */
	RUBBISH_OLD_NEXT = 128, /* a frame that has been long ago */
	RUBBISH_NEW_NEXT = 256, /* one that comes much later */
	RUBBISH_OWNER = 512,	/* another member has taken the slot's frame */
	RUBBISH_REDO = 1024,	/* the slot's frame is to be redone, and nobody is told */
	RUBBISH_REDOS = 2048
};
#define RUBBISH_KINDS 12u
#define RUBBISH_OF_GROUP (~(uint32_t)(RUBBISH_NO_NEXT - 1))

struct plan {
	const char *name;
	bool deep; /* too large for each day */
	uint32_t slots;
	uint8_t frames;
	bool gpu; /* the producer's */
	struct reader_plan reader[READERS];
	/* At most; restarts: of the daemon within an operation; scribbles: words of rubbish. */
	uint8_t deaths, drops, restarts, scribbles;
	bool watch;	  /* the daemon drops readers for whom a GPU waits */
	uint32_t rubbish; /* enum rubbish */
	uint8_t mortal;	  /* bit: thread_id */
	bool adopt;	  /* another producer continues */
	enum stream_delivery delivery;
	bool keep_queue;
	uint64_t newest; /* that the stream begins behind */
};
extern const struct plan *plan;

/* ---- the words ---- */

enum word {
	WORD_PEOPLE, /* decides nothing */
	WORD_ACTIVE,
	WORD_EVERY,
	WORD_SHARING,
	WORD_LEAVING,
	WORD_GROUP_OPEN,
	WORD_STATE,
	WORD_NEWEST,
	WORD_WAKE,
	WORD_HEAD_ASLEEP,
	WORD_SEAT,
	WORD_READY,
	WORD_SEQ,
	WORD_BROKEN,
	WORD_TAKING,
	WORD_WAITS,
	WORD_ORDER,
	WORD_CURSOR,
	WORD_PAGE_ASLEEP,
	WORD_RELEASED_COUNT,
	WORD_CLAIM,
	WORD_RELEASED,
	WORD_NEXT,
	WORD_REDOS,
	WORD_OWNER,
	WORD_PRIVATE, /* not in a page */
	WORDS
};
/* *ret_index: the slot or the entry. */
enum word word_of(const void *address, uint32_t *ret_index);
const char *word_name(enum word w);

static inline struct stream_head *head(void)
{
	return (struct stream_head *)(void *)world.m.head;
}

static inline struct stream_group_page *group(void)
{
	return (struct stream_group_page *)(void *)world.m.group;
}

static inline struct stream_reader_page *page_of(uint32_t reader, uint32_t page)
{
	return (struct stream_reader_page *)(void *)world.m.page[reader][page];
}

static inline struct stream_words words(void)
{
	return (struct stream_words){ .head = head(),
				      .group = group(),
				      .shape = { .slots = plan->slots,
						 .readers = READERS,
						 .delivery = plan->delivery,
						 .keep_queue = plan->keep_queue,
						 .slot_bytes = 1,
						 .limit_ms = plan->watch ? 0 : UINT64_MAX } };
}

/* The place of a frame among those of the plan. */
static inline uint32_t frame_index(uint64_t seq)
{
	uint32_t i = 0;

	for (uint64_t s = stream_next(plan->newest); s != seq && i < FRAMES_MAX - 1; i++)
		s = stream_next(s);
	return i;
}

static inline uint64_t contents_of(uint64_t seq, uint32_t number)
{
	return seq << 8 | number;
}

/* ---- states ---- */

#define STATE_MAX                                                   \
	(sizeof(struct world) + READERS * sizeof(struct follower) + \
	 PROCESSES * sizeof(struct queue) + THREADS * LOG_MAX * (sizeof(uint64_t) + 1))
size_t state_save(unsigned char *ret);
void state_restore(unsigned char *from);
