/* SPDX-License-Identifier: MIT
 *
 * What `gpushmctl top` shows: the buffers, processes, users and pools of a sample that a user has
 * chosen, in order, and how fast they change since the sample before.
 */
#pragma once

#include "client/ctl/top/sample.h"
#include "client/gpushm_query.h"

#include <stdbool.h>

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
