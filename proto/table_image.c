/* SPDX-License-Identifier: MIT
 *
 * How the parts of a table become an image, the image a memfd that no process can change, and how a
 * reader looks into one that it did not write, in memory or in a file.
 *
 * The daemon owns the fd and sends it to every reader with the attach. A new memfd has mode 0777: a
 * process with a read-only fd could open it again for writing through /proc, so it gets mode 0400.
 * The seals hold for every fd of it, the daemon's own included; F_SEAL_SHRINK protects a reader
 * from SIGBUS (memfd_create(2), fcntl(2)).
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

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes that one step hashes and writes: it takes some 0.2 ms. */
#define STEP_BYTES (128u << 10)

static uint64_t part_pad(uint64_t n)
{
	return (n + TABLE_PART_ALIGN - 1) / TABLE_PART_ALIGN * TABLE_PART_ALIGN;
}

static uint64_t digest_add(uint64_t hash, const struct table_entry *e, const unsigned char *text)
{
	uint64_t name_len = e->name_len, descr_len = e->descr_len, ndim = e->ndim;

	hash = fnv1a(hash, &name_len, sizeof(name_len));
	hash = fnv1a(hash, text + e->name_at, name_len);
	hash = fnv1a(hash, &e->code, sizeof(e->code));
	hash = fnv1a(hash, &e->bits, sizeof(e->bits));
	hash = fnv1a(hash, &e->lanes, sizeof(e->lanes));
	hash = fnv1a(hash, &e->itemsize, sizeof(e->itemsize));
	hash = fnv1a(hash, &descr_len, sizeof(descr_len));
	hash = fnv1a(hash, text + e->descr_at, descr_len);
	hash = fnv1a(hash, &ndim, sizeof(ndim));
	hash = fnv1a(hash, text + e->dims_at, ndim * 2 * sizeof(uint64_t));
	return fnv1a(hash, &e->offset, sizeof(e->offset));
}

/* How many of that many bytes the step has left to do. */
static uint64_t spend(uint64_t *left, uint64_t bytes)
{
	uint64_t n = bytes < *left ? bytes : *left;

	*left -= n;
	return n;
}

static void digest_arrays(struct table_builder *p, uint64_t *left)
{
	struct table_writer *w = &p->writer;

	while (w->digested<p->arrays && * left> 0) {
		const struct table_entry *e = &p->entries[w->digested++];

		w->digest = digest_add(w->digest, e, p->text);
		spend(left,
		      sizeof(*e) + e->name_len + e->descr_len + e->ndim * 2 * sizeof(uint64_t));
	}
}

/* Without the digest. */
static struct table_header header_of(const struct table_builder *p)
{
	struct table_header h = {
		.version = TABLE_VERSION,
		.arrays = p->arrays,
		.slots = p->n_slots,
		.attrs = p->n_attrs,
		.buffer_bytes = p->buffer_bytes,
		.entries_at = sizeof(h),
	};

	memcpy(h.magic, TABLE_MAGIC, sizeof(h.magic));
	h.slots_at = h.entries_at + (uint64_t)p->arrays * sizeof(struct table_entry);
	h.attrs_at = h.slots_at + part_pad((uint64_t)p->n_slots * sizeof(uint32_t));
	h.text_at = h.attrs_at + (uint64_t)p->n_attrs * sizeof(struct table_attr_entry);
	h.image_bytes = h.text_at + part_pad(p->text_len + p->attr_bytes);
	return h;
}

static int write_all(int fd, const void *data, uint64_t len, uint64_t at)
{
	const unsigned char *from = data;

	while (len > 0) {
		ssize_t n = pwrite(fd, from, len, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		from += n;
		at += n;
		len -= n;
	}
	return 0;
}

static int write_entries(struct table_builder *p, uint64_t *left)
{
	struct table_writer *w = &p->writer;
	struct table_entry batch[64];

	while (w->entries<p->arrays && * left> 0) {
		uint32_t n = 0, first = w->entries;
		int r;

		for (; n < array_size(batch) && first + n < p->arrays; n++) {
			batch[n] = p->entries[first + n];
			batch[n].name_at += w->header.text_at;
			batch[n].descr_at += w->header.text_at;
			batch[n].dims_at += w->header.text_at;
		}
		r = write_all(w->fd, batch, n * sizeof(*batch),
			      w->header.entries_at + first * sizeof(*batch));
		if (r < 0)
			return r;
		w->entries += n;
		spend(left, n * sizeof(*batch));
	}
	return 0;
}

/* Of a part of `bytes` bytes, of which *done are written. */
static int write_part(int fd, uint64_t at, const void *from, uint64_t bytes, uint64_t *done,
		      uint64_t *left)
{
	uint64_t n = spend(left, bytes - *done);
	int r = n > 0 ? write_all(fd, (const unsigned char *)from + *done, n, at + *done) : 0;

	if (r == 0)
		*done += n;
	return r;
}

/* Their text follows that of the arrays. */
static int write_attrs(const struct table_builder *p, int fd, const struct table_header *h)
{
	uint64_t at = h->text_at + p->text_len;
	int r = 0;

	for (uint32_t i = 0; i < p->n_attrs && r == 0; i++) {
		const struct table_owned_attr *a = &p->attrs[i];
		struct table_attr_entry e = {
			.key_at = at,
			.value_at = at + a->key_len,
			.key_len = a->key_len,
			.value_len = a->value_len,
		};

		r = write_all(fd, &e, sizeof(e), h->attrs_at + i * sizeof(e));
		if (r == 0)
			r = write_all(fd, a->key, a->key_len + a->value_len, at);
		at += a->key_len + a->value_len;
	}
	return r;
}

void table_writer_drop(struct table_writer *w)
{
	close_fd(&w->fd);
	w->entries = 0;
	w->slots_done = w->text_done = 0;
}

static int writer_begin(struct table_writer *w, const struct table_header *h)
{
	w->header = *h;
	w->fd = memfd_create("gpushm-table", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (w->fd < 0 || ftruncate(w->fd, (off_t)h->image_bytes) < 0)
		return -errno;
	return 0;
}

/* The small parts, and then nobody can change it. */
static int writer_end(const struct table_builder *p)
{
	const struct table_writer *w = &p->writer;
	struct table_header h = w->header;
	int r;

	h.digest = w->digest;
	r = write_attrs(p, w->fd, &h);
	if (r == 0)
		r = write_all(w->fd, &h, sizeof(h), 0);
	if (r < 0)
		return r;
	if (fchmod(w->fd, 0400) < 0 ||
	    fcntl(w->fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -errno;
	return 0;
}

/* -ERESTART: *left was not enough. */
static int write_image(struct table_builder *p, uint64_t *left)
{
	struct table_writer *w = &p->writer;
	uint64_t slots_bytes = p->n_slots * sizeof(uint32_t);
	int r = write_entries(p, left);

	if (r == 0)
		r = write_part(w->fd, w->header.slots_at, p->slots, slots_bytes, &w->slots_done,
			       left);
	if (r == 0)
		r = write_part(w->fd, w->header.text_at, p->text, p->text_len, &w->text_done, left);
	if (r < 0)
		return r;
	if (w->entries < p->arrays || w->slots_done < slots_bytes || w->text_done < p->text_len)
		return -ERESTART;
	return writer_end(p);
}

int table_builder_finish_step(struct table_builder *p, int *ret_fd, uint64_t *ret_bytes,
			      uint64_t *ret_digest)
{
	struct table_header h = header_of(p);
	struct table_writer *w = &p->writer;
	uint64_t left = STEP_BYTES;
	int r = 0;

	digest_arrays(p, &left);
	if (w->digested < p->arrays)
		return -ERESTART;
	/* Something was added after an earlier step. */
	if (w->fd >= 0 && memcmp(&h, &w->header, sizeof(h)) != 0)
		table_writer_drop(w);
	if (w->fd < 0)
		r = writer_begin(w, &h);
	if (r == 0)
		r = write_image(p, &left);
	if (r == 0) {
		*ret_fd = take_fd(&w->fd);
		*ret_bytes = h.image_bytes;
		*ret_digest = w->digest;
	}
	if (r != -ERESTART)
		table_writer_drop(w);
	return r;
}

int table_builder_finish(struct table_builder *p, int *ret_fd, uint64_t *ret_bytes,
			 uint64_t *ret_digest)
{
	int r;

	do
		r = table_builder_finish_step(p, ret_fd, ret_bytes, ret_digest);
	while (r == -ERESTART);
	return r;
}

/* ---- reading ---- */

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
