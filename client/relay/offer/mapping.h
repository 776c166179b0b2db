/* SPDX-License-Identifier: MIT
 *
 * A buffer that this process has open, as the safetensors file that it will be for others: where in
 * the buffer each of the file's bytes lies.
 */
#pragma once

#include "client/models/files/arrays.h"

#include <microhttpd.h>

/* A part of the file's data. */
struct piece {
	uint64_t begin, bytes; /* in the file */
	uint64_t buffer_offset;
	const struct gpushm_array *strided; /* NULL: the bytes lie side by side */
};

struct mapping {
	struct gpushm_buffer *buffer; /* owned, unless it is lent */
	bool lent;
	struct arrays arrays;
	int device;	  /* CUDA ordinal; -1: host memory */
	const char *host; /* NULL: a GPU's memory */
	char *header;	  /* owned: the file's first bytes */
	uint64_t n_header, size;
	struct piece *pieces; /* owned; in the order of the file, without empty ones */
	size_t n;
	bool plain; /* no piece has strides */
};

/* Opens the buffer of that name. 0; -ENOTSUP (a type that the format does not have); errors of
 * gpushm_open() with gpushm_error() set. */
int mapping_open(struct gpushm *c, const char *name, struct mapping *ret);

/* The same for a buffer that is being filled from a file with that header. It stays the caller's.
 */
int mapping_lend(struct gpushm_buffer *b, const char *header, uint64_t n_header,
		 struct mapping *ret);

/* A zeroed mapping is allowed. */
void mapping_close(struct mapping *m);

/* Copies bytes of the file, also from a GPU, with at most three times as many bytes of memory. 0,
 * or a negative errno with gpushm_error() set. */
int mapping_read(const struct mapping *m, uint64_t offset, void *to, size_t n);

/* The parts of memory that are those bytes of the file, at most `max`. -E2BIG: they are more;
 * -ENOTSUP: they are not in host memory. */
int mapping_iov(const struct mapping *m, uint64_t offset, uint64_t n, struct MHD_IoVec *ret,
		int max);

/* The piece that has this byte of the file; NULL: it is the header's, or there is none. */
const struct piece *mapping_find(const struct mapping *m, uint64_t offset);
