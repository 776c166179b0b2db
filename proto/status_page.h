/* SPDX-License-Identifier: MIT
 *
 * The board: a page that the daemon writes to and every client reads, as gpushm-protocol(7) tells
 * it. Each buffer has a slot with a word that changes whenever something happens to the buffer, and
 * on which a futex can be waited for: a shared file's futex is known by inode and offset
 * (futex(2)), so who waits need have it mapped for reading only.
 *
 * Its size never changes, so that nobody maps it twice; what is not used has no memory.
 */
#ifndef GPUSHM_PROTO_STATUS_PAGE_H
#define GPUSHM_PROTO_STATUS_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#define BOARD_MAGIC 0x6472616f62687067u /* "gphboard", read as little-endian */
#define BOARD_VERSION 1u
#define BOARD_BYTES (16u << 20)

/* A word: flags, and above them how often it has changed, modulo 2^24. */
#define BOARD_FLAGS 0xffu
#define BOARD_SEALED 0x01u
#define BOARD_SHARED 0x02u   /* neither of the two: it is being filled */
#define BOARD_DIRTY 0x04u    /* a writer died, and nobody has said yet that it is clean */
#define BOARD_UNLINKED 0x08u /* its name is free, or another buffer's */
#define BOARD_GONE 0x10u     /* the daemon has it no more; final */
#define BOARD_CHANGE 0x100u  /* one change */

struct board_slot {
	_Atomic uint64_t id; /* of the buffer; another one's: ours has gone */
	_Atomic uint32_t word;
	uint32_t reserved;
};

struct board_layout {
	uint64_t magic;
	uint32_t version;
	_Atomic uint32_t used;	     /* slots that have ever been given */
	_Atomic uint32_t generation; /* + 1 with each daemon that takes the board over; a futex */
	uint32_t reserved[11];
	struct board_slot slots[];
};

#define BOARD_SLOTS \
	((uint32_t)((BOARD_BYTES - sizeof(struct board_layout)) / sizeof(struct board_slot)))
#define BOARD_NONE UINT32_MAX /* no slot */

_Static_assert(sizeof(struct board_slot) == 16 && sizeof(struct board_layout) == 64,
	       "what gpushm-protocol(7) says");

/* The word of the buffer with that id, or BOARD_GONE where the slot is another one's by now.
 * The daemon writes a slot's new id before its new word, so that no other buffer's word is ever
 * taken for this one's. */
static inline uint32_t board_read(const struct board_slot *slot, uint64_t id)
{
	uint32_t word = atomic_load_explicit(&slot->word, memory_order_acquire);

	return atomic_load_explicit(&slot->id, memory_order_relaxed) == id ? word : BOARD_GONE;
}

#endif
