/* SPDX-License-Identifier: MIT
 *
 * The buffers that this relay gets from other machines: the sections [pull NAME]. Each has a
 * thread, which pulls, and with follow=yes pulls each new generation. What fails is tried again,
 * less and less often.
 */
#pragma once

#include "client/gpushm_load_private.h"
#include "client/relay/config.h"
#include "client/relay/fleet/announcement.h"
#include "client/relay/offer/offers.h"

enum pulls_cause {
	PULLS_DAEMON,  /* of this machine: away */
	PULLS_MEMORY,  /* there is not enough, or the limits are reached */
	PULLS_MISSING, /* such as the pool; a source without the buffer is no failure */
	PULLS_SOURCE,  /* it does not reply, or breaks off */
	PULLS_REFUSED, /* a certificate, or no [allow] section there */
	PULLS_DAMAGED, /* blocks without their digests */
	PULLS_OTHER,
	PULLS_CAUSES
};

struct pulls_counts {
	uint64_t failed[PULLS_CAUSES];
	uint64_t last_s; /* since 1970: when a pull was good; 0: never yet */
	uint64_t away;	 /* sources that do not reply now, of pulls that wait for something new */
};

/* Of the process; from any thread. */
void pulls_count(struct pulls_counts *ret);

/* What this relay says of itself while it pulls a name. False: it does not pull it. */
bool pulls_own(const char *name, struct announcement *ret);

/* The value of Via in replies about a name; "": this relay does not follow it. */
void pulls_via(const char *name, char ret[PULL_VIA_MAX]);

/* Starts the threads, which run until the process ends. config: the first one, whose socket= is the
 * daemon's from now on. base: where this relay is reached, "https://HOST:PORT"; "" if other
 * machines can't reach it. All but the config is borrowed. 0, or -errno. */
int pulls_start(struct config *config, struct offers *offers, const char *base);

/* Another configuration: sections that are as they were go on, others end or begin. 0, or -errno:
 * some have no thread. */
int pulls_use(struct config *config);
