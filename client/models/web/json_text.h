/* SPDX-License-Identifier: MIT
 *
 * JSON of strangers.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* At most how many values are in a text: members, elements and the text itself. jansson makes up to
 * 250 bytes of objects from two bytes of text, so it is asked before jansson gets a large one; it
 * checks nothing else. */
size_t json_text_values(const char *text, size_t n);

/* A whole number from 0 to max. False: the value is another one. */
bool json_text_number(const json_t *value, uint64_t max, uint64_t *ret);

/* Decodes base64, at most max bytes, to new memory. 0; -EBADMSG, also without a text; -ENOMEM. */
int json_text_decode(const json_t *value, size_t max, void **ret, size_t *ret_n);

/* The bytes as base64. NULL: out of memory. */
json_t *json_text_encode(const void *bytes, size_t n);

/* Takes a value that is made step by step. r < 0: releases it, and returns NULL. */
json_t *json_text_made(json_t *value, int r);
