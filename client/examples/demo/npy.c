/* SPDX-License-Identifier: MIT
 *
 * Reads the .npy files of tests/data. The format is numpy.lib.format's, version 1.0: a magic
 * number, the header's length in two bytes, the header, which is the text of a Python dict with
 * the keys descr, fortran_order and shape, and the elements.
 */
#include "client/examples/demo/npy.h"

#include "proto/own.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PREFIX_BYTES 10 /* magic, version, length of the header */
#define HEADER_MAX 1024
#define ELEMENTS_MAX (INT64_C(1) << 32) /* so that no product below can overflow */

static void close_file(FILE **f)
{
	if (*f)
		fclose(*f);
}

/* What stands behind 'key': in the header; NULL if there is no such key. */
static const char *header_value(const char *header, const char *key)
{
	char quoted[32];
	const char *at = NULL;

	snprintf(quoted, sizeof(quoted), "'%s': ", key);
	at = strstr(header, quoted);
	return at ? at + strlen(quoted) : NULL;
}

static bool parse_dtype(const char *header, struct gpushm_dtype *ret)
{
	const char *value = header_value(header, "descr");
	char typestr[8];

	return value && sscanf(value, "'%7[^']'", typestr) == 1 &&
	       gpushm_dtype_parse(typestr, ret) == 0;
}

/* "(1797, 64)", "(64,)" or "()". */
static bool parse_shape(const char *header, struct npy *n, int64_t *ret_elements)
{
	const char *at = header_value(header, "shape");
	int64_t elements = 1;

	if (!at || *at++ != '(')
		return false;
	for (n->ndim = 0; *at != ')'; n->ndim++) {
		char *end = NULL;
		long long length = strtoll(at, &end, 10);

		if (end == at || length < 0 || n->ndim == NPY_NDIM_MAX ||
		    (length > 0 && elements > ELEMENTS_MAX / length))
			return false;
		n->shape[n->ndim] = length;
		elements *= length;
		at = end + strspn(end, ", ");
	}
	*ret_elements = elements;
	return true;
}

static int parse_header(const char *header, struct npy *n)
{
	const char *order = header_value(header, "fortran_order");
	int64_t elements = 0;

	if (!order || strncmp(order, "False", 5) != 0 || !parse_dtype(header, &n->dtype) ||
	    !parse_shape(header, n, &elements))
		return -EINVAL;
	n->bytes = (size_t)elements * (gpushm_dtype_bits(n->dtype) / 8);
	return 0;
}

int npy_read(const char *path, struct npy *ret)
{
	_cleanup_(close_file) FILE *f = fopen(path, "rbe");
	_cleanup_(free_ptr) void *data = NULL;
	unsigned char prefix[PREFIX_BYTES];
	char header[HEADER_MAX + 1];
	struct npy n = { 0 };
	size_t length = 0;

	if (!f)
		return -errno;
	if (fread(prefix, 1, sizeof(prefix), f) != sizeof(prefix) ||
	    memcmp(prefix, "\x93NUMPY\x01\x00", 8) != 0)
		return -EINVAL;

	length = prefix[8] | (size_t)prefix[9] << 8;
	if (length > HEADER_MAX || fread(header, 1, length, f) != length)
		return -EINVAL;
	header[length] = '\0';
	if (parse_header(header, &n) < 0)
		return -EINVAL;

	data = malloc(n.bytes ? n.bytes : 1);
	if (!data)
		return -ENOMEM;
	if (fread(data, 1, n.bytes, f) != n.bytes || fgetc(f) != EOF)
		return -EINVAL;

	n.data = take_ptr(data);
	*ret = n;
	return 0;
}

void npy_clear(struct npy *n)
{
	free(n->data);
	n->data = NULL;
}
