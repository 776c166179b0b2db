/* SPDX-License-Identifier: MIT
 *
 * gpushm_save(): a buffer's arrays as a safetensors file.
 */
#include "client/gpushm_load.h"
#include "client/gpushm_private.h"

int gpushm_save(struct gpushm_buffer *b, const char *path,
		const struct gpushm_save_options *options)
{
	return gpushm_private_fail(ENOSYS, "saving is not built yet");
}
