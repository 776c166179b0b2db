/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl flush`: memory that was freed goes back to driver or kernel now, so that another
 * program can have it.
 */
#include "client/ctl/ctl.h"

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	int r = ctl_connect(ctl);

	if (r)
		return r;
	r = gpushm_flush(ctl->connection, n ? words[0] : NULL);
	return r < 0 ? ctl_refused(r) : CTL_OK;
}

const struct command command_flush = {
	.name = "flush",
	.synopsis = "[POOL]",
	.about = "give back memory that was freed and waits for reuse",
	.more = "Of all pools that the user may create in, or of one. When the command ends, it "
		"has\n"
		"been given back.",
	.args = (const struct arg[]){ { .name = NULL } },
	.min_words = 0,
	.max_words = 1,
	.run = run,
};
