/* SPDX-License-Identifier: MIT
 *
 * A folder for a test's model files, and what tests of gpushm_load() do with it.
 */
#pragma once

#include "client/gpushm_load.h"
#include "tests/lib/safetensors.h"

/* Creates the folder; removes it with all files in it. */
void model_files_open(void);
void model_files_close(void);

/* The path of a file in it; each call uses the next one of a few static buffers. */
const char *model_file(const char *name);

/* Writes one or two tensors of bytes into a file of that name. Returns its path. */
const char *model_write(const char *name, const char *tensor, const char *shape);
const char *model_write_two(const char *name, const char *tensor, const char *shape,
			    const char *other, const char *other_shape);

/* Writes a file of text. Returns its path. */
const char *model_write_text(const char *name, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Loads one source with these flags. Here, so that programs without libgpushm-load can be linked
 * with the other functions. */
static inline int model_load(struct gpushm *conn, const char *source, const char *name,
			     uint32_t flags, struct gpushm_buffer **ret)
{
	const struct gpushm_load_options load = { .struct_size = sizeof(load), .flags = flags };

	return gpushm_load(conn, &source, 1, name, NULL, &load, ret);
}

/* The array has the bytes that safetensors_write() gave the tensor of that name. */
void model_expect(struct gpushm_buffer *b, const char *array, const char *tensor);

/* The error of the last call has this text. */
void model_expect_error(const char *text);
