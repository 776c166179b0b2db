/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl rm NAME...`: frees names. Memory goes when its last lease ends, not before.
 */
#include "client/ctl/ctl.h"

#include <errno.h>

struct options {
	bool force;
};

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	int r = ctl_connect(ctl), first = CTL_OK;

	if (r)
		return r;
	for (size_t i = 0; i < n; i++) {
		int code;

		r = gpushm_unlink(ctl->connection, words[i]);
		if (r == 0 || (r == -ENOENT && o->force))
			continue;
		code = ctl_refused(r);
		if (!first)
			first = code;
	}
	return first;
}

const struct command command_rm = {
	.name = "rm",
	.synopsis = "[--force] NAME...",
	.about = "unlink buffers; their memory goes with the last lease",
	.args =
		(const struct arg[]){
			{ "force", ARG_FLAG, 'f', NULL, "names that are not there are no error",
			  offsetof(struct options, force) },
			{ .name = NULL },
		},
	.options_size = sizeof(struct options),
	.min_words = 1,
	.max_words = SIZE_MAX,
	.run = run,
};
