/* SPDX-License-Identifier: MIT
 *
 * The bytes of a handle, little end first as a table: a head, the shape and strides of an array,
 * four texts that each end with a NUL, and the FNV-1a hash of all that. The hash finds accidents.
 * Who makes bytes on purpose can make their hash, too: the texts are checked here, and the layout
 * against the buffer when that is open.
 */
#include "client/gpushm_handle.h"
#include "client/gpushm_private.h"
#include "client/lib/array/array.h"
#include "client/lib/base/spec.h"
#include "client/lib/buffer/buffer.h"
#include "proto/base/fnv.h"
#include "proto/base/own.h"
#include "proto/base/sized.h"
#include "proto/name.h"

#include <stdio.h>

#define MAGIC                                 \
	{                                     \
		'G', 'P', 'U', 'S', 'H', 'M', \
	}
#define NDIM_MAX 16
#define HASH_BYTES sizeof(uint64_t)

enum { HANDLE_WRITE = 1, HANDLE_COPY_ON_WRITE = 2, HANDLE_BUFFER = 4, HANDLE_FIELDS_IN_TABLE = 8 };

struct head {
	char magic[6];
	uint8_t version, flags;
	uint64_t id, bytes, offset;
	struct gpushm_dtype dtype;
	uint32_t uid, ndim;
};
_Static_assert(sizeof(struct head) == 48, "it has no padding");
static const char magic[6] = MAGIC;

/* ---- writing ---- */

/* The record's fields are those of the buffer's array of the same name. */
static bool has_described_fields(const struct gpushm_array *a)
{
	struct gpushm_array *own = NULL;
	bool same = gpushm_array_get(a->buffer, a->text, &own) == 0 && own->descr &&
		    strcmp(own->descr, a->descr) == 0;

	gpushm_array_free(own);
	return same;
}

/* a: NULL, or an array of b. Returns the number of bytes; more than fit: it does not fit. */
static size_t fill(const struct gpushm_buffer *b, const struct gpushm_array *a, const char *descr,
		   char *to)
{
	struct head h = { MAGIC, 1, HANDLE_BUFFER, b->id, b->bytes, .uid = gpushm_buffer_uid(b) };
	const char *path = b->connection->path ? b->connection->path : "";
	/* Another process may be in another folder. */
	_cleanup_(free_ptr) char *absolute = *path ? realpath(path, NULL) : NULL;
	size_t n = sizeof(h), axes = a ? (size_t)a->layout.ndim * sizeof(int64_t) : 0;
	uint64_t hash;

	if (a) {
		h.flags = descr ? 0 : HANDLE_FIELDS_IN_TABLE;
		h.bytes = gpushm_array_nbytes(a);
		h.offset = a->layout.offset;
		h.dtype = dtype_to_public(a->layout.dtype);
		h.ndim = (uint32_t)a->layout.ndim;
		memcpy(to + n, a->layout.shape, axes);
		memcpy(to + n + axes, a->layout.strides, axes);
	}
	/* A buffer that is being filled will probably be sealed. */
	if (b->copy_on_write)
		h.flags |= HANDLE_COPY_ON_WRITE;
	else if (gpushm_buffer_state(b) == GPUSHM_SHARED && b->access == GPUSHM_WRITE)
		h.flags |= HANDLE_WRITE;
	memcpy(to, &h, sizeof(h));
	n += 2 * axes;
	n += (size_t)snprintf(to + n, GPUSHM_HANDLE_MAX - n, "%s%c%s%c%s%c%s%c", b->name, 0,
			      a ? a->text : "", 0, absolute ? absolute : path, 0,
			      descr ? descr : "", 0);
	if (n + HASH_BYTES <= GPUSHM_HANDLE_MAX) {
		hash = fnv1a(FNV1A_BASIS, to, n);
		memcpy(to + n, &hash, HASH_BYTES);
	}
	return n + HASH_BYTES;
}

static int make(const struct gpushm_buffer *b, const struct gpushm_array *a, void *buf, size_t size,
		size_t *ret_len)
{
	char bytes[GPUSHM_HANDLE_MAX];
	const char *descr = a && a->descr ? a->descr : "";
	size_t n;

	if (b->of_stream)
		return buffer_error(b, ENOTSUP,
				    "a stream's frames have no handles: "
				    "gpushm_stream_open() follows it");
	if (a && a->layout.ndim > NDIM_MAX)
		return array_error(a, E2BIG, "it has %d dimensions, and a handle at most %d",
				   a->layout.ndim, NDIM_MAX);
	n = fill(b, a, descr, bytes);
	if (n > sizeof(bytes) && *descr && has_described_fields(a))
		n = fill(b, a, NULL, bytes);
	if (n > sizeof(bytes))
		return buffer_error(b, E2BIG,
				    "the names, and the fields of a record, do not fit "
				    "the 1,024 bytes of a handle");
	if (!buf || n > size)
		return buffer_error(b, ENOSPC,
				    "its handle has %zu bytes, and there is room for %zu", n,
				    buf ? size : 0);
	memcpy(buf, bytes, n);
	*ret_len = n;
	return 0;
}

/* A forked child may make the handle of its parent's array, and open it on its own connection. */
int gpushm_array_handle(const struct gpushm_array *a, void *buf, size_t size, size_t *ret_len)
{
	int r = error_null(a, "array");

	return r < 0 ? r : make(a->buffer, a, buf, size, ret_len);
}

int gpushm_buffer_handle(const struct gpushm_buffer *b, void *buf, size_t size, size_t *ret_len)
{
	int r = error_null(b, "buffer");

	return r < 0 ? r : make(b, NULL, buf, size, ret_len);
}

/* ---- reading ---- */

static int damaged(const char *why)
{
	return error_set(EBADMSG, "this is no whole handle of gpushm: %s", why);
}

static int check(const unsigned char *bytes, size_t size, const struct head *h)
{
	uint64_t hash;

	if (size < sizeof(magic) || memcmp(bytes, magic, sizeof(magic)) != 0)
		return error_set(EINVAL, "these bytes are no handle of gpushm");
	if (size < sizeof(*h) + HASH_BYTES || size > GPUSHM_HANDLE_MAX)
		return damaged("it is too short or too long");
	memcpy(&hash, bytes + size - HASH_BYTES, HASH_BYTES);
	if (hash != fnv1a(FNV1A_BASIS, bytes, size - HASH_BYTES))
		return damaged("its checksum is wrong, so bytes were changed or cut off");
	if (bytes[offsetof(struct head, version)] != 1)
		return error_set(EINVAL,
				 "this is a handle of gpushm of version %u: upgrade "
				 "libgpushm",
				 bytes[offsetof(struct head, version)]);
	return 0;
}

/* at: its texts, which the hash follows. */
static int find_texts(struct gpushm_private_handle *h, const char *at, const char *end)
{
	const char **texts[] = { &h->name, &h->spec.name, &h->socket, &h->spec.descr };

	for (size_t i = 0; i < array_size(texts); i++) {
		const char *nul = at < end ? memchr(at, '\0', (size_t)(end - at)) : NULL;

		if (!nul || name_check_text(at, (size_t)(nul - at)))
			return damaged("its texts make no sense");
		*texts[i] = at;
		at = nul + 1;
	}
	return at == end ? 0 : damaged("it is too long");
}

int gpushm_private_read_handle(const void *bytes, size_t size, struct gpushm_private_handle *ret)
{
	const struct head *h = (const void *)ret->bytes;
	int r = error_null(bytes, "handle");

	if (r == 0)
		r = check(bytes, size, h);
	if (r < 0)
		return r;
	memcpy(ret->bytes, bytes, size);
	if (h->ndim > NDIM_MAX)
		return damaged("it has too many dimensions");
	ret->id = h->id;
	ret->size = h->bytes;
	ret->uid = h->uid;
	ret->access = h->flags & HANDLE_WRITE ? GPUSHM_WRITE : GPUSHM_READ;
	ret->copy_on_write = h->flags & HANDLE_COPY_ON_WRITE;
	ret->is_buffer = h->flags & HANDLE_BUFFER;
	ret->fields_in_table = h->flags & HANDLE_FIELDS_IN_TABLE;
	ret->spec = (struct gpushm_array_spec){ .struct_size = sizeof(ret->spec),
						.dtype = h->dtype,
						.ndim = (int)h->ndim,
						.shape = (const int64_t *)(h + 1),
						.offset = h->offset };
	ret->spec.strides = ret->spec.shape + h->ndim;
	r = find_texts(ret, (const char *)(ret->spec.strides + h->ndim),
		       (const char *)ret->bytes + size - HASH_BYTES);
	if (r < 0 || ret->is_buffer)
		return r;
	if (dtype_packed(dtype_from_public(ret->spec.dtype)))
		ret->spec.strides = NULL;
	return dtype_valid(dtype_from_public(ret->spec.dtype)) ? 0
							       : damaged("it has no such dtype");
}

/* ---- opening ---- */

/* The daemon finds a buffer by its name, which may be another one's by now: the id says. */
static int open_it(struct gpushm *c, const void *handle, size_t size,
		   const struct gpushm_handle_options *options, struct gpushm_private_handle *h,
		   struct gpushm_buffer **ret)
{
	struct gpushm_open_options how = { .struct_size = sizeof(how) };
	struct gpushm_handle_options o;
	struct gpushm_buffer *b;
	int r = connection_check(c);

	if (r == 0)
		r = gpushm_private_read_handle(handle, size, h);
	if (r == 0)
		r = error_wrong("options", sized_read(options, &o, sizeof(o)));
	if (r < 0)
		return r;
	how.flags = o.flags | (h->copy_on_write && !o.access ? GPUSHM_COPY_ON_WRITE : 0);
	how.device = o.device;
	r = gpushm_open(c, h->name, o.access ? o.access : h->access, o.timeout_ms, &how, &b);
	if (r == 0 && b->id == h->id)
		*ret = b;
	if (r < 0 || b->id == h->id)
		return r;
	gpushm_close(b);
	return error_set(ESTALE,
			 "buffer \"%s\" is another one by now: the one of this handle was unlinked",
			 h->name);
}

int gpushm_open_buffer_handle(struct gpushm *c, const void *handle, size_t size,
			      const struct gpushm_handle_options *options,
			      struct gpushm_buffer **ret)
{
	struct gpushm_private_handle h;

	return open_it(c, handle, size, options, &h, ret);
}

int gpushm_open_handle(struct gpushm *c, const void *handle, size_t size,
		       const struct gpushm_handle_options *options, struct gpushm_array **ret)
{
	struct gpushm_private_handle h;
	struct gpushm_array *described = NULL;
	struct gpushm_buffer *b;
	int r = open_it(c, handle, size, options, &h, &b);

	if (r < 0)
		return r;
	buffer_get(b);
	if (h.is_buffer)
		r = buffer_error(b, EINVAL,
				 "the handle is the buffer's, and no array's: "
				 "gpushm_open_buffer_handle() opens it");
	/* Fields of a record that did not fit are those of the buffer's array of that name. */
	else if (h.fields_in_table)
		r = gpushm_array_get(b, h.spec.name, &described);
	if (described)
		h.spec.descr = described->descr;
	if (r == 0)
		r = array_over(b, &h.spec, "the handle", ret);
	gpushm_array_free(described);
	/* Its last array will close it; without one this does. */
	buffer_put_and_close(b);
	return r;
}
