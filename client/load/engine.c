/* SPDX-License-Identifier: MIT
 *
 * Copies a plan's runs into a buffer.
 */
#include "client/load/engine.h"

#include "client/gpushm_private.h"

int engine_new(struct gpushm *c, const struct gpushm_options *options,
	       const struct gpushm_load_options *load, struct engine **ret)
{
	return gpushm_private_fail(ENOSYS, "loading is not built yet");
}

struct engine *engine_free(struct engine *e)
{
	return NULL;
}

int engine_load(struct engine *e, struct load_files *files, const struct plan *plan,
		struct gpushm_buffer *b, struct engine_result *ret)
{
	return gpushm_private_fail(ENOSYS, "loading is not built yet");
}

int engine_digest(struct engine *e, struct load_files *files, const struct plan *plan,
		  struct engine_result *ret)
{
	return gpushm_private_fail(ENOSYS, "loading is not built yet");
}
