/* SPDX-License-Identifier: MIT
 *
 * Reads whole .npy files. What a header says is gpushmctl's to find out: it has the parser, and the
 * tests that try to break it. Here, only what the demo can't use is refused: Fortran order,
 * records, more than four dimensions.
 */
#include "client/examples/demo/tensor.h"

#include "client/ctl/npy.h"
#include "proto/base/own.h"

#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static void close_file(FILE **f)
{
	if (*f)
		fclose(*f);
}

/* The header, from the file's first byte to the one before the data; malloc'd. */
static int read_header(FILE *f, char **ret, size_t *ret_size, struct npy_error *why)
{
	_cleanup_(free_ptr) char *header = malloc(NPY_HEADER_MAX);
	int r = 0;

	if (!header)
		return -ENOMEM;
	if (fread(header, 1, NPY_PRELUDE, f) != NPY_PRELUDE)
		return -EINVAL;
	r = npy_header_size(header, ret_size, why);
	if (r < 0)
		return r;
	if (*ret_size < NPY_PRELUDE ||
	    fread(header + NPY_PRELUDE, 1, *ret_size - NPY_PRELUDE, f) != *ret_size - NPY_PRELUDE)
		return -EINVAL;
	*ret = take_ptr(header);
	return 0;
}

static int parse(const char *header, size_t size, struct tensor *ret, struct npy_error *why)
{
	_cleanup_(free_ptr) struct npy *npy = malloc(sizeof(*npy));
	int r = npy ? npy_parse(header, size, npy, why) : -ENOMEM;

	if (r < 0)
		return r;
	if (npy->fortran || npy->dtype.code == DTYPE_RECORD || npy->ndim > TENSOR_NDIM_MAX) {
		snprintf(why->text, sizeof(why->text), "not a plain array in C order");
		return -ENOTSUP;
	}
	ret->dtype = (struct gpushm_dtype){ .code = npy->dtype.code,
					    .bits = npy->dtype.bits,
					    .lanes = npy->dtype.lanes };
	ret->ndim = (int)npy->ndim;
	memcpy(ret->shape, npy->shape, npy->ndim * sizeof(npy->shape[0]));
	ret->bytes = npy->bytes;
	return 0;
}

static int read_file(const char *path, struct tensor *ret, struct npy_error *why)
{
	_cleanup_(close_file) FILE *f = fopen(path, "rbe");
	_cleanup_(free_ptr) char *header = NULL;
	_cleanup_(free_ptr) void *data = NULL;
	struct tensor t = { 0 };
	size_t size = 0;
	int r = 0;

	if (!f)
		return -errno;
	r = read_header(f, &header, &size, why);
	if (r == 0)
		r = parse(header, size, &t, why);
	if (r < 0)
		return r;

	data = malloc(t.bytes ? t.bytes : 1);
	if (!data)
		return -ENOMEM;
	if (fread(data, 1, t.bytes, f) != t.bytes || fgetc(f) != EOF)
		return -EINVAL;
	t.data = take_ptr(data);
	*ret = t;
	return 0;
}

int tensor_read(const char *path, struct tensor *ret)
{
	struct npy_error why = { "" };
	int r = read_file(path, ret, &why);

	if (r < 0)
		warnx("%s: %s", path, why.text[0] ? why.text : strerror(-r));
	return r;
}

void tensor_clear(struct tensor *t)
{
	free(t->data);
	t->data = NULL;
}
