/* SPDX-License-Identifier: MIT
 *
 * The words of a stream: shared memory by which a producer hands frames to its readers without a
 * call of the daemon. gpushm-protocol(7) has the layout, gpushm-streams(7) the picture.
 *
 * Each page is a memfd of its own. A page has one writer beside the daemon, and is mapped read-only
 * by everybody else; the group's page alone is written by all members of the group:
 *
 *	page 0, the head	written by the producer
 *	page 1, the group's	written by the members of the `share` group
 *	page 2 + i		written by reader i
 *
 * Sequence numbers begin at 1 and are compared cyclically; 0 is no frame. A GPU waits for a word
 * with CU_STREAM_WAIT_VALUE_GEQ, which compares in the same way.
 *
 * Words that decide something are read and written with the sequentially consistent operations of
 * proto/stream_atomic.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STREAM_SLOTS_MIN 2u
#define STREAM_SLOTS_MAX 4096u
#define STREAM_READERS_MAX 64u
#define STREAM_META_MAX 64u /* bytes of the user's with each frame */

#define STREAM_PAGE_HEAD 0u
#define STREAM_PAGE_GROUP 1u
#define STREAM_PAGE_READER 2u /* the first of the readers' pages */

#define STREAM_HEAD_MAGIC 0x6461656873677067ull	  /* "gpgshead" */
#define STREAM_GROUP_MAGIC 0x7075726773677067ull  /* "gpgsgrup" */
#define STREAM_READER_MAGIC 0x6461657273677067ull /* "gpgsread" */
#define STREAM_VERSION 1u

/* What the producer's process does. */
enum stream_state {
	STREAM_RUNNING = 1,
	STREAM_ENDED = 2,   /* the producer has closed the stream: no frame follows */
	STREAM_ORPHANED = 3 /* the producer died; another one may continue the stream */
};

enum stream_follow { STREAM_EVERY = 1, STREAM_LATEST = 2, STREAM_SHARE = 3 }; /* enum Follow */

/* How the `share` group delivers what a dead member held. */
enum stream_delivery { STREAM_AT_LEAST_ONCE = 1, STREAM_AT_MOST_ONCE = 2 }; /* enum Delivery */

/* A reader's seat, written by the daemon. Each JOIN makes a new page: the producer fetches it when
 * it sees a generation that it does not have, before it takes another slot. So the claims of a
 * reader count from the moment that it has joined, also while the producer does nothing. */
struct stream_seat {
	_Atomic uint64_t generation; /* of the reader's page: the number of its JOIN, from 1 */
	_Atomic uint32_t state;	     /* enum stream_seat_state */
	_Atomic uint32_t follow;     /* enum stream_follow */
	_Atomic uint32_t max_held;   /* frames that the reader may hold at a time */
	_Atomic int32_t pid;	     /* for people */
	_Atomic uint64_t joined_ns;  /* CLOCK_MONOTONIC */
};
enum stream_seat_state {
	STREAM_SEAT_FREE = 0,
	STREAM_SEAT_TAKEN = 1,
	STREAM_SEAT_DROPPED = 2 /* the reader held up the producer for too long */
};

struct stream_slot {
	/* The newest frame in this slot that is finished: the GPU's word, or the CPU's. */
	_Atomic uint64_t ready;
	/* The frame that the slot has; 0: none, or the producer is filling it. */
	_Atomic uint64_t seq;
	/* Daemon: the frames of this slot behind broken - broken_span, up to broken, were not
	 * finished when their producer died. */
	_Atomic uint64_t broken;
	_Atomic uint64_t time_ns;  /* CLOCK_MONOTONIC at the publication */
	_Atomic uint64_t begun_ns; /* CLOCK_MONOTONIC: a GPU is to fill the slot since; else 0 */
	_Atomic uint32_t meta_bytes;
	_Atomic uint32_t broken_span;
	/* The frame that the slot has while seq is 0 and the producer looks whether it may take the
	 * slot; else 0. A producer that dies there has not touched the memory. */
	_Atomic uint64_t taking;
	/* Bit i: a GPU is to wait for reader i before this slot is filled; until when:
	 * stream_awaited(). */
	_Atomic uint64_t waits;
	unsigned char meta[STREAM_META_MAX];
};

struct stream_head {
	/* What never changes, written by the daemon before anybody has the page. */
	uint64_t magic;
	uint32_t version;
	uint32_t slots;
	uint32_t order_size; /* power of two, more than slots */
	uint32_t readers;    /* seats */
	uint32_t delivery;   /* enum stream_delivery */
	uint32_t keep_queue; /* 1: the group's frames are kept while it has no member */
	uint64_t slot_bytes; /* from one slot of the buffer to the next */
	uint64_t limit_ms;   /* how long a reader may hold up the producer; UINT64_MAX: no limit */
	uint64_t reserved0[2];

	/* The daemon's. */
	_Atomic uint64_t active;     /* bit i: reader i has joined, so that its claims count */
	_Atomic uint64_t every;	     /* bit i: its cursor counts, too */
	_Atomic uint64_t sharing;    /* bit i: it is a member of the group */
	_Atomic uint32_t group_open; /* 1: the group's `next` counts */
	_Atomic uint32_t state;	     /* enum stream_state */
	_Atomic uint32_t producers;  /* + 1 with each producer */
	uint32_t reserved1;
	/* While the stream has no producer: bit i: the connection of this member of the group has
	 * ended, its lease has not, and a frame that it holds may come back to the group. */
	_Atomic uint64_t leaving;
	uint64_t reserved2[2];

	/* The producer's. */
	_Atomic uint64_t newest; /* the last frame that was published; 0: none */
	/* A futex: + 1 with each publication that wakes readers. The daemon adds 1, too, when a
	 * word of its own changes. Only ever changed by an atomic addition. */
	_Atomic uint32_t wake;
	_Atomic uint32_t asleep;    /* 1: the producer sleeps until a reader releases something */
	_Atomic uint64_t waited_ns; /* CLOCK_MONOTONIC: the producer waits for space since; 0: no */
	_Atomic uint64_t stalls, stalled_ns; /* how often, and how long it waited, in all */
	_Atomic uint64_t newest_slot;	     /* the slot of the newest frame, or of the next one */
	/* 1: the producer closes the stream: the daemon reads it when the producer has gone, for no
	 * daemon may be there to hear of the end. Readers do not: the daemon first looks for
	 * members that are leaving. */
	_Atomic uint64_t closed;
	uint64_t reserved3;

	struct stream_seat seats[STREAM_READERS_MAX];
	struct stream_slot slot[];
	/* Behind the slots: _Atomic uint32_t order[order_size]: frame seq lies in slot
	 * order[seq % order_size], if that slot has it still. Then _Atomic uint64_t
	 * awaited[slots][readers]: what a GPU is to wait for in the reader's released word. */
};

/* A ticket is the number of a claim on this page, from 1. A larger number than STREAM_TICKETS is
 * rubbish: the producer takes it for a claim that has not ended. */
#define STREAM_TICKETS (1ull << 60)
/* The daemon writes this to `released` when the reader is gone or dropped: all claims have ended.
 */
#define STREAM_RELEASED_ALL (1ull << 62)

struct stream_claim {
	_Atomic uint64_t claim; /* ticket << 2 | enum stream_claim_state */
	/* Written by GPUs: ticket << 2 of the claim that ended. A claim that ends on the CPU is
	 * taken back instead, so that no GPU takes it for the end of an earlier one. */
	_Atomic uint64_t released;
	/* The producer reads one slot's claims while the reader writes another's. */
	uint64_t reserved[6];
};
enum stream_claim_state {
	STREAM_NO_CLAIM = 0,
	STREAM_CLAIMED = 1,
	/* A write of `released` is enqueued on a GPU, so that a GPU may wait for it. */
	STREAM_RELEASING = 2
};

struct stream_reader_page {
	uint64_t magic;
	uint32_t version;
	uint32_t slots;
	/* 1: the reader sleeps on the head's `wake`. */
	_Atomic uint32_t asleep;
	/* A futex: + 1 with each release, while the head says that the producer is asleep. The
	 * daemon adds 1, too. */
	_Atomic uint32_t released_count;
	uint64_t reserved0[5];

	/* `every`: the first frame that this reader has not taken. */
	_Atomic uint64_t cursor;
	uint64_t reserved1[7];

	/* For people: frames that it took, that it passed over, and the oldest that it holds (0:
	 * none) since when (CLOCK_MONOTONIC, to some ms). */
	_Atomic uint64_t taken, skipped, oldest, oldest_ns;
	_Atomic uint32_t held;
	uint32_t reserved2;
	uint64_t reserved3[3];

	struct stream_claim claims[];
};

struct stream_group_page {
	uint64_t magic;
	uint32_t version;
	uint32_t slots;
	uint64_t reserved0[6];

	/* The first frame that no member has taken. */
	_Atomic uint64_t next;
	_Atomic uint64_t taken;	 /* frames that members took, for people */
	_Atomic uint64_t redone; /* frames of dead members that were given to others */
	_Atomic uint64_t lost;	 /* frames of dead members that were not */
	/* + 1 after the daemon has written STREAM_REDO: a member that has looked at all slots since
	 * need not look again. */
	_Atomic uint64_t redos;
	uint64_t reserved1[3];

	/* By slot: stream_owner(): which member took which frame; or STREAM_REDO: a dead member
	 * held this frame, another is to take it, and it keeps the slot as a claim does. Changed by
	 * compare and exchange alone. */
	_Atomic uint64_t owner[];
};
#define STREAM_REDO 126u /* in place of a reader's index */
#define STREAM_LOST 125u /* a dead member held this frame, and nobody gets it */

_Static_assert(offsetof(struct stream_head, newest) % 64 == 0 &&
		       offsetof(struct stream_head, slot) % 64 == 0,
	       "the daemon's words, the producer's and each slot have cache lines of their own");
_Static_assert(offsetof(struct stream_reader_page, cursor) % 64 == 0 &&
		       offsetof(struct stream_reader_page, taken) % 64 == 0 &&
		       offsetof(struct stream_reader_page, claims) % 64 == 0,
	       "the producer reads no line that is written with each frame but the claim's");
_Static_assert(sizeof(struct stream_slot) == 128 && sizeof(struct stream_seat) == 32 &&
		       sizeof(struct stream_claim) == 64,
	       "what gpushm-protocol(7) says");

/* ---- numbers ---- */

/* Whether frame (or word) a comes before b. */
static inline bool stream_before(uint64_t a, uint64_t b)
{
	return (int64_t)(a - b) < 0;
}

static inline uint64_t stream_next(uint64_t seq)
{
	return seq + 1 ? seq + 1 : 1;
}

static inline uint64_t stream_claim_word(uint64_t ticket, enum stream_claim_state state)
{
	return ticket << 2 | state;
}

static inline enum stream_claim_state stream_claim_state(uint64_t word)
{
	return (enum stream_claim_state)(word & 3);
}

/* The value of `released` that says that this claim has ended. */
static inline uint64_t stream_claim_end(uint64_t word)
{
	return word & ~3ull;
}

static inline bool stream_is_broken(uint64_t broken, uint32_t span, uint64_t seq)
{
	return broken - seq < span;
}

/* A member of the group that has taken a frame. */
static inline uint64_t stream_owner(uint64_t seq, uint32_t reader)
{
	return seq << 7 | (reader + 1);
}

/* The member's index, STREAM_REDO or STREAM_LOST; UINT32_MAX: nobody has taken the frame. */
static inline uint32_t stream_owner_reader(uint64_t owner)
{
	return (uint32_t)(owner & 127) - 1;
}

/* Whether a member has taken this frame, or one that has died had. */
static inline bool stream_is_owned(uint64_t owner, uint64_t seq)
{
	return stream_owner_reader(owner) != UINT32_MAX && owner >> 7 == seq << 7 >> 7;
}

/* ---- sizes ---- */

/* More than slots: 0 is no frame, so that slots + 1 numbers are in use where they wrap. */
static inline uint32_t stream_order_size(uint32_t slots)
{
	uint32_t n = 2;

	while (n <= slots)
		n *= 2;
	return n;
}

static inline uint64_t stream_head_bytes(uint32_t slots, uint32_t readers)
{
	return sizeof(struct stream_head) + slots * sizeof(struct stream_slot) +
	       stream_order_size(slots) * sizeof(uint32_t) +
	       (uint64_t)slots * readers * sizeof(uint64_t);
}

static inline uint64_t stream_reader_bytes(uint32_t slots)
{
	return sizeof(struct stream_reader_page) + slots * sizeof(struct stream_claim);
}

static inline uint64_t stream_group_bytes(uint32_t slots)
{
	return sizeof(struct stream_group_page) + slots * sizeof(uint64_t);
}

static inline _Atomic uint32_t *stream_order(const struct stream_head *h, uint32_t slots,
					     uint32_t order_size, uint64_t seq)
{
	return (_Atomic uint32_t *)(uintptr_t)&h->slot[slots] + (seq & (order_size - 1));
}

static inline _Atomic uint64_t *stream_awaited(const struct stream_head *h, uint32_t slots,
					       uint32_t order_size, uint32_t readers, uint32_t slot,
					       uint32_t reader)
{
	const _Atomic uint32_t *order = stream_order(h, slots, order_size, 0);

	return (_Atomic uint64_t *)(uintptr_t)(order + order_size) + (uint64_t)slot * readers +
	       reader;
}
