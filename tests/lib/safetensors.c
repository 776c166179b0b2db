/* SPDX-License-Identifier: MIT
 *
 * Safetensors files for tests: eight bytes of length, a JSON object, the data. A failure ends the
 * Check test.
 */
#include "tests/lib/safetensors.h"

#include "proto/base/own.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct {
	const char *name;
	unsigned bits;
} dtypes[] = {
	{ "F4", 4 },	      { "F6_E2M3", 6 },	    { "F6_E3M2", 6 }, { "BOOL", 8 },
	{ "U8", 8 },	      { "I8", 8 },	    { "F8_E5M2", 8 }, { "F8_E4M3", 8 },
	{ "F8_E8M0", 8 },     { "U16", 16 },	    { "I16", 16 },    { "F16", 16 },
	{ "BF16", 16 },	      { "U32", 32 },	    { "I32", 32 },    { "F32", 32 },
	{ "U64", 64 },	      { "I64", 64 },	    { "F64", 64 },    { "C64", 64 },
	{ "F8_E4M3FNUZ", 8 }, { "F8_E5M2FNUZ", 8 },
};

uint64_t safetensors_bytes(const struct safetensors_tensor *t)
{
	uint64_t bits = 0;

	for (size_t i = 0; i < array_size(dtypes); i++)
		if (!strcmp(t->dtype, dtypes[i].name))
			bits = dtypes[i].bits;
	ck_assert_msg(bits, "the tests know no dtype %s", t->dtype);
	for (const char *c = t->shape; *c;) {
		char *end;

		bits *= strtoull(c, &end, 10);
		c = *end ? end + 1 : end;
	}
	return bits / 8;
}

void safetensors_fill(const char *name, void *data, size_t bytes)
{
	unsigned char *d = data;
	uint64_t x = 2166136261u, word;

	for (const char *c = name; *c; c++)
		x = (x ^ (unsigned char)*c) * 16777619u;
	for (size_t i = 0; i < bytes; i += sizeof(word)) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		word = x ^ (x >> 32);
		memcpy(d + i, &word, bytes - i < sizeof(word) ? bytes - i : sizeof(word));
	}
}

/* The header without its length, malloc'd; *ret_data is the size of the data. */
static char *make_header(const struct safetensors_tensor *t, size_t n, const char *metadata,
			 size_t *ret_length, uint64_t *ret_data)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, ret_length);
	uint64_t offset = 0;

	ck_assert_ptr_nonnull(out);
	fprintf(out, "{%s%s", metadata ? "\"__metadata__\":" : "", metadata ? metadata : "");
	for (size_t i = 0; i < n; i++) {
		uint64_t bytes = safetensors_bytes(&t[i]);

		fprintf(out,
			"%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%" PRIu64
			",%" PRIu64 "]}",
			i || metadata ? "," : "", t[i].name, t[i].dtype, t[i].shape, offset,
			offset + bytes);
		offset += bytes;
	}
	fputc('}', out);
	for (long length = ftell(out); length % 8; length++)
		fputc(' ', out);
	ck_assert_int_eq(fclose(out), 0);
	*ret_data = offset;
	return text;
}

void safetensors_write_raw(const char *path, const char *header, size_t length, const void *data,
			   size_t bytes)
{
	FILE *f = fopen(path, "we");

	ck_assert_msg(f != NULL, "%s", path);
	for (unsigned i = 0; i < 8; i++)
		fputc((int)((uint64_t)length >> 8 * i & 0xff), f);
	fwrite(header, 1, length, f);
	fwrite(data, 1, bytes, f);
	ck_assert_int_eq(fchmod(fileno(f), 0644), 0);
	ck_assert_int_eq(fclose(f), 0);
}

void safetensors_write(const char *path, const struct safetensors_tensor *tensors, size_t n,
		       const char *metadata)
{
	size_t length;
	uint64_t bytes;
	_cleanup_(free_ptr) char *header = make_header(tensors, n, metadata, &length, &bytes);
	_cleanup_(free_ptr) char *data = malloc(bytes + 1);
	char *at = data;

	ck_assert_ptr_nonnull(data);
	for (size_t i = 0; i < n; i++) {
		uint64_t size = safetensors_bytes(&tensors[i]);

		safetensors_fill(tensors[i].name, at, size);
		at += size;
	}
	safetensors_write_raw(path, header, length, data, bytes);
}
