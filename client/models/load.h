/* SPDX-License-Identifier: MIT
 *
 * A load, as gpushm_load() and gpushm_pull() share it.
 */
#pragma once

#include "client/gpushm_load.h"

struct pulled;

/* Copies the options that the caller's library knows, and checks them. 0, or -EINVAL with
 * gpushm_error() set. */
int load_read_options(const struct gpushm_load_options *from, struct gpushm_load_options *ret);

/* Hands what a restore needs over to libgpushm; runs when this library is loaded. */
void reload_be_known(void);

/* gpushm_load(), with `pulled` NULL; or a part of gpushm_pull(), without sources: the file is that
 * of `pulled`. */
int load_run(struct gpushm *c, const char *const *sources, size_t n, const char *name,
	     const struct gpushm_create_options *options, const struct gpushm_load_options *load,
	     struct pulled *pulled, struct gpushm_buffer **ret);
