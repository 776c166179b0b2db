/* SPDX-License-Identifier: MIT
 *
 * Sleeping on words that other processes change, and waking those that sleep.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpushm_buffer;

/* A futex, and the value with which it is slept on. */
struct wait_word {
	const _Atomic uint32_t *word;
	uint32_t seen;
};
#define WAIT_WORDS_MAX 66u /* the head's, 64 readers' and one more */

/* Sleeps until one of the words is not what was seen, at most so long; may return early. Returns
 * whether that time is over. The memory may be mapped read-only. Where the kernel can't wait for
 * several words, sleeps on the first one in short naps. */
bool wait_words(const struct wait_word *words, size_t n, uint64_t ns);

/* Wakes all that sleep on the word. */
void wait_wake(const _Atomic uint32_t *word);

/* How long to sleep before the next look at what no futex tells: `step` grows from call to call. */
struct wait_step {
	uint64_t ns;
};
uint64_t wait_next_step(struct wait_step *step);

/* Spins before a sleep. False: that time of CLOCK_MONOTONIC has come. */
struct wait_spin {
	uint64_t until;
	unsigned looks;
};
#define WAIT_SPIN_NS 5000ull /* by default */
bool wait_spin(struct wait_spin *spin);

/* A sleeper calls it after naps of WAIT_LOOK_NS at least: if no daemon can wake it, because the
 * daemon has gone, this connects to the next one, and takes a ms or two. *outage: 0 at first, and
 * where what was waited for has come. 0, or -ECONNRESET and others with gpushm_error() set: the
 * daemon does not come back. */
int wait_check_daemon(struct gpushm_buffer *b, uint64_t *outage);
/* Whether the daemon can be asked without a longer wait than so long, or a few ms. -EAGAIN, without
 * a text: it is not there, or *ret_busy: another thread of this process waits for its reply.
 * *outage: as above, over several calls. -ECONNRESET and others with gpushm_error() set: it does
 * not come back. */
int wait_for_daemon(struct gpushm_buffer *b, uint64_t ms, uint64_t *outage, bool *ret_busy);
/* Whether the daemon has gone. For any thread: it does not wait. */
bool wait_misses_daemon(struct gpushm_buffer *b);
#define WAIT_LOOK_NS 2000000ull
#define WAIT_IDLE_NS 50000000ull /* a nap that is not between two frames, most often */
#define WAIT_NAP_NS 1000000000ull
