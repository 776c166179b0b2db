/* SPDX-License-Identifier: MIT
 *
 * gpushm_pull(), and what a relay needs of it: to serve a buffer while it pulls it.
 */
#pragma once

#include "client/load/observer.h"

/* observer: NULL is allowed. */
int pull_run(struct gpushm *c, const char *source, const char *name,
	     const struct gpushm_options *options, const struct gpushm_load_options *load,
	     const struct pull_observer *observer, struct gpushm_buffer **ret);
