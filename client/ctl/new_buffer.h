/* SPDX-License-Identifier: MIT
 *
 * A new buffer: the common part of put and create, from their options to the publication.
 */
#pragma once

#include "client/ctl/ctl.h"

struct new_buffer {
	const char *pool, *group;
	unsigned mode;
	bool shared, sealed, transient;
	struct arg_list attrs; /* "key=value" */
	uint64_t wait;	       /* ms */
};

#define NEW_BUFFER_NO_WAIT (UINT64_MAX - 1) /* the default of wait: it was not given */

/* For an options struct that starts with a struct new_buffer. */
extern const struct arg new_buffer_args[];

/* The options of commands that publish the buffer themselves, for the same struct. */
extern const struct arg new_buffer_state_args[];

/* The library's options, with what they borrow from. */
struct new_buffer_options {
	struct gpushm_create_options options;
	struct gpushm_attr attrs[ARG_LIST_MAX];
};

/* Checks and converts the options. An exit code; free *ret in any case. */
int new_buffer_options(const struct new_buffer *nb, struct new_buffer_options *ret);
void new_buffer_options_free(struct new_buffer_options *o);

/* Connects, and creates a buffer for these arrays. An exit code. */
int new_buffer_create(struct ctl *ctl, const struct new_buffer *nb, const char *name,
		      struct gpushm_array_spec *specs, size_t n, struct gpushm_buffer **ret);

/* What follows the report of a published buffer: warns if it does not survive the daemon, and with
 * --transient waits for the end of standard input. An exit code. */
int new_buffer_keep(struct ctl *ctl, const struct new_buffer *nb, struct gpushm_buffer *b);

/* Publishes the buffer and reports it; with --transient waits for the end of standard input.
 * state: the default for neither --shared nor --sealed. An exit code; CTL_FAILED if a signal
 * interrupted the transfer. */
int new_buffer_finish(struct ctl *ctl, const struct new_buffer *nb, struct gpushm_buffer *b,
		      enum gpushm_state state);
