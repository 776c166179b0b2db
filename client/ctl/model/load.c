/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl load`: makes a buffer of a model's files. libgpushm-load reads and copies them in this
 * process and publishes the buffer as its last step; so a load that fails or is interrupted leaves
 * nothing behind.
 */
#include "client/ctl/model/model.h"
#include "proto/base/own.h"

#include <string.h>

static bool is_url(const char *text)
{
	return !strncasecmp(text, "https://", 8) || !strncasecmp(text, "http://", 7);
}

static bool is_standard_input(const char *source)
{
	return !strcmp(source, "-");
}

static bool any(size_t n, char **sources, bool (*is)(const char *source))
{
	while (n > 0 && !is(sources[n - 1]))
		n--;
	return n > 0;
}

static uint32_t flags_of(const struct model_load *o)
{
	uint32_t flags =
		(o->drop_cache ? GPUSHM_LOAD_DROP_CACHE : 0) | (o->keep ? GPUSHM_LOAD_KEEP : 0);

	if (o->io && !strcmp(o->io, "cached"))
		flags |= GPUSHM_LOAD_CACHED;
	if (o->io && !strcmp(o->io, "direct"))
		flags |= GPUSHM_LOAD_DIRECT;
	return flags;
}

static int load_result(const struct model_fetching *f, int r)
{
	/* A server that is not there is no missing daemon. */
	if (r < 0 && r != -ECANCELED && is_url(gpushm_error()))
		return ctl_error(CTL_FAILED, "%s", gpushm_error());
	/* Two tensors of one name are EEXIST, too, and another name for the buffer is no help. */
	if (r != -EEXIST || f->options->replace || !strncmp(gpushm_error(), "two tensors ", 12))
		return model_result(r);
	return model_fetch_taken(f);
}

int model_load(struct ctl *ctl, const struct model_load *o, size_t n, char **sources,
	       const char *name)
{
	struct model_fetching f;
	uint64_t keep_ms = 0;
	int r = o->keep ? ctl_keep_time("load", o->keep, &keep_ms) : CTL_OK;

	if (r == CTL_OK && o->fetch.new_buffer.transient && any(n, sources, is_standard_input))
		r = ctl_error(CTL_USAGE, "--transient keeps the buffer until standard input ends, "
					 "but standard input is the model");
	if (r == CTL_OK)
		r = model_fetch_begin(&f, ctl, &o->fetch, name);
	if (r)
		return r;
	f.progress.stream = any(n, sources, model_is_stream);
	f.load.flags |= flags_of(o);
	f.load.keep_ms = keep_ms;
	f.load.only = o->only.v;
	f.load.n_only = o->only.n;
	f.load.strip = o->strip;
	f.load.sha256 = o->sha256;
	f.load.twin = o->twin;
	r = f.library.load(ctl->connection, (const char *const *)sources, n, name,
			   &f.create.options, &f.load, &f.buffer);
	model_fetch_end(&f, r);
	r = load_result(&f, r);
	return r ? r : model_fetch_finish(ctl, &f);
}

/* `load *.safetensors` without a name would make a buffer with the name of the last file. */
static int check_name(const char *name)
{
	if (is_url(name))
		return ctl_error(CTL_USAGE, "load: the last word is the buffer's name, but it is a "
					    "URL: write gpushmctl load URL NAME");
	if (!model_is_file(name) || access(name, F_OK) < 0)
		return CTL_OK;
	return ctl_error(CTL_USAGE,
			 "load: the last word is the buffer's name, but \"%s\" is a file: write "
			 "gpushmctl load %s NAME",
			 name, name);
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	int r = check_name(words[n - 1]);

	return r ? r : model_load(ctl, options, n - 1, words, words[n - 1]);
}

const struct command command_load = {
	.name = "load",
	.synopsis = "[OPTIONS] SOURCE... NAME",
	.about = "load a model's safetensors files into a buffer",
	.more = "A SOURCE is FILE.safetensors, FILE.index.json with its shards beside it, a\n"
		"folder of either, \"-\" for standard input, or the URL of a file, of an index,\n"
		"or, with '/' at its end, of a folder as the Hugging Face Hub has them. Each\n"
		"tensor becomes an array of the same name. The buffer is sealed, and appears\n"
		"when all of it is loaded.",
	OPTIONS(model_load,
		ARG(model_load, only, "only", ARG_LIST, 0, "PATTERN",
		    "load tensors whose names match; may be given several times"),
		ARG(model_load, strip, "strip", ARG_TEXT, 0, "PREFIX",
		    "take this prefix off the names"),
		ARG(model_load, sha256, "sha256", ARG_TEXT, 0, "FILE",
		    "compare the files with these checksums of sha256sum"),
		ARG(model_load, io, "io", ARG_CHOICE, 0, "auto|cached|direct",
		    "read through the page cache, or past it (each file as it is best)"),
		FLAG(model_load, drop_cache, "drop-cache", 0,
		     "drop the files from the page cache afterwards"),
		ARG(model_load, twin, "twin", ARG_TEXT, 0, "POOL",
		    "make a twin in this host or pinned pool, as demote does"),
		ARG(model_load, keep, "keep", ARG_TEXT, 0, "TIME",
		    "the memory may go so long after the last use; as keep has it")),
	.more_args = { model_fetch_args, new_buffer_args },
	.defaults = &(const struct model_load){ .fetch.new_buffer.wait = NEW_BUFFER_NO_WAIT },
	.words = { 2, SIZE_MAX },
	.connects_itself = true,
	.run = run,
};
