/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl load`: makes a buffer of a model's files. libgpushm-load reads and copies them in this
 * process and publishes the buffer as its last step; so a load that fails or is interrupted leaves
 * nothing behind.
 */
#include "client/ctl/model/model.h"
#include "client/ctl/transfer.h"
#include "proto/base/own.h"
#include "proto/words.h"

#include <string.h>

static bool has_stream(size_t n, char **sources)
{
	for (size_t i = 0; i < n; i++)
		if (model_is_stream(sources[i]))
			return true;
	return false;
}

static bool is_url(const char *text)
{
	return !strncasecmp(text, "https://", 8) || !strncasecmp(text, "http://", 7);
}

static bool has_standard_input(size_t n, char **sources)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(sources[i], "-"))
			return true;
	return false;
}

static uint32_t flags_of(const struct model_load *o)
{
	uint32_t flags = 0;

	flags |= o->if_missing ? GPUSHM_LOAD_IF_MISSING : 0;
	flags |= o->replace ? GPUSHM_LOAD_REPLACE : 0;
	flags |= o->verify ? GPUSHM_LOAD_VERIFY : 0;
	flags |= o->drop_cache ? GPUSHM_LOAD_DROP_CACHE : 0;
	if (o->io)
		flags |= !strcmp(o->io, "cached")   ? GPUSHM_LOAD_CACHED
			 : !strcmp(o->io, "direct") ? GPUSHM_LOAD_DIRECT
						    : 0;
	return flags;
}

/* A buffer that was there already has no report of its load. */
static void complete_report(struct gpushm_buffer *b, struct gpushm_load_report *r)
{
	struct model_summary s;
	const void *value;
	size_t size;

	if (gpushm_buffer_attr(b, "gpushm.types", &value, &size) == 0 &&
	    model_summarize(value, size, &s)) {
		r->tensors = s.tensors;
		r->bytes = s.bytes;
	}
	if (gpushm_buffer_attr(b, "gpushm.content", &value, &size) == 0)
		snprintf(r->content, sizeof(r->content), "%.*s", (int)size, (const char *)value);
}

void model_report_loaded(const struct ctl *ctl, struct model_loaded *l)
{
	struct gpushm_buffer *b = l->buffer;
	const struct gpushm_load_report *r = &l->report;
	const char *kind = kind_word(gpushm_buffer_kind(b));
	const char *state = state_word(gpushm_buffer_state(b));
	struct json j;

	if (l->attached)
		complete_report(b, &l->report);
	if (ctl_json(ctl, &j)) {
		json_open(&j, NULL, '{');
		json_string(&j, "name", gpushm_buffer_name(b));
		json_id(&j, "id", gpushm_buffer_id(b));
		json_string(&j, "pool", gpushm_buffer_pool(b));
		json_string(&j, "kind", kind);
		json_string(&j, "state", state);
		model_report_json(&j, r);
		json_bool(&j, "attached", l->attached);
		json_bool(&j, "direct", r->direct);
		json_close(&j, '}');
	} else if (!ctl->quiet) {
		output_line(stdout, "%s: %s%s, %zu %s, %s, %s memory%s", gpushm_buffer_name(b),
			    l->attached ? "it was there already: " : "", state,
			    OUTPUT_COUNT((size_t)r->tensors, "tensor"),
			    ctl_size(ctl, r->bytes).text, kind,
			    l->attached ? "" : model_pace(r).text);
	}
	/* A script may wait for this line while --transient keeps the command. */
	output_flush();
}

uint64_t model_wait_for_loader(const struct new_buffer *nb)
{
	uint64_t wait = nb->wait;

	return wait == MODEL_NO_WAIT ? 0 : wait ? wait : 1;
}

/* What the daemon says about a name that is taken does not know these options. */
static int load_result(const struct model_load *o, int r)
{
	/* A server that is not there is no missing daemon. */
	if (r < 0 && r != -ECANCELED && is_url(gpushm_error()))
		return ctl_error(CTL_FAILED, "%s", gpushm_error());
	/* Two tensors of one name are EEXIST, too, and another name for the buffer is no help. */
	if (r != -EEXIST || o->replace || !strncmp(gpushm_error(), "two tensors ", 12))
		return model_result(r);
	return ctl_error(CTL_FAILED, "%s; --replace takes the name over%s", gpushm_error(),
			 o->if_missing ? "" : ", --if-missing uses a buffer of the same files");
}

static int load(struct ctl *ctl, const struct model_load *o, size_t n, char **sources,
		const char *name, const struct gpushm_create_options *options,
		struct model_loaded *ret)
{
	struct model_progress progress = { .asked = o->progress,
					   .label = name,
					   .quiet = ctl->quiet,
					   .stream = has_stream(n, sources) };
	struct gpushm_remote_options remote = model_remote_options(&o->remote);
	struct gpushm_load_options l = { .struct_size = sizeof(l),
					 .flags = flags_of(o),
					 .threads = model_threads(o->threads),
					 .only = o->only.v,
					 .n_only = o->only.n,
					 .strip = o->strip,
					 .sha256 = o->sha256,
					 .wait_ms = model_wait_for_loader(&o->new_buffer),
					 .progress = model_on_progress,
					 .user = &progress,
					 .report = &ret->report,
					 .remote = &remote };
	struct model_library library;
	int r = model_library_open(&library);

	if (r == CTL_OK)
		r = ctl_connect(ctl);
	if (r)
		return r;
	r = library.load(ctl->connection, (const char *const *)sources, n, name, options, &l,
			 &ret->buffer);
	/* Then --transient waits, and a signal ends it. */
	model_progress_end(&progress, r >= 0 && !o->new_buffer.transient);
	ret->attached = r == GPUSHM_LOAD_ATTACHED;
	return load_result(o, r);
}

int model_load(struct ctl *ctl, const struct model_load *o, size_t n, char **sources,
	       const char *name)
{
	struct model_loaded l = { .report.struct_size = sizeof(l.report) };
	struct new_buffer_options options;
	int r = new_buffer_options(&o->new_buffer, &options);

	if (o->new_buffer.wait == MODEL_NO_WAIT)
		options.options.wait_ms = 0;
	if (r == CTL_OK && o->new_buffer.transient && has_standard_input(n, sources))
		r = ctl_error(CTL_USAGE, "--transient keeps the buffer until standard input ends, "
					 "but standard input is the model");
	if (r == CTL_OK)
		r = load(ctl, o, n, sources, name, &options.options, &l);
	new_buffer_options_free(&options);
	if (r)
		return r;
	model_report_loaded(ctl, &l);
	r = new_buffer_keep(ctl, &o->new_buffer, l.buffer);
	gpushm_close(l.buffer);
	return r;
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
	.more = "A SOURCE is FILE.safetensors, FILE.index.json with its shards beside it, a "
		"folder\n"
		"of either, \"-\" for standard input, or the URL of a file, of an index, or, with "
		"'/'\n"
		"at its end, of a folder as the Hugging Face Hub has them. Each tensor becomes an\n"
		"array of the same name. The buffer is sealed, and appears when all of it is "
		"loaded.",
	.args = ARGS({ "if-missing", ARG_FLAG, 0, NULL,
		       "do nothing if NAME has these files, and wait if it is loading them",
		       offsetof(struct model_load, if_missing) },
		     { "replace", ARG_FLAG, 0, NULL,
		       "take NAME over when it is loaded; users of the old buffer keep it",
		       offsetof(struct model_load, replace) },
		     { "only", ARG_LIST, 0, "PATTERN",
		       "load tensors whose names match; may be given several times",
		       offsetof(struct model_load, only) },
		     { "strip", ARG_TEXT, 0, "PREFIX", "take this prefix off the names",
		       offsetof(struct model_load, strip) },
		     { "verify", ARG_FLAG, 0, NULL, "read back what was copied, and compare",
		       offsetof(struct model_load, verify) },
		     { "sha256", ARG_TEXT, 0, "FILE",
		       "compare the files with these checksums of sha256sum",
		       offsetof(struct model_load, sha256) },
		     { "io", ARG_CHOICE, 0, "auto|cached|direct",
		       "read through the page cache, or past it (each file as it is best)",
		       offsetof(struct model_load, io) },
		     { "threads", ARG_COUNT, 0, "N",
		       "read with so many threads (one a processor, up to 12)",
		       offsetof(struct model_load, threads) },
		     { "drop-cache", ARG_FLAG, 0, NULL,
		       "drop the files from the page cache afterwards",
		       offsetof(struct model_load, drop_cache) },
		     ARGS_REMOTE(struct model_load, remote), ARG_PROGRESS(struct model_load)),
	.more_args = new_buffer_args,
	.options_size = sizeof(struct model_load),
	.defaults = &(const struct model_load){ .new_buffer.wait = MODEL_NO_WAIT },
	.min_words = 2,
	.max_words = SIZE_MAX,
	.connects_itself = true,
	.run = run,
};
