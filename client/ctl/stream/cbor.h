/* SPDX-License-Identifier: MIT
 *
 * The metadata that the Python package gives to frames: a map of CBOR (RFC 8949) behind the tag
 * "self-described CBOR", as JSON for people.
 */
#pragma once

#include <stddef.h>

/* The bytes as one line of JSON, malloc'd. NULL: they are something else, or no memory. Items of
 * indefinite length, tags and simple values that JSON has no word for are something else. */
char *cbor_to_json(const void *bytes, size_t n);
