/* SPDX-License-Identifier: MIT
 *
 * The parts of `gpushmctl top`.
 */
#pragma once

#include "client/gpushm_query.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- sample.c ---- */

/* What the daemon shows this user at one moment: its status, the pools, and the buffers with their
 * holders. */
struct sample {
	uint64_t taken_ns; /* CLOCK_MONOTONIC */
	uint64_t time_ns;  /* CLOCK_REALTIME */
	uint64_t cost_ns;  /* how long the requests took */

	struct gpushm_status *status; /* owned */
	struct gpushm_pool **pools;   /* owned */
	size_t n_pools;
	struct gpushm_stat **buffers; /* owned; ids grow */
	size_t n_buffers;
	struct gpushm_stream_info **streams; /* owned; if a buffer is one */
	size_t n_streams;

	/* Requests that succeeded since the daemon started. */
	uint64_t creates, opens;
};

/* Asks the daemon for all of it; word is as for ls (NULL: all buffers), and the daemon leaves out
 * only what has another prefix. 0, or -errno of the library. */
int sample_take(struct gpushm *c, const char *word, struct sample **ret);

/* When the next one is due, after one that began and ended then: a period later, but after nine
 * times as long as it took. So one `top` never takes more than a tenth of the daemon's time. All in
 * ms. */
uint64_t sample_due(uint64_t began, uint64_t ended, uint64_t period);

/* NULL is allowed. Returns NULL. */
struct sample *sample_free(struct sample *s);

/* ---- model.c ---- */

/* What is shown: the buffers, processes, users and pools of a sample that a user has chosen, in
 * order, and how fast they change since the sample before. */
enum top_view { TOP_BUFFERS, TOP_PROCESSES, TOP_USERS, TOP_POOLS, TOP_VIEWS };

/* Which rows. */
struct choice {
	const char *word; /* as for ls; of buffers; NULL: all */
	bool by_user;
	uid_t user; /* if by_user */
};

/* A process that holds buffers which this user may see the holders of. */
struct top_process {
	pid_t pid; /* 0: in a PID namespace that the daemon does not see */
	uid_t uid;
	char command[16];
	bool ending;
	uint32_t buffers, writes;
	uint64_t bytes;	   /* of these buffers */
	uint64_t since_ns; /* CLOCK_REALTIME, of the oldest lease */
};

struct top_row {
	/* That of the row's view; borrowed from the sample or the model. */
	union {
		const struct gpushm_stat *buffer;
		const struct top_process *process;
		const struct gpushm_usage *user;
		const struct gpushm_pool *pool;
	};
	const char *name; /* borrowed; "" for a user */
	uint64_t bytes;
	/* A second; NAN: not known. Opens of a buffer, bytes of a user or pool; frames of a stream.
	 */
	double rate, frames;
};

struct top_list {
	struct top_row *rows; /* owned */
	size_t n;
};

/* The largest rows come first. Rates are NAN without a sample before of the same daemon. */
struct model {
	const struct sample *sample; /* borrowed */
	double seconds;		     /* since the sample before */
	double requests, refused, creates, opens;
	struct top_process *processes; /* owned */
	struct top_list lists[TOP_VIEWS];
};

/* before: NULL for none; it is needed only during the call. The other sample is borrowed. 0 or
 * -ENOMEM. */
int model_make(const struct sample *before, const struct sample *now, const struct choice *c,
	       struct model *ret);
void model_done(struct model *m);

/* ---- view.c: the page, as text with the styles of table.h ---- */

/* Where a page goes, and what is on it. */
struct page {
	FILE *out;
	unsigned flags; /* of table_print() */
	size_t lines;	/* of a terminal, for the list to end in time; 0: no limit */
	bool exact;	/* as for output_size() */
	const struct model *m;
};

/* Prints the page with the list of this view. 0 or -ENOMEM. */
int view_print(const struct page *p, enum top_view view);
