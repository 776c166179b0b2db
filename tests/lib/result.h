/* SPDX-License-Identifier: MIT
 *
 * For _cleanup_() on what a function of gpushm_query.h has returned.
 */
#pragma once

#include "client/gpushm.h"

static inline void free_result(void *p)
{
	*(void **)p = gpushm_free(*(void **)p);
}
