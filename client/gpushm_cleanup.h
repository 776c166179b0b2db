/* SPDX-License-Identifier: MIT
 *
 * Closing buffers later, as Numba's defer_cleanup(). Errors and threads are as gpushm.h says.
 */
#ifndef GPUSHM_CLEANUP_H
#define GPUSHM_CLEANUP_H

#include <gpushm.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Closing a buffer on a GPU waits for all work of that GPU, which a hot section of a program can't
 * afford. Between gpushm_defer_cleanup() and gpushm_resume_cleanup() gpushm_close() only puts the
 * buffer on a list of this process: no driver call, no request. Sections nest; they are counted for
 * the whole process, and another thread may leave a section than entered it. Buffers of host pools
 * are always closed at once.
 *
 *	gpushm_defer_cleanup();
 *	for (...) {
 *		gpushm_open(..., &b); launch(b); gpushm_close(b);
 *	}
 *	gpushm_resume_cleanup();
 *	gpushm_flush_cleanup();
 *
 * A buffer on the list is closed for the application, but keeps its lease, its mapping and, if it
 * was not published, its name. The library cleans up what is on the list, oldest first:
 *  - in gpushm_flush_cleanup(), outside of sections;
 *  - in a gpushm_close() outside of sections that exceeds a limit: more than max_count buffers on
 *    all GPUs together, or more bytes on its GPU than max_ratio of that GPU's memory. The buffer
 *    that exceeds the limit is cleaned up with the others. Leaving a section cleans up nothing;
 *  - in gpushm_disconnect(), for buffers of that connection;
 *  - when a create or an open finds no space: a full pool, a limit of this user, or no memory for a
 *    mapping. Then all buffers are cleaned up, also within a section, and the call tries once more.
 * An error does not stop the cleanup of the others; the first one is returned, with its
 * gpushm_error().
 *
 * These are the rules of Numba's defer_cleanup(), and max_ratio is Numba's 0.2. Two things differ.
 * max_count is 0 and not 10: a close outside of a section cleans up at once, with what a section
 * has left, because a lease that outlives its close keeps memory from others, counts against its
 * user and appears in gpushmctl ls. And where no space is left a section has no effect, because the
 * call would fail instead. */
int gpushm_defer_cleanup(void);	 /* 0, -ENOMEM */
int gpushm_resume_cleanup(void); /* 0; -EINVAL without a section */

/* Cleans up what is on the list. 0; -EBUSY within a section, where it does nothing; else as
 * gpushm_close(). */
int gpushm_flush_cleanup(void);

/* Sets the limits of this process, from the next close on; the ratio is 0 to 1 (-EINVAL). Without
 * this call they are $GPUSHM_MAX_PENDING_UNMAPS_COUNT and $GPUSHM_MAX_PENDING_UNMAPS_RATIO, read at
 * the first close; invalid values are ignored. A forked child starts with those, without a section
 * and with an empty list. */
int gpushm_set_cleanup_limits(unsigned max_count, double max_ratio);

/* The number of buffers on the list and, unless ret_bytes is NULL, their bytes. */
size_t gpushm_pending_cleanup(uint64_t *ret_bytes);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
