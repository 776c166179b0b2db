/* SPDX-License-Identifier: MIT
 *
 * The journal: an append-only log of records in a memfd. It outlives the daemon's process with its
 * fd, which systemd or the next program keeps. It knows records, not their contents.
 *
 * Image (little endian): struct journal_header, then records, each a struct journal_record and its
 * body, padded to 8 bytes; zeros after the last one. A record counts only if its CRC-32C
 * (Castagnoli, RFC 3720) over type, length, sequence and body is right and its sequence is one more
 * than the last. A torn append, a cut or a flipped bit ends the log there; the records before it
 * describe a state that the daemon once had.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The version of the image and of the records' meaning. New fields and new types of records need no
 * new version. tests/data/journal has a journal of each version that is still read. */
#define JOURNAL_VERSION 1u
#define JOURNAL_VERSION_OLDEST 1u
/* gpushmd 0.2 reads version 1, and knows no field for a buffer that is evicted or suspended: it
 * drops the first, and its clients can't resume the second. While there is either, a planned
 * restart asks the next program for this version. The journal's own stays, so that after a crash
 * an older program restores the rest. */
#define JOURNAL_VERSION_AWAY 2u
#define JOURNAL_BODY_MAX 8192u /* bytes of one record */

struct journal {
	int fd;		     /* owned */
	unsigned char *map;  /* all of it, shared */
	size_t bytes;	     /* of the map */
	size_t used;	     /* header and valid records */
	uint64_t sequence;   /* of the last record */
	uint64_t generation; /* of the file; the newest complete one counts */
};
#define JOURNAL_NONE ((struct journal){ .fd = -1 })

/* A new, empty journal. 0 or -errno. */
int journal_new(uint64_t generation, struct journal *ret);

/* A journal that an earlier daemon wrote; on success it owns the fd. -EBADMSG if it is no journal,
 * -EPROTONOSUPPORT if its version can't be read. journal_replay() sets `used`. */
int journal_adopt(int *fd, struct journal *ret);
uint32_t journal_version(int fd); /* for people */
void journal_done(struct journal *j);

/* Appends a record: when this returns 0 it is in the memfd. A reader finds all of it or nothing,
 * wherever the process dies. 0, -EMSGSIZE, -ENOMEM. */
int journal_append(struct journal *j, uint16_t type, const void *body, size_t len);

/* Calls on_record for each valid record, in order. If a call returns non-zero, returns that and
 * leaves the file unchanged. Else later appends go behind the last valid record, and *ret_dropped
 * is the number of bytes behind it that were not zero. */
int journal_replay(struct journal *j,
		   int (*on_record)(uint16_t type, const void *body, size_t len, void *arg),
		   void *arg, size_t *ret_dropped);
