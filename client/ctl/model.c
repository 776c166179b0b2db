/* SPDX-License-Identifier: MIT
 *
 * What load, save, verify, put, get and stat share about models: the library, its progress, its
 * errors, and a summary of a model's arrays. libgpushm-load brings libraries of its own, which a
 * command that only lists buffers must not load: so it is opened at run time, where the loader
 * looks for libgpushm, too (the program's run path).
 */
#include "client/ctl/model.h"

#include "client/ctl/transfer.h"
#include "proto/base/own.h"
#include "proto/base/size.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/stat.h>

#define LIBRARY "libgpushm-load.so.0"

int model_library_find(struct model_library *ret, char *why, size_t size)
{
	/* Until the process ends: a library that has started threads is never unloaded. */
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		snprintf(why, size, "%s can't be loaded: %s", LIBRARY, dlerror());
		return -ENOENT;
	}
	*ret = (struct model_library){ .load = dlsym(library, "gpushm_load"),
				       .save = dlsym(library, "gpushm_save"),
				       .verify = dlsym(library, "gpushm_verify") };
	if (ret->load && ret->save && ret->verify)
		return 0;
	snprintf(why, size, "%s is too old for this gpushmctl", LIBRARY);
	return -ENOENT;
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

	if (!m->begun) {
		m->begun = true;
		transfer_catch_signals();
		progress_begin(&m->progress, m->asked, m->quiet, m->label, p->total);
	}
	m->progress.file = p->file;
	progress_step(&m->progress, p->done, p->elapsed_ns);
	if (!transfer_interrupted())
		return 0;
	if (m->stream) {
		progress_end(&m->progress);
		ctl_error(CTL_FAILED, "interrupted");
		transfer_obey_signal();
	}
	return 1;
}

void model_progress_end(struct model_progress *m, bool done)
{
	if (done)
		transfer_ignore_signals();
	else
		transfer_release_signals();
	if (m->begun)
		progress_end(&m->progress);
}

/* A missing file is no missing buffer, and a closed pipe no lost daemon: the daemon's errors have a
 * code. */
int model_result(int r)
{
	bool ours = !*gpushm_error_code();

	if (r >= 0)
		return CTL_OK;
	if (r == -ECANCELED && transfer_interrupted())
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
		if (!strcmp(s->attrs[i].key, key) &&
		    !memchr(s->attrs[i].value, '\0', s->attrs[i].size))
			return &s->attrs[i];
	return NULL;
}

bool model_is(const struct gpushm_stat *s)
{
	return model_attr(s, "gpushm.source") || model_attr(s, "gpushm.content");
}

/* Where a tensor lies: tied tensors are arrays of the same bytes. */
struct extent {
	uint64_t offset, bytes;
	struct gpushm_dtype dtype;
};

static int by_offset(const void *a, const void *b)
{
	const struct extent *x = a, *y = b;

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static int by_bytes(const void *a, const void *b)
{
	const struct model_dtype *x = a, *y = b;

	return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static bool same_dtype(struct gpushm_dtype a, struct gpushm_dtype b)
{
	return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes &&
	       a.itemsize == b.itemsize;
}

static int add_extent(struct model_summary *s, const struct extent *e, bool tied)
{
	struct model_dtype *d = s->dtypes, *all;

	while (d < s->dtypes + s->n_dtypes && !same_dtype(d->dtype, e->dtype))
		d++;
	if (d == s->dtypes + s->n_dtypes) {
		all = reallocarray(s->dtypes, s->n_dtypes + 1, sizeof(*all));
		if (!all)
			return -ENOMEM;
		s->dtypes = all;
		d = &all[s->n_dtypes++];
		*d = (struct model_dtype){ .dtype = e->dtype };
	}
	d->tensors++;
	d->bytes += tied ? 0 : e->bytes;
	s->tensors++;
	s->bytes += tied ? 0 : e->bytes;
	return 0;
}

/* A loader keeps a file's large metadata in an array of this name. */
static int read_extents(const struct gpushm_buffer *b, struct extent *extents, size_t *ret_n)
{
	size_t n = 0;

	for (size_t i = 0; i < gpushm_buffer_arrays(b); i++) {
		struct gpushm_array *a = NULL;
		int r = gpushm_array_at((struct gpushm_buffer *)b, i, &a);

		if (r < 0)
			return r;
		if (strcmp(gpushm_array_name(a), "__metadata__") != 0)
			extents[n++] =
				(struct extent){ gpushm_array_offset(a), gpushm_array_nbytes(a),
						 gpushm_array_dtype(a) };
		gpushm_array_free(a);
	}
	*ret_n = n;
	return 0;
}

int model_summarize(const struct gpushm_buffer *b, struct model_summary *ret)
{
	_cleanup_(free_ptr) struct extent *extents =
		calloc(gpushm_buffer_arrays(b) + 1, sizeof(*extents));
	struct model_summary s = { 0 };
	size_t n = 0;
	int r = extents ? read_extents(b, extents, &n) : -ENOMEM;

	if (r == 0)
		qsort(extents, n, sizeof(*extents), by_offset);
	for (size_t i = 0; i < n && r == 0; i++)
		r = add_extent(&s, &extents[i], i && extents[i].offset == extents[i - 1].offset);
	if (r < 0) {
		model_summary_free(&s);
		return r;
	}
	if (s.n_dtypes)
		qsort(s.dtypes, s.n_dtypes, sizeof(*s.dtypes), by_bytes);
	*ret = s;
	return 0;
}

void model_summary_free(struct model_summary *s)
{
	free_ptr(&s->dtypes);
	s->n_dtypes = 0;
}
