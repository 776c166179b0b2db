/* SPDX-License-Identifier: MIT
 *
 * Arrays that are added to a buffer after it was created.
 */
#pragma once

#include "client/python/core/buffer.h"

/* The method describe(arrays). */
PyObject *pybuffer_describe(struct buffer *self, PyObject *arrays);
