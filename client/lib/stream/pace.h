/* SPDX-License-Identifier: MIT
 *
 * The pace of a stream's frames, from the numbers and times that their producer has written. A
 * reader that is willing to spin for some time sleeps while it knows that no frame is due, and
 * spins around the time when one is. A wrong guess costs time and nothing else: publications end
 * the sleep as any other one.
 */
#pragma once

#include <stdint.h>

struct pace {
	uint64_t seq, at_ns; /* the last frame, and when it was published; 0: none */
	uint64_t period_ns;  /* from one frame to the next */
	uint64_t late_ns;    /* by which a timed sleep ends too late */
	unsigned agreed;     /* PACE_TRIES less the last frames that did not come when due */
};
#define PACE_TRIES 3u

/* A frame was taken; one that comes out of order says nothing. */
void pace_note(struct pace *p, uint64_t seq, uint64_t at_ns, uint64_t spin_ns);

/* When to end a sleep so that a spin of that time has the next frame in its middle, in ns of
 * CLOCK_MONOTONIC as `now`. 0: there is nothing to sleep for, or it is not known when it is due. */
uint64_t pace_wake(const struct pace *p, uint64_t now, uint64_t spin_ns);
/* The sleep was to end at `wake`, and has ended. */
void pace_woke(struct pace *p, uint64_t wake, uint64_t now, uint64_t spin_ns);
