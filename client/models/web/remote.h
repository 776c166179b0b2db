/* SPDX-License-Identifier: MIT
 *
 * A file on a web server, as the loader sees it: bytes at an offset. It is read by HTTP ranges,
 * with a connection for each thread that reads, and from several servers if they have the same
 * file.
 *
 * libcurl does the transfers. It is opened at run time, when the first URL is given: a process that
 * loads files needs no libcurl. Nothing here starts a thread.
 *
 * A range that is lost (a broken or stalled connection, a status of 408, 429 or 5xx) is asked for
 * again from its first missing byte, at the next server that has the file, until nothing has come
 * for remote_options' patience. A server that is busy may name others, which are asked, too: Link:
 * <URL>; rel=duplicate (RFC 6249).
 *
 * Each request has an If-Range with the validator of the first reply (a strong ETag, else a
 * Last-Modified; RFC 9110), and each reply must say the same size: a file that changes while it is
 * read is -ESTALE, and bytes of two versions never mix. A duplicate must have the same strong ETag.
 *
 * Credentials go to the URL's own host alone, never to where it redirects, nor to a duplicate; a
 * token never over a connection without TLS, except to this machine. Neither tokens, passwords nor
 * the query of a URL (a presigned URL is a secret) are in an error's text.
 */
#pragma once

#include "client/gpushm_load.h"
#include "client/models/web/head.h"
#include "client/models/web/stop.h"
#include "client/models/web/url.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REMOTE_NO_SIZE UINT64_MAX

/* A file. Any number of threads read it, each with a reader of its own. */
struct remote;

/* A thread's connections, which stay open from one read to the next, and from one file to the next
 * of the same server. */
struct remote_reader;

/* Asks for the first bytes of the file, follows redirects, and learns its size and validator: by a
 * reader's connections, which the next file may use again; that reader has the first bytes then, so
 * that a remote_read() at offset 0 needs no other request. rr: NULL is a reader of the file's own.
 * o: NULL for the defaults. Blocks. Errors, with gpushm_error() set, which names the URL and what
 * the server said: -ENOENT (404, 410), -EACCES (401, 403, a certificate that is not accepted),
 * -ENOTSUP (409, 415, 501), -ENOSYS (no libcurl), -EREMOTEIO (another status from 400 on, or a
 * reply that breaks HTTP), -ETIMEDOUT, -EBUSY (429, 503 until the patience ends), -EHOSTUNREACH (no
 * address, or no connection), -ENETRESET (the connection broke), -ECANCELED (stop), -EINVAL (the
 * URL), -ENOMEM. None of these is what a lost daemon is: see gpushm.h. */
int remote_open(struct remote_reader *rr, const char *url, const struct gpushm_remote_options *o,
		struct load_stop stop, struct remote **ret);

/* NULL is allowed. Returns NULL. No reader may be reading it. */
struct remote *remote_close(struct remote *r);

/* What of the URL may be shown: scheme, host, port and path. Lives as long as the file. */
const char *remote_name(const struct remote *r);

/* Bytes; REMOTE_NO_SIZE: the server does not say. */
uint64_t remote_size(const struct remote *r);

/* The strong ETag with its quotes; "" if the server has sent none. */
const char *remote_etag(const struct remote *r);

/* What tells this version of the file from others of this size: the ETag, else the Last-Modified;
 * "" if the server has sent neither. */
const char *remote_version(const struct remote *r);

/* Whether the server sends ranges. If not, the file is one reply, which is read from its start to
 * its end, by one thread at a time: to go back, or on after a broken connection, asks for it again.
 */
bool remote_has_ranges(const struct remote *r);

/* Another place of the same file. It is asked in turn with the others; a server there that has
 * another ETag is left out. 0, or -EINVAL, -ENOMEM. */
int remote_add_mirror(struct remote *r, const char *url);

/* Where this machine offers what it reads: the value of the header Gpushm-Relay of each request, as
 * client/relay/fleet/announcement.h has it; the server may name it to others. 0 or -ENOMEM. No
 * reader may be reading. */
int remote_set_relay(struct remote *r, const char *relay);

/* 0, or -ENOSYS, -ENOMEM with gpushm_error() set. */
int remote_reader_new(struct remote_reader **ret);
/* NULL is allowed. Returns NULL. */
struct remote_reader *remote_reader_free(struct remote_reader *rr);

/* Says that remote_read() will be called for these bytes, from the first to the last, so that one
 * request brings them all. Nothing is sent before the read. What an earlier call announced and was
 * not read is dropped. */
void remote_expect(struct remote_reader *rr, struct remote *r, uint64_t offset, uint64_t bytes);

/* Reads exactly n bytes at the offset. rr: NULL is a reader of the file's own, for one thread at a
 * time; it has the connection of remote_open(). Blocks. stop: ends it with -ECANCELED. Errors as
 * for remote_open(), and -ESTALE (the file has changed, or ends before). */
int remote_read(struct remote_reader *rr, struct remote *r, void *to, size_t n, uint64_t offset,
		struct load_stop stop);

/* The same, but fewer bytes at the end of the file are no error. */
int remote_read_up_to(struct remote_reader *rr, struct remote *r, void *to, size_t n,
		      uint64_t offset, size_t *ret_got, struct load_stop stop);

/* The reader's last bytes were wrong: their server is asked no more, if there is another one.
 * -ENODATA: there is no other one, so that it is asked again, and gpushm_error() names it. */
int remote_blame(struct remote_reader *rr, struct remote *r);

/* ---- small resources: an index, a manifest ---- */

struct remote_request {
	const char *url, *method;  /* NULL: GET */
	const char *if_none_match; /* an ETag; NULL: none */
	unsigned wait_s;	   /* Prefer: wait=N (RFC 7240); 0: none */
	const void *body;	   /* of n_body bytes, as JSON; NULL: none */
	size_t n_body;
	bool again;	   /* ask again as for a range, though there is a body */
	size_t max_bytes;  /* a longer reply is -EFBIG */
	const char *relay; /* as for remote_set_relay(); NULL: none */
	const struct gpushm_remote_options *options;
	struct load_stop stop;
};

struct remote_reply {
	unsigned status; /* 200, 304, ...; from 400 on it is an error, too; 0: no reply */
	char *body;	 /* owned; with a NUL behind n_body bytes */
	size_t n_body;
	char via[PULL_VIA_MAX]; /* of statuses from 400 on, too; "": none */
};

/* One request, asked again as the first one for a file is; with a body only while the server is
 * busy, because it may have been done when its reply was lost. With `again` it is asked again as
 * one for a later range is: the server was there a moment ago, and may do it twice. Statuses from
 * 400 on are errors as for remote_open(); the text of a JSON reply's "error" is in gpushm_error().
 * Clear *ret in any case. */
int remote_request(const struct remote_request *q, struct remote_reply *ret);
void remote_reply_clear(struct remote_reply *r);
