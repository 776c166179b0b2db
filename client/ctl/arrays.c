/* SPDX-License-Identifier: MIT
 *
 * The daemon gives the table of arrays only to a process that opens the buffer: these functions
 * read it there.
 */
#include "client/ctl/arrays.h"

#include <stdio.h>

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

int arrays_table(const struct ctl *ctl, struct gpushm_buffer *b, const char *buffer,
		 struct table *t)
{
	for (size_t i = 0; i < gpushm_buffer_arrays(b); i++) {
		struct gpushm_array *a = NULL;
		int r = gpushm_array_at(b, i, &a);

		if (r < 0)
			return ctl_refused(r);
		add_row(ctl, a, buffer, t);
		gpushm_array_free(a);
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
		struct gpushm_array *a = NULL;

		r = gpushm_array_at(b, i, &a);
		if (r == 0)
			write_object(j, a);
		gpushm_array_free(a);
	}
	json_close(j, ']');
	return ctl_result(r);
}

int arrays_names(struct gpushm_buffer *b)
{
	for (size_t i = 0; i < gpushm_buffer_arrays(b); i++) {
		struct gpushm_array *a = NULL;
		int r = gpushm_array_at(b, i, &a);

		if (r < 0)
			return ctl_refused(r);
		if (gpushm_array_name(a)[0])
			puts(gpushm_array_name(a));
		gpushm_array_free(a);
	}
	return CTL_OK;
}
