/* SPDX-License-Identifier: MIT
 *
 * Text for people: sizes, ages and times, UTF-8, colours. Nothing that comes from outside reaches
 * a terminal with its control characters in force.
 */
#ifndef GPUSHM_CLIENT_CTL_OUTPUT_H
#define GPUSHM_CLIENT_CTL_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* "512 B", "4.0 GiB"; exact: "4294967296". buf has at least 24 bytes. Returns buf. */
char *output_size(uint64_t bytes, bool exact, char *buf, size_t size);

/* "3s", "12m", "5h", "8d". Returns buf. */
char *output_age(uint64_t ns, char *buf, size_t size);

/* CLOCK_REALTIME in ns as "2026-01-31T12:00:00.123456789Z". buf has at least 32 bytes. */
char *output_time(uint64_t ns, char *buf, size_t size);

/* The text with control characters and invalid bytes as \xNN, malloc'd; NULL without memory. */
char *output_escape(const char *s, size_t len);

/* Columns that an escaped text takes on a terminal. */
size_t output_width(const char *s);

/* Whether this fd is a terminal that can move its cursor. */
bool output_terminal(int fd);

/* Whether to colour what goes to this fd: a terminal, TERM is not "dumb", NO_COLOR is not set. */
bool output_colour(int fd);

#endif
