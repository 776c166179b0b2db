/* SPDX-License-Identifier: MIT
 *
 * What proves to a server who asks: a token, or a certificate with its key. They are read once,
 * when a URL is given, and shown in no text.
 */
#pragma once

#include "client/gpushm_load.h"
#include "client/models/web/url.h"

#define TOKEN_BYTES_MAX 8192u

struct credentials {
	char *token; /* owned; NULL: none */
	bool netrc;  /* look the host up in ~/.netrc */
	/* There may be a token or a password, but it is not sent: the connection is without TLS,
	 * and leads to another machine. */
	bool withheld;
	char *ca, *cert, *key; /* owned: paths; NULL: the defaults */
	unsigned patience_ms;
};

/* The options as this library knows them; what they point to is lent. from: NULL is allowed. 0, or
 * -EINVAL (struct_size is not set, or options of a newer library) with gpushm_error() set. */
int credentials_read_options(const struct gpushm_remote_options *from,
			     struct gpushm_remote_options *ret);

/* o: NULL is allowed. 0; errors of open(2) for a file; -EINVAL (a file without a token, a key
 * without a certificate, options of a newer library); -ENOMEM. Clear *ret in any case. */
int credentials_read(const struct gpushm_remote_options *o, const struct url *u,
		     struct credentials *ret);

/* Overwrites the token. May be called on zeroed credentials and twice. */
void credentials_clear(struct credentials *c);
