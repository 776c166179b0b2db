/* SPDX-License-Identifier: MIT
 *
 * Writes safetensors files for tests, byte by byte and not by the code under test. The header is
 * written in the order of the tensors, as the format's own library does, and padded to 8 bytes.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct safetensors_tensor {
	const char *name;  /* as it stands in JSON, without the quotes */
	const char *dtype; /* "F32", "BF16", ... */
	const char *shape; /* "2,3"; "" for a scalar */
};

/* The bytes of a tensor's data. */
uint64_t safetensors_bytes(const struct safetensors_tensor *t);

/* The data of the tensor of that name in every file that is written here: they depend on the name
 * and on nothing else. */
void safetensors_fill(const char *name, void *data, size_t bytes);

/* Writes a file of these tensors, which everybody may read. metadata: a JSON object of strings, or
 * NULL. */
void safetensors_write(const char *path, const struct safetensors_tensor *tensors, size_t n,
		       const char *metadata);

/* Writes the length of the header, the header as it is, right or wrong, and these data. */
void safetensors_write_raw(const char *path, const char *header, size_t length, const void *data,
			   size_t bytes);
