/* SPDX-License-Identifier: MIT
 *
 * gpushm_pull(): a load of the file that a relay offers, with what its manifest says about it.
 */
#include "client/load/pull.h"

#include "client/load/fail.h"

int pull_run(struct gpushm *c, const char *source, const char *name,
	     const struct gpushm_options *options, const struct gpushm_load_options *load,
	     const struct pull_observer *observer, struct gpushm_buffer **ret)
{
	return load_fail(ENOSYS, "%s: pulls are not made yet", source);
}

int gpushm_pull(struct gpushm *c, const char *source, const char *name,
		const struct gpushm_options *options, const struct gpushm_load_options *load,
		struct gpushm_buffer **ret)
{
	return pull_run(c, source, name, options, load, NULL, ret);
}

int gpushm_pull_wait(const char *source, const char *content,
		     const struct gpushm_remote_options *remote, uint64_t timeout_ms,
		     gpushm_load_progress_fn *progress, void *user)
{
	return load_fail(ENOSYS, "%s: pulls are not made yet", source);
}
