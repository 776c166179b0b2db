/* SPDX-License-Identifier: MIT
 *
 * How the parts of a table become an image, and the image a memfd that no process can change.
 *
 * The daemon owns the fd and sends it to every reader with the attach. A new memfd has mode 0777: a
 * process with a read-only fd could open it again for writing through /proc, so it gets mode 0400.
 * The seals hold for every fd of it, the daemon's own included; F_SEAL_SHRINK protects a reader
 * from SIGBUS (memfd_create(2), fcntl(2)).
 */
#include "proto/table_image.h"

#include "proto/base/own.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

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
