/* SPDX-License-Identifier: MIT
 *
 * The rule for names of buffers, arrays, attributes and pools.
 *
 * A buffer's name has 1 to 255 bytes of valid UTF-8 without control characters (below 0x20, 0x7f,
 * U+0080 to U+009F), in components divided by '/'; no component is empty, "." or "..". A name
 * that starts with '~' is private: "~/x" belongs to the user of the process, and an admin writes
 * "~1001/x" for it. An array's name and an attribute's key follow the same rule, except that '~'
 * has no meaning there and an array's name may be empty. A pool's name: 1 to 63 of [A-Za-z0-9._-].
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* NULL: the name is valid. Else what is wrong, as a static text for an error message. */
const char *name_check_buffer(const void *name, size_t len);
const char *name_check_array(const void *name, size_t len);
const char *name_check_attr(const void *name, size_t len);
const char *name_check_pool(const void *name, size_t len);

/* The same for any text: valid UTF-8 without control characters, of any length. */
const char *name_check_text(const void *text, size_t len);

/* The length of a text that was cut at len bytes, without a UTF-8 sequence that the cut has split.
 */
size_t name_cut(const char *text, size_t len);
