/* SPDX-License-Identifier: MIT
 *
 * Whoever writes a manifest may lie, so nothing in it is used before it was compared: sizes with
 * each other, digests with their number and with the digest of them all.
 */
#include "client/models/web/manifest.h"

#include "client/models/fail.h"
#include "client/models/web/json_text.h"
#include "proto/base/own.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define NAME_MAX_BYTES 1024u /* of names, keys and ETags */
#define ATTRS_BYTES_MAX (64u << 10)
#define MIRRORS_MAX 1024u

struct parser {
	const char *source;
	json_t *object;
	struct manifest *m;
};

#define wrong(p, format, ...) \
	load_fail(EBADMSG, "%s: the manifest is wrong: " format, (p)->source, ##__VA_ARGS__)

/* ---- values ---- */

static int get_number(const struct parser *p, const char *key, uint64_t *ret)
{
	if (json_text_number(json_object_get(p->object, key), INT64_MAX, ret))
		return 0;
	return wrong(p, "\"%s\" is no number of bytes", key);
}

/* Without control characters, and not too long. */
static bool is_text(json_t *value)
{
	const char *text = json_string_value(value);

	if (!text || !*text || json_string_length(value) > NAME_MAX_BYTES)
		return false;
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			return false;
	return true;
}

static int get_text(const struct parser *p, const char *key, char **ret)
{
	json_t *value = json_object_get(p->object, key);

	if (!is_text(value))
		return wrong(p, "\"%s\" is no text, or too long", key);
	*ret = strdup(json_string_value(value));
	return *ret ? 0 : load_no_memory();
}

/* ---- members ---- */

static int parse_sizes(struct parser *p)
{
	struct manifest *m = p->m;
	uint64_t block;
	int r = get_number(p, "id", &m->id);

	if (r == 0)
		r = get_number(p, "size", &m->size);
	if (r == 0)
		r = get_number(p, "header", &m->header);
	if (r == 0)
		r = get_number(p, "data", &m->data);
	if (r == 0)
		r = get_number(p, "block", &block);
	if (r < 0)
		return r;
	if (m->header < 8 || m->header > m->size || m->size - m->header != m->data)
		return wrong(p, "\"size\" is not the sum of \"header\" and \"data\"");
	if (block != BLOCK_BYTES)
		return wrong(p, "\"block\" is not 4194304");
	m->n_blocks = m->data / BLOCK_BYTES + (m->data % BLOCK_BYTES != 0);
	return 0;
}

static int parse_etag(struct parser *p)
{
	int r = get_text(p, "etag", &p->m->etag);
	size_t n = r == 0 ? strlen(p->m->etag) : 0;
	const char *etag = p->m->etag;

	if (r < 0)
		return r;
	if (n < 3 || etag[0] != '"' || strchr(etag + 1, '"') != etag + n - 1)
		return wrong(p, "\"etag\" is no strong ETag");
	return 0;
}

static void format_content(const struct manifest *m, char ret[32])
{
	snprintf(ret, 32, "xxh3:%016" PRIx64,
		 (uint64_t)XXH3_64bits(m->blocks, m->n_blocks * sizeof(*m->blocks)));
}

static int parse_blocks(struct parser *p)
{
	const char *content = json_string_value(json_object_get(p->object, "content"));
	json_t *value = json_object_get(p->object, "blocks");
	struct manifest *m = p->m;
	void *bytes = NULL;
	size_t n = 0;
	int r;

	/* The text was bounded, so their number is. */
	if (m->n_blocks > MANIFEST_BYTES_MAX / sizeof(*m->blocks))
		return wrong(p, "the file is too large for its digests");
	r = json_text_decode(value, m->n_blocks * sizeof(*m->blocks), &bytes, &n);
	m->blocks = bytes;
	if (r == -ENOMEM)
		return load_no_memory();
	if (r < 0 || n != m->n_blocks * sizeof(*m->blocks))
		return wrong(p, "\"blocks\" has not one digest for each block of \"data\"");
	format_content(m, m->content);
	if (!content || strcmp(content, m->content) != 0)
		return wrong(p, "\"content\" is not the digest of \"blocks\"");
	return 0;
}

static int parse_attr(struct parser *p, const char *key, json_t *value, size_t *left)
{
	struct manifest_attr *a = &p->m->attrs[p->m->n_attrs++];
	int r;

	if (!*key || strlen(key) > NAME_MAX_BYTES)
		return wrong(p, "the key of an attribute is empty or too long");
	a->key = strdup(key);
	r = a->key ? json_text_decode(value, *left, &a->value, &a->size) : -ENOMEM;
	if (r == -EBADMSG)
		return wrong(p, "an attribute is no base64 text, or too long");
	*left -= a->size;
	return r < 0 ? load_no_memory() : 0;
}

static int parse_attrs(struct parser *p)
{
	json_t *attrs = json_object_get(p->object, "attributes"), *value;
	size_t left = ATTRS_BYTES_MAX;
	const char *key;
	int r = 0;

	if (!attrs)
		return 0;
	if (!json_is_object(attrs) || json_object_size(attrs) > NAME_MAX_BYTES)
		return wrong(p, "\"attributes\" is no object, or has too many members");
	p->m->attrs = calloc(json_object_size(attrs) + 1, sizeof(*p->m->attrs));
	if (!p->m->attrs)
		return load_no_memory();
	json_object_foreach(attrs, key, value)
	{
		if (r == 0)
			r = parse_attr(p, key, value, &left);
	}
	return r;
}

static int parse_mirrors(struct parser *p)
{
	json_t *mirrors = json_object_get(p->object, "mirrors"), *value;
	struct manifest *m = p->m;
	size_t i;

	if (!mirrors)
		return 0;
	if (!json_is_array(mirrors) || json_array_size(mirrors) > MIRRORS_MAX)
		return wrong(p, "\"mirrors\" is no array, or too long");
	m->mirrors = calloc(json_array_size(mirrors) + 1, sizeof(*m->mirrors));
	if (!m->mirrors)
		return load_no_memory();
	json_array_foreach(mirrors, i, value)
	{
		if (!is_text(value))
			return wrong(p, "\"mirrors\" has something that is no URL");
		m->mirrors[m->n_mirrors] = strdup(json_string_value(value));
		if (!m->mirrors[m->n_mirrors])
			return load_no_memory();
		m->n_mirrors++;
	}
	return 0;
}

static int parse_object(struct parser *p)
{
	json_t *complete = json_object_get(p->object, "complete");
	uint64_t version;
	int r = get_number(p, "version", &version);

	if (r == 0 && version != MANIFEST_VERSION)
		r = wrong(p, "\"version\" is not 1: this program is older than that relay");
	if (r == 0)
		r = get_text(p, "name", &p->m->name);
	if (r == 0)
		r = parse_etag(p);
	if (r == 0)
		r = parse_sizes(p);
	if (r == 0)
		r = parse_blocks(p);
	if (r == 0)
		r = parse_attrs(p);
	if (r == 0 && complete && !json_is_boolean(complete))
		r = wrong(p, "\"complete\" is neither true nor false");
	p->m->complete = !complete || json_is_true(complete);
	return r < 0 ? r : parse_mirrors(p);
}

int manifest_parse(const char *source, const char *text, size_t n, struct manifest *ret)
{
	_cleanup_(json_decrefp) json_t *object = NULL;
	struct parser p = { .source = source, .m = ret };
	json_error_t error;

	*ret = (struct manifest){ 0 };
	if (n > MANIFEST_BYTES_MAX)
		return wrong(&p, "it is too long");
	p.object = object = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
	if (!object && json_error_code(&error) == json_error_out_of_memory)
		return load_no_memory();
	if (!json_is_object(object))
		return wrong(&p, "it is no JSON object%s",
			     object ? "" : ": its text breaks the rules of JSON");
	return parse_object(&p);
}

/* ---- writing ---- */

static json_t *format_attrs(const struct manifest *m)
{
	json_t *attrs = json_object();
	int r = attrs ? 0 : -1;

	for (size_t i = 0; r == 0 && i < m->n_attrs; i++)
		r = json_object_set_new(attrs, m->attrs[i].key,
					json_text_encode(m->attrs[i].value, m->attrs[i].size));
	return json_text_made(attrs, r);
}

static json_t *format_mirrors(const struct manifest *m)
{
	json_t *mirrors = json_array();
	int r = mirrors ? 0 : -1;

	for (size_t i = 0; r == 0 && i < m->n_mirrors; i++)
		r = json_array_append_new(mirrors, json_string(m->mirrors[i]));
	return json_text_made(mirrors, r);
}

int gpushm_private_manifest_format(const struct manifest *m, char **ret_text, size_t *ret_n)
{
	_cleanup_(json_decrefp) json_t *object =
		json_pack("{s:i, s:s, s:I, s:s, s:I, s:I, s:I, s:i, s:s, s:b}", "version",
			  (int)MANIFEST_VERSION, "name", m->name, "id", (json_int_t)m->id, "etag",
			  m->etag, "size", (json_int_t)m->size, "header", (json_int_t)m->header,
			  "data", (json_int_t)m->data, "block", (int)BLOCK_BYTES, "content",
			  m->content, "complete", m->complete);

	*ret_text = NULL;
	if (object &&
	    json_object_set_new(object, "blocks",
				json_text_encode(m->blocks, m->n_blocks * sizeof(*m->blocks))) ==
		    0 &&
	    json_object_set_new(object, "attributes", format_attrs(m)) == 0 &&
	    json_object_set_new(object, "mirrors", format_mirrors(m)) == 0)
		*ret_text = json_dumps(object, JSON_COMPACT);
	*ret_n = *ret_text ? strlen(*ret_text) : 0;
	return *ret_text ? 0 : -ENOMEM;
}

void gpushm_private_manifest_clear(struct manifest *m)
{
	for (size_t i = 0; i < m->n_attrs; i++) {
		free(m->attrs[i].key);
		free(m->attrs[i].value);
	}
	for (size_t i = 0; i < m->n_mirrors; i++)
		free(m->mirrors[i]);
	free(m->name);
	free(m->etag);
	free(m->blocks);
	free(m->attrs);
	free(m->mirrors);
	*m = (struct manifest){ 0 };
}
