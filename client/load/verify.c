/* SPDX-License-Identifier: MIT
 *
 * gpushm_verify(): a buffer's contents against the digest that gpushm_load() left.
 */
#include "client/gpushm_load.h"
#include "client/gpushm_private.h"

int gpushm_verify(struct gpushm_buffer *b, gpushm_load_progress_fn *progress, void *user,
		  struct gpushm_load_report *ret)
{
	return gpushm_private_fail(ENOSYS, "verifying is not built yet");
}
