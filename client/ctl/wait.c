/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl wait NAME...`: returns when all of them are published. The time is for all together.
 */
#include "client/ctl/ctl.h"

#include <errno.h>
#include <time.h>

struct options {
	uint64_t timeout;
};

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	uint64_t deadline;
	int r = ctl_connect(ctl);

	if (r)
		return r;
	if (__builtin_add_overflow(now_ms(), o->timeout, &deadline))
		deadline = UINT64_MAX;
	for (size_t i = 0; i < n; i++) {
		uint64_t now = now_ms();
		uint64_t left = deadline == UINT64_MAX ? UINT64_MAX
				: now < deadline       ? deadline - now
						       : 0;

		r = gpushm_wait(ctl->connection, words[i], left);
		/* The owner is told -EAGAIN at the end of the time: it is being filled. */
		if (r == -EAGAIN || (!left && r == -ENOENT))
			return ctl_error(CTL_TIMED_OUT, "%s", gpushm_error());
		if (r < 0)
			return ctl_refused(r);
	}
	return CTL_OK;
}

const struct command command_wait = {
	.name = "wait",
	.synopsis = "[--timeout=TIME] NAME...",
	.about = "wait until buffers are published",
	.args =
		(const struct arg[]){
			{ "timeout", ARG_TIME, 't', "TIME",
			  "give up after so long, with exit code 5",
			  offsetof(struct options, timeout) },
			{ .name = NULL },
		},
	.options_size = sizeof(struct options),
	.defaults = &(const struct options){ .timeout = GPUSHM_WAIT_FOREVER },
	.min_words = 1,
	.max_words = SIZE_MAX,
	.run = run,
};
