/* SPDX-License-Identifier: MIT
 *
 * What of a file a request wants, and how long it waits: RFC 9110, sections 13 and 14, and RFC
 * 7240.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum range_what {
	RANGE_ALL,  /* none, none that is valid, or several: the whole file is an allowed reply */
	RANGE_PART, /* one range */
	RANGE_NONE, /* no byte of it exists: 416 */
};

/* Reads the header Range of a file of `size` bytes; text: NULL is without one. *ret_begin and
 * *ret_n are written if the result is RANGE_PART. */
enum range_what range_parse(const char *text, uint64_t size, uint64_t *ret_begin, uint64_t *ret_n);

/* Whether a list of ETags ("*", "\"a\", W/\"b\"") has this strong one. weak: one that is equal but
 * for its W/ counts, too. */
bool range_has_etag(const char *list, const char *etag, bool weak);

/* The seconds of "wait=10" among other preferences; 0: none. */
unsigned range_wait(const char *prefer);
#define RANGE_WAIT_MAX 600u
