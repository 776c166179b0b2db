/* SPDX-License-Identifier: MIT
 *
 * The locks of libgpushm-load in the order in which they are taken: the second one under the first,
 * and each of the others alone.
 */
#pragma once

#include "proto/base/lock.h"

enum models_lock {
	LOCK_COPIER = LOCKS_MODELS, /* copier.c: its memory, and contexts of GPUs */
	LOCK_DRIVER,		    /* gpu.c: loading libcuda */
	LOCK_WRITING,		    /* job::writing; held over write(2) */
	LOCK_RING,		    /* ring::lock */
	LOCK_CREW,		    /* crew::lock */
	LOCK_PLACES,		    /* places::lock */
	LOCK_NIXL_FILE,		    /* nixl_file::lock */
	LOCK_NIXL_AGENT,	    /* nixl_agent::lock; held over each call of NIXL */
};
