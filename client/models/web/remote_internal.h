/* SPDX-License-Identifier: MIT
 *
 * What remote.c (a file), reader.c (a thread's connections), request.c and status.c share.
 */
#pragma once

#include "client/models/web/fetch.h"
#include "client/models/web/place.h"
#include "client/models/web/remote.h"

#include <stdatomic.h>

struct remote {
	atomic_uint holders; /* remote_open()'s caller, and readers with a reply of it */
	struct places places;
	struct credentials credentials;
	char *relay; /* owned: where this machine offers what it reads; NULL: nowhere */
	unsigned stall_ms;
	struct remote_reader *own; /* owned; or NULL */

	/* Set by the first reply. */
	uint64_t size;
	bool has_ranges;
	char etag[256]; /* strong or weak; "" */
	char last_modified[40];
	atomic_bool no_if_range; /* the server sends no ranges for an If-Range */
};

struct remote_reader {
	struct fetch *fetch;   /* owned */
	struct remote *remote; /* held: whose reply is open; or NULL */
	struct place *place;   /* where it comes from; taken */
	struct place *last;    /* where the last bytes came from; of last_of */
	const struct remote *last_of;
	bool asked_if_range;
	uint64_t at, end; /* the reply's next byte, and behind its last one */
	/* remote_expect(); the file is compared and not used. */
	const struct remote *expected_of;
	uint64_t expected_from, expected_end;
};

/* One read, or the opening, with what went wrong in it. */
struct trial {
	struct load_stop stop;
	bool opening;
	bool alone; /* a busy server is waited for in trial_failed(), not where it is chosen */
	uint64_t since_ms; /* when the last bytes came */
	unsigned tries;	   /* since then */
	struct place *avoid;
	enum fate fate;	 /* of the last failure */
	uint64_t nap_ms; /* that the server has asked for */
};

void trial_begin(struct trial *t, struct load_stop stop, bool opening);

/* After a failure with error r: 0 to try again, or r, or -ECANCELED. */
int trial_failed(struct trial *t, struct remote *r, int error);

/* Asks for bytes from `first` to `last`, and checks what the reply says of itself; when opening it
 * learns that. The body is waiting then. A negative errno, with t->fate. */
int reader_ask(struct remote_reader *rr, struct remote *r, uint64_t first, uint64_t last,
	       struct trial *t);

/* A file that is not open yet. remote_close() *ret in any case. */
int remote_new(const char *url, const struct gpushm_remote_options *o, struct remote **ret);
void remote_hold(struct remote *r);
void remote_release(struct remote *r);

/* A status from 400 on: sets gpushm_error(), with the text of a JSON body's "error", for which it
 * reads the body. Returns the errno of remote.h; *ret says what to do. */
int status_error(struct fetch *f, const struct credentials *c, struct load_stop stop,
		 enum fate *ret);
