/* SPDX-License-Identifier: MIT
 *
 * An idle handle of libuv's: while one is active, the loop polls with a timeout of 0. It stops
 * itself when its time is over.
 *
 * Polling is no use where it keeps whoever is to make the event from running: on a single
 * processor, and where all are busy, for the kernel puts a process that a socket wakes beside its
 * waker, who it believes is about to sleep (wake_up_interruptible_sync_poll() in net/unix). Then
 * nothing comes while we poll, which spin.h finds out.
 */
#include "daemon/util/busy_poll.h"

#include "proto/base/list.h"

#include <sched.h>

static bool has_processors(void)
{
	cpu_set_t set;

	/* More than 1,024 processors do not fit the set: EINVAL (sched_getaffinity(2)). */
	return sched_getaffinity(0, sizeof(set), &set) < 0 || CPU_COUNT(&set) > 1;
}

void busy_poll_init(struct busy_poll *a, uv_loop_t *loop)
{
	*a = (struct busy_poll){ .allowed = has_processors() };
	uv_idle_init(loop, &a->idle); /* never fails */
}

static bool is_active(const struct busy_poll *a)
{
	return uv_is_active((const uv_handle_t *)&a->idle);
}

static void on_idle(uv_idle_t *idle)
{
	struct busy_poll *a = container_of(idle, struct busy_poll, idle);

	if (uv_hrtime() < a->until)
		return;
	uv_idle_stop(idle);
	spin_miss(&a->spin);
}

static void stay(struct busy_poll *a, uint64_t now, uint64_t ns)
{
	if (!a->allowed || ns == 0 || !spin_may(&a->spin))
		return;
	a->until = now + ns;
	uv_idle_start(&a->idle, on_idle);
}

void busy_poll_for(struct busy_poll *a, uint64_t ns)
{
	stay(a, uv_hrtime(), ns);
}

void busy_poll_end(struct busy_poll *a)
{
	if (!is_active(a))
		return;
	spin_hit(&a->spin);
	uv_idle_stop(&a->idle);
}

void busy_poll_in_burst(struct busy_poll *a, uint64_t ns)
{
	uint64_t now = uv_hrtime();

	busy_poll_end(a);
	if (now - a->last < BUSY_POLL_BURST_NS)
		stay(a, now, ns);
	a->last = now;
}
