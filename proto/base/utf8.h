/* SPDX-License-Identifier: MIT
 *
 * UTF-8 as RFC 3629 defines it: nothing overlong, no surrogate, nothing above U+10FFFF.
 *
 * The C library's mbrtowc() depends on a locale that a service or a cron job may not have.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the character that text starts with. len is at least 1. Returns its length, 1 to 4
 * bytes, and sets *ret to its code point; or returns 0 if text does not start with valid UTF-8. */
size_t utf8_next(const char *text, size_t len, uint32_t *ret);

bool utf8_valid(const char *text, size_t len);

/* Whether it is a control character: C0, DEL or C1. Some terminals obey C1, too. */
bool utf8_is_control(uint32_t point);

/* Whether a terminal or a log shows it as something else than it is, or not at all: a control
 * character, a line or paragraph separator, a mark that changes the direction of text, a character
 * of zero width, a tag, a point that is no character (U+FFFF). Names may have such characters
 * (except control characters); who prints one writes its bytes as \xNN. */
bool utf8_is_unsafe(uint32_t point);

/* Shows what is unsafe, or no UTF-8, as '?'. In place: the text gets no longer. */
void utf8_make_printable(char *text);
