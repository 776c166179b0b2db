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
#include "client/models/save_layout.h"
#include "proto/base/own.h"

#include <jansson.h>
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

static int compare_pieces(const void *x, const void *y)
{
	const struct piece *a = x, *b = y;

	return a->begin < b->begin ? -1 : a->begin > b->begin;
}

static int find_pieces(struct mapping *m, json_t *header)
{
	_cleanup_(free_ptr) struct piece *found = calloc(m->arrays->n + 1, sizeof(*found));
	size_t n = 0;

	m->pieces = calloc(m->arrays->n + 1, sizeof(*m->pieces));
	if (!found || !m->pieces)
		return load_no_memory();
	for (size_t i = 0; i < m->arrays->n; i++) {
		const struct covered *a = &m->arrays->items[i];
		json_t *of = json_object_get(header, gpushm_array_name(a->array));
		json_t *begin_of = json_array_get(json_object_get(of, "data_offsets"), 0);

		if (json_is_integer(begin_of))
			found[n++] =
				piece_of(a, m->n_header + (uint64_t)json_integer_value(begin_of));
	}
	qsort(found, n, sizeof(*found), compare_pieces);
	for (size_t i = 0; i < n; i++)
		add_piece(m, &found[i]);
	for (size_t i = 0; i < m->n; i++) {
		uint64_t end =
			i > 0 ? m->pieces[i - 1].begin + m->pieces[i - 1].bytes : m->n_header;

		if (m->pieces[i].begin != end || !m->plain)
			return gpushm_private_fail(EBADMSG,
						   "the file's header and the buffer's arrays "
						   "disagree");
		m->size = m->pieces[i].begin + m->pieces[i].bytes;
	}
	return 0;
}

int gpushm_private_mapping_lend(struct gpushm_buffer *b, const char *header, uint64_t n_header,
				struct mapping *ret)
{
	_cleanup_(json_decrefp) json_t *object = NULL;
	int r;

	*ret = (struct mapping){
		.buffer = b, .lent = true, .n_header = n_header, .size = n_header
	};
	ret->header = malloc(n_header + 1);
	if (!ret->header || n_header < 8)
		return load_no_memory();
	memcpy(ret->header, header, n_header);
	object = json_loadb(header + 8, n_header - 8, 0, NULL);
	r = object ? list_arrays(ret)
		   : gpushm_private_fail(EBADMSG, "the file's header is no JSON text");
	if (r == 0)
		find_memory(ret);
	if (r == 0)
		r = find_pieces(ret, object);
	return r;
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
