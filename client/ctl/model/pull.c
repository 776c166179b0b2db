/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl pull`: makes a buffer of one that another machine's relay offers, once: what follows a
 * name there is gpushm-relay.
 */
#include "client/ctl/model/model.h"

#include <errno.h>
#include <string.h>

struct options {
	struct model_fetch fetch; /* first: model_fetch_args */
	const char *via;
};

/* The exit code for an error of the library. */
static int pull_result(const struct model_fetching *f, int r)
{
	if (r == -ECANCELED && ctl_interrupted())
		return ctl_error(CTL_FAILED, "interrupted");
	if (r == -EEXIST && !f->options->replace)
		return model_fetch_taken(f);
	return ctl_error(ctl_exit_code(r), "%s", gpushm_error());
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	const char *source = words[0], *name = n > 1 ? words[1] : NULL; /* NULL: the source's */
	struct model_fetching f;
	int r = model_fetch_begin(&f, ctl, &o->fetch, name ? name : source);

	if (r)
		return r;
	if (o->via && !strcmp(o->via, "nixl"))
		f.load.flags |= GPUSHM_LOAD_NIXL;
	r = f.library.pull(ctl->connection, source, name, &f.create.options, &f.load, &f.buffer);
	model_fetch_end(&f, r);
	return r < 0 ? pull_result(&f, r) : model_fetch_finish(ctl, &f);
}

const struct command command_pull = {
	.name = "pull",
	.synopsis = "[OPTIONS] HOST[:PORT]/NAME [NEW]",
	.about = "load a buffer that another machine has, from its gpushm-relay",
	.more = "Makes a sealed buffer NEW, or NAME, with the arrays and attributes that NAME\n"
		"has there. Each block is compared with its digest. The buffer appears when all\n"
		"of it is here. The relay is asked by HTTPS at port 19401; an http:// or\n"
		"https:// URL is taken as it is. To have each buffer that NAME becomes there, run\n"
		"a relay here: follow=yes of gpushm-relay(8).",
	OPTIONS(options, ARG(options, via, "via", ARG_CHOICE, 0, "https|nixl",
			     "how the bytes come: nixl uses RDMA where there is some (https)")),
	.more_args = { model_fetch_args, new_buffer_args },
	.defaults = &(const struct options){ .fetch.new_buffer.wait = NEW_BUFFER_NO_WAIT },
	.words = { 1, 2 },
	.connects_itself = true,
	.run = run,
};
