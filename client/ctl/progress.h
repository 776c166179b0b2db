/* SPDX-License-Identifier: MIT
 *
 * A bar on stderr for what takes more than a second; nothing where stderr is no terminal.
 */
#ifndef GPUSHM_CLIENT_CTL_PROGRESS_H
#define GPUSHM_CLIENT_CTL_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
	const char *label; /* borrowed */
	uint64_t total, done;
	uint64_t started, drawn; /* ns, CLOCK_MONOTONIC */
	bool on, shown;
};

/* quiet: no bar in any case. */
void progress_start(struct progress *p, const char *label, uint64_t total, bool quiet);
void progress_add(struct progress *p, uint64_t bytes);
/* Wipes the bar. */
void progress_end(struct progress *p);

/* The line for a terminal of that many columns; at least 24 bytes more than columns. */
void progress_format(const struct progress *p, uint64_t now, size_t columns, char *buf,
		     size_t size);

#endif
