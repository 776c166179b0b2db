/* SPDX-License-Identifier: MIT
 *
 * The status page: a shared page that the daemon writes and every client reads; gpushm-protocol(7)
 * describes it. Each buffer has a cell with a word that changes whenever something happens to the
 * buffer. A client can wait for a change by a futex on that word. The kernel identifies a shared
 * file's futex by inode and offset (futex(2)), so a read-only mapping is enough to wait.
 *
 * The size of the page never changes, so that a client maps it once; unused cells take no memory.
 * On the wire the index of a cell is called `slot`, and the page is called the board.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define STATUS_PAGE_MAGIC 0x6472616f62687067u /* "gphboard", read as little-endian */
#define STATUS_PAGE_VERSION 1u
#define STATUS_PAGE_BYTES (16u << 20)

/* A word: flags, and above them how often it has changed, modulo 2^24. */
#define STATUS_PAGE_FLAGS 0xffu
#define STATUS_PAGE_SEALED 0x01u
#define STATUS_PAGE_SHARED 0x02u   /* neither SEALED nor SHARED: the buffer is being filled */
#define STATUS_PAGE_DIRTY 0x04u	   /* a writer died, and the owner has not cleared the mark */
#define STATUS_PAGE_UNLINKED 0x08u /* the buffer has lost its name */
#define STATUS_PAGE_GONE 0x10u	   /* the daemon has freed the buffer; final */
#define STATUS_PAGE_WANTED 0x20u   /* its memory is needed: whoever can suspends it */
#define STATUS_PAGE_PARK 0x40u	   /* in WATCH alone: the process is asked to suspend all */
#define STATUS_PAGE_CHANGE 0x100u  /* one change */

struct status_page_cell {
	_Atomic uint64_t id; /* of the buffer; another id: our buffer has gone */
	_Atomic uint32_t word;
	uint32_t reserved;
};

struct status_page_layout {
	uint64_t magic;
	uint32_t version;
	_Atomic uint32_t used;	     /* cells that were ever given to a buffer */
	_Atomic uint32_t generation; /* + 1 with each daemon that takes the page over; a futex */
	uint32_t reserved[11];
	struct status_page_cell cells[];
};

#define STATUS_PAGE_CELLS                                                     \
	((uint32_t)((STATUS_PAGE_BYTES - sizeof(struct status_page_layout)) / \
		    sizeof(struct status_page_cell)))
#define STATUS_PAGE_NONE UINT32_MAX /* no cell */

_Static_assert(sizeof(struct status_page_cell) == 16 && sizeof(struct status_page_layout) == 64,
	       "what gpushm-protocol(7) says");

/* The word of the buffer with that id, or STATUS_PAGE_GONE if the cell now belongs to another
 * buffer. The daemon writes a cell's new id before its new word, so that a client never mistakes
 * another buffer's status for its own. */
static inline uint32_t status_page_read(const struct status_page_cell *cell, uint64_t id)
{
	uint32_t word = atomic_load_explicit(&cell->word, memory_order_acquire);

	return atomic_load_explicit(&cell->id, memory_order_relaxed) == id ? word
									   : STATUS_PAGE_GONE;
}
