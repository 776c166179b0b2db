/* SPDX-License-Identifier: MIT
 *
 * Signals during transfers: `get` must take away its unfinished file and `put` must leave no
 * half-filled buffer. The handler only notes the number; the loops look at it between chunks.
 * The library is never interrupted on purpose: outside of transfers the signals keep their default
 * action, so that a request which waits for a name can be ended.
 */
#include "client/ctl/interrupt.h"

#include <signal.h>
#include <stddef.h>

static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
static volatile sig_atomic_t caught;

static void on_signal(int number)
{
	caught = number;
}

static void set_all(void (*handler)(int))
{
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		/* No SA_RESTART: a read from a silent pipe must end. */
		struct sigaction a = { .sa_handler = handler, .sa_flags = (int)SA_RESETHAND };
		struct sigaction old;

		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaction(signals[i], &a, NULL);
	}
}

void interrupt_catch(void)
{
	set_all(on_signal);
}

void interrupt_release(void)
{
	set_all(SIG_DFL);
}

bool interrupt_pending(void)
{
	return caught != 0;
}

void interrupt_obey(void)
{
	if (!caught)
		return;
	interrupt_release();
	raise(caught);
}
