/* SPDX-License-Identifier: MIT
 *
 * A grant as JSON. Only addresses inside the memory that it names are ever read, whatever it says.
 */
#include "client/models/nixl/grant.h"

#include "client/models/fail.h"
#include "client/models/web/json_text.h"
#include "proto/base/own.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static int broken(const char *source, const char *what)
{
	return load_fail(EBADMSG, "%.200s: the relay's reply about NIXL is broken: %s", source,
			 what);
}

/* ---- reading ---- */

/* False: it is not there, or negative. */
static bool get_number(const json_t *object, const char *key, uint64_t max, uint64_t *ret)
{
	return json_text_number(json_object_get(object, key), max, ret);
}

static const char *get_string(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));

	return value ? value : "";
}

static bool get_session(const json_t *object, struct grant *g)
{
	const char *text = get_string(object, "session");

	if (strlen(text) != GRANT_SESSION)
		return false;
	for (size_t i = 0; i < GRANT_SESSION; i++)
		if (!isxdigit((unsigned char)text[i]))
			return false;
	strcpy(g->session, text);
	return true;
}

static bool get_memory(const json_t *object, struct grant *g)
{
	const json_t *m = json_object_get(object, "memory");
	uint64_t device;

	if (!get_number(m, "device", 1023, &device) ||
	    !get_number(m, "address", INT64_MAX, &g->memory.address) ||
	    !get_number(m, "bytes", INT64_MAX, &g->memory.bytes))
		return false;
	g->memory.device = (int)device;
	g->memory.gpu = json_is_true(json_object_get(m, "gpu"));
	return g->memory.bytes > 0 && g->memory.address <= INT64_MAX - g->memory.bytes;
}

static bool get_piece(const json_t *list, const struct grant *g, uint64_t begin,
		      struct grant_piece *p)
{
	uint64_t n[3];

	for (size_t i = 0; i < 3; i++)
		if (!json_text_number(json_array_get(list, i), INT64_MAX, &n[i]))
			return false;
	*p = (struct grant_piece){ n[0], n[1], n[2] };
	return p->begin == begin && p->bytes > 0 && p->bytes <= g->size - begin &&
	       p->bytes <= g->memory.bytes && p->offset <= g->memory.bytes - p->bytes;
}

static bool get_pieces(const json_t *list, struct grant *g)
{
	size_t n = json_array_size(list);
	uint64_t begin = g->header;

	g->pieces = calloc(n + 1, sizeof(*g->pieces));
	if (!g->pieces)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (!get_piece(json_array_get(list, i), g, begin, &g->pieces[i]))
			return false;
		begin += g->pieces[i].bytes;
	}
	g->n_pieces = n;
	return begin == g->size;
}

static bool get_layout(const json_t *object, struct grant *g)
{
	const json_t *pieces = json_object_get(object, "pieces");
	uint64_t slots;

	if (pieces)
		return get_pieces(pieces, g);
	if (!get_number(object, "slots", GRANT_SLOTS_MAX, &slots) || slots == 0 ||
	    !get_number(object, "slot", g->memory.bytes / slots, &g->slot_bytes))
		return false;
	g->slots = (unsigned)slots;
	return g->slot_bytes > 0;
}

static int take(const char *source, const json_t *object, struct grant *g)
{
	uint64_t version, expires;
	int r;

	if (!get_number(object, "version", INT64_MAX, &version))
		return broken(source, "it has no version");
	if (version != GRANT_VERSION)
		return broken(source, "it is of another version");
	if (!get_session(object, g) || !get_number(object, "expires", 86400, &expires))
		return broken(source, "its session");
	if (!get_number(object, "size", INT64_MAX, &g->size) ||
	    !get_number(object, "header", g->size, &g->header))
		return broken(source, "the file's size");
	r = json_text_decode(json_object_get(object, "metadata"), GRANT_BYTES_MAX, &g->metadata,
			     &g->n_metadata);
	if (r == -ENOMEM)
		return load_no_memory();
	if (r < 0 || g->n_metadata == 0)
		return broken(source, "the metadata");
	if (!get_memory(object, g))
		return broken(source, "the memory");
	if (!get_layout(object, g))
		return !g->pieces && json_object_get(object, "pieces")
			       ? load_no_memory()
			       : broken(source,
					"the pieces do not cover the file, or leave the memory");
	g->expires_s = expires ? (unsigned)expires : 1;
	snprintf(g->nixl, sizeof(g->nixl), "%s", get_string(object, "nixl"));
	g->etag = strdup(get_string(object, "etag"));
	return g->etag ? 0 : load_no_memory();
}

int grant_parse(const char *source, const char *text, size_t n, struct grant *ret)
{
	json_error_t e;
	_cleanup_(json_decrefp) json_t *object = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);

	*ret = (struct grant){ 0 };
	if (!object)
		return json_error_code(&e) == json_error_out_of_memory ? load_no_memory()
								       : broken(source, e.text);
	return take(source, object, ret);
}

/* ---- writing ---- */

static json_t *format_pieces(const struct grant *g)
{
	json_t *list = json_array();
	int r = list ? 0 : -1;

	for (size_t i = 0; r == 0 && i < g->n_pieces; i++) {
		const struct grant_piece *p = &g->pieces[i];

		r = json_array_append_new(list,
					  json_pack("[I,I,I]", (json_int_t)p->begin,
						    (json_int_t)p->bytes, (json_int_t)p->offset));
	}
	return json_text_made(list, r);
}

int gpushm_private_grant_format(const struct grant *g, char **ret)
{
	_cleanup_(json_decrefp) json_t *object =
		json_pack("{s:i, s:s, s:i, s:s, s:s, s:I, s:I, s:o, s:{s:b, s:i, s:I, s:I}}",
			  "version", GRANT_VERSION, "session", g->session, "expires",
			  (int)g->expires_s, "nixl", g->nixl, "etag", g->etag, "size",
			  (json_int_t)g->size, "header", (json_int_t)g->header, "metadata",
			  json_text_encode(g->metadata, g->n_metadata), "memory", "gpu",
			  g->memory.gpu, "device", g->memory.device, "address",
			  (json_int_t)g->memory.address, "bytes", (json_int_t)g->memory.bytes);

	int r = object ? 0 : -1;

	if (r == 0 && g->slots) {
		r = json_object_set_new(object, "slots", json_integer(g->slots));
		r |= json_object_set_new(object, "slot", json_integer((json_int_t)g->slot_bytes));
	} else if (r == 0) {
		r = json_object_set_new(object, "pieces", format_pieces(g));
	}
	*ret = r == 0 ? json_dumps(object, JSON_COMPACT) : NULL;
	return *ret ? 0 : load_no_memory();
}

void grant_clear(struct grant *g)
{
	free(g->etag);
	free(g->metadata);
	free(g->pieces);
	*g = (struct grant){ 0 };
}

/* ---- use ---- */

static int compare_byte(const void *offset, const void *piece)
{
	const struct grant_piece *p = piece;
	uint64_t at = *(const uint64_t *)offset;

	return at < p->begin ? -1 : at - p->begin >= p->bytes;
}

/* The piece that has the byte. */
static size_t find_piece(const struct grant *g, uint64_t offset)
{
	const struct grant_piece *found =
		bsearch(&offset, g->pieces, g->n_pieces, sizeof(*g->pieces), compare_byte);

	return found ? (size_t)(found - g->pieces) : 0;
}

int grant_parts(const struct grant *g, uint64_t offset, uint64_t n, uint64_t local,
		struct nixl_part **ret, size_t *ret_n)
{
	size_t first = find_piece(g, offset), end = find_piece(g, offset + n - 1) + 1;
	struct nixl_part *parts = calloc(end - first, sizeof(*parts));

	if (!parts)
		return load_no_memory();
	for (size_t i = first; i < end; i++) {
		const struct grant_piece *p = &g->pieces[i];
		uint64_t skip = offset - p->begin, left = p->bytes - skip;
		uint64_t bytes = n < left ? n : left;

		parts[i - first] = (struct nixl_part){
			.local = local,
			.remote = g->memory.address + p->offset + skip,
			.bytes = bytes,
		};
		offset += bytes;
		local += bytes;
		n -= bytes;
	}
	*ret = parts;
	*ret_n = end - first;
	return 0;
}
