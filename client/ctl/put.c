/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl put`: makes a buffer from .npy files. It first reads all headers, and checks that
 * regular files have the size that they describe; then it creates the buffer, fills it file by
 * file, and publishes it last. So other processes see all of it or nothing, and a put that fails or
 * is interrupted leaves nothing behind. Safetensors files it hands to the loader.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/model/model.h"
#include "client/ctl/new_buffer.h"
#include "client/ctl/npy.h"
#include "client/ctl/transfer.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

struct options {
	struct new_buffer new_buffer; /* first: more_args */
	const char *dtype;
};

/* A .npy file, or standard input, that becomes an array. */
struct npy_input {
	const char *file; /* borrowed; for messages */
	char *array;	  /* owned: the array's name */
	int fd;		  /* owned; at the data */
	struct npy npy;
	int64_t strides[DIMENSIONS_MAX]; /* bytes; of Fortran order */
};

/* All inputs of a put, and the arrays that they become; freed as a whole. */
struct inputs {
	struct npy_input *v;		 /* owned */
	struct gpushm_array_spec *specs; /* owned; they borrow from v */
	size_t n;
};

static void inputs_free(struct inputs *in)
{
	for (size_t i = 0; i < in->n; i++) {
		close_fd(&in->v[i].fd);
		free(in->v[i].array);
	}
	free(in->v);
	free(in->specs);
}

static int inputs_new(struct inputs *in, size_t n)
{
	in->v = calloc(n, sizeof(*in->v));
	in->specs = calloc(n, sizeof(*in->specs));
	if (!in->v || !in->specs)
		return ctl_error(CTL_FAILED, "out of memory");
	in->n = n;
	for (size_t i = 0; i < n; i++)
		in->v[i].fd = -1;
	return CTL_OK;
}

/* A shorter file was cut; a longer one may have several arrays, of which put would take one. */
static int check_length(const struct npy_input *in)
{
	uint64_t rest;

	if (!transfer_rest(in->fd, &rest) || rest == in->npy.bytes)
		return CTL_OK;
	return ctl_error(CTL_FAILED,
			 "%s: its header describes an array of %" PRIu64 " bytes, but %" PRIu64
			 " bytes follow: %s",
			 in->file, in->npy.bytes, rest,
			 rest < in->npy.bytes ? "the file was cut"
					      : "save each array in a file of its own");
}

static int open_input(struct npy_input *in, const char *file)
{
	struct npy_error err;
	int r;

	in->file = file;
	r = transfer_open(&in->file, &in->fd);
	if (r)
		return r;
	/* A hint: files of gigabytes are read once, from start to end. */
	posix_fadvise(in->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	if (npy_read(in->fd, &in->npy, &err) < 0)
		return ctl_error(CTL_FAILED, "%s: %s", in->file, err.text);
	return check_length(in);
}

/* Gives the elements another type of the same size: float8 in a file of bytes. */
static int change_dtype(struct npy_input *in, const char *dtype)
{
	struct gpushm_dtype t;

	if (gpushm_dtype_parse(dtype, &t) < 0)
		return ctl_error(CTL_USAGE, "--dtype: %s", gpushm_error());
	if (gpushm_dtype_bits(t) != dtype_bits(in->npy.dtype))
		return ctl_error(CTL_USAGE,
				 "--dtype: an element of %s has %" PRIu64
				 " bits, one of %s %" PRIu64,
				 dtype, gpushm_dtype_bits(t), in->file, dtype_bits(in->npy.dtype));
	npy_set_dtype(&in->npy, t);
	in->npy.descr[0] = '\0';
	return CTL_OK;
}

/* npy_parse() has checked the product of the whole shape. In an array with a dimension of 0 no
 * stride is ever used; the dimension counts as 1. */
static void set_fortran_strides(struct npy_input *in)
{
	int64_t stride = (int64_t)(dtype_bits(in->npy.dtype) / 8);

	for (uint32_t i = 0; i < in->npy.ndim; i++) {
		in->strides[i] = stride;
		stride *= in->npy.shape[i] ? in->npy.shape[i] : 1;
	}
}

static void make_spec(struct npy_input *in, struct gpushm_array_spec *ret)
{
	*ret = (struct gpushm_array_spec){
		.struct_size = sizeof(*ret),
		.name = in->array,
		.dtype = npy_dtype(&in->npy),
		.descr = in->npy.descr[0] ? in->npy.descr : NULL,
		.ndim = (int)in->npy.ndim,
		.shape = in->npy.shape,
	};
	if (!in->npy.fortran || in->npy.ndim < 2)
		return;
	set_fortran_strides(in);
	ret->strides = in->strides;
}

static int add(struct inputs *in, size_t i, const char *file, const char *array, size_t array_len,
	       const char *dtype)
{
	int r;

	in->v[i].array = strndup(array, array_len);
	if (!in->v[i].array)
		return ctl_error(CTL_FAILED, "out of memory");
	r = open_input(&in->v[i], file);
	if (r == CTL_OK && dtype)
		r = change_dtype(&in->v[i], dtype);
	if (r == CTL_OK)
		make_spec(&in->v[i], &in->specs[i]);
	return r;
}

/* "FILE NAME", or "ARRAY=FILE... NAME". In version 0.2 the name came before arrays; a name has no
 * '=' in either place. */
static int open_all(struct inputs *in, const struct options *o, size_t n, char **words,
		    const char **ret_name)
{
	bool first = strchr(words[n - 1], '=') && !strchr(words[0], '=');
	int r = inputs_new(in, n - 1);

	*ret_name = words[first ? 0 : n - 1];
	for (size_t i = 0; i + 1 < n && r == CTL_OK; i++) {
		const char *word = words[i + first], *equals = strchr(word, '=');

		if (!equals && (n > 2 || (strcmp(word, "-") && access(word, F_OK) < 0 &&
					  access(words[1], F_OK) == 0)))
			return ctl_error(CTL_USAGE,
					 "put: \"%s\" is %s; write gpushmctl put FILE.npy NAME, or "
					 "gpushmctl put ARRAY=FILE.npy... NAME",
					 word, n > 2 ? "not ARRAY=FILE" : "no file");
		r = add(in, i, equals ? equals + 1 : word, word,
			equals ? (size_t)(equals - word) : 0, o->dtype);
	}
	return r;
}

static int fill(const struct ctl *ctl, const struct inputs *in, struct gpushm_buffer *b)
{
	struct transfer t;
	uint64_t total = 0;
	int r = CTL_OK;

	for (size_t i = 0; i < in->n; i++)
		total += in->v[i].npy.bytes;
	transfer_begin(&t, gpushm_buffer_name(b), total, ctl->quiet);
	for (size_t i = 0; i < in->n && r == CTL_OK; i++)
		r = transfer_fill(&t, in->v[i].fd, in->v[i].file, b, in->specs[i].offset,
				  in->v[i].npy.bytes);
	transfer_end(&t);
	return r;
}

/* A safetensors file is a model and not an array. */
static int put_model(struct ctl *ctl, const struct options *o, size_t n, char **files,
		     const char *name)
{
	const struct new_buffer *nb = &o->new_buffer;
	const struct model_load load = { .fetch.new_buffer = *nb };

	if (o->dtype)
		return ctl_error(CTL_USAGE, "--dtype: %s says the types of its tensors itself",
				 files[0]);
	if (nb->shared)
		return ctl_error(CTL_USAGE, "--shared: a model is sealed");
	return model_load(ctl, &load, n, files, name);
}

/* "FILE.safetensors... NAME". */
static bool is_model(size_t n, char **words)
{
	for (size_t i = 0; i + 1 < n; i++)
		if (!model_is_file(words[i]) ||
		    (strchr(words[i], '=') && access(words[i], F_OK) < 0))
			return false;
	return !strchr(words[n - 1], '=');
}

static int put_arrays(struct ctl *ctl, const struct options *o, size_t n, char **words)
{
	_cleanup_(inputs_free) struct inputs in = { 0 };
	_cleanup_(close_buffer) struct gpushm_buffer *b = NULL;
	const char *name;
	int r = open_all(&in, o, n, words, &name);

	if (r == CTL_OK)
		r = new_buffer_create(ctl, &o->new_buffer, name, in.specs, in.n, &b);
	if (r == CTL_OK)
		r = fill(ctl, &in, b);
	if (r == CTL_OK)
		r = new_buffer_finish(ctl, &o->new_buffer, b, GPUSHM_SEALED);
	return r;
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	return is_model(n, words) ? put_model(ctl, options, n - 1, words, words[n - 1])
				  : put_arrays(ctl, options, n, words);
}

const struct command command_put = {
	.name = "put",
	.synopsis = "[OPTIONS] FILE.npy NAME\n[OPTIONS] ARRAY=FILE.npy... NAME\n"
		    "[OPTIONS] FILE.safetensors... NAME",
	.about = "make a buffer from NumPy or safetensors files",
	.more = "The first form makes a buffer with one array, whose name is empty. \"-\" is\n"
		"standard input. The buffer is sealed unless --shared is given. Safetensors files\n"
		"are loaded as by `gpushmctl load`, which has more options.",
	OPTIONS(options, ARG(options, dtype, "dtype", ARG_TEXT, 'd', "DTYPE",
			     "give the elements this type of the same size")),
	.more_args = { new_buffer_state_args, new_buffer_args },
	.words = { 2, SIZE_MAX },
	.connects_itself = true,
	.run = run,
};
