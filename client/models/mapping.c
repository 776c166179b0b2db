/* SPDX-License-Identifier: MIT
 *
 * Arrays that lie in the file as they lie in the buffer are one piece. An array with strides is a
 * piece of its own, which is gathered in C order, a few rows at a time.
 */

#include "client/gpushm_array.h"
#include "client/gpushm_load_private.h"
#include "client/gpushm_private.h"
#include "client/models/copy/copier.h"
#include "client/models/fail.h"
#include "client/models/files/arrays.h"
#include "client/models/files/header.h"
#include "client/models/save_layout.h"
#include "proto/base/own.h"

#include <stdlib.h>
#include <string.h>

/* ---- pieces ---- */

static void add_piece(struct mapping *m, const struct piece *p)
{
	struct piece *last = m->n > 0 ? &m->pieces[m->n - 1] : NULL;

	if (p->bytes == 0)
		return;
	if (last && !last->strided && !p->strided && last->begin + last->bytes == p->begin &&
	    last->buffer_offset + last->bytes == p->buffer_offset)
		last->bytes += p->bytes;
	else
		m->pieces[m->n++] = *p;
	m->plain &= !p->strided;
}

static struct piece piece_of(const struct covered *a, uint64_t begin)
{
	bool plain = gpushm_array_is_c_contiguous(a->array);

	return (struct piece){ .begin = begin,
			       .bytes = gpushm_array_nbytes(a->array),
			       .buffer_offset = a->begin,
			       .strided = plain ? NULL : a->array };
}

static int take_layout(struct mapping *m, struct save_layout *l)
{
	struct save_shard *s = &l->shards[0];

	m->pieces = calloc(s->n + 1, sizeof(*m->pieces));
	if (!m->pieces)
		return load_no_memory();
	m->header = take_ptr(s->header);
	m->n_header = s->n_header;
	m->size = s->n_header + s->bytes;
	for (size_t i = 0; i < s->n; i++) {
		struct piece p = piece_of(s->items[i].array, m->n_header + s->items[i].begin);

		add_piece(m, &p);
	}
	return 0;
}

/* ---- opening ---- */

static int list_arrays(struct mapping *m)
{
	int r;

	m->arrays = calloc(1, sizeof(*m->arrays));
	r = m->arrays ? arrays_list(m->buffer, m->arrays) : load_no_memory();
	if (r < 0)
		return r;
	m->n_arrays = m->arrays->n;
	m->plain = true;
	return 0;
}

static void find_memory(struct mapping *m)
{
	m->host = gpushm_buffer_host_ptr(m->buffer);
	m->device = m->host ? -1 : arrays_device(m->arrays, m->buffer);
}

static int open_file(struct gpushm *c, const char *name, bool memory, struct mapping *ret)
{
	struct gpushm_open_options o = { .struct_size = sizeof(o),
					 .flags = memory ? 0 : GPUSHM_TABLE };
	struct save_layout layout = { 0 };
	int r;

	*ret = (struct mapping){ 0 };
	r = gpushm_open(c, name, GPUSHM_READ, 0, &o, &ret->buffer);
	if (r == 0)
		r = list_arrays(ret);
	if (r == 0 && memory)
		find_memory(ret);
	if (r == 0)
		r = save_layout_make(ret->buffer, ret->arrays, NULL, "", 0, &layout);
	if (r == 0)
		r = take_layout(ret, &layout);
	save_layout_clear(&layout);
	if (r < 0) {
		private_error_guard();
		gpushm_private_mapping_close(ret);
	}
	return r;
}

int gpushm_private_mapping_open(struct gpushm *c, const char *name, struct mapping *ret)
{
	return open_file(c, name, true, ret);
}

int gpushm_private_mapping_look(struct gpushm *c, const char *name, struct mapping *ret)
{
	int r = open_file(c, name, false, ret);

	/* Metadata that are an array were to be read. */
	return r == -EBADF ? open_file(c, name, true, ret) : r;
}

/* ---- a buffer that is being filled ---- */

/* The header covers the data without a hole. */
static int find_pieces(struct mapping *m, const struct header *h)
{
	m->pieces = calloc(h->n + 1, sizeof(*m->pieces));
	if (!m->pieces)
		return load_no_memory();
	for (size_t i = 0; i < h->n; i++) {
		const struct tensor *t = &h->tensors[i];
		_cleanup_(free_array) struct gpushm_array *a = NULL;
		int r = gpushm_array_get(m->buffer, t->name, &a);

		if (r < 0 || !gpushm_array_is_c_contiguous(a) ||
		    gpushm_array_nbytes(a) != t->end - t->begin)
			return load_fail(EBADMSG,
					 "the file's header and the buffer's arrays disagree");
		add_piece(m, &(struct piece){ .begin = m->n_header + t->begin,
					      .bytes = t->end - t->begin,
					      .buffer_offset = gpushm_array_offset(a) });
		m->size = m->n_header + t->end;
	}
	return 0;
}

int gpushm_private_mapping_lend(struct gpushm_buffer *b, const char *header, uint64_t n_header,
				struct mapping *ret)
{
	_cleanup_(header_done) struct header parsed = { 0 };
	int r;

	*ret = (struct mapping){
		.buffer = b, .lent = true, .n_header = n_header, .size = n_header
	};
	ret->header = malloc(n_header + 1);
	if (!ret->header || n_header < 8)
		return load_no_memory();
	memcpy(ret->header, header, n_header);
	r = header_parse(gpushm_buffer_name(b), header + 8, n_header - 8, HEADER_NO_SIZE, &parsed);
	if (r == 0)
		r = list_arrays(ret);
	if (r < 0)
		return r;
	find_memory(ret);
	return find_pieces(ret, &parsed);
}

void gpushm_private_mapping_close(struct mapping *m)
{
	if (m->arrays)
		arrays_clear(m->arrays);
	free(m->arrays);
	if (!m->lent)
		gpushm_close(m->buffer);
	free(m->header);
	free(m->pieces);
	*m = (struct mapping){ 0 };
}

/* ---- reading ---- */

static int compare_byte(const void *offset, const void *piece)
{
	const struct piece *p = piece;
	uint64_t at = *(const uint64_t *)offset;

	return at < p->begin ? -1 : at >= p->begin + p->bytes;
}

/* The piece that has this byte of the file; NULL: the byte belongs to the header, or lies behind
 * the file. */
static const struct piece *mapping_find(const struct mapping *m, uint64_t offset)
{
	return bsearch(&offset, m->pieces, m->n, sizeof(*m->pieces), compare_byte);
}

int gpushm_private_mapping_read(const struct mapping *m, uint64_t offset, void *to, size_t n)
{
	char *at = to;
	int r = 0;

	for (size_t some; r == 0 && n > 0; at += some, offset += some, n -= some) {
		const struct piece *p = mapping_find(m, offset);
		uint64_t left = p ? p->begin + p->bytes - offset : m->n_header - offset;

		some = left < n ? (size_t)left : n;
		if (!p)
			memcpy(at, m->header + offset, some);
		else if (p->strided)
			r = arrays_gather(p->strided, offset - p->begin, at, some);
		else if (m->host)
			memcpy(at, m->host + p->buffer_offset + (offset - p->begin), some);
		else
			r = copier_read(m->device,
					(uintptr_t)gpushm_buffer_device_ptr(m->buffer) +
						p->buffer_offset + (offset - p->begin),
					at, some);
	}
	return r;
}

int gpushm_private_mapping_iov(const struct mapping *m, uint64_t offset, uint64_t n,
			       struct iovec *ret, int max)
{
	int count = 0;

	while (n > 0) {
		const struct piece *p = mapping_find(m, offset);
		uint64_t left = p ? p->begin + p->bytes - offset : m->n_header - offset;
		uint64_t some = left < n ? left : n;

		if (count == max)
			return -E2BIG;
		if (p && (p->strided || !m->host))
			return -ENOTSUP;
		ret[count].iov_base = p ? (char *)m->host + p->buffer_offset + (offset - p->begin)
					: m->header + offset;
		ret[count++].iov_len = some;
		offset += some;
		n -= some;
	}
	return count;
}
