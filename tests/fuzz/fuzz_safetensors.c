/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a header of a safetensors file. What the parser accepts is consistent: names that an
 * array can have, sizes that follow from shapes, tensors that cover the data without a hole.
 */
#include "client/models/files/header.h"
#include "proto/base/own.h"
#include "proto/name.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void check_tensor(const struct tensor *t, uint64_t begin)
{
	uint64_t bits = t->dtype.bits;
	struct gpushm_dtype back;
	const char *name;

	assert(!name_check_array(t->name, strlen(t->name)));
	assert(t->ndim <= GPUSHM_MAX_NDIM);
	for (uint32_t i = 0; i < t->ndim; i++) {
		assert(t->shape[i] >= 0);
		assert(!__builtin_mul_overflow(bits, (uint64_t)t->shape[i], &bits));
	}
	assert(t->begin == begin && t->end >= begin && bits == 8 * (t->end - t->begin));
	assert(tensor_dtype_name(t->dtype, &name) == 0 && tensor_dtype_parse(name, &back) == 0);
	assert(!memcmp(&back, &t->dtype, sizeof(back)));
}

static void check_header(const struct header *h, uint64_t data_bytes)
{
	uint64_t end = 0;

	for (size_t i = 0; i < h->n; i++) {
		check_tensor(&h->tensors[i], end);
		end = h->tensors[i].end;
	}
	assert(data_bytes == HEADER_NO_SIZE || end == data_bytes);
	for (size_t i = 0; i < h->n_aliases; i++) {
		assert(h->aliases[i].tensor < h->n);
		assert(!name_check_array(h->aliases[i].name, strlen(h->aliases[i].name)));
	}
	assert(!h->metadata || json_is_object(h->metadata));
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	/* A copy of its exact size, so that ASan finds a read past its end. */
	_cleanup_(free_ptr) char *text = malloc(size + !size);
	struct header h = { 0 };

	assert(text);
	memcpy(text, data, size);
	if (header_parse("f", text, size, HEADER_NO_SIZE, &h) == 0)
		check_header(&h, HEADER_NO_SIZE);
	else
		assert(!h.tensors && gpushm_error()[0]);
	header_done(&h);
	return 0;
}
