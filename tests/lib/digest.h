/* SPDX-License-Identifier: MIT
 *
 * The digest of a buffer's contents, computed in the simplest way: gpushm_load.h, gpushm_verify().
 */
#pragma once

#include <stddef.h>

#define NAIVE_DIGEST_TEXT 32

/* Of the bytes that arrays cover, in order and without gaps. */
void naive_digest(const void *bytes, size_t n, char ret[NAIVE_DIGEST_TEXT]);
