/* SPDX-License-Identifier: MIT
 *
 * The journal: an append-only log of records in a memfd, so that it outlives the daemon's process
 * with whoever keeps the fd (systemd, or the next program across an exec). It knows records, not
 * what they say.
 *
 * Image (little endian): struct journal_header, then records, each a struct journal_record and its
 * body, padded to 8 bytes; zeros after the last one. A record counts only if its CRC-32C
 * (Castagnoli, RFC 3720) over sequence, type, length and body is right and its sequence is one more
 * than the last: a torn append, a cut or a flipped bit ends the log there, and what came before is
 * a state that once was.
 */
#ifndef GPUSHM_DAEMON_STATE_JOURNAL_H
#define GPUSHM_DAEMON_STATE_JOURNAL_H

#include <stddef.h>
#include <stdint.h>

/* Of the image and of what the records mean; fields and types of records are added without another
 * one. tests/data/journal has a journal of each version that is still read. */
#define JOURNAL_VERSION 1u
#define JOURNAL_VERSION_OLDEST 1u
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

/* A new, empty one. 0 or -errno. */
int journal_new(uint64_t generation, struct journal *ret);

/* One that an earlier daemon wrote: the fd is taken over on success. -EBADMSG for what is no
 * journal, -EPROTONOSUPPORT for one of a version that is not read. used is set by journal_replay().
 */
int journal_adopt(int *fd, struct journal *ret);
uint32_t journal_version(int fd); /* for people */
void journal_done(struct journal *j);

/* Appends a record: when this returns 0 it is in the memfd. 0, -EMSGSIZE, -ENOMEM. */
int journal_append(struct journal *j, uint16_t type, const void *body, size_t len);

/* Calls on_record for each valid record, in order, until one returns non-zero, which is then
 * returned, and the file is as it was. Else appends go behind the last valid record from now on,
 * and *ret_dropped says how many bytes behind it were not zero. */
int journal_replay(struct journal *j,
		   int (*on_record)(uint16_t type, const void *body, size_t len, void *arg),
		   void *arg, size_t *ret_dropped);

#endif
