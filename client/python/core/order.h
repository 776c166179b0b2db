/* SPDX-License-Identifier: MIT
 *
 * The streams that copies of a buffer were queued on, and that nobody has waited for here: whoever
 * is given the memory comes behind them.
 */
#ifndef GPUSHM_PYTHON_ORDER_H
#define GPUSHM_PYTHON_ORDER_H

#include "client/python/core/stream.h"

struct order {
	/* A dict of (CUstream as an int, thread) to (what keeps it alive, or None,); where a copy
	 * was queued last is last. Owned; NULL: none. */
	PyObject *streams;
};

void order_done(struct order *o);

/* A copy was queued there, on a stream that lasts. 0; -1: raised. */
int order_add(struct order *o, const struct stream *s);

/* Waits for all but that CUstream, in whose order the consumer works; lets other threads run. 0;
 * -1: raised. */
int order_wait(struct order *o, const void *but);

/* Waits for all but the last one, and tells it: 1, the legacy default one, is no NULL, and NULL is
 * none. 0; -1: raised. */
int order_last(struct order *o, void **ret);

#endif
