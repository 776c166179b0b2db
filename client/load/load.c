/* SPDX-License-Identifier: MIT
 *
 * gpushm_load(): safetensors files into one sealed buffer.
 */
#include "client/gpushm_load.h"
#include "client/gpushm_private.h"

int gpushm_load(struct gpushm *c, const char *const *sources, size_t n, const char *name,
		const struct gpushm_options *options, const struct gpushm_load_options *load,
		struct gpushm_buffer **ret)
{
	return gpushm_private_fail(ENOSYS, "loading is not built yet");
}

int gpushm_load_key(const char *const *sources, size_t n, const struct gpushm_load_options *load,
		    char ret_key[65])
{
	return gpushm_private_fail(ENOSYS, "loading is not built yet");
}
