/* SPDX-License-Identifier: MIT
 *
 * The library's locks in the order in which they are taken; gpushm-internals(7) says what each
 * covers, and what is not done while it is held.
 */
#pragma once

#include "proto/base/lock.h"

enum library_lock {
	/* gpushm_buffer::changing; held over a request, and while libgpushm-load restores: so it is
	 * taken before the locks of that library */
	LOCK_CHANGING = LOCKS_MODELS - 1,
	LOCK_WATCH = LOCKS_LIBRARY, /* gpushm_watch::lock */
	LOCK_BUFFER,		    /* gpushm_buffer::lock */
	LOCK_CONNECTION,	    /* gpushm::lock; held over a request */
	LOCK_STREAM,		    /* gpushm_stream::lock */
	LOCK_MAPS,		    /* process::map_lock */
	LOCK_IMPORTS,		    /* process::import_lock */
	LOCK_CONTEXTS,		    /* process::context_lock */
	LOCK_CUDA,		    /* process::cuda_lock */
	LOCK_DEFER,		    /* process::defer_lock */
};
