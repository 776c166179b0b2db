/* SPDX-License-Identifier: MIT
 *
 * One buffer under one name, as it is offered: a sealed one of the local daemon, or one that the
 * relay itself pulls and can serve in part.
 *
 * An offer learns the buffer's file, from its table, when it is first asked for. It keeps the
 * buffer open while it is used and for some seconds afterwards, and not longer: the memory of a
 * buffer that was unlinked must be freed, and a transient one must end. The daemon may come and go:
 * what is mapped stays mapped, and is opened anew for the next reader.
 */
#pragma once

#include "client/gpushm_load_private.h"
#include "client/gpushm_query.h"
#include "client/relay/offer/daemon_link.h"

#define OFFER_NAME_MAX (GPUSHM_MAX_NAME + 33) /* as struct gpushm_stat has it */
#define OFFER_READ_MAX (4u << 20)

struct offer;
struct MHD_Connection;

/* What is said of an offer. */
struct offer_facts {
	const char *name;   /* lives as long as the offer */
	uint64_t id, bytes; /* of the buffer */
	size_t arrays;
	uint64_t header, size; /* of the file; 0: not known */
	char etag[64];	       /* with quotes; "": not known */
	char content[32];      /* "xxh3:..."; "": not known */
	bool complete;	       /* false: it is being pulled */
	char why[512];	       /* it can't be offered; "": it can */
};

/* A reference to a new offer; NULL: out of memory. The link is borrowed. */
struct offer *offer_new(struct daemon_link *link, const struct gpushm_stat *stat);
struct offer *offer_ref(struct offer *o);
/* NULL is allowed. Returns NULL. */
struct offer *offer_release(struct offer *o);

const char *offer_name(const struct offer *o);
void offer_facts(struct offer *o, struct offer_facts *ret);

/* What follows may wait for the daemon and for other threads: as long as `reader`'s client waits,
 * and -ECANCELED says that it has gone. NULL: the caller waits.
 *
 * Learns the buffer's file, and its ETag if the attribute "gpushm.content" has what that needs. 0;
 * -ENOTSUP: it can't be offered, and facts.why says why; -ENOENT: it has gone; another errno, with
 * gpushm_error() set. */
int offer_look(struct offer *o, struct MHD_Connection *reader);
/* The same, and its ETag in any case: the contents are read if need be, once for each buffer. */
int offer_know(struct offer *o, struct MHD_Connection *reader);

/* All that a manifest says but mirrors, as long as the offer lives: nothing of it is the caller's
 * to free. Digests of blocks are computed once. Errors as for offer_look(), and -EBADMSG: the
 * contents do not have the digest that "gpushm.content" says. */
int offer_manifest(struct offer *o, struct MHD_Connection *reader, struct manifest *ret);

/* The SHA-256 of the file, computed once. Errors as for offer_look(). */
int offer_sha256(struct offer *o, struct MHD_Connection *reader, unsigned char ret[32]);

/* Opens the buffer for reading, until offer_leave(). Any number of threads may be in. Errors as for
 * offer_look(); -EBUSY while it is being pulled. */
int offer_enter(struct offer *o, struct MHD_Connection *reader, const struct mapping **ret);
void offer_leave(struct offer *o, const struct mapping *m);

/* Whether this byte of the file is there. */
bool offer_has(struct offer *o, uint64_t offset);

/* Reads bytes of the file, OFFER_READ_MAX at most. Those that are not there yet are -EAGAIN; for
 * `reader` they are waited for as long as its client waits. NULL: nobody waits. 0; -ECANCELED (the
 * pull has failed); other errors as for offer_look(). */
int offer_read(struct offer *o, uint64_t offset, void *to, size_t n, struct MHD_Connection *reader);

/* Has the buffer closed if nobody has used it for so long. */
void offer_close_idle(struct offer *o, uint64_t idle_ns);
/* Whether it has the buffer open. */
bool offer_is_open(struct offer *o);

/* ---- a buffer that the relay pulls ---- */

/* A reference to an offer that can be read block by block. NULL, with gpushm_error() set: out of
 * memory, or the arrays do not fit the header. */
struct offer *offer_new_pulled(struct daemon_link *link, const char *name, const struct manifest *m,
			       const char *header, struct gpushm_buffer *b);
/* This block of the file's data is there. Any thread. */
void offer_pull_block(struct offer *o, uint64_t block);
/* On return nobody reads through the buffer that it was made with. result 0: it is published under
 * the offer's name, and is read through the daemon from now on. Else its readers get an error. */
void offer_pull_end(struct offer *o, int result);
