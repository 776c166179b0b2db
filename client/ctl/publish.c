/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl publish NAME`: lets others open a buffer that `put --hold` or `create --hold` filled.
 * Several buffers are published one after the other: a new version of a model in many buffers
 * takes minutes to load and is switched to in a moment.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/entry.h"
#include "client/ctl/gate.h"

#include <errno.h>

struct options {
	bool shared, sealed;
};

/* Nobody listens at the gate: say which of the reasons it is. */
static int explain(struct ctl *ctl, const char *name)
{
	struct gpushm_stat *s = NULL;
	int r = gpushm_stat(ctl->connection, name, 0, 0, &s);
	enum gpushm_state state;

	if (r < 0 && r != -EAGAIN)
		return ctl_refused(r);
	state = s ? s->state : GPUSHM_FILLING;
	gpushm_stat_free(s, 1);
	if (state != GPUSHM_FILLING)
		return ctl_error(CTL_FAILED, "%s: it is published already (%s)", name,
				 entry_state(state));
	return ctl_error(CTL_FAILED,
			 "%s: it is being filled by another program, and only that program can "
			 "publish it (gpushm_publish); for the shell, make it with gpushmctl put "
			 "--hold or gpushmctl create --hold",
			 name);
}

static int publish(struct ctl *ctl, const char *name, unsigned state)
{
	int r = gate_ask(ctl, name, state);

	return r == CTL_NOT_FOUND ? explain(ctl, name) : r;
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	unsigned state = o->shared ? GPUSHM_SHARED : o->sealed ? GPUSHM_SEALED : 0;
	int first = CTL_OK;
	int r;

	if (o->shared && o->sealed)
		return ctl_error(CTL_USAGE, "--shared and --sealed: choose one");
	if (ctl->json && n > 1)
		return ctl_error(CTL_USAGE, "--json prints one document: give one NAME");
	r = ctl_connect(ctl);
	if (r)
		return r;
	for (size_t i = 0; i < n; i++) {
		r = publish(ctl, words[i], state);
		if (!first)
			first = r;
	}
	return first;
}

const struct command command_publish = {
	.name = "publish",
	.synopsis = "[--sealed | --shared] NAME...",
	.about = "let others open what put --hold or create --hold has filled",
	.more = "Only the process that created a buffer can publish it, so this asks the one that\n"
		"`gpushmctl put --hold` or `gpushmctl create --hold` left waiting; it publishes "
		"the\n"
		"buffer and ends.",
	.args =
		(const struct arg[]){
			{ "sealed", ARG_FLAG, 0, NULL, "for reading only, whatever --hold was told",
			  offsetof(struct options, sealed) },
			{ "shared", ARG_FLAG, 0, NULL, "for reading and writing",
			  offsetof(struct options, shared) },
			{ .name = NULL },
		},
	.options_size = sizeof(struct options),
	.min_words = 1,
	.max_words = SIZE_MAX,
	.run = run,
};
