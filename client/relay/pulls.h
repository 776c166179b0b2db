/* SPDX-License-Identifier: MIT
 *
 * The buffers that this relay gets from other machines: the sections [pull NAME]. Each has a
 * thread, which pulls, and with follow=yes pulls each new generation. What fails is tried again,
 * less and less often.
 */
#pragma once

#include "client/relay/config.h"
#include "client/relay/fanout.h"
#include "client/relay/offers.h"

/* Starts the threads, which run until the process ends. base: where this relay is reached,
 * "https://HOST:PORT"; "" if other machines can't reach it. All is borrowed. 0, or -errno. */
int pulls_start(const struct config *config, struct offers *offers, struct fanout *fanout,
		const char *base);
