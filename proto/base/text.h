/* SPDX-License-Identifier: MIT
 *
 * Text that is put together piece by piece.
 */
#pragma once

#include <stddef.h>

/* Appends to the text in buf, which has `size` bytes; cuts what does not fit. */
void text_append(char *buf, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
