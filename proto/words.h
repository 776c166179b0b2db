/* SPDX-License-Identifier: MIT
 *
 * The words for the states of buffers, ways of access and streams, and by kind.h for the kinds of
 * pools: one table for the daemon, the library, gpushmctl and the Python package. Everything is
 * inline, because the Python package links with the library only, which exports none of this.
 */
#pragma once

#include "proto/kind.h"

/* enum State: "filling", "sealed" or "shared"; "unknown" for any other number. */
static inline const char *state_word(unsigned int state)
{
	static const char *const words[] = { "unknown", "filling", "sealed", "shared" };

	return words[state < 4 ? state : 0];
}

/* enum Access: "read" or "write"; "unknown" for any other number. */
static inline const char *access_word(unsigned int access)
{
	static const char *const words[] = { "unknown", "read", "write" };

	return words[access < 3 ? access : 0];
}

#define EVENT_WORDS 30u

/* enum EventType; "unknown" for any other number. */
static inline const char *event_word(unsigned int type)
{
	static const char *const words[EVENT_WORDS] = {
		"unknown",	"started",  "created",	   "published",	     "opened",
		"closed",	"renamed",  "replaced",	   "unlinked",	     "freed",
		"dirty",	"cleaned",  "died",	   "lost",	     "refused",
		"disconnected", "suspect",  "pool-failed", "pool-recovered", "joined",
		"dropped",	"orphaned", "continued",   "suspended",	     "resumed",
		"evicted",	"restored", "parked",	   "unparked",	     "stuck",
	};

	return words[type < EVENT_WORDS ? type : 0];
}

/* enum Residence: "resident", "twin" or "source"; "unknown" for any other number. */
static inline const char *residence_word(unsigned int residence)
{
	static const char *const words[] = { "unknown", "resident", "twin", "source" };

	return words[residence < 4 ? residence : 0];
}

/* enum stream_state: "running", "ended" or "orphaned"; "unknown" for any other number. */
static inline const char *stream_state_word(unsigned int state)
{
	static const char *const words[] = { "unknown", "running", "ended", "orphaned" };

	return words[state < 4 ? state : 0];
}

/* enum Follow: "every", "latest" or "share"; "unknown" for any other number. */
static inline const char *follow_word(unsigned int follow)
{
	static const char *const words[] = { "unknown", "every", "latest", "share" };

	return words[follow < 4 ? follow : 0];
}

/* enum Delivery: "at-least-once" or "at-most-once"; "unknown" for any other number. */
static inline const char *delivery_word(unsigned int delivery)
{
	static const char *const words[] = { "unknown", "at-least-once", "at-most-once" };

	return words[delivery < 3 ? delivery : 0];
}

/* enum gpushm_event_kind: what a watch tells; "unknown" for any other number. */
static inline const char *what_word(unsigned int what)
{
	static const char *const words[] = { "unknown",	 "published", "dirty",	  "clean",
					     "unlinked", "gone",      "restarted" };

	return words[what < 7 ? what : 0];
}
