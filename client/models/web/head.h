/* SPDX-License-Identifier: MIT
 *
 * What is read of the header lines of a reply: a stranger has written them. A line that breaks its
 * grammar counts as if it had not come.
 */
#pragma once

#include "client/gpushm_load_private.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEAD_UNKNOWN UINT64_MAX
#define HEAD_LINKS_MAX 16u

struct head {
	unsigned status; /* 0: no status line has come */
	bool complete;	 /* its empty line has come */

	bool has_range;			  /* Content-Range: bytes first-last/total */
	uint64_t first, last;		  /* of the file */
	uint64_t total;			  /* also of "bytes * /total"; HEAD_UNKNOWN */
	uint64_t length;		  /* Content-Length; HEAD_UNKNOWN */
	char etag[256];			  /* with its quotes, and W/ if it is weak; "" */
	char last_modified[40];		  /* "" */
	char via[PULL_VIA_MAX];		  /* of all lines; "": none, or they are too long */
	bool encoded;			  /* the body is compressed, or in several parts */
	char *duplicates[HEAD_LINKS_MAX]; /* owned: Link: <...>; rel=duplicate */
	size_t n_duplicates;
};

/* Adds a line, with its line feed or without it. A status line begins a new reply and drops what
 * came before it. 0 or -ENOMEM. */
int head_line(struct head *h, const char *line, size_t n);

/* May be called on a zeroed head and twice. */
void head_clear(struct head *h);

/* Whether it is an ETag that compares bytes: "...", not W/"...". */
bool head_is_strong(const char *etag);
