/* SPDX-License-Identifier: MIT
 *
 * What load and pull share: their options, the call of the library, and what is said about it.
 */
#include "client/ctl/model/model.h"

#include "proto/words.h"

#include <string.h>

const struct arg model_fetch_args[] = {
	FLAG(model_fetch, if_missing, "if-missing", 0,
	     "do nothing if the buffer has these contents, and wait if it is loading them"),
	FLAG(model_fetch, replace, "replace", 0,
	     "take the name over when it is loaded; users of the old buffer keep it"),
	FLAG(model_fetch, verify, "verify", 0, "read back what was copied, and compare"),
	ARG(model_fetch, threads, "threads", ARG_COUNT, 0, "N",
	    "read with so many threads (up to 12)"),
	ARG(model_fetch, token_file, "token-file", ARG_TEXT, 0, "FILE",
	    "send the token in this file's first line"),
	ARG(model_fetch, cacert, "cacert", ARG_TEXT, 0, "FILE",
	    "who signs the servers' certificates ($GPUSHM_TLS_CA)"),
	ARG(model_fetch, cert, "cert", ARG_TEXT, 0, "FILE",
	    "show this certificate ($GPUSHM_TLS_CERT)"),
	ARG(model_fetch, key, "key", ARG_TEXT, 0, "FILE",
	    "the key of that certificate ($GPUSHM_TLS_KEY)"),
	ARG(model_fetch, patience, "patience", ARG_TIME, 0, "TIME",
	    "give up if a server sends nothing for so long (60s)"),
	ARG_PROGRESS(model_fetch),
	{ .name = NULL },
};

/* How long to wait for another process that loads; --wait is also that for space, and 0 is no
 * limit. */
static uint64_t wait_for_loader(const struct new_buffer *nb)
{
	return nb->wait == NEW_BUFFER_NO_WAIT ? 0 : nb->wait ? nb->wait : 1;
}

static struct gpushm_remote_options remote_options(const struct model_fetch *o)
{
	return (struct gpushm_remote_options){
		.struct_size = sizeof(struct gpushm_remote_options),
		.token_file = o->token_file,
		.ca = o->cacert,
		.cert = o->cert,
		.key = o->key,
		.patience_s = o->patience > UINT_MAX - 999 ? UINT_MAX
							   : (unsigned)(o->patience + 999) / 1000
	};
}

static void fill(struct model_fetching *f, const struct ctl *ctl, const struct model_fetch *o,
		 const char *label)
{
	*f = (struct model_fetching){
		.options = o,
		.progress = { .asked = o->progress, .label = label, .quiet = ctl->quiet },
		.remote = remote_options(o),
		.report.struct_size = sizeof(f->report),
		.load = { .struct_size = sizeof(f->load),
			  .flags = (o->if_missing ? GPUSHM_LOAD_IF_MISSING : 0) |
				   (o->replace ? GPUSHM_LOAD_REPLACE : 0) |
				   (o->verify ? GPUSHM_LOAD_VERIFY : 0),
			  .threads = model_threads(o->threads),
			  .wait_ms = wait_for_loader(&o->new_buffer),
			  .progress = model_on_progress,
			  .user = &f->progress,
			  .report = &f->report,
			  .remote = &f->remote },
	};
}

int model_fetch_begin(struct model_fetching *f, struct ctl *ctl, const struct model_fetch *o,
		      const char *label)
{
	int r;

	fill(f, ctl, o, label);
	r = new_buffer_options(&o->new_buffer, &f->create);
	if (r == CTL_OK)
		r = model_library_open(&f->library);
	if (r == CTL_OK)
		r = ctl_connect(ctl);
	if (r)
		new_buffer_options_free(&f->create);
	return r;
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

/* With --transient the command goes on, and a signal ends it. */
void model_fetch_end(struct model_fetching *f, int r)
{
	model_progress_end(&f->progress, r >= 0 && !f->options->new_buffer.transient);
	new_buffer_options_free(&f->create);
	f->attached = r == GPUSHM_LOAD_ATTACHED;
	if (f->attached)
		complete_report(f->buffer, &f->report);
}

int model_fetch_taken(const struct model_fetching *f)
{
	return ctl_error(CTL_FAILED, "%s; --replace takes the name over%s", gpushm_error(),
			 f->options->if_missing
				 ? ""
				 : ", --if-missing uses a buffer of the same contents");
}

static void report(const struct ctl *ctl, const struct model_fetching *f)
{
	struct gpushm_buffer *b = f->buffer;
	const struct gpushm_load_report *r = &f->report;
	const char *kind = kind_word(gpushm_buffer_kind(b));
	const char *state = state_word(gpushm_buffer_state(b));
	struct json j;

	if (ctl_json(ctl, &j)) {
		json_open(&j, NULL, '{');
		json_string(&j, "name", gpushm_buffer_name(b));
		json_id(&j, "id", gpushm_buffer_id(b));
		json_string(&j, "pool", gpushm_buffer_pool(b));
		json_string(&j, "kind", kind);
		json_string(&j, "state", state);
		model_report_json(&j, r);
		json_bool(&j, "attached", f->attached);
		json_bool(&j, "direct", r->direct);
		json_close(&j, '}');
	} else if (!ctl->quiet) {
		output_line(stdout, "%s: %s%s, %zu %s, %s, %s memory%s", gpushm_buffer_name(b),
			    f->attached ? "it was there already: " : "", state,
			    OUTPUT_COUNT((size_t)r->tensors, "tensor"),
			    ctl_size(ctl, r->bytes).text, kind,
			    f->attached ? "" : model_pace(r).text);
	}
	/* A script may wait for this line while --transient keeps the command. */
	output_flush();
}

int model_fetch_finish(struct ctl *ctl, const struct model_fetching *f)
{
	int r;

	report(ctl, f);
	r = new_buffer_keep(ctl, &f->options->new_buffer, f->buffer);
	gpushm_close(f->buffer);
	return r;
}
