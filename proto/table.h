/* SPDX-License-Identifier: MIT
 *
 * The table of a buffer: its arrays and its attributes, as one image that is written once and read
 * by many processes. The daemon builds it from DESCRIBE requests, checks each array against the
 * allocation, and keeps the image in a sealed memfd. A reader maps that memfd and finds a name in
 * O(1), so that an attach costs the same for one array and for five thousand.
 *
 * Image (little endian, every part aligned to 8 bytes, offsets from the image's start):
 *   struct table_header, entries[arrays], u32 slots[slots] (open-addressed hash of names, linear
 *   probing, index + 1, 0 = empty; slots is a power of two >= 2 * arrays), attributes, text.
 * The hash of a name and the digest of a layout are 64-bit FNV-1a.
 *
 * A reader trusts no offset in an image: table_view_init() checks the header, and each lookup
 * checks what it touches.
 */
#pragma once

#include "proto/base/fnv.h"
#include "proto/code.h"
#include "proto/dtype.h"
#include "proto/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An array as a client describes it, and as a reader gets it. Pointers are borrowed: from the
 * caller when it is added, from the image when it is looked up. */
struct table_array {
	const char *name; /* not terminated */
	size_t name_len;
	struct dtype dtype;
	const char *descr; /* records; not terminated; NULL if descr_len is 0 */
	size_t descr_len;
	uint32_t ndim;
	uint64_t shape[DIMENSIONS_MAX];
	bool has_strides; /* when added: false means C order. When looked up: always true */
	int64_t strides[DIMENSIONS_MAX]; /* bytes; all 0 for packed types (they are C-contiguous) */
	uint64_t offset;		 /* bytes, to element [0, 0, ...] */
};

struct table_attr {
	const char *key; /* not terminated */
	size_t key_len;
	const void *value;
	size_t value_len;
};

#define TABLE_DIGEST_EMPTY FNV1A_BASIS /* the digest of a buffer without arrays */

/* Checks an array against its buffer, for the builder, the reader and an array without a table. 0,
 * or a fault as of table_builder_add(). On success *ret, which may be *a, is *a with its strides
 * filled in. */
int table_check(const struct table_array *a, uint64_t buffer_bytes, struct table_array *ret,
		struct fault *err);

/* ---- building: a builder owns copies of all it gets ---- */
struct table_builder;

/* buffer_bytes: every array must lie within that size. 0 or -ENOMEM. */
int table_builder_new(uint64_t buffer_bytes, struct table_builder **ret);
struct table_builder *table_builder_free(struct table_builder *b);

/* Checks dtype, shape, strides, bounds (negative strides included), alignment, name and every
 * product, and adds the array. 0, or a fault with CODE_LAYOUT, _DTYPE, _NAME, _EXISTS, _LIMIT or
 * _NO_MEMORY; then nothing was added. */
int table_builder_add(struct table_builder *b, const struct table_array *a, struct fault *err);

/* Optional: makes space for that many more, as far as that takes long. -ERESTART: a part is done;
 * call it again. 0 or -ENOMEM. */
int table_builder_reserve_step(struct table_builder *b, size_t more);

/* Removes the arrays after the first n: undoes a batch with a wrong array. */
void table_builder_truncate(struct table_builder *b, uint32_t n);
uint32_t table_builder_arrays(const struct table_builder *b);
uint32_t table_builder_attrs(const struct table_builder *b);

/* Bytes of the table while it is built, and of its image later, not counting spare capacity. */
uint64_t table_builder_bytes(const struct table_builder *b);

/* Sets an attribute; an empty value is a value. Replaces one of the same key. Errors as above. */
int table_builder_set_attr(struct table_builder *b, const struct table_attr *attr,
			   struct fault *err);

/* A new builder without arrays: it has b's attributes with these changes. An empty value removes
 * the attribute of that key, if there is one. Errors as above. */
int table_builder_change_attrs(const struct table_builder *b, const struct table_attr *attrs,
			       size_t n, struct table_builder **ret, struct fault *err);
void table_builder_swap_attrs(struct table_builder *a, struct table_builder *b);

/* The image as a memfd with F_SEAL_SEAL|SHRINK|GROW|WRITE and mode 0400. The caller owns the fd.
 * 0 or -errno. The builder can still be used. digest: of the arrays alone, in the order added. */
int table_builder_finish(struct table_builder *b, int *ret_fd, uint64_t *ret_bytes,
			 uint64_t *ret_digest);

/* Does a bounded part of that: a table of 64 MiB takes 100 ms and more. -ERESTART: call it again.
 * What is added between two calls is in the image. */
int table_builder_finish_step(struct table_builder *b, int *ret_fd, uint64_t *ret_bytes,
			      uint64_t *ret_digest);

/* ---- reading ---- */
struct table_view {
	const unsigned char *image; /* borrowed; NULL: the image is read from fd */
	int fd;			    /* borrowed */
	size_t bytes;
	uint64_t buffer_bytes;
	uint64_t entries_at, slots_at, attrs_at, digest; /* as in the header */
	uint32_t arrays, slots, attrs;
};

/* Checks the header in O(1). 0; -EBADMSG: not the table of a buffer of that size. */
int table_view_init(struct table_view *v, const void *image, size_t bytes, uint64_t buffer_bytes);

/* The same for an image that is not in memory: each lookup reads what it needs, some 200 bytes.
 * Only names can be looked up; other results would point into memory, and are -EAGAIN. */
int table_view_init_fd(struct table_view *v, int fd, size_t bytes, uint64_t buffer_bytes);

/* 0; -ENOENT; -EBADMSG: the entry is wrong (the daemon is broken or hostile); -EAGAIN, see above:
 * for any index, and for an array with a descr. After table_view_find() ret->name is the caller's
 * name. */
int table_view_find(const struct table_view *v, const char *name, size_t len,
		    struct table_array *ret);
int table_view_at(const struct table_view *v, uint32_t index, struct table_array *ret);
int table_view_attr_at(const struct table_view *v, uint32_t index, struct table_attr *ret);

/* ---- arithmetic that both sides need ---- */

/* Elements of a shape. 0, or -EOVERFLOW if the product does not fit int64_t. 0-d: 1. */
int table_elements(uint32_t ndim, const uint64_t *shape, uint64_t *ret);

/* C-order strides in bytes. 0 or -EOVERFLOW. A packed type's strides are all 0. */
int table_c_strides(struct dtype t, uint32_t ndim, const uint64_t *shape, int64_t *strides);

/* Bytes from the lowest to past the highest byte that the array touches, and how far the lowest
 * lies before element [0, 0, ...]. A size-0 array touches nothing. 0 or -EOVERFLOW. */
int table_span(const struct table_array *a, uint64_t *ret_before, uint64_t *ret_bytes);
