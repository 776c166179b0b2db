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

#define STATUS_PAGE_MAGIC 0x6472616f62687067u /* "gphboard", read as little-endian */
#define STATUS_PAGE_VERSION 1u
#define STATUS_PAGE_BYTES (16u << 20)

/* A word: flags, and above them how often it has changed, modulo 2^24. */
#define STATUS_PAGE_FLAGS 0xffu
#define STATUS_PAGE_SEALED 0x01u
#define STATUS_PAGE_SHARED 0x02u   /* neither of the two: it is being filled */
#define STATUS_PAGE_DIRTY 0x04u	   /* a writer died, and nobody has said yet that it is clean */
#define STATUS_PAGE_UNLINKED 0x08u /* its name is free, or another buffer's */
#define STATUS_PAGE_GONE 0x10u	   /* the daemon has it no more; final */
#define STATUS_PAGE_CHANGE 0x100u  /* one change */

struct status_page_slot {
	_Atomic uint64_t id; /* of the buffer; another one's: ours has gone */
	_Atomic uint32_t word;
	uint32_t reserved;
};

struct status_page_layout {
	uint64_t magic;
	uint32_t version;
	_Atomic uint32_t used;	     /* slots that have ever been given */
	_Atomic uint32_t generation; /* + 1 with each daemon that takes the board over; a futex */
	uint32_t reserved[11];
	struct status_page_slot slots[];
};

#define STATUS_PAGE_SLOTS                                                     \
	((uint32_t)((STATUS_PAGE_BYTES - sizeof(struct status_page_layout)) / \
		    sizeof(struct status_page_slot)))
#define STATUS_PAGE_NONE UINT32_MAX /* no slot */

_Static_assert(sizeof(struct status_page_slot) == 16 && sizeof(struct status_page_layout) == 64,
	       "what gpushm-protocol(7) says");

/* The word of the buffer with that id, or STATUS_PAGE_GONE where the slot is another one's by now.
 * The daemon writes a slot's new id before its new word, so that no other buffer's word is ever
 * taken for this one's. */
static inline uint32_t status_page_read(const struct status_page_slot *slot, uint64_t id)
{
	uint32_t word = atomic_load_explicit(&slot->word, memory_order_acquire);

	return atomic_load_explicit(&slot->id, memory_order_relaxed) == id ? word
									   : STATUS_PAGE_GONE;
}

#endif
