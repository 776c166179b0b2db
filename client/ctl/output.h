/* SPDX-License-Identifier: MIT
 *
 * Values as text for people: sizes, ages, times, users, shapes. Text from outside reaches a
 * terminal only after its unsafe characters are escaped.
 */
#pragma once

#include "client/gpushm_array.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Texts by value, so that they stand in a printf's arguments: output_age(ns).text. */
struct output_text {
	char text[40];
};
struct output_shape {
	char text[512];
};

/* "512 B", "4.0 GiB"; exact: "4294967296". */
struct output_text output_size(uint64_t bytes, bool exact);

/* "3s", "12m", "5h", "8d". */
struct output_text output_age(uint64_t ns);

/* The age of a CLOCK_REALTIME stamp; "0s" for one in the future. */
struct output_text output_since(uint64_t stamp_ns);

/* CLOCK_REALTIME in ns as "2026-01-31T12:00:00.123456789Z". */
struct output_text output_time(uint64_t ns);

/* The name of a dtype, as gpushm_dtype_format() writes it. */
struct output_text output_dtype(struct gpushm_dtype t);

/* "(8, 1080)"; "()" for no dimension. A longer text is cut. */
struct output_shape output_shape(const struct gpushm_array *a);

/* The user's or group's name, or its number if it has none. Valid until the next call. */
const char *output_user(uid_t uid);
const char *output_group(gid_t gid);

/* The user of that name or number. False: there is no such name. */
bool output_find_user(const char *word, uid_t *ret);

/* The number of processes that are ending, and what that means. */
struct output_shape output_ending(unsigned n);

/* "0640 (rw-r-----)". */
struct output_text output_mode(unsigned mode);

/* The text with a user's name behind each "uid N" that is not in quotes, malloc'd; NULL without
 * memory. */
char *output_name_users(const char *text);

/* "1 buffer", "2 buffers": printf("%u %s", OUTPUT_COUNT(n, "buffer")). */
#define OUTPUT_COUNT(n, noun) (n), (n) == 1 ? noun : noun "s"

/* The text with unsafe characters (utf8_is_unsafe()) and invalid bytes as \xNN, malloc'd; NULL
 * without memory. */
char *output_escape(const char *s, size_t len);

/* The formatted text, escaped like that, malloc'd; NULL without memory. */
char *output_format(const char *format, va_list ap) __attribute__((format(printf, 1, 0)));

/* How many columns of a terminal the text takes; it needs a UTF-8 locale. */
size_t output_columns(const char *text);

/* How many bytes of the text fit in that many columns of a terminal; at least its first character,
 * and none of an empty text. */
size_t output_fit(const char *text, size_t columns);

/* The text, shortened in the middle to fit that many columns of a terminal, malloc'd; NULL without
 * memory. columns: at least 1. */
char *output_shorten(const char *text, size_t columns);

/* Whether a command's file is its standard output, as "-" and /dev/stdout: then nothing else is
 * printed there. NULL is no file. */
bool output_is_file(const char *file);

/* Prints the text, escaped, and a newline. */
void output_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Flushes standard output in the middle of a command, which goes on. output_flush_error(): the
 * errno of the first flush that failed, or 0; stdio remembers only that one has. */
void output_flush(void);
int output_flush_error(void);

/* Whether this fd is a terminal that can move its cursor. */
bool output_terminal(int fd);

/* Whether output to this fd is coloured: it is a terminal, and NO_COLOR is not set. */
bool output_colour(int fd);

/* Whether this fd is a pipe or a terminal whose other end has been closed. */
bool output_is_closed(int fd);
