/* SPDX-License-Identifier: MIT
 *
 * Tensors lie in the file as their arrays lie in the buffer, so that both are read and written in
 * order. PyTorch refuses a tensor that does not begin on a multiple of its element, so where that
 * would happen, those with the largest elements come first, as the format's own library does it.
 *
 * Of arrays that are the same bytes one is written; the names of the others are members of
 * __metadata__, with its name as their value. That is what safetensors.torch.save_model() does with
 * tied weights. It writes the one whose name comes first, unless the metadata already say another.
 * Arrays that share bytes but differ in type or shape are written each.
 */
#include "client/models/save_layout.h"

#include "client/models/fail.h"
#include "client/models/files/header.h"
#include "client/models/web/json_text.h"
#include "client/models/web/url.h"
#include "proto/base/own.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX ".safetensors"
#define METADATA_ATTR "gpushm.metadata"

/* ---- which arrays ---- */

static const char *name_of(const struct saved *s)
{
	return gpushm_array_name(s->array->array);
}

static uint64_t element_bits(const struct saved *s)
{
	return gpushm_dtype_bits(gpushm_array_dtype(s->array->array));
}

/* Sub-byte types begin on bytes like others. */
static bool aligned(const struct saved *s)
{
	uint64_t bytes = element_bits(s) / 8;

	return bytes == 0 || s->begin % bytes == 0;
}

static int fill(struct saved *s, const struct covered *c)
{
	const struct gpushm_array *a = c->array;
	char dtype[32];

	*s = (struct saved){ .array = c,
			     .bytes = gpushm_array_nbytes(a),
			     .plain = gpushm_array_is_c_contiguous(a) };
	if (tensor_dtype_name(gpushm_array_dtype(a), &s->dtype) == 0)
		return 0;
	gpushm_dtype_format(gpushm_array_dtype(a), dtype, sizeof(dtype));
	return load_fail(ENOTSUP, "array \"%s\": a safetensors file can't have its type, %s",
			 gpushm_array_name(a), dtype);
}

/* The format's metadata, where an attribute is too small for it. */
static bool is_metadata(const struct covered *c)
{
	return strcmp(gpushm_array_name(c->array), METADATA) == 0;
}

static int collect(const struct arrays *arrays, struct save_layout *l)
{
	int r = 0;

	l->items = calloc(arrays->n + 1, sizeof(*l->items));
	if (!l->items)
		return load_no_memory();
	for (size_t i = 0; r == 0 && i < arrays->n; i++)
		if (!is_metadata(&arrays->items[i]))
			r = fill(&l->items[l->n++], &arrays->items[i]);
	l->names = l->n;
	return r;
}

/* ---- tied arrays ---- */

/* 0: both are the same tensor. */
static int compare_tensors(const struct saved *a, const struct saved *b)
{
	const struct gpushm_array *x = a->array->array, *y = b->array->array;
	int n = gpushm_array_ndim(x);

	if (a->array->begin != b->array->begin)
		return a->array->begin < b->array->begin ? -1 : 1;
	if (a->bytes != b->bytes)
		return a->bytes < b->bytes ? -1 : 1;
	/* A square matrix and its transpose begin at the same byte. */
	if (a->plain != b->plain)
		return a->plain ? -1 : 1;
	if (a->dtype != b->dtype)
		return strcmp(a->dtype, b->dtype);
	if (n != gpushm_array_ndim(y))
		return n < gpushm_array_ndim(y) ? -1 : 1;
	return memcmp(gpushm_array_shape(x), gpushm_array_shape(y), (size_t)n * sizeof(int64_t));
}

static int by_tensor(const void *x, const void *y)
{
	const struct saved *const *a = x, *const *b = y;
	int r = compare_tensors(*a, *b);

	return r != 0 ? r : strcmp(name_of(*a), name_of(*b));
}

static const char *alias_in(json_t *metadata, const struct saved *s)
{
	return json_string_value(json_object_get(metadata, name_of(s)));
}

/* Which of n names of one tensor the file has: the one that the metadata name, else the first. */
static const char *choose_name(struct saved **group, size_t n, json_t *metadata)
{
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; alias_in(metadata, group[i]) && j < n; j++)
			if (strcmp(alias_in(metadata, group[i]), name_of(group[j])) == 0)
				return name_of(group[j]);
	return name_of(group[0]);
}

/* Keys that mean something else can't say that: such a tensor is written. */
static int tie(struct saved **group, size_t n, json_t *metadata)
{
	const char *kept = choose_name(group, n, metadata);

	for (size_t i = 0; i < n; i++) {
		const char *alias = alias_in(metadata, group[i]);

		if (strcmp(name_of(group[i]), kept) == 0 || (alias && strcmp(alias, kept) != 0) ||
		    strcmp(name_of(group[i]), "format") == 0)
			continue;
		group[i]->tied = kept;
		if (json_object_set_new(metadata, name_of(group[i]), json_string(kept)) < 0)
			return load_no_memory();
	}
	return 0;
}

static int tie_groups(struct saved **order, size_t n, json_t *metadata)
{
	size_t end;
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i = end) {
		for (end = i + 1; end < n && compare_tensors(order[i], order[end]) == 0;)
			end++;
		if (end - i > 1 && order[i]->plain && order[i]->bytes > 0)
			r = tie(&order[i], end - i, metadata);
	}
	return r;
}

/* Finds the tensors that are the same, and takes all but one out of the list. */
static int join_tied(struct save_layout *l, json_t *metadata)
{
	_cleanup_(free_ptr) struct saved **order = calloc(l->n + 1, sizeof(struct saved *));
	size_t n = 0;
	int r;

	if (!order)
		return load_no_memory();
	for (size_t i = 0; i < l->n; i++)
		order[i] = &l->items[i];
	qsort(order, l->n, sizeof(struct saved *), by_tensor);
	r = tie_groups(order, l->n, metadata);
	for (size_t i = 0; i < l->n; i++)
		if (!l->items[i].tied)
			l->items[n++] = l->items[i];
	l->n = n;
	return r;
}

/* ---- shards ---- */

/* limit: bytes of a shard; 0: none. Returns how many shards there are; fills those that fit. */
static size_t split(const struct save_layout *l, uint64_t limit, struct save_shard *ret, size_t max)
{
	struct save_shard shard = { .items = l->items };
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++) {
		if (limit > 0 && shard.bytes > 0 && l->items[i].bytes > 0 &&
		    shard.bytes + l->items[i].bytes > limit) {
			if (n < max)
				ret[n] = shard;
			n++;
			shard = (struct save_shard){ .items = &l->items[i] };
		}
		shard.n++;
		shard.bytes += l->items[i].bytes;
	}
	if (n < max)
		ret[n] = shard;
	return n + 1;
}

/* "model.safetensors" of two: "model-00001-of-00002.safetensors", as the Hub has them. */
static int name_shards(struct save_layout *l, const char *path)
{
	int stem = (int)(strlen(path) - strlen(SUFFIX)), r = 0;

	if (l->n_shards == 1)
		return load_format(&l->shards[0].path, "%s", path);
	for (size_t i = 0; i < l->n_shards && r == 0; i++)
		r = load_format(&l->shards[i].path, "%.*s-%05zu-of-%05zu" SUFFIX, stem, path, i + 1,
				l->n_shards);
	return r < 0 ? r : load_format(&l->index_path, "%s.index.json", path);
}

static int make_shards(struct save_layout *l, const char *path, uint64_t limit)
{
	size_t n = split(l, limit, NULL, 0);

	if (n > SAVE_SHARDS_MAX)
		return load_fail(EINVAL,
				 "%zu files of at most %" PRIu64 " bytes are needed, and %u are "
				 "allowed: let them be larger",
				 n, limit, SAVE_SHARDS_MAX);
	l->shards = calloc(n, sizeof(*l->shards));
	if (!l->shards)
		return load_no_memory();
	l->n_shards = split(l, limit, l->shards, n);
	return name_shards(l, path);
}

/* ---- order ---- */

/* Returns whether all of them begin where an element may begin. */
static bool place(struct save_shard *s)
{
	uint64_t begin = 0;
	bool all = true;

	for (size_t i = 0; i < s->n; i++) {
		s->items[i].begin = begin;
		begin += s->items[i].bytes;
		all &= aligned(&s->items[i]);
	}
	return all;
}

static int by_element(const void *x, const void *y)
{
	const struct saved *a = x, *b = y;
	uint64_t m = element_bits(a), n = element_bits(b);

	if (m != n)
		return m > n ? -1 : 1;
	return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* Arrays of size 0 have the begin of the next one: their order does not matter. */
static void order(struct save_shard *s)
{
	if (place(s))
		return;
	qsort(s->items, s->n, sizeof(*s->items), by_element);
	place(s);
}

/* ---- the header ---- */

static int parse_metadata(const char *text, size_t n, const char *whose, json_t **ret)
{
	bool strings = json_text_values(text, n) <= HEADER_METADATA_VALUES_MAX;
	json_error_t error;
	json_t *value = strings ? json_loadb(text, n, JSON_REJECT_DUPLICATES, &error) : NULL;
	const char *key;
	json_t *member;

	if (strings && !value && json_error_code(&error) == json_error_out_of_memory)
		return load_no_memory();
	strings &= json_is_object(value);
	json_object_foreach(value, key, member) strings &= json_is_string(member);
	if (strings) {
		*ret = value;
		return 0;
	}
	json_decref(value);
	return load_fail(EINVAL, "%s are no JSON object of strings", whose);
}

/* Of the array that has them, if they were too large for an attribute. */
static int read_metadata_array(struct gpushm_buffer *b, const struct covered *c, json_t **ret)
{
	_cleanup_(free_ptr) char *text = NULL;
	size_t n = c->end - c->begin;
	int r;

	if (n > HEADER_BYTES_MAX)
		return load_fail(EFBIG,
				 "the array \"" METADATA "\" has %zu bytes; the header of a "
				 "safetensors file can have %u",
				 n, HEADER_BYTES_MAX);
	text = malloc(n + 1);
	if (!text)
		return load_no_memory();
	r = gpushm_read(b, c->begin, text, n);
	return r < 0 ? r : parse_metadata(text, n, "the array \"" METADATA "\"'s contents", ret);
}

static int find_metadata(struct gpushm_buffer *b, const struct arrays *arrays, const char *text,
			 json_t **ret)
{
	const void *value;
	size_t size;

	if (text)
		return parse_metadata(text, strlen(text), "the metadata", ret);
	if (gpushm_buffer_attr(b, METADATA_ATTR, &value, &size) == 0)
		return parse_metadata(value, size, "the buffer's attribute \"" METADATA_ATTR "\"",
				      ret);
	for (size_t i = 0; i < arrays->n; i++)
		if (is_metadata(&arrays->items[i]))
			return read_metadata_array(b, &arrays->items[i], ret);
	*ret = json_object();
	return *ret ? 0 : load_no_memory();
}

static json_t *describe(const struct saved *s)
{
	const struct gpushm_array *a = s->array->array;
	json_t *shape = json_array();

	for (int i = 0; i < gpushm_array_ndim(a); i++)
		json_array_append_new(shape, json_integer(gpushm_array_dim(a, i)));
	return json_pack("{s:s, s:o, s:[I, I]}", "dtype", s->dtype, "shape", shape, "data_offsets",
			 (json_int_t)s->begin, (json_int_t)(s->begin + s->bytes));
}

/* The length, 8 bytes with the little end first; the text; spaces up to a multiple of 8. */
static int write_header(struct save_shard *s, json_t *header)
{
	_cleanup_(free_ptr) char *text = json_dumps(header, JSON_COMPACT);
	size_t length = text ? strlen(text) : 0, padded = (length + 7) & ~(size_t)7;
	uint64_t n = htole64(padded);

	if (!text)
		return load_no_memory();
	if (padded > HEADER_BYTES_MAX)
		return load_fail(EFBIG,
				 "the header has %zu bytes; a safetensors file can have %u: save "
				 "fewer arrays, or shorter names, or in several files",
				 padded, HEADER_BYTES_MAX);
	s->n_header = sizeof(n) + padded;
	s->header = malloc(s->n_header);
	if (!s->header)
		return load_no_memory();
	memset(s->header, ' ', s->n_header);
	memcpy(s->header, &n, sizeof(n));
	memcpy(s->header + sizeof(n), text, length);
	return 0;
}

/* Whether an entry of the metadata is another name of a tensor that another shard has. */
static bool is_of_another(const struct save_shard *s, json_t *files, const char *key, json_t *value)
{
	const char *file = json_string_value(json_object_get(files, json_string_value(value)));

	return file && strcmp(file, url_last(s->path)) != 0 && !json_object_get(files, key) &&
	       strcmp(key, "format") != 0;
}

/* NULL: out of memory. */
static json_t *metadata_of(const struct save_shard *s, json_t *files, json_t *metadata)
{
	json_t *found = json_object(), *value;
	const char *key;
	int r = found ? 0 : -1;

	json_object_foreach(metadata, key,
			    value) if (r == 0 && !is_of_another(s, files, key, value)) r =
		json_object_set(found, key, value);
	return json_text_made(found, r);
}

static int make_header(struct save_shard *s, json_t *files, json_t *metadata)
{
	_cleanup_(json_decrefp) json_t *header = json_object(),
				       *own = metadata_of(s, files, metadata);
	int r = header && own ? 0 : -1;

	if (r == 0 && json_object_size(own) > 0)
		r = json_object_set(header, METADATA, own);
	for (size_t i = 0; r == 0 && i < s->n; i++)
		r = json_object_set_new(header, name_of(&s->items[i]), describe(&s->items[i]));
	return r < 0 ? load_no_memory() : write_header(s, header);
}

/* The file of each tensor, as the index has it under "weight_map". NULL: out of memory. */
static json_t *list_files(const struct save_layout *l)
{
	json_t *files = json_object();
	int r = files ? 0 : -1;

	for (size_t i = 0; i < l->n_shards; i++)
		for (size_t k = 0; r == 0 && k < l->shards[i].n; k++)
			r = json_object_set_new(files, name_of(&l->shards[i].items[k]),
						json_string(url_last(l->shards[i].path)));
	return json_text_made(files, r);
}

static int make_index(struct save_layout *l, json_t *files)
{
	_cleanup_(json_decrefp) json_t *index =
		json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)l->bytes,
			  "weight_map", files);
	_cleanup_(free_ptr) char *text =
		index ? json_dumps(index, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;

	return text ? load_format(&l->index, "%s\n", text) : load_no_memory();
}

static int make_headers(struct save_layout *l, json_t *metadata)
{
	_cleanup_(json_decrefp) json_t *files = list_files(l);
	int r = files ? 0 : load_no_memory();

	for (size_t i = 0; r == 0 && i < l->n_shards; i++) {
		order(&l->shards[i]);
		l->bytes += l->shards[i].bytes;
		r = make_header(&l->shards[i], files, metadata);
	}
	if (r == 0 && l->n_shards > 1)
		r = make_index(l, files);
	return r;
}

int save_layout_make(struct gpushm_buffer *b, const struct arrays *arrays, const char *metadata,
		     const char *path, uint64_t shard_bytes, struct save_layout *ret)
{
	_cleanup_(json_decrefp) json_t *object = NULL;
	int r;

	*ret = (struct save_layout){ 0 };
	r = find_metadata(b, arrays, metadata, &object);
	if (r == 0)
		r = collect(arrays, ret);
	if (r == 0)
		r = join_tied(ret, object);
	if (r == 0)
		r = make_shards(ret, path, shard_bytes);
	if (r == 0)
		r = make_headers(ret, object);
	return r;
}

void save_layout_clear(struct save_layout *l)
{
	for (size_t i = 0; i < l->n_shards; i++) {
		free(l->shards[i].path);
		free(l->shards[i].header);
	}
	free(l->shards);
	free(l->items);
	free(l->index);
	free(l->index_path);
	*l = (struct save_layout){ 0 };
}
