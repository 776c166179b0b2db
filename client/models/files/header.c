/* SPDX-License-Identifier: MIT
 *
 * Checks a header before anything believes it. A tensor that is written as all programs write it is
 * read here; what is written in another way, the metadata, and all that may be wrong goes to
 * jansson, one member of the header at a time. So its verdict and its errors are jansson's, and a
 * header takes about as much memory as its text, whatever it has: in jansson's objects 90,000
 * tensors would take 80 MB and five times as long.
 */
#include "client/models/files/header.h"

#include "client/models/fail.h"
#include "client/models/web/json_text.h"
#include "proto/base/hashtable.h"
#include "proto/base/own.h"
#include "proto/dtype.h"
#include "proto/name.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#define TENSOR_TEXT_MAX 65536u /* bytes: ten times what the longest name and shape take */

/* ---- one tensor ---- */

/* What is being parsed. */
struct parse {
	const char *path, *text;
	struct json_scan s; /* what is left of the text */
	struct header *h;
	char *name_end;	   /* where the next name goes */
	int64_t *dims_end; /* where the next shape goes */
};

#define bad_tensor(p, name, format, ...) \
	load_fail(EBADMSG, "%s: tensor \"%.100s\"" format, (p)->path, name, ##__VA_ARGS__)

static int check_name(const struct parse *p, const char *name)
{
	const char *wrong = name_check_array(name, strlen(name));

	if (!wrong)
		return 0;
	return load_fail(strlen(name) > GPUSHM_MAX_NAME ? ENAMETOOLONG : EINVAL,
			 "%s: tensor \"%.100s\": an array can't have this name: %s", p->path, name,
			 wrong);
}

/* The three members of a tensor, and nothing else. */
static int check_members(const struct parse *p, const char *name, json_t *info)
{
	static const char *const members[] = { "dtype", "shape", "data_offsets" };
	const char *key;
	json_t *value;

	if (!json_is_object(info))
		return bad_tensor(p, name, " is not a JSON object");
	for (size_t i = 0; i < array_size(members); i++)
		if (!json_object_get(info, members[i]))
			return bad_tensor(p, name, " has no \"%s\"", members[i]);
	json_object_foreach(info, key, value)
	{
		bool known = false;

		for (size_t i = 0; i < array_size(members); i++)
			known = known || strcmp(key, members[i]) == 0;
		if (!known)
			return bad_tensor(
				p, name, " has a member \"%.100s\", which the format does not know",
				key);
	}
	return 0;
}

static int parse_dtype(const struct parse *p, json_t *info, struct tensor *t)
{
	const char *name = json_string_value(json_object_get(info, "dtype"));

	if (!name)
		return bad_tensor(p, t->name, ": its dtype is not a string");
	if (tensor_dtype_parse(name, &t->dtype) < 0)
		return bad_tensor(p, t->name, ": dtype \"%.40s\" is not known", name);
	return 0;
}

/* A number of elements or bytes: an integer that is not negative. */
static int parse_number(const struct parse *p, const struct tensor *t, const char *what, json_t *n,
			int64_t *ret)
{
	if (!json_is_integer(n) || json_integer_value(n) < 0)
		return bad_tensor(p, t->name,
				  ": its %s has something else than whole numbers from 0", what);
	*ret = json_integer_value(n);
	return 0;
}

static int parse_shape(struct parse *p, json_t *info, struct tensor *t)
{
	json_t *shape = json_object_get(info, "shape"), *n;
	size_t i;

	if (!json_is_array(shape))
		return bad_tensor(p, t->name, ": its shape is not an array");
	if (json_array_size(shape) > GPUSHM_MAX_NDIM)
		return load_fail(EINVAL,
				 "%s: tensor \"%.100s\" has %zu dimensions; an array has at most "
				 "%d",
				 p->path, t->name, json_array_size(shape), GPUSHM_MAX_NDIM);
	t->shape = p->dims_end;
	t->ndim = (uint32_t)json_array_size(shape);
	json_array_foreach(shape, i, n)
	{
		int r = parse_number(p, t, "shape", n, &p->dims_end[i]);

		if (r < 0)
			return r;
	}
	return 0;
}

static int parse_offsets(const struct parse *p, json_t *info, struct tensor *t)
{
	json_t *offsets = json_object_get(info, "data_offsets");
	int64_t begin = 0, end = 0;

	if (!json_is_array(offsets) || json_array_size(offsets) != 2)
		return bad_tensor(p, t->name, ": its data_offsets are not an array of two");
	if (parse_number(p, t, "data_offsets", json_array_get(offsets, 0), &begin) < 0 ||
	    parse_number(p, t, "data_offsets", json_array_get(offsets, 1), &end) < 0)
		return -EBADMSG;
	if (end < begin)
		return bad_tensor(p, t->name, ": its data begin at %" PRId64 " and end at %" PRId64,
				  begin, end);
	t->begin = (uint64_t)begin;
	t->end = (uint64_t)end;
	return 0;
}

/* The product is taken in the order of the shape, as the format's own library does: a 0 behind an
 * overflow does not help. */
static int check_size(const struct parse *p, const struct tensor *t)
{
	uint64_t bits = 1;
	bool overflow = false;

	for (uint32_t i = 0; i < t->ndim; i++)
		overflow |= __builtin_mul_overflow(bits, (uint64_t)t->shape[i], &bits);
	overflow |= __builtin_mul_overflow(bits, (uint64_t)t->dtype.bits, &bits);
	if (overflow)
		return bad_tensor(p, t->name, ": its size overflows");
	if (bits % 8)
		return bad_tensor(p, t->name, " has %" PRIu64 " bits, which are not whole bytes",
				  bits);
	if (bits / 8 != t->end - t->begin)
		return bad_tensor(p, t->name,
				  ": its shape and dtype make %" PRIu64
				  " bytes, its data_offsets %" PRIu64,
				  bits / 8, t->end - t->begin);
	return 0;
}

static int add_tensor(struct parse *p, const struct tensor *t)
{
	int r = check_size(p, t);

	p->dims_end += t->ndim;
	p->h->n++;
	return r;
}

static void set_name(struct parse *p, struct tensor *t, const char *name, size_t n)
{
	t->name = p->name_end;
	memcpy(p->name_end, name, n);
	p->name_end[n] = '\0';
	p->name_end += n + 1;
}

static int parse_tensor(struct parse *p, const char *name, json_t *info)
{
	struct tensor *t = &p->h->tensors[p->h->n];
	int r = check_name(p, name);

	if (r == 0)
		r = check_members(p, name, info);
	if (r < 0)
		return r;
	set_name(p, t, name, strlen(name));
	r = parse_dtype(p, info, t);
	if (r == 0)
		r = parse_shape(p, info, t);
	if (r == 0)
		r = parse_offsets(p, info, t);
	return r < 0 ? r : add_tensor(p, t);
}

/* ---- one tensor as all programs write it ---- */

static bool is_metadata(const char *name, size_t n)
{
	return n == strlen(METADATA) && memcmp(name, METADATA, n) == 0;
}

/* Returns 1 if the next member is such a tensor, which the header has then; 0 if it is not; or an
 * error. */
static int parse_plain(struct parse *p)
{
	struct json_scan s = p->s;
	struct tensor *t = &p->h->tensors[p->h->n];
	int64_t dims[GPUSHM_MAX_NDIM];
	const char *name;
	size_t n;
	int r;

	if (!tensor_scan(&s, t, dims, &name, &n) || is_metadata(name, n))
		return 0;
	set_name(p, t, name, n);
	r = check_name(p, t->name);
	if (r < 0)
		return r;
	t->shape = memcpy(p->dims_end, dims, t->ndim * sizeof(*dims));
	p->s = s;
	r = add_tensor(p, t);
	return r < 0 ? r : 1;
}

/* ---- all tensors ---- */

/* Memory for what a text of that many commas can have. A tensor has at least three of them, and one
 * more for each axis but the first. What is not used is never touched. */
static int allocate(struct parse *p)
{
	size_t commas = 0;

	for (const char *c = p->text; c < p->s.end; c++)
		commas += *c == ',';
	p->h->tensors = calloc(commas / 3 + 2, sizeof(*p->h->tensors));
	p->h->names = p->name_end = malloc((size_t)(p->s.end - p->text) + 1);
	p->h->dims = p->dims_end = calloc(commas + 1, sizeof(*p->h->dims));
	return p->h->tensors && p->h->names && p->h->dims ? 0 : load_no_memory();
}

static int by_offset(const void *a, const void *b)
{
	const struct tensor *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	if (x->end != y->end)
		return x->end < y->end ? -1 : 1;
	return x->name < y->name ? -1 : 1; /* names stand in the order of the header */
}

/* No holes, no overlaps, and the last end is the file's. */
static int check_cover(const struct parse *p, uint64_t data_bytes)
{
	struct header *h = p->h;
	uint64_t end = 0;

	qsort(h->tensors, h->n, sizeof(*h->tensors), by_offset);
	for (size_t i = 0; i < h->n; end = h->tensors[i++].end) {
		const struct tensor *t = &h->tensors[i];

		if (t->begin == end)
			continue;
		return bad_tensor(p, t->name,
				  ": its data begin at %" PRIu64 "%s%.100s%s end at %" PRIu64
				  ": they %s",
				  t->begin, i ? ", those of \"" : ", those before",
				  i ? h->tensors[i - 1].name : "", i ? "\"" : "", end,
				  t->begin < end ? "overlap" : "leave a hole");
	}
	if (data_bytes != HEADER_NO_SIZE && end != data_bytes)
		return load_fail(EBADMSG,
				 "%s: its tensors have %" PRIu64 " bytes, and %" PRIu64
				 " bytes follow the header%s",
				 p->path, end, data_bytes,
				 end > data_bytes ? ": the file is truncated" : "");
	return 0;
}

/* ---- metadata ---- */

static int check_metadata(const struct parse *p, json_t *metadata)
{
	const char *key;
	json_t *value;

	if (!json_is_object(metadata))
		return load_fail(EBADMSG, "%s: " METADATA " is not a JSON object", p->path);
	json_object_foreach(metadata, key, value) if (!json_is_string(value)) return load_fail(
		EBADMSG, "%s: " METADATA ": \"%.100s\" is not a string", p->path, key);
	return 0;
}

/* A name that finds its tensor. */
struct indexed {
	struct hashtable_link link;
	size_t tensor;
};

static const struct indexed *find(const struct header *h, const struct hashtable *names,
				  const char *name)
{
	struct indexed *it;

	hashtable_foreach (it, names, hashtable_hash(name, strlen(name)), link)
		if (strcmp(h->tensors[it->tensor].name, name) == 0)
			return it;
	return NULL;
}

/* "format" says what wrote the file, and the metadata's own name can't be a tensor's; every other
 * entry that names a tensor, and whose key is not a tensor's name, is an alias if it can be an
 * array. */
static void find_aliases(struct header *h, const struct hashtable *names)
{
	const char *key;
	json_t *value;

	json_object_foreach(h->metadata, key, value)
	{
		const struct indexed *target = find(h, names, json_string_value(value));

		if (!target || find(h, names, key) || strcmp(key, "format") == 0 ||
		    strcmp(key, METADATA) == 0 || name_check_array(key, strlen(key)))
			continue;
		h->aliases[h->n_aliases++] =
			(struct tensor_alias){ .name = key, .tensor = target->tensor };
	}
}

/* No name occurs twice. */
static int index_names(const struct parse *p, struct indexed *indexed, struct hashtable *names)
{
	struct header *h = p->h;

	for (size_t i = 0; i < h->n; i++) {
		const char *name = h->tensors[i].name;

		if (find(h, names, name))
			return load_fail(EBADMSG,
					 "%s: its header has a duplicate object key \"%.100s\"",
					 p->path, name);
		indexed[i].tensor = i;
		hashtable_insert(names, &indexed[i].link, hashtable_hash(name, strlen(name)));
	}
	return 0;
}

static int parse_names(const struct parse *p)
{
	struct header *h = p->h;
	_cleanup_(free_ptr) struct indexed *indexed = calloc(h->n + 1, sizeof(*indexed));
	struct hashtable names;
	int r;

	h->aliases = calloc(json_object_size(h->metadata) + 1, sizeof(*h->aliases));
	if (!h->aliases || !indexed || hashtable_init(&names) < 0)
		return load_no_memory();
	r = index_names(p, indexed, &names);
	if (r == 0)
		find_aliases(h, &names);
	hashtable_done(&names);
	return r;
}

/* ---- a member of the header ---- */

/* jansson reads "-0" as the integer 0. No number of a header has a minus sign, once the numbers
 * that are negative have been refused. */
static bool has_minus(const char *text, size_t length)
{
	bool in_string = false;

	for (size_t i = 0; i < length; i++) {
		if (text[i] == '\\' && in_string)
			i++;
		else if (text[i] == '"')
			in_string = !in_string;
		else if (text[i] == '-' && !in_string)
			return true;
	}
	return false;
}

static int fail_json(const struct parse *p, const char *why, size_t ahead)
{
	return load_fail(EBADMSG, "%s: its header is not valid JSON: %s (byte %zu of %zu)", p->path,
			 why, (size_t)(p->s.at - p->text) + ahead, (size_t)(p->s.end - p->text));
}

/* The size of a member before jansson makes objects of it. */
static int check_member(const struct parse *p, const char *text, size_t n)
{
	static const char metadata[] = "\"" METADATA "\"";

	if (n >= strlen(metadata) && memcmp(text, metadata, strlen(metadata)) == 0) {
		if (json_text_values(text, n) <= HEADER_METADATA_VALUES_MAX)
			return 0;
		return load_fail(EBADMSG, "%s: " METADATA " has more than %u values", p->path,
				 HEADER_METADATA_VALUES_MAX);
	}
	if (n <= TENSOR_TEXT_MAX)
		return 0;
	return load_fail(EBADMSG,
			 "%s: the tensor at byte %zu of its header is described in %zu bytes; %u "
			 "are allowed",
			 p->path, (size_t)(text - p->text), n, TENSOR_TEXT_MAX);
}

static int parse_metadata(struct parse *p, json_t *metadata)
{
	int r = check_metadata(p, metadata);

	if (r < 0)
		return r;
	if (p->h->metadata)
		return load_fail(EBADMSG,
				 "%s: its header has a duplicate object key \"" METADATA "\"",
				 p->path);
	p->h->metadata = json_incref(metadata);
	return 0;
}

/* By jansson. */
static int parse_member(struct parse *p)
{
	const char *text = p->s.at;
	size_t n = json_text_member(text, (size_t)(p->s.end - text));
	_cleanup_(json_decrefp) json_t *object = NULL;
	const char *key;
	json_error_t e;
	json_t *value;
	int r = check_member(p, text, n);

	if (r < 0)
		return r;
	object = json_text_load_member(text, n, &e);
	if (!object && json_error_code(&e) == json_error_out_of_memory)
		return load_no_memory();
	if (!object)
		return fail_json(p, e.text, (size_t)e.position);
	if (json_object_size(object) != 1)
		return fail_json(p, "a name is expected", 0);
	key = json_object_iter_key(json_object_iter(object));
	value = json_object_get(object, key);
	r = strcmp(key, METADATA) == 0 ? parse_metadata(p, value) : parse_tensor(p, key, value);
	if (r == 0 && has_minus(text, n))
		r = load_fail(EBADMSG, "%s: its header has a number \"-0\"", p->path);
	p->s.at += n;
	return r;
}

/* ---- the whole ---- */

static int parse_members(struct parse *p)
{
	if (json_scan_char(&p->s, '}'))
		return 0;
	do {
		int r;

		json_scan_spaces(&p->s);
		r = parse_plain(p);
		if (r == 0)
			r = parse_member(p);
		if (r < 0)
			return r;
	} while (json_scan_char(&p->s, ','));
	return json_scan_char(&p->s, '}') ? 0 : fail_json(p, "',' or '}' is expected", 0);
}

static int parse_text(struct parse *p)
{
	int r;

	if (p->s.at == p->s.end || *p->s.at != '{')
		return load_fail(EBADMSG, "%s: its header does not begin with '{'", p->path);
	/* jansson 2.14 skips one that follows a number. */
	if (memchr(p->text, '\0', (size_t)(p->s.end - p->text)))
		return load_fail(EBADMSG, "%s: its header has a NUL byte", p->path);
	p->s.at++;
	r = allocate(p);
	if (r == 0)
		r = parse_members(p);
	if (r < 0)
		return r;
	json_scan_spaces(&p->s);
	return p->s.at == p->s.end ? 0 : fail_json(p, "end of file expected", 0);
}

int header_parse(const char *path, const char *text, size_t length, uint64_t data_bytes,
		 struct header *ret)
{
	_cleanup_(header_done) struct header h = { 0 };
	struct parse p = { .path = path, .text = text, .s = { text, text + length }, .h = &h };
	int covered, r = parse_text(&p);

	if (r < 0)
		return r;
	covered = check_cover(&p, data_bytes);
	/* Two tensors of one name overlap, too: the name says more. */
	r = parse_names(&p);
	r = r < 0 ? r : covered;
	if (r < 0)
		return r;
	*ret = h;
	h = (struct header){ 0 };
	return 0;
}

void header_done(struct header *h)
{
	free(h->tensors);
	free(h->aliases);
	free(h->names);
	free(h->dims);
	json_decref(h->metadata);
	*h = (struct header){ 0 };
}
