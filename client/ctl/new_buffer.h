/* SPDX-License-Identifier: MIT
 *
 * A new buffer: the common part of put and create, from their options to the publication.
 */
#pragma once

#include "client/ctl/ctl.h"

struct new_buffer {
	const char *pool, *group;
	unsigned mode;
	bool shared, sealed, transient, hold;
	struct arg_list attrs; /* "key=value" */
	uint64_t wait;	       /* ms */
};

/* For an options struct that starts with a struct new_buffer. */
extern const struct arg new_buffer_args[];

/* Connects, and creates a buffer for these arrays. An exit code. */
int new_buffer_create(struct ctl *ctl, const struct new_buffer *nb, const char *name,
		      struct gpushm_array_spec *specs, size_t n, struct gpushm_buffer **ret);

/* Publishes the buffer, with --hold after `gpushmctl publish`, and reports it; with --transient
 * waits for the end of standard input. state: the default for neither --shared nor --sealed.
 * An exit code; CTL_FAILED if a signal interrupted the transfer. */
int new_buffer_finish(struct ctl *ctl, const struct new_buffer *nb, struct gpushm_buffer *b,
		      enum gpushm_state state);
