/* SPDX-License-Identifier: MIT
 *
 * The public type of an element and the protocol's: the same four numbers, two names.
 */
#ifndef GPUSHM_CLIENT_BASE_DTYPE_H
#define GPUSHM_CLIENT_BASE_DTYPE_H

#include "client/gpushm.h"
#include "proto/dtype.h"

static inline struct dtype dtype_from_public(struct gpushm_dtype t)
{
	return (struct dtype){ t.code, t.bits, t.lanes, t.itemsize };
}

static inline struct gpushm_dtype dtype_to_public(struct dtype t)
{
	return (struct gpushm_dtype){ t.code, t.bits, t.lanes, t.itemsize };
}

#endif
