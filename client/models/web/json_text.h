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
#include <stdint.h>

/* What is left of a text that is read without making objects of it. */
struct json_scan {
	const char *at, *end;
};

static inline void json_scan_spaces(struct json_scan *s)
{
	while (s->at < s->end &&
	       (*s->at == ' ' || *s->at == '\n' || *s->at == '\t' || *s->at == '\r'))
		s->at++;
}

/* Skips spaces, and then that character if it is there: true. */
static inline bool json_scan_char(struct json_scan *s, char c)
{
	json_scan_spaces(s);
	if (s->at == s->end || *s->at != c)
		return false;
	s->at++;
	return true;
}

/* At most how many values are in a text: members, elements and the text itself. */
size_t json_text_values(const char *text, size_t n);

/* The length of a member of an object, which begins at `text`: up to the ',' or '}' behind it, or n
 * if the text ends before. */
size_t json_text_member(const char *text, size_t n);

/* Parses a member as the only one of an object, and checks its UTF-8. NULL: *ret_error says why;
 * its position counts from the start of the member. */
json_t *json_text_load_member(const char *text, size_t n, json_error_t *ret_error);

/* A whole number from 0 to max. False: the value is another one. */
bool json_text_number(const json_t *value, uint64_t max, uint64_t *ret);

/* Decodes base64, at most max bytes, to new memory. 0; -EBADMSG, also without a text; -ENOMEM. */
int json_text_decode(const json_t *value, size_t max, void **ret, size_t *ret_n);

/* The bytes as base64. NULL: out of memory. */
json_t *json_text_encode(const void *bytes, size_t n);

/* Takes a value that is made step by step. r < 0: releases it, and returns NULL. */
json_t *json_text_made(json_t *value, int r);
