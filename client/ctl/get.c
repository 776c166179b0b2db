/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl get`: writes an array to a .npy file, or as plain bytes. The buffer is open for
 * reading during the copy, so its memory stays even if its name is unlinked. Other processes may
 * write to a shared buffer at the same time; the file then has the bytes of the moment each chunk
 * was read.
 *
 * A safetensors file gets all arrays, from the library that saves models.
 */
#include "client/ctl/arrays.h"
#include "client/ctl/ctl.h"
#include "client/ctl/model/model.h"
#include "client/ctl/new_file.h"
#include "client/ctl/transfer.h"
#include "proto/base/own.h"

#include <string.h>

struct options {
	const char *array;
	bool raw;
	uint64_t timeout;
};

static int write_header(const struct gpushm_array *a, const struct new_file *f)
{
	_cleanup_(free_ptr) char *header = NULL;
	size_t len;
	int r = arrays_npy_header(a, -1, 0, &header, &len);

	return r ? r : transfer_write(f->fd, f->file, header, len);
}

static int write_file(const struct ctl *ctl, const struct options *o, const struct gpushm_array *a,
		      const char *file)
{
	struct new_file f = { .fd = -1 };
	struct transfer t;
	int r;

	transfer_begin(&t, file, gpushm_array_nbytes(a), ctl->quiet);
	r = new_file_open(&f, file);
	if (r == CTL_OK && !o->raw)
		r = write_header(a, &f);
	if (r == CTL_OK)
		r = transfer_dump(&t, a, f.fd, f.file);
	if (r == CTL_OK)
		r = new_file_commit(&f);
	new_file_close(&f);
	transfer_end(&t);
	return r;
}

static void report(const struct ctl *ctl, const struct gpushm_array *a, const char *file)
{
	struct output_text type = output_dtype(gpushm_array_dtype(a));
	struct json j;

	if (output_is_file(file) || ctl->quiet)
		return;
	if (!ctl_json(ctl, &j)) {
		output_line(stdout, "%s: %s %s, %s", file, type.text, output_shape(a).text,
			    ctl_size(ctl, gpushm_array_nbytes(a)).text);
		return;
	}
	json_open(&j, NULL, '{');
	json_string(&j, "file", file);
	json_string(&j, "array", gpushm_array_name(a));
	json_string(&j, "dtype", type.text);
	json_ints(&j, "shape", gpushm_array_shape(a), gpushm_array_ndim(a));
	json_uint(&j, "bytes", gpushm_array_nbytes(a));
	json_close(&j, '}');
}

/* colon: the end of the buffer's name in words[0], or NULL. */
static int get_array(struct ctl *ctl, const struct options *o, char **words, char *colon)
{
	_cleanup_(close_buffer) struct gpushm_buffer *b = NULL;
	_cleanup_(free_array) struct gpushm_array *a = NULL;
	int r;

	if (colon)
		*colon = '\0';
	r = model_open(ctl, words[0], o->timeout, &b);
	if (r == CTL_OK)
		r = arrays_find(b, colon ? colon + 1 : o->array, &a);
	if (r == CTL_OK)
		r = write_file(ctl, o, a, words[1]);
	if (r == CTL_OK)
		report(ctl, a, words[1]);
	return r;
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	const struct model_save save = { .timeout = o->timeout };
	char *colon = o->array ? NULL : strchr(words[0], ':');

	if (o->raw || !model_is_file(words[1]))
		return get_array(ctl, o, words, colon);
	if (colon || o->array)
		return ctl_error(CTL_USAGE,
				 "get: a safetensors file has all arrays of a buffer: leave out "
				 "the array, or write a .npy file");
	return model_save(ctl, &save, words[0], words[1]);
}

const struct command command_get = {
	.name = "get",
	.synopsis = "[OPTIONS] NAME[:ARRAY] FILE\n[OPTIONS] NAME FILE.safetensors",
	.about = "write an array to a NumPy file, or a model to a safetensors file",
	.more = "Without ARRAY it writes the buffer's own array, or its only one. \"-\" is\n"
		"standard output. To FILE.safetensors it writes all arrays, as `gpushmctl save`\n"
		"does.",
	OPTIONS(options,
		ARG(options, array, "array", ARG_TEXT, 'A', "ARRAY",
		    "the array; a colon in NAME is then part of NAME"),
		FLAG(options, raw, "raw", 'r', "write the elements without a NumPy header"),
		ARG_TIMEOUT(options)),
	.words = { 2, 2 },
	.run = run,
};
