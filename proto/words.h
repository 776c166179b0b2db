/* SPDX-License-Identifier: MIT
 *
 * The words for the states of buffers, ways of access and streams, and by kind.h for the kinds of
 * pools: one table for the daemon, the library, gpushmctl and the Python package. Everything is
 * inline, because the Python package links with the library only, which exports none of this.
 */
#pragma once

#include "proto/kind.h"

/* NAME_word(): the words of an enum's numbers, from 1; "unknown" for any other number. */
#define WORDS(name, ...)                                                            \
	static inline const char *name##_word(unsigned int number)                  \
	{                                                                           \
		static const char *const words[] = { "unknown", __VA_ARGS__ };      \
                                                                                    \
		return words[number < sizeof(words) / sizeof(*words) ? number : 0]; \
	}

WORDS(state, "filling", "sealed", "shared")	    /* enum State */
WORDS(access, "read", "write")			    /* enum Access */
WORDS(residence, "resident", "twin", "source")	    /* enum Residence */
WORDS(stream_state, "running", "ended", "orphaned") /* enum stream_state */
WORDS(follow, "every", "latest", "share")	    /* enum Follow */
WORDS(delivery, "at-least-once", "at-most-once")    /* enum Delivery */

/* enum EventType */
WORDS(event, "started", "created", "published", "opened", "closed", "renamed", "replaced",
      "unlinked", "freed", "dirty", "cleaned", "died", "lost", "refused", "disconnected", "suspect",
      "pool-failed", "pool-recovered", "joined", "dropped", "orphaned", "continued", "suspended",
      "resumed", "evicted", "restored", "parked", "unparked", "stuck")

/* enum gpushm_event_kind: what a watch tells */
WORDS(what, "published", "dirty", "clean", "unlinked", "gone", "restarted")
