/* SPDX-License-Identifier: MIT
 *
 * How far a command is, on stderr: a bar that is drawn again on one line of a terminal, lines of
 * text in a log, or lines of JSON for a program.
 */
#pragma once

#include "proto/base/args.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum progress_form { PROGRESS_NONE, PROGRESS_BAR, PROGRESS_LINES, PROGRESS_JSON };

struct progress {
	enum progress_form form;
	const char *label;	 /* borrowed */
	const char *file;	 /* borrowed until the next step; NULL: it is not known */
	uint64_t total, done;	 /* bytes */
	uint64_t elapsed;	 /* ns */
	uint64_t next, interval; /* ns of elapsed time: when it is printed again */
	bool shown, complete;
};

/* --progress of a command whose options have `const char *progress`. */
#define ARG_PROGRESS(of)                                                       \
	ARG(of, progress, "progress", ARG_CHOICE, 0, "auto|always|never|json", \
	    "how to show progress on stderr (a bar on a terminal)")

/* asked: a value of --progress, or NULL for "auto", which is a bar if stderr is a terminal and the
 * command is not quiet. */
void progress_begin(struct progress *p, const char *asked, bool quiet, const char *label,
		    uint64_t total);

/* Prints, if it is time to. The last step is done == total. */
void progress_step(struct progress *p, uint64_t done, uint64_t elapsed_ns);

/* Removes the bar. */
void progress_end(struct progress *p);

/* The bar for a terminal of that many columns; buf has at least 4 bytes for each, because a name
 * may be in any script. */
void progress_format_bar(const struct progress *p, size_t columns, char *buf, size_t size);

/* "llama: 45%, 6.8 GiB of 15.0 GiB, 48.1 GiB/s, 0:03 left". */
void progress_format_line(const struct progress *p, char *buf, size_t size);
