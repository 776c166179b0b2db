/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl save` writes a buffer to a safetensors file, and `gpushmctl verify` compares a
 * buffer's contents with the digest that a load has left. The file gets its name when all is
 * written; the library does both.
 */
#include "client/ctl/model/model.h"
#include "proto/base/own.h"

#include <string.h>
#include <unistd.h>

/* The library refuses to write an index beside a single file, and the other way round. */
static void report_save(const struct ctl *ctl, const char *name, const char *path,
			const struct gpushm_load_report *r)
{
	_cleanup_(free_ptr) char *index = NULL;
	const char *file = path;
	struct json j;

	if (output_is_file(path))
		return;
	if (access(path, F_OK) < 0 && asprintf(&index, "%s.index.json", path) >= 0)
		file = index;
	if (ctl_json(ctl, &j)) {
		json_open(&j, NULL, '{');
		json_string(&j, "name", name);
		json_string(&j, "file", file);
		model_report_json(&j, r);
		json_close(&j, '}');
	} else if (!ctl->quiet) {
		output_line(stdout, "%s: %zu %s, %s%s", file,
			    OUTPUT_COUNT((size_t)r->tensors, "tensor"),
			    ctl_size(ctl, r->bytes).text, model_pace(r).text);
	}
}

static int save(struct ctl *ctl, const struct model_save *o, struct gpushm_buffer *b,
		const char *file, struct gpushm_load_report *ret)
{
	struct model_progress progress = { .asked = o->progress,
					   .label = file,
					   .quiet = ctl->quiet,
					   .stream = model_is_stream(file) };
	struct gpushm_save_options s = { .struct_size = sizeof(s),
					 .threads = model_threads(o->threads),
					 .progress = model_on_progress,
					 .user = &progress,
					 .report = ret,
					 .shard_bytes = o->shard_size };
	struct model_library library;
	int r = model_library_open(&library);

	if (r)
		return r;
	/* From now on there may be a temporary file, which the library removes. */
	if (!progress.stream)
		ctl_catch_signals();
	r = library.save(b, file, &s);
	model_progress_end(&progress, r == 0);
	return model_result(r);
}

int model_save(struct ctl *ctl, const struct model_save *o, const char *name, const char *file)
{
	struct gpushm_load_report saved = { .struct_size = sizeof(saved) };
	_cleanup_(close_buffer) struct gpushm_buffer *b = NULL;
	int r;

	if (!strcmp(file, "-") && isatty(STDOUT_FILENO))
		return ctl_error(CTL_USAGE, "save: standard output is a terminal: write to a file, "
					    "or into a pipe");
	if (model_is_index(file))
		return ctl_error(CTL_USAGE,
				 "save: an index is written beside its files by --shard-size: name "
				 "the file FILE.safetensors");
	r = model_open(ctl, name, o->timeout, &b);
	if (r == CTL_OK)
		r = save(ctl, o, b, file, &saved);
	if (r == CTL_OK)
		report_save(ctl, name, file, &saved);
	return r;
}

static int run_save(struct ctl *ctl, const void *options, size_t n, char **words)
{
	return model_save(ctl, options, words[0], words[1]);
}

const struct command command_save = {
	.name = "save",
	.synopsis = "[OPTIONS] NAME FILE",
	.about = "write a buffer to a safetensors file",
	.more = "All arrays of the buffer are written. The FILE gets its name when it is\n"
		"complete; until then the old file stays. \"-\" is standard output.",
	OPTIONS(model_save,
		ARG(model_save, shard_size, "shard-size", ARG_SIZE, 0, "SIZE",
		    "write files of so much each, and FILE.index.json"),
		ARG(model_save, threads, "threads", ARG_COUNT, 0, "N",
		    "write with so many threads (one a processor, up to 12)"),
		ARG_PROGRESS(model_save), ARG_TIMEOUT(model_save)),
	.words = { 2, 2 },
	.run = run_save,
};

/* ---- verify ---- */

struct verify_options {
	const char *progress;
	uint64_t timeout;
};

static void report_verified(const struct ctl *ctl, const char *name,
			    const struct gpushm_load_report *r)
{
	struct json j;

	if (ctl_json(ctl, &j)) {
		json_open(&j, NULL, '{');
		json_string(&j, "name", name);
		model_report_json(&j, r);
		json_close(&j, '}');
	} else if (!ctl->quiet) {
		output_line(stdout, "%s: ok, %s, %s%s", name, r->content,
			    ctl_size(ctl, r->bytes).text, model_pace(r).text);
	}
}

static int verify(struct ctl *ctl, const struct verify_options *o, struct gpushm_buffer *b,
		  const char *name)
{
	struct model_progress progress = { .asked = o->progress,
					   .label = name,
					   .quiet = ctl->quiet };
	struct gpushm_load_report report = { .struct_size = sizeof(report) };
	struct model_library library;
	int r = model_library_open(&library);

	if (r)
		return r;
	r = library.verify(b, model_on_progress, &progress, &report);
	model_progress_end(&progress, false);
	if (r == -EBADMSG)
		return ctl_error(CTL_DIFFERS, "%s", gpushm_error());
	if (r == -ENODATA)
		return ctl_error(CTL_FAILED,
				 "%s: there is no digest to compare with: gpushmctl load and pull "
				 "leave one, and so does put of safetensors files",
				 name);
	if (r == 0)
		report_verified(ctl, name, &report);
	return model_result(r);
}

static int run_verify(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct verify_options *o = options;
	_cleanup_(close_buffer) struct gpushm_buffer *b = NULL;
	int r = model_open(ctl, words[0], o->timeout, &b);

	return r ? r : verify(ctl, o, b, words[0]);
}

const struct command command_verify = {
	.name = "verify",
	.synopsis = "[OPTIONS] NAME",
	.about = "compare a model with the digest of its contents",
	.more = "It reads all of the buffer. The exit status is 0 if the contents are those that\n"
		"were loaded, 6 if they differ, and 1 if the buffer has no digest.",
	OPTIONS(verify_options, ARG_PROGRESS(verify_options), ARG_TIMEOUT(verify_options)),
	.words = { 1, 1 },
	.run = run_verify,
};
