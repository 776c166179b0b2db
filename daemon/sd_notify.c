/* SPDX-License-Identifier: MIT
 *
 * Messages to the supervisor: the state of the service, and the line of text that systemctl status
 * shows. A restart is a reload to systemd: the process stays, and says when it is ready again.
 */
#include "daemon/sd_notify.h"

#include "daemon/pool/stuck.h"
#include "proto/base/clock.h"

#include <inttypes.h>
#include <systemd/sd-daemon.h>

static void tell(const struct pools *p, const char *before)
{
	const struct pool *pool, *failed = NULL;
	unsigned n = 0;

	list_foreach (pool, &p->all, link) {
		if (!stuck_trouble(pool))
			continue;
		n++;
		if (!failed)
			failed = pool;
	}
	if (failed)
		sd_notifyf(0, "%sSTATUS=%u pools, %u of them failed: %s: %s", before, p->open, n,
			   failed->config.name, stuck_trouble(failed));
	else
		sd_notifyf(0, "%sSTATUS=%u pools", before, p->open);
}

void notify_ready(const struct pools *p)
{
	tell(p, "READY=1\n");
}

void notify_pools(const struct pools *p)
{
	tell(p, "");
}

void notify_alive(void)
{
	sd_notify(0, "WATCHDOG=1");
}

/* The time is what systemd 253 and later tell an earlier reload's READY=1 by. */
void notify_restarting(void)
{
	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=restarting",
		   clock_monotonic_ns() / 1000);
}

void notify_stopping(void)
{
	sd_notify(0, "STOPPING=1");
}
