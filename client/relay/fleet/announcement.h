/* SPDX-License-Identifier: MIT
 *
 * What a relay that pulls a file says about itself, in the header Gpushm-Relay of its requests for
 * it: where it offers the file, and since when.
 *
 *	Gpushm-Relay: https://b:19401/v1/buffers/llama; since=1767225600000
 *
 * since: when that machine began to pull, in milliseconds since 1970 of its own clock; 0, or
 * nothing, if it has the whole file. Of two machines that pull one file only the one that began
 * later waits for blocks of the other; of equal times the URLs decide. So no machines wait for each
 * other in a circle, whatever their clocks say: a wrong clock changes the order alone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ANNOUNCEMENT_MAX 1024u

struct announcement {
	char url[ANNOUNCEMENT_MAX];  /* of the file */
	char host[ANNOUNCEMENT_MAX]; /* in the URL; without the brackets of an IPv6 address */
	uint64_t since;		     /* ms; 0: the file is complete there */
	char address[64];	     /* where the request came from, without the port; not a part of
					the text: "" after announcement_parse() */
};

/* Accepts http and https URLs of a buffer, of printable ASCII without quotes, blanks and <>.
 * -EBADMSG otherwise. */
int announcement_parse(const char *text, struct announcement *ret);

/* base: "https://HOST:PORT"; the name is percent-encoded here. -ENAMETOOLONG if it does not fit. */
int announcement_format(const char *base, const char *name, uint64_t since,
			char ret[ANNOUNCEMENT_MAX]);

/* Whether `b` may wait for blocks that `a` does not have yet. A strict order of the incomplete
 * ones.
 */
bool announcement_before(const struct announcement *a, const struct announcement *b);
