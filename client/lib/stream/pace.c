/* SPDX-License-Identifier: MIT */
#include "client/lib/stream/pace.h"

#include "proto/stream.h"

#define SMOOTHED_OVER 8

static uint64_t smoothed(uint64_t before, uint64_t now)
{
	return now > before ? before + (now - before) / SMOOTHED_OVER
			    : before - (before - now) / SMOOTHED_OVER;
}

/* A late frame makes two intervals wrong. The producer's clock may be another one: that of another
 * time namespace. */
void pace_note(struct pace *p, uint64_t seq, uint64_t at_ns, uint64_t spin_ns)
{
	const struct pace last = *p;
	uint64_t interval = 0, off;

	if (last.seq && !stream_before(last.seq, seq))
		return;
	if (last.seq && at_ns > last.at_ns)
		interval = (at_ns - last.at_ns) / (seq - last.seq);
	off = interval > last.period_ns ? interval - last.period_ns : last.period_ns - interval;
	p->seq = seq;
	p->at_ns = at_ns;
	if (interval > 0 && off <= spin_ns / 2) {
		p->period_ns = smoothed(last.period_ns, interval);
		p->agreed = PACE_TRIES;
	} else if (last.agreed > 1) {
		p->agreed--;
	} else {
		p->period_ns = interval;
		p->agreed = 0;
	}
}

uint64_t pace_wake(const struct pace *p, uint64_t now, uint64_t spin_ns)
{
	uint64_t early = spin_ns / 2 + p->late_ns;
	uint64_t wake = p->at_ns + p->period_ns - early;

	if (p->agreed == 0 || p->at_ns > now || p->period_ns <= early)
		return 0;
	return wake > now ? wake : 0;
}

/* The timer's slack is 50 us (prctl(2), PR_SET_TIMERSLACK), and a processor takes as long to leave
 * its idle state, in a virtual machine longer. A single sleep that ended far too late changes
 * little. */
void pace_woke(struct pace *p, uint64_t wake, uint64_t now, uint64_t spin_ns)
{
	uint64_t late = now > wake ? now - wake : 0, most = p->late_ns + spin_ns / 2;

	p->late_ns = smoothed(p->late_ns, late < most ? late : most);
}
