/* SPDX-License-Identifier: MIT
 *
 * JSON of strangers. jansson makes up to 250 bytes of objects from two bytes of text, so a text of
 * 100 MB could take gigabytes. These functions count and cut a text before jansson gets it. They
 * check nothing else: jansson does that.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* What JSON takes for white space. */
static inline bool json_text_is_space(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* At most how many values are in a text: members, elements and the text itself. */
size_t json_text_values(const char *text, size_t n);

/* The length of a member of an object, which begins at `text`: up to the ',' or '}' behind it, or n
 * if the text ends before. */
size_t json_text_member(const char *text, size_t n);

/* Parses a member as the only one of an object, and checks its UTF-8. NULL: *ret_error says why;
 * its position counts from the start of the member. */
json_t *json_text_load_member(const char *text, size_t n, json_error_t *ret_error);
