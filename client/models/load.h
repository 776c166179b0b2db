/* SPDX-License-Identifier: MIT
 *
 * A load, as gpushm_load() and gpushm_pull() share it.
 */
#pragma once

#include "client/gpushm_load.h"

struct pulled;
struct readback;

/* Copies the options that the caller's library knows, and checks them. 0, or -EINVAL with
 * gpushm_error() set. */
int load_read_options(const struct gpushm_load_options *from, struct gpushm_load_options *ret);

/* Hands what a restore needs over to libgpushm; runs when this library is loaded. */
void reload_be_known(void);

/* The digest of a buffer's arrays, with what there is of them: ret->content, bytes, tensors and
 * elapsed_ns. back: whose memory is read, the buffer's or its twin's, which is host memory; and
 * progress. Errors as for readback_run(). */
int load_digest(struct gpushm_buffer *b, const struct readback *back,
		struct gpushm_load_report *ret);

/* gpushm_load(), with `pulled` NULL; or a part of gpushm_pull(), without sources: the file is that
 * of `pulled`. */
int load_run(struct gpushm *c, const char *const *sources, size_t n, const char *name,
	     const struct gpushm_create_options *options, const struct gpushm_load_options *load,
	     struct pulled *pulled, struct gpushm_buffer **ret);
