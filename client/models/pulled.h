/* SPDX-License-Identifier: MIT
 *
 * What a pull knows of the file that it loads: the relay's manifest. The file and its blocks are
 * compared with it, and the buffer gets its attributes.
 */
#pragma once

#include "client/gpushm_load_private.h"
#include "client/models/copy/engine.h"
#include "client/models/files/checkpoint.h"
#include "client/models/files/model.h"

#define PULLED_ETAG "gpushm.etag" /* attribute: of the file that it was pulled from */

struct pulled {
	const struct manifest *m;		    /* lent */
	const struct pull_observer *observer;	    /* lent; NULL */
	const char *url;			    /* lent: of the file */
	bool nixl;				    /* the data come by NIXL */
	const struct gpushm_remote_options *remote; /* lent; NULL */

	struct engine_check check;
	char *header; /* owned, for the observer: the file's first m->header bytes */
	bool begun;   /* the observer was told so, and not yet that it has ended */
};

/* Whether the file that was opened is the manifest's: its ETag, sizes and header. From now on it is
 * read from the manifest's mirrors, too. -ESTALE: another file has its place by now; -EBADMSG: the
 * relay contradicts itself; with gpushm_error() set. */
int pulled_check(struct pulled *p, struct checkpoint *cp);

/* Whether a buffer has an attribute of that value. */
bool pulled_has_attr(const struct gpushm_buffer *b, const char *key, const void *value,
		     size_t size);

/* Whether an open buffer has the manifest's contents: the arrays of the model, the digest, and the
 * attributes of ours that say how to use it. If not, gpushm_error() says why. */
bool pulled_matches(const struct pulled *p, const struct model *m, struct gpushm_buffer *b);

/* The attributes that the buffer gets besides those of a load and the caller's own, of which there
 * are n: *ret, which free() releases, has *ret_n that point into the manifest. 0, -ENOMEM. */
int pulled_attrs(const struct pulled *p, const struct gpushm_attr *own, size_t n,
		 struct gpushm_attr **ret, size_t *ret_n);

/* The buffer is described, and nothing is in it yet. Errors as for a read of the file. */
int pulled_begin(struct pulled *p, struct checkpoint *cp, struct gpushm_buffer *b);
/* It is published, or about to be discarded. May be called twice, and without the other. */
void pulled_end(struct pulled *p, int result);
