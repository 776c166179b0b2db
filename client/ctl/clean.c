/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl clean NAME...`: the user has looked at buffers whose writer died, and what is in them
 * is good. Whoever waits for that goes on.
 */
#include "client/ctl/ctl.h"

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	int r = ctl_connect(ctl), first = CTL_OK;

	if (r)
		return r;
	for (size_t i = 0; i < n; i++) {
		r = gpushm_clean(ctl->connection, words[i]);
		if (r < 0)
			r = ctl_refused(r);
		if (!first)
			first = r;
	}
	return first;
}

const struct command command_clean = {
	.name = "clean",
	.synopsis = "NAME...",
	.about = "say that dirty buffers' contents are good again",
	.args = (const struct arg[]){ { .name = NULL } },
	.min_words = 1,
	.max_words = SIZE_MAX,
	.run = run,
};
