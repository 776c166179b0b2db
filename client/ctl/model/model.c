/* SPDX-License-Identifier: MIT
 *
 * What load, save, verify, put, get and stat share about models: the library, its progress, its
 * errors, and the summary that a load has left. libgpushm-load brings libraries of its own, which a
 * command that only lists buffers must not load: so it is opened at run time, from the folder that
 * libgpushm was loaded from, or else from where the dynamic loader looks.
 */
#include "client/ctl/model/model.h"

#include "client/ctl/transfer.h"
#include "proto/base/own.h"
#include "proto/base/size.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY "libgpushm-load.so." GPUSHM_SOVERSION

/* The path of the library beside libgpushm; LIBRARY if no file is there. A path, since only a
 * dlopen() that the program itself calls follows the program's run path: a sanitizer's does not. */
static const char *library_path(char buf[PATH_MAX])
{
	Dl_info libgpushm;
	const char *end;

	if (!dladdr((void *)gpushm_error, &libgpushm))
		return LIBRARY;
	end = strrchr(libgpushm.dli_fname, '/');
	if (!end || snprintf(buf, PATH_MAX, "%.*s/" LIBRARY, (int)(end - libgpushm.dli_fname),
			     libgpushm.dli_fname) >= PATH_MAX)
		return LIBRARY;
	return access(buf, F_OK) == 0 ? buf : LIBRARY;
}

int model_library_find(struct model_library *ret, char *why, size_t size)
{
	char path[PATH_MAX];
	/* Until the process ends: a library that has started threads is never unloaded. */
	void *library = dlopen(library_path(path), RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		snprintf(why, size, "%s can't be loaded: %s", LIBRARY, dlerror());
		return -ENOENT;
	}
	*ret = (struct model_library){ .load = dlsym(library, "gpushm_load"),
				       .save = dlsym(library, "gpushm_save"),
				       .verify = dlsym(library, "gpushm_verify"),
				       .pull = dlsym(library, "gpushm_pull"),
				       .nixl_find = dlsym(library, "gpushm_private_nixl_find"),
				       .nixl_new = dlsym(library, "gpushm_private_nixl_new"),
				       .nixl_free = dlsym(library, "gpushm_private_nixl_free") };
	if (ret->load && ret->save && ret->verify && ret->pull && ret->nixl_find && ret->nixl_new &&
	    ret->nixl_free)
		return 0;
	snprintf(why, size, "%s is too old for this gpushmctl", LIBRARY);
	return -ENOENT;
}

void model_library_offer(void)
{
	struct model_library ignored;
	char why[512];

	model_library_find(&ignored, why, sizeof(why));
}

int model_library_open(struct model_library *ret)
{
	char why[512];

	if (model_library_find(ret, why, sizeof(why)) == 0)
		return CTL_OK;
	return ctl_error(CTL_FAILED, "models need a library: %s; " MODEL_LIBRARY_TODO, why);
}

static bool ends_with(const char *text, const char *end)
{
	size_t len = strlen(text), n = strlen(end);

	return len > n && !strcmp(text + len - n, end);
}

bool model_is_index(const char *path)
{
	return ends_with(path, ".safetensors.index.json");
}

bool model_is_file(const char *path)
{
	return ends_with(path, ".safetensors") || model_is_index(path);
}

bool model_is_stream(const char *path)
{
	struct stat st;

	return !strcmp(path, "-") ||
	       (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode));
}

int model_on_progress(void *user, const struct gpushm_load_progress *p)
{
	struct model_progress *m = user;

	/* Nothing is known yet of a pipe whose header has not come. */
	if (!m->begun && p->total == 0)
		return 0;
	if (!m->begun) {
		m->begun = true;
		ctl_catch_signals();
		progress_begin(&m->progress, m->asked, m->quiet, m->label, p->total);
	}
	m->progress.file = p->file;
	progress_step(&m->progress, p->done, p->elapsed_ns);
	if (!ctl_interrupted())
		return 0;
	if (m->stream) {
		progress_end(&m->progress);
		ctl_error(CTL_FAILED, "interrupted");
		ctl_obey_signal();
	}
	return 1;
}

void model_progress_end(struct model_progress *m, bool done)
{
	if (done)
		ctl_ignore_signals();
	else
		ctl_release_signals();
	if (m->begun)
		progress_end(&m->progress);
}

/* A missing file is no missing buffer, and a closed pipe no lost daemon: the daemon's errors have a
 * code. */
int model_result(int r)
{
	bool ours;

	if (r >= 0)
		return CTL_OK;
	ours = !*gpushm_error_code();
	if (r == -ECANCELED && ctl_interrupted())
		return ctl_error(CTL_FAILED, "interrupted");
	if (r == -EPIPE && ours)
		return CTL_FAILED;
	if (r == -ENOENT && ours)
		return ctl_error(CTL_FAILED, "%s", gpushm_error());
	return ctl_refused(r);
}

struct output_text model_pace(const struct gpushm_load_report *r)
{
	double seconds = (double)r->elapsed_ns / 1e9;
	struct output_text t = { "" };

	if (r->elapsed_ns)
		snprintf(t.text, sizeof(t.text), "; %.2f s, %s/s", seconds,
			 size_format((uint64_t)((double)r->bytes / seconds)).text);
	return t;
}

void model_report_json(struct json *j, const struct gpushm_load_report *r)
{
	json_uint(j, "bytes", r->bytes);
	json_value(j, "seconds", "%.6f", (double)r->elapsed_ns / 1e9);
	json_uint(j, "tensors", r->tensors);
	json_string(j, "digest", r->content[0] ? r->content : NULL);
}

int model_open(struct ctl *ctl, const char *name, uint64_t timeout, struct gpushm_buffer **ret)
{
	int r = gpushm_open(ctl->connection, name, GPUSHM_READ, timeout, NULL, ret);

	if (r < 0)
		return ctl_refused(r);
	if (gpushm_buffer_dirty(*ret))
		ctl_error(CTL_OK,
			  "%s: the buffer is dirty: a process died that held it for writing", name);
	return CTL_OK;
}

/* ---- what is in a model ---- */

const struct gpushm_attr *model_attr(const struct gpushm_stat *s, const char *key)
{
	for (size_t i = 0; i < s->n_attrs; i++)
		if (!strcmp(s->attrs[i]->key, key) &&
		    !memchr(s->attrs[i]->value, '\0', s->attrs[i]->size))
			return s->attrs[i];
	return NULL;
}

/* Another user's attribute may be any text: what is not understood ends it. */
static void parse_types(const char *text, struct model_summary *ret)
{
	struct model_dtype d;
	int n = 0;

	for (; sscanf(text, " %31[^ ,] %" SCNu64 " %" SCNu64 "%n", d.name, &d.tensors, &d.bytes,
		      &n) == 3 &&
	       ret->n_dtypes < MODEL_DTYPES_MAX;
	     text += n + (text[n] == ',')) {
		ret->dtypes[ret->n_dtypes++] = d;
		ret->tensors += d.tensors;
		ret->bytes += d.bytes;
	}
}

bool model_summarize(const void *types, size_t size, struct model_summary *ret)
{
	char text[1024];

	*ret = (struct model_summary){ 0 };
	snprintf(text, sizeof(text), "%.*s", (int)(size < sizeof(text) ? size : sizeof(text) - 1),
		 (const char *)types);
	parse_types(text, ret);
	return ret->n_dtypes > 0;
}

bool model_is(const struct gpushm_stat *s)
{
	const struct gpushm_attr *types = model_attr(s, "gpushm.types");
	struct model_summary m;

	return model_attr(s, "gpushm.source") || model_attr(s, "gpushm.content") ||
	       (types && model_summarize(types->value, types->size, &m));
}
