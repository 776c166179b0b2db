/* SPDX-License-Identifier: MIT
 *
 * What `gpushmctl top` shows: the buffers, processes, users and pools of a sample, how fast they
 * change since the sample before, and the rows that a user has chosen of them, in order.
 */
#pragma once

#include "client/ctl/top/sample.h"
#include "client/gpushm_query.h"

#include <stdbool.h>

enum top_view { TOP_BUFFERS, TOP_PROCESSES, TOP_USERS, TOP_POOLS, TOP_EVENTS, TOP_VIEWS };
enum top_sort { TOP_SIZE, TOP_RATE, TOP_HOLDERS, TOP_NAME, TOP_AGE, TOP_USER, TOP_SORTS };

/* Rates are a second's; NAN: not known, because there is no sample before, or not of this daemon.
 */
struct top_buffer {
	const struct gpushm_stat *stat; /* borrowed from the sample */
	double opens;
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

struct top_user {
	const struct gpushm_usage *usage; /* borrowed */
	double bytes;
};

struct top_pool {
	const struct gpushm_pool *pool; /* borrowed */
	double bytes;
};

struct model {
	const struct sample *sample; /* borrowed */
	double seconds;		     /* since the sample before */
	double requests, refused, creates, opens;
	double cpu; /* the daemon's, in percent of one core */
	/* Owned arrays. */
	struct top_buffer *buffers;
	struct top_process *processes;
	struct top_user *users;
	struct top_pool *pools;
	const struct gpushm_logged_event **events; /* the events are borrowed; the oldest first */
	size_t n[TOP_VIEWS];
};

/* before: NULL for none. The samples and events are borrowed; before only during the call. 0 or
 * -ENOMEM. */
int model_make(const struct sample *before, const struct sample *now, const struct history *events,
	       struct model *ret);
void model_done(struct model *m);

/* Which rows, in which order. */
struct choice {
	enum top_view view;
	enum top_sort sort;
	bool reversed;
	const char *word;   /* of the command line, as for ls, for buffers and events; NULL: all */
	const char *filter; /* a part of the name, or a pattern; "": all */
	bool by_user;
	uid_t user; /* if by_user */
};

/* Indexes into the model's array of that view. */
struct rows {
	size_t *at; /* owned */
	size_t n;
};

/* 0 or -ENOMEM. */
int model_choose(const struct model *m, const struct choice *c, struct rows *ret);
