/* SPDX-License-Identifier: MIT
 *
 * Contexts, and each thread's stack of them.
 */
#pragma once

#include "tests/fakecuda/fake_call.h"

struct context {
	int ordinal;
	unsigned int retained; /* 0: destroyed */
};

/* The thread's current context. INVALID_CONTEXT, or CONTEXT_IS_DESTROYED. */
CUresult context_current(struct context **ret);
/* The physical GPU that work of the current context runs on. Errors as above. */
CUresult context_gpu(unsigned int *ret);

/* References on primary contexts, and contexts of cuCtxCreate, that have not been given back. */
unsigned long context_alive(void);
