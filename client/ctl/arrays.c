/* SPDX-License-Identifier: MIT
 *
 * The daemon gives the table of arrays only to a process that opens the buffer: these functions
 * read it there.
 */
#include "client/ctl/arrays.h"

#include "client/ctl/npy.h"
#include "proto/base/own.h"
#include "proto/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void add_row(const struct ctl *ctl, const struct gpushm_array *a, const char *buffer,
		    struct table *t)
{
	const char *name = gpushm_array_name(a);

	if (buffer)
		table_cell(t, TABLE_PLAIN, "%s%s%s", buffer, *name ? ":" : "", name);
	else
		table_cell(t, TABLE_PLAIN, "%s", *name ? name : "\"\"");
	table_cell(t, TABLE_PLAIN, "%s", output_dtype(gpushm_array_dtype(a)).text);
	table_cell(t, TABLE_PLAIN, "%s", output_shape(a).text);
	table_cell(t, TABLE_PLAIN, "%s",
		   gpushm_array_is_c_contiguous(a)   ? "C"
		   : gpushm_array_is_f_contiguous(a) ? "F"
						     : "strided");
	table_cell(t, TABLE_PLAIN, "%s", ctl_size(ctl, gpushm_array_nbytes(a)).text);
	table_cell(t, TABLE_PLAIN, "%lu", (unsigned long)gpushm_array_offset(a));
}

int arrays_open(const struct ctl *ctl, const char *name, struct gpushm_buffer **ret)
{
	const struct gpushm_open_options o = { .struct_size = sizeof(o), .flags = GPUSHM_TABLE };

	return ctl_result(gpushm_open(ctl->connection, name, GPUSHM_READ, 0, &o, ret));
}

int arrays_table(const struct ctl *ctl, struct gpushm_buffer *b, const char *buffer,
		 struct table *t)
{
	for (size_t i = 0; i < gpushm_buffer_arrays(b); i++) {
		_cleanup_(free_array) struct gpushm_array *a = NULL;
		int r = gpushm_array_at(b, i, &a);

		if (r < 0)
			return ctl_refused(r);
		add_row(ctl, a, buffer, t);
	}
	return CTL_OK;
}

static void write_object(struct json *j, const struct gpushm_array *a)
{
	int ndim = gpushm_array_ndim(a);

	json_open(j, NULL, '{');
	json_string(j, "name", gpushm_array_name(a));
	json_string(j, "dtype", output_dtype(gpushm_array_dtype(a)).text);
	json_string(j, "descr", gpushm_array_descr(a));
	json_ints(j, "shape", gpushm_array_shape(a), ndim);
	json_ints(j, "strides", gpushm_array_strides(a), ndim);
	json_uint(j, "offset", gpushm_array_offset(a));
	json_uint(j, "bytes", gpushm_array_nbytes(a));
	json_close(j, '}');
}

int arrays_json(struct json *j, struct gpushm_buffer *b)
{
	int r = 0;

	json_open(j, "arrays", '[');
	for (size_t i = 0; i < gpushm_buffer_arrays(b) && r == 0; i++) {
		_cleanup_(free_array) struct gpushm_array *a = NULL;

		r = gpushm_array_at(b, i, &a);
		if (r == 0)
			write_object(j, a);
	}
	json_close(j, ']');
	return ctl_result(r);
}

int arrays_names(struct gpushm_buffer *b)
{
	for (size_t i = 0; i < gpushm_buffer_arrays(b); i++) {
		_cleanup_(free_array) struct gpushm_array *a = NULL;
		int r = gpushm_array_at(b, i, &a);

		if (r < 0)
			return ctl_refused(r);
		if (gpushm_array_name(a)[0])
			puts(gpushm_array_name(a));
	}
	return CTL_OK;
}

/* Prints that the buffer has no such array, and which it has. CTL_NOT_FOUND. */
static int missing(struct gpushm_buffer *b, const char *array)
{
	char names[200] = "", which[48] = "only array is";
	size_t n = gpushm_buffer_arrays(b);

	for (size_t i = 0; i < n && i < 4; i++) {
		_cleanup_(free_array) struct gpushm_array *a = NULL;

		if (gpushm_array_at(b, i, &a) < 0)
			break;
		text_append(names, sizeof(names), "%s\"%s\"", i ? ", " : "", gpushm_array_name(a));
	}
	if (n != 1)
		snprintf(which, sizeof(which), "%zu arrays are", n);
	return ctl_error(CTL_NOT_FOUND, "%s: it has no array \"%s\"; its %s %s%s",
			 gpushm_buffer_name(b), array, which, names, n > 4 ? ", ..." : "");
}

int arrays_find(struct gpushm_buffer *b, const char *name, struct gpushm_array **ret)
{
	int r = gpushm_array_get(b, name ? name : "", ret);

	if (r == -ENOENT && !name && gpushm_buffer_arrays(b) == 1)
		r = gpushm_array_at(b, 0, ret);
	return r == -ENOENT ? missing(b, name ? name : "") : ctl_result(r);
}

int arrays_npy_header(const struct gpushm_array *a, int64_t frames, size_t room, char **ret,
		      size_t *ret_len)
{
	struct npy npy = { .room = room };
	const char *descr = gpushm_array_descr(a);
	int r;

	npy_set_dtype(&npy, gpushm_array_dtype(a));
	npy.fortran =
		frames < 0 && gpushm_array_is_f_contiguous(a) && !gpushm_array_is_c_contiguous(a);
	snprintf(npy.descr, sizeof(npy.descr), "%s", descr ? descr : "");
	if (frames >= 0)
		npy.shape[npy.ndim++] = frames;
	for (int i = 0; i < gpushm_array_ndim(a) && npy.ndim < DIMENSIONS_MAX; i++)
		npy.shape[npy.ndim++] = gpushm_array_shape(a)[i];
	r = npy_format(&npy, ret, ret_len);
	if (r == -ENOTSUP)
		return ctl_error(CTL_FAILED,
				 "NumPy has no type for %s; --raw writes the elements without a "
				 "header",
				 output_dtype(gpushm_array_dtype(a)).text);
	return r < 0 ? ctl_error(CTL_FAILED, "%s", strerror(-r)) : CTL_OK;
}
