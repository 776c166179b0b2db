/* SPDX-License-Identifier: MIT
 *
 * gpushm_pull(), and what a relay needs of it: to serve a buffer while it pulls it.
 */
#pragma once

#include "client/models/observer.h"

/* observer: NULL is allowed. */
int pull_run(struct gpushm *c, const char *source, const char *name,
	     const struct gpushm_options *options, const struct gpushm_load_options *load,
	     const struct pull_observer *observer, struct gpushm_buffer **ret);

/* gpushm_pull_wait(); of the observer only via() is called. */
int pull_wait(const char *source, const char *content, const struct gpushm_remote_options *remote,
	      uint64_t timeout_ms, gpushm_load_progress_fn *progress, void *user,
	      const struct pull_observer *observer);

/* Says to the source where this machine offers the file of that ETag, which it has or is getting:
 * the value of Gpushm-Relay. Errors as for remote_request(). */
int pull_announce(const char *source, const char *etag, const char *relay,
		  const struct gpushm_remote_options *remote);

/* 0; or -EINVAL if this can't be a source, with gpushm_error() set; or -ENOMEM. */
int pull_check_source(const char *source);
