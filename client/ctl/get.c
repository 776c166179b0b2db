/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl get`: an array into a .npy file, or as plain bytes. The buffer is open for reading
 * while it is copied, so its memory stays even if it is unlinked meanwhile; a shared buffer may be
 * written by others at the same time, and then the file has what was there when each chunk was
 * read.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/entry.h"
#include "client/ctl/interrupt.h"
#include "client/ctl/npy.h"
#include "client/ctl/sink.h"
#include "client/ctl/transfer.h"
#include "proto/base/own.h"

#include <string.h>

struct options {
	const char *array;
	bool raw;
	uint64_t timeout;
};

/* The buffer's arrays, as a hint: the first few. */
static int explain(struct gpushm_buffer *b, const char *array)
{
	size_t n = gpushm_buffer_arrays(b), used = 0;
	char names[200] = "";

	for (size_t i = 0; i < n && i < 4 && used < sizeof(names); i++) {
		struct gpushm_array *a = NULL;

		if (gpushm_array_at(b, i, &a) < 0)
			break;
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s\"%s\"",
					 i ? ", " : "", gpushm_array_name(a));
		gpushm_array_free(a);
	}
	return ctl_error(CTL_NOT_FOUND, "%s: it has no array \"%s\"; its %zu arrays are %s%s",
			 gpushm_buffer_name(b), array, n, names, n > 4 ? ", ..." : "");
}

/* The named array; with no name given the buffer's own, or the only one that there is. */
static int find_array(struct gpushm_buffer *b, const char *name, struct gpushm_array **ret)
{
	int r = gpushm_array_get(b, name ? name : "", ret);

	if (r == -ENOENT && !name && gpushm_buffer_arrays(b) == 1)
		r = gpushm_array_at(b, 0, ret);
	if (r == -ENOENT)
		return explain(b, name ? name : "");
	return r < 0 ? ctl_refused(r) : CTL_OK;
}

static int write_header(const struct gpushm_array *a, struct sink *s)
{
	struct npy npy = { .dtype = entry_dtype(gpushm_array_dtype(a)),
			   .ndim = (uint32_t)gpushm_array_ndim(a) };
	const char *descr = gpushm_array_descr(a);
	_cleanup_(free_ptr) char *header = NULL;
	char type[64];
	size_t len;
	int r;

	npy.fortran = gpushm_array_is_f_contiguous(a) && !gpushm_array_is_c_contiguous(a);
	snprintf(npy.descr, sizeof(npy.descr), "%s", descr ? descr : "");
	for (uint32_t i = 0; i < npy.ndim; i++)
		npy.shape[i] = gpushm_array_shape(a)[i];
	r = npy_format(&npy, &header, &len);
	if (r == -ENOTSUP) {
		gpushm_dtype_format(gpushm_array_dtype(a), type, sizeof(type));
		return ctl_error(CTL_FAILED,
				 "NumPy has no type for %s: --raw writes the bytes alone", type);
	}
	if (r == 0)
		r = transfer_write(s->fd, header, len);
	if (r == -EPIPE)
		return CTL_FAILED;
	return r < 0 ? ctl_error(CTL_FAILED, "%s: %s", s->file, strerror(-r)) : CTL_OK;
}

static int write_file(const struct ctl *ctl, const struct options *o, const struct gpushm_array *a,
		      const char *file)
{
	struct sink s;
	struct progress p;
	int r;

	interrupt_catch();
	r = sink_open(&s, file);
	progress_start(&p, file, gpushm_array_nbytes(a), ctl->quiet);
	if (r == CTL_OK && !o->raw)
		r = write_header(a, &s);
	if (r == CTL_OK)
		r = transfer_dump(a, s.fd, s.file, &p);
	if (r == CTL_OK)
		r = sink_commit(&s);
	sink_close(&s);
	interrupt_release();
	progress_end(&p);
	return r;
}

static void report(const struct ctl *ctl, const struct gpushm_array *a, const char *file)
{
	char type[64] = "?", shape[512];
	struct json j;

	if (!strcmp(file, "-") || ctl->quiet)
		return;
	gpushm_dtype_format(gpushm_array_dtype(a), type, sizeof(type));
	if (ctl_json(ctl, &j)) {
		json_open(&j, NULL, '{');
		json_string(&j, "file", file);
		json_string(&j, "array", gpushm_array_name(a));
		json_string(&j, "dtype", type);
		json_open(&j, "shape", '[');
		for (int i = 0; i < gpushm_array_ndim(a); i++)
			json_int(&j, NULL, gpushm_array_shape(a)[i]);
		json_close(&j, ']');
		json_uint(&j, "bytes", gpushm_array_nbytes(a));
		json_close(&j, '}');
		return;
	}
	printf("%s: %s %s, %s\n", file, type, entry_shape(a, shape, sizeof(shape)),
	       ctl_size(ctl, gpushm_array_nbytes(a)));
}

static int get(struct ctl *ctl, const struct options *o, const char *name, const char *array,
	       const char *file)
{
	struct gpushm_buffer *b = NULL;
	struct gpushm_array *a = NULL;
	int r = gpushm_open(ctl->connection, name, GPUSHM_READ, o->timeout, NULL, &b);

	if (r < 0)
		return ctl_refused(r);
	if (gpushm_buffer_dirty(b))
		ctl_error(CTL_OK, "%s: it is dirty: a writer died while it held it", name);
	r = find_array(b, array, &a);
	if (r == CTL_OK)
		r = write_file(ctl, o, a, file);
	if (r == CTL_OK)
		report(ctl, a, file);
	gpushm_array_free(a);
	gpushm_close(b);
	return r;
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	char *colon = o->array ? NULL : strchr(words[0], ':');
	int r = ctl_connect(ctl);

	if (r)
		return r;
	if (colon)
		*colon = '\0';
	return get(ctl, o, words[0], colon ? colon + 1 : o->array, words[1]);
}

const struct command command_get = {
	.name = "get",
	.synopsis = "[OPTIONS] NAME[:ARRAY] FILE",
	.about = "write an array to a NumPy file",
	.more = "Without ARRAY it is the buffer's own array, or its only one. \"-\" is standard "
		"output.",
	.args =
		(const struct arg[]){
			{ "array", ARG_TEXT, 'A', "ARRAY",
			  "the array; NAME may then have a colon in it",
			  offsetof(struct options, array) },
			{ "raw", ARG_FLAG, 'r', NULL, "the elements alone, without NumPy's header",
			  offsetof(struct options, raw) },
			{ "timeout", ARG_TIME, 't', "TIME", "wait so long for it to be published",
			  offsetof(struct options, timeout) },
			{ .name = NULL },
		},
	.options_size = sizeof(struct options),
	.min_words = 2,
	.max_words = 2,
	.run = run,
};
