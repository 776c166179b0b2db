/* SPDX-License-Identifier: MIT
 *
 * How a reader looks into an image that it did not write, in memory or in a file. The caller owns
 * both, and results point into the memory.
 *
 * A reader trusts nothing in the image. Every offset and length is compared with the size of the
 * image before it is used, without arithmetic that could wrap; a search makes at most as many
 * probes as there are slots; and an array passes the same check against the buffer as in the
 * daemon. Every part is copied out of the image before it is read, so that no alignment is needed.
 * A hostile image causes a wrong result or -EBADMSG, nothing worse.
 */
#include "proto/table_image.h"

#include "proto/base/own.h"
#include "proto/name.h"

#include <string.h>
#include <unistd.h>

/* Whether n elements of that size lie within the image. */
static bool view_has(const struct table_view *v, uint64_t at, uint64_t n, uint64_t size)
{
	uint64_t bytes;

	return !__builtin_mul_overflow(n, size, &bytes) && at <= v->bytes && bytes <= v->bytes - at;
}

static int view_copy(const struct table_view *v, uint64_t at, size_t n, void *to)
{
	if (!v->image)
		return pread(v->fd, to, n, (off_t)at) == (ssize_t)n ? 0 : -EBADMSG;
	memcpy(to, v->image + at, n);
	return 0;
}

static int view_init(struct table_view view, struct table_view *ret)
{
	struct table_header h;

	if (view.bytes < sizeof(h) || view_copy(&view, 0, sizeof(h), &h) < 0)
		return -EBADMSG;
	if (memcmp(h.magic, TABLE_MAGIC, sizeof(h.magic)) != 0 || h.version != TABLE_VERSION)
		return -EBADMSG;
	if (h.image_bytes != view.bytes || h.buffer_bytes != view.buffer_bytes)
		return -EBADMSG;
	if (h.arrays > ARRAYS_MAX || h.attrs > ATTRS_MAX)
		return -EBADMSG;
	/* A power of two that leaves an empty slot. */
	if (h.slots < 2 || (h.slots & (h.slots - 1)) != 0 || h.slots / 2 < h.arrays)
		return -EBADMSG;
	if (!view_has(&view, h.entries_at, h.arrays, sizeof(struct table_entry)) ||
	    !view_has(&view, h.slots_at, h.slots, sizeof(uint32_t)) ||
	    !view_has(&view, h.attrs_at, h.attrs, sizeof(struct table_attr_entry)))
		return -EBADMSG;

	*ret = view;
	ret->entries_at = h.entries_at;
	ret->slots_at = h.slots_at;
	ret->attrs_at = h.attrs_at;
	ret->digest = h.digest;
	ret->arrays = h.arrays;
	ret->slots = h.slots;
	ret->attrs = h.attrs;
	return 0;
}

int table_view_init(struct table_view *v, const void *image, size_t bytes, uint64_t buffer_bytes)
{
	return view_init((struct table_view){ .image = image,
					      .fd = -1,
					      .bytes = bytes,
					      .buffer_bytes = buffer_bytes },
			 v);
}

int table_view_init_fd(struct table_view *v, int fd, size_t bytes, uint64_t buffer_bytes)
{
	return view_init(
		(struct table_view){ .fd = fd, .bytes = bytes, .buffer_bytes = buffer_bytes }, v);
}

static int view_entry(const struct table_view *v, uint32_t index, struct table_entry *ret)
{
	return view_copy(v, v->entries_at + index * sizeof(*ret), sizeof(*ret), ret);
}

/* Whether the parts of an entry lie within the image. */
static bool entry_holds(const struct table_view *v, const struct table_entry *e)
{
	return e->ndim <= DIMENSIONS_MAX && view_has(v, e->name_at, e->name_len, 1) &&
	       view_has(v, e->descr_at, e->descr_len, 1) &&
	       view_has(v, e->dims_at, e->ndim, 2 * sizeof(uint64_t));
}

/* name: the entry's, in memory. */
static int entry_read(const struct table_view *v, const struct table_entry *e, const char *name,
		      struct table_array *ret)
{
	size_t dims_bytes = e->ndim * sizeof(uint64_t);

	*ret = (struct table_array){
		.name = name,
		.name_len = e->name_len,
		.dtype = { e->code, e->bits, e->lanes, e->itemsize },
		.descr = e->descr_len > 0 ? (const char *)v->image + e->descr_at : NULL,
		.descr_len = e->descr_len,
		.ndim = e->ndim,
		.offset = e->offset,
	};
	if (view_copy(v, e->dims_at, dims_bytes, ret->shape) < 0)
		return -EBADMSG;
	return view_copy(v, e->dims_at + dims_bytes, dims_bytes, ret->strides);
}

static int entry_check(const struct table_view *v, const struct table_entry *e, const char *name,
		       struct table_array *ret)
{
	struct table_array a;
	struct fault err;

	if (!v->image && e->descr_len > 0)
		return -EAGAIN;
	if (entry_read(v, e, name, &a) < 0)
		return -EBADMSG;
	/* A packed array is added without strides, and has 0 for each in the image: check it as it
	 * was added. */
	a.has_strides = !dtype_packed(a.dtype);
	if (table_check(&a, v->buffer_bytes, ret, &err) < 0)
		return -EBADMSG;
	return 0;
}

int table_view_at(const struct table_view *v, uint32_t index, struct table_array *ret)
{
	struct table_entry e;

	if (index >= v->arrays)
		return -ENOENT;
	if (!v->image)
		return -EAGAIN;
	if (view_entry(v, index, &e) < 0 || !entry_holds(v, &e))
		return -EBADMSG;
	return entry_check(v, &e, (const char *)v->image + e.name_at, ret);
}

/* Whether entry `index` has that name. -EBADMSG: it is not an entry. */
static int entry_match(const struct table_view *v, uint32_t index, uint64_t hash, const char *name,
		       size_t len, struct table_entry *ret)
{
	char has[ARRAY_NAME_MAX];

	if (index >= v->arrays || view_entry(v, index, ret) < 0)
		return -EBADMSG;
	if (ret->hash != hash || ret->name_len != len)
		return 0;
	if (len > sizeof(has) || !entry_holds(v, ret) || view_copy(v, ret->name_at, len, has) < 0)
		return -EBADMSG;
	return memcmp(has, name, len) == 0;
}

int table_view_find(const struct table_view *v, const char *name, size_t len,
		    struct table_array *ret)
{
	uint64_t hash = fnv1a(FNV1A_BASIS, name, len);
	struct table_entry e;
	uint32_t slot;

	for (uint32_t i = 0; i < v->slots && i < TABLE_PROBES_MAX; i++) {
		uint64_t at = (hash + i) & (v->slots - 1);
		int r;

		if (view_copy(v, v->slots_at + at * sizeof(slot), sizeof(slot), &slot) < 0)
			return -EBADMSG;
		if (slot == 0)
			return -ENOENT;
		r = entry_match(v, slot - 1, hash, name, len, &e);
		if (r < 0)
			return r;
		if (r > 0)
			return entry_check(v, &e, name, ret);
	}
	return -EBADMSG;
}

int table_view_attr_at(const struct table_view *v, uint32_t index, struct table_attr *ret)
{
	struct table_attr_entry e;
	struct table_attr attr;

	if (index >= v->attrs)
		return -ENOENT;
	if (!v->image)
		return -EAGAIN;
	if (view_copy(v, v->attrs_at + index * sizeof(e), sizeof(e), &e) < 0 ||
	    !view_has(v, e.key_at, e.key_len, 1) || !view_has(v, e.value_at, e.value_len, 1))
		return -EBADMSG;

	attr = (struct table_attr){
		.key = (const char *)v->image + e.key_at,
		.key_len = e.key_len,
		.value = v->image + e.value_at,
		.value_len = e.value_len,
	};
	if (name_check_attr(attr.key, attr.key_len))
		return -EBADMSG;
	*ret = attr;
	return 0;
}
