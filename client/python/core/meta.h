/* SPDX-License-Identifier: MIT
 *
 * The 64 bytes of a frame that are its user's.
 */
#pragma once

#include "client/gpushm_stream.h"
#include "client/python/core/object.h"

struct meta {
	size_t n;
	unsigned char bytes[GPUSHM_META_MAX];
};

/* value: bytes and the like, or a dict of str to what CBOR has words for; None or NULL: nothing.
 * shapes: a dict of an array's index to a tuple; NULL: each array has the slot's shape. Raises
 * TypeError, or BadArgument where it does not fit. */
int meta_encode(PyObject *value, PyObject *shapes, struct meta *ret);

/* *ret_value: a dict, or bytes; *ret_shapes: as above. Bytes that meta_encode() does not make are
 * returned as they are. */
int meta_decode(const struct meta *m, PyObject **ret_value, PyObject **ret_shapes);
