/* SPDX-License-Identifier: MIT
 *
 * An idle handle of libuv: while it is active, the loop polls with a timeout of 0. It stops itself
 * when its time is over.
 *
 * Polling does harm on a single processor. It also does when all processors are busy: the kernel
 * puts a process that a socket wakes on its waker's processor, because it expects the waker to
 * sleep soon (wake_up_interruptible_sync_poll() in net/unix). Then no event comes while the loop
 * polls, and struct spin counts a miss.
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

void busy_poll_init(struct busy_poll *b, uv_loop_t *loop)
{
	*b = (struct busy_poll){ .allowed = has_processors() };
	uv_idle_init(loop, &b->idle); /* never fails */
}

static void on_idle(uv_idle_t *idle)
{
	struct busy_poll *b = container_of(idle, struct busy_poll, idle);

	if (uv_hrtime() < b->until)
		return;
	uv_idle_stop(idle);
	spin_miss(&b->spin);
}

static void start(struct busy_poll *b, uint64_t now, uint64_t ns)
{
	if (!b->allowed || ns == 0 || !spin_may(&b->spin))
		return;
	b->until = now + ns;
	uv_idle_start(&b->idle, on_idle);
}

void busy_poll_for(struct busy_poll *b, uint64_t ns)
{
	start(b, uv_hrtime(), ns);
}

void busy_poll_end(struct busy_poll *b)
{
	if (!uv_is_active((const uv_handle_t *)&b->idle))
		return;
	spin_hit(&b->spin);
	uv_idle_stop(&b->idle);
}

uint64_t busy_poll_in_burst(struct busy_poll *b, uint64_t ns)
{
	uint64_t now = uv_hrtime();

	busy_poll_end(b);
	if (now - b->last < BUSY_POLL_BURST_NS)
		start(b, now, ns);
	b->last = now;
	return now;
}
