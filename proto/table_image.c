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

static uint64_t part_pad(uint64_t n)
{
	return (n + TABLE_PART_ALIGN - 1) / TABLE_PART_ALIGN * TABLE_PART_ALIGN;
}

static uint64_t digest_of(const struct table_builder *p)
{
	uint64_t hash = FNV1A_BASIS;

	for (uint32_t i = 0; i < p->arrays; i++) {
		const struct table_entry *e = &p->entries[i];
		const unsigned char *text = p->text;
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
		hash = fnv1a(hash, &e->offset, sizeof(e->offset));
	}
	return hash;
}

static struct table_header header_of(const struct table_builder *p)
{
	struct table_header h = {
		.version = TABLE_VERSION,
		.arrays = p->arrays,
		.slots = p->n_slots,
		.attrs = p->n_attrs,
		.buffer_bytes = p->buffer_bytes,
		.digest = digest_of(p),
		.entries_at = sizeof(h),
	};

	memcpy(h.magic, TABLE_MAGIC, sizeof(h.magic));
	h.slots_at = h.entries_at + (uint64_t)p->arrays * sizeof(struct table_entry);
	h.attrs_at = h.slots_at + part_pad((uint64_t)p->n_slots * sizeof(uint32_t));
	h.text_at = h.attrs_at + (uint64_t)p->n_attrs * sizeof(struct table_attr_entry);
	h.image_bytes = h.text_at + part_pad(p->text_len + p->attr_bytes);
	return h;
}

static void entries_put(const struct table_builder *p, const struct table_header *h,
			unsigned char *image)
{
	for (uint32_t i = 0; i < p->arrays; i++) {
		struct table_entry e = p->entries[i];

		e.name_at += h->text_at;
		e.descr_at += h->text_at;
		e.dims_at += h->text_at;
		memcpy(image + h->entries_at + i * sizeof(e), &e, sizeof(e));
	}
}

/* Puts their text after that of the arrays. */
static void attrs_put(const struct table_builder *p, const struct table_header *h,
		      unsigned char *image)
{
	uint64_t at = h->text_at + p->text_len;

	for (uint32_t i = 0; i < p->n_attrs; i++) {
		const struct table_owned_attr *a = &p->attrs[i];
		struct table_attr_entry e = {
			.key_at = at,
			.value_at = at + a->key_len,
			.key_len = a->key_len,
			.value_len = a->value_len,
		};

		memcpy(image + h->attrs_at + i * sizeof(e), &e, sizeof(e));
		memcpy(image + at, a->key, a->key_len + a->value_len);
		at += a->key_len + a->value_len;
	}
}

static void image_put(const struct table_builder *p, const struct table_header *h,
		      unsigned char *image)
{
	memcpy(image, h, sizeof(*h));
	entries_put(p, h, image);
	memcpy(image + h->slots_at, p->slots, p->n_slots * sizeof(uint32_t));
	if (p->text_len > 0)
		memcpy(image + h->text_at, p->text, p->text_len);
	attrs_put(p, h, image);
}

static int write_all(int fd, const unsigned char *data, uint64_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		len -= n;
	}
	return 0;
}

static int memfd_sealed(const unsigned char *data, uint64_t len, int *ret_fd)
{
	_cleanup_(close_fd) int fd = -1;
	int r;

	fd = memfd_create("gpushm-table", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	r = write_all(fd, data, len);
	if (r < 0)
		return r;
	if (fchmod(fd, 0400) < 0)
		return -errno;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -errno;

	*ret_fd = take_fd(&fd);
	return 0;
}

int table_builder_finish(struct table_builder *p, int *ret_fd, uint64_t *ret_bytes,
			 uint64_t *ret_digest)
{
	struct table_header h = header_of(p);
	_cleanup_(free_ptr) unsigned char *image = calloc(1, h.image_bytes);
	int r;

	if (!image)
		return -ENOMEM;
	image_put(p, &h, image);
	r = memfd_sealed(image, h.image_bytes, ret_fd);
	if (r < 0)
		return r;

	*ret_bytes = h.image_bytes;
	*ret_digest = h.digest;
	return 0;
}
