/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl restart`: the daemon's program, or the one that an update has put in its place, takes
 * over. Ends when the successor answers, and says which one it is.
 */
#include "client/ctl/ctl.h"

#include <stdio.h>

static void report(const struct ctl *ctl, const struct gpushm_status *s)
{
	struct json j;

	if (ctl_json(ctl, &j)) {
		json_open(&j, NULL, '{');
		json_string(&j, "software", s->software);
		json_int(&j, "pid", s->pid);
		json_uint(&j, "buffers", s->buffers);
		json_close(&j, '}');
	} else if (!ctl->quiet) {
		printf("%s, pid %d, has taken over with %u buffers\n", s->software, s->pid,
		       s->buffers);
	}
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	struct gpushm_status *s = NULL;
	int r = ctl_connect(ctl);

	if (r)
		return r;
	r = gpushm_restart(ctl->connection);
	if (r == 0)
		r = gpushm_status(ctl->connection, &s);
	if (r < 0)
		return ctl_refused(r);
	report(ctl, s);
	gpushm_status_free(s);
	return CTL_OK;
}

const struct command command_restart = {
	.name = "restart",
	.synopsis = "",
	.about = "have the daemon's program, or its update, take over",
	.more = "In the same process, with all that is published and held; clients come back by\n"
		"themselves. A program that can't take over is refused, and the old one goes on.\n"
		"Administrators only.",
	.args = (const struct arg[]){ { .name = NULL } },
	.run = run,
};
