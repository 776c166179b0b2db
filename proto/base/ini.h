/* SPDX-License-Identifier: MIT
 *
 * The form of a configuration file: sections, assignments, comments and continued lines; and the
 * messages about what is wrong. It knows no section and no key.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* Writes faults as they are found, and counts them, so that one run shows every fault. */
struct diagnostics {
	FILE *out;	  /* borrowed */
	const char *file; /* borrowed: the file that is being read */
	size_t n;	  /* so far, over all files */
};

/* Writes "FILE:LINE: text", or "FILE: text" if line is 0, with control characters escaped. */
void diagnostics_note(struct diagnostics *d, unsigned line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same, and counts it: a note is not a fault. */
#define diagnostics_add(d, ...) (diagnostics_note(d, __VA_ARGS__), (void)(d)->n++)

enum ini_what { INI_END, INI_SECTION, INI_ASSIGNMENT };

/* One section's header or one assignment. Strings lie in the text that ini_init() got. */
struct ini_item {
	unsigned line;	/* its first; from 1 */
	char *section;	/* "": the header is wrong, and a diagnostic says so */
	char *argument; /* [section argument]; "" without one */
	char *key, *value;
};

struct ini {
	struct diagnostics *diagnostics; /* borrowed */
	char *at, *end;			 /* the rest of the text */
	unsigned line;			 /* number of lines read */
};

/* text has len bytes and space for one more. The reader writes to it, and it must outlive the items
 * of ini_next(). */
void ini_init(struct ini *ini, char *text, size_t len, struct diagnostics *diagnostics);

/* Reads the next item. A line of no known form is reported and skipped. */
enum ini_what ini_next(struct ini *ini, struct ini_item *ret);
