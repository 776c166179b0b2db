/* SPDX-License-Identifier: MIT
 *
 * Checks a header before anything believes it. It is read in one go, without objects of jansson: of
 * 90,000 tensors they would take 80 MB and several times as long. jansson reads the strings that
 * are not plain ASCII. So a header takes about as much memory as its text, whatever it has.
 */
#include "client/models/files/header.h"

#include "client/models/fail.h"
#include "proto/base/hashtable.h"
#include "proto/base/own.h"
#include "proto/dtype.h"
#include "proto/name.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

/* ---- types ---- */

/* All of safetensors 0.8 (safetensors/src/tensor.rs, enum Dtype). */
static const struct {
	const char *name;
	uint8_t code, bits;
} types[] = {
	{ "BOOL", DTYPE_BOOL, 8 },
	{ "F4", DTYPE_FLOAT4_E2M1FN, 4 },
	{ "F6_E2M3", DTYPE_FLOAT6_E2M3FN, 6 },
	{ "F6_E3M2", DTYPE_FLOAT6_E3M2FN, 6 },
	{ "U8", DTYPE_UINT, 8 },
	{ "I8", DTYPE_INT, 8 },
	{ "F8_E5M2", DTYPE_FLOAT8_E5M2, 8 },
	{ "F8_E4M3", DTYPE_FLOAT8_E4M3FN, 8 },
	{ "F8_E8M0", DTYPE_FLOAT8_E8M0FNU, 8 },
	{ "F8_E4M3FNUZ", DTYPE_FLOAT8_E4M3FNUZ, 8 },
	{ "F8_E5M2FNUZ", DTYPE_FLOAT8_E5M2FNUZ, 8 },
	{ "I16", DTYPE_INT, 16 },
	{ "U16", DTYPE_UINT, 16 },
	{ "F16", DTYPE_FLOAT, 16 },
	{ "BF16", DTYPE_BFLOAT, 16 },
	{ "I32", DTYPE_INT, 32 },
	{ "U32", DTYPE_UINT, 32 },
	{ "F32", DTYPE_FLOAT, 32 },
	{ "C64", DTYPE_COMPLEX, 64 },
	{ "F64", DTYPE_FLOAT, 64 },
	{ "I64", DTYPE_INT, 64 },
	{ "U64", DTYPE_UINT, 64 },
};

int tensor_dtype_parse(const char *name, struct gpushm_dtype *ret)
{
	for (size_t i = 0; i < array_size(types); i++)
		if (strcmp(types[i].name, name) == 0) {
			*ret = (struct gpushm_dtype){ types[i].code, types[i].bits, 1, 0 };
			return 0;
		}
	return -EINVAL;
}

int tensor_dtype_name(struct gpushm_dtype t, const char **ret_name)
{
	for (size_t i = 0; i < array_size(types); i++)
		if (types[i].code == t.code && types[i].bits == t.bits && t.lanes == 1) {
			*ret_name = types[i].name;
			return 0;
		}
	return -EINVAL;
}

/* ---- JSON ---- */

/* What is being parsed. */
struct parse {
	const char *path, *text;
	const char *at, *end; /* what is left of the text */
	struct header *h;
	char *name_end;	   /* where the next name goes */
	int64_t *dims_end; /* where the next shape goes */
	unsigned seen;	   /* a bit for each member that the tensor has had */
};

#define bad_tensor(p, name, format, ...) \
	load_fail(EBADMSG, "%s: tensor \"%.100s\"" format, (p)->path, name, ##__VA_ARGS__)

static int fail_json(const struct parse *p, const char *why, size_t ahead)
{
	return load_fail(EBADMSG, "%s: its header is not valid JSON: %s (byte %zu of %zu)", p->path,
			 why, (size_t)(p->at - p->text) + ahead, (size_t)(p->end - p->text));
}

static int fail_duplicate(const struct parse *p, const char *key)
{
	return load_fail(EBADMSG, "%s: its header has a duplicate object key \"%.100s\"", p->path,
			 key);
}

static void skip_spaces(struct parse *p)
{
	while (p->at < p->end &&
	       (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r'))
		p->at++;
}

/* Whether that character is next, behind white space. */
static bool is_next(struct parse *p, char c)
{
	skip_spaces(p);
	return p->at < p->end && *p->at == c;
}

static bool take_char(struct parse *p, char c)
{
	bool is = is_next(p, c);

	p->at += is;
	return is;
}

/* With escapes, or other characters than those of ASCII. */
static int decode_string(const struct parse *p, size_t n)
{
	json_error_t e;
	_cleanup_(json_decrefp) json_t *string = json_loadb(p->at, n, JSON_DECODE_ANY, &e);

	if (!string && json_error_code(&e) == json_error_out_of_memory)
		return load_no_memory();
	if (!string)
		return fail_json(p, e.text, (size_t)e.position);
	strcpy(p->name_end, json_string_value(string));
	return 0;
}

/* Copies a string to where the next name goes: it is not longer than its text. */
static int read_string(struct parse *p)
{
	bool plain = true;
	const char *c;
	int r = 0;

	if (!is_next(p, '"'))
		return fail_json(p, "a string is expected", 0);
	for (c = p->at + 1; c < p->end && *c != '"'; c++) {
		plain &= *c >= ' ' && *c <= '~' && *c != '\\';
		c += *c == '\\';
	}
	if (c >= p->end)
		return fail_json(p, "a string does not end", 0);
	if (plain)
		*(char *)mempcpy(p->name_end, p->at + 1, (size_t)(c - p->at) - 1) = '\0';
	else
		r = decode_string(p, (size_t)(c - p->at) + 1);
	p->at = c + 1;
	return r;
}

/* The members of an object, behind its '{'. A name lies behind the one that it is a part of while
 * its value is read, and what the value has put behind it is dropped then. */
static int read_members(struct parse *p, int (*read_value)(struct parse *p, const char *name))
{
	if (take_char(p, '}'))
		return 0;
	do {
		char *name = p->name_end, *end;
		int r = read_string(p);

		if (r < 0)
			return r;
		p->name_end = end = name + strlen(name) + 1;
		if (!take_char(p, ':'))
			return fail_json(p, "':' is expected", 0);
		r = read_value(p, name);
		if (r < 0)
			return r;
		p->name_end = end;
	} while (take_char(p, ','));
	return take_char(p, '}') ? 0 : fail_json(p, "',' or '}' is expected", 0);
}

/* ---- one tensor ---- */

static int check_name(const struct parse *p, const char *name)
{
	const char *wrong = name_check_array(name, strlen(name));

	if (!wrong)
		return 0;
	return load_fail(strlen(name) > GPUSHM_MAX_NAME ? ENAMETOOLONG : EINVAL,
			 "%s: tensor \"%.100s\": an array can't have this name: %s", p->path, name,
			 wrong);
}

static int read_dtype(struct parse *p, struct tensor *t)
{
	int r;

	if (!is_next(p, '"'))
		return bad_tensor(p, t->name, ": its dtype is not a string");
	r = read_string(p);
	if (r == 0 && tensor_dtype_parse(p->name_end, &t->dtype) < 0)
		r = bad_tensor(p, t->name, ": dtype \"%.40s\" is not known", p->name_end);
	return r;
}

static int bad_numbers(const struct parse *p, const struct tensor *t, const char *what)
{
	return bad_tensor(p, t->name, ": its %s has something else than whole numbers from 0",
			  what);
}

/* Digits: elements or bytes. There is no 0 before others. */
static int read_number(struct parse *p, const struct tensor *t, const char *what, int64_t *ret)
{
	bool zero = take_char(p, '0');
	const char *begin = p->at;

	for (*ret = 0; !zero && p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
		if (__builtin_mul_overflow(*ret, 10, ret) ||
		    __builtin_add_overflow(*ret, *p->at - '0', ret))
			return fail_json(p, "too big integer", 0);
	return zero || p->at > begin ? 0 : bad_numbers(p, t, what);
}

/* What follows the '['. *ret_n is max + 1 if there are more than max. */
static int read_numbers(struct parse *p, const struct tensor *t, const char *what, uint32_t max,
			int64_t *ret, uint32_t *ret_n)
{
	*ret_n = 0;
	if (take_char(p, ']'))
		return 0;
	do {
		int r = *ret_n == max ? 1 : read_number(p, t, what, &ret[*ret_n]);

		*ret_n += 1;
		if (r != 0)
			return r < 0 ? r : 0;
	} while (take_char(p, ','));
	return take_char(p, ']') ? 0 : bad_numbers(p, t, what);
}

static int read_shape(struct parse *p, struct tensor *t)
{
	int r;

	if (!take_char(p, '['))
		return bad_tensor(p, t->name, ": its shape is not an array");
	t->shape = p->dims_end;
	r = read_numbers(p, t, "shape", GPUSHM_MAX_NDIM, p->dims_end, &t->ndim);
	if (r < 0 || t->ndim <= GPUSHM_MAX_NDIM)
		return r;
	return load_fail(EINVAL,
			 "%s: tensor \"%.100s\" has too many dimensions; an array has at most %d",
			 p->path, t->name, GPUSHM_MAX_NDIM);
}

static int read_offsets(struct parse *p, struct tensor *t)
{
	int64_t at[2];
	uint32_t n = 0;
	int r = take_char(p, '[') ? read_numbers(p, t, "data_offsets", 2, at, &n) : 0;

	if (r < 0)
		return r;
	if (n != 2)
		return bad_tensor(p, t->name, ": its data_offsets are not an array of two");
	if (at[1] < at[0])
		return bad_tensor(p, t->name, ": its data begin at %" PRId64 " and end at %" PRId64,
				  at[0], at[1]);
	t->begin = (uint64_t)at[0];
	t->end = (uint64_t)at[1];
	return 0;
}

static const struct {
	const char *name;
	int (*read)(struct parse *p, struct tensor *t);
} members[] = {
	{ "dtype", read_dtype },
	{ "shape", read_shape },
	{ "data_offsets", read_offsets },
};

static int read_member(struct parse *p, const char *name)
{
	struct tensor *t = &p->h->tensors[p->h->n];
	size_t i = 0;

	while (i < array_size(members) && strcmp(name, members[i].name) != 0)
		i++;
	if (i == array_size(members))
		return bad_tensor(p, t->name,
				  " has a member \"%.100s\", which the format does not know", name);
	if (p->seen & 1u << i)
		return fail_duplicate(p, name);
	p->seen |= 1u << i;
	return members[i].read(p, t);
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

static int read_tensor(struct parse *p, const char *name)
{
	struct tensor *t = &p->h->tensors[p->h->n];
	int r = check_name(p, name);

	if (r < 0)
		return r;
	t->name = name;
	p->seen = 0;
	if (!take_char(p, '{'))
		return bad_tensor(p, name, " is not a JSON object");
	r = read_members(p, read_member);
	if (r < 0)
		return r;
	for (size_t i = 0; i < array_size(members); i++)
		if (!(p->seen & 1u << i))
			return bad_tensor(p, name, " has no \"%s\"", members[i].name);
	p->dims_end += t->ndim;
	p->h->n++;
	return check_size(p, t);
}

/* ---- metadata ---- */

static int read_entry(struct parse *p, const char *key)
{
	json_t *metadata = p->h->metadata;
	int r;

	if (!is_next(p, '"'))
		return load_fail(EBADMSG, "%s: " METADATA ": \"%.100s\" is not a string", p->path,
				 key);
	if (json_object_size(metadata) == HEADER_METADATA_VALUES_MAX)
		return load_fail(EBADMSG, "%s: " METADATA " has more than %u values", p->path,
				 HEADER_METADATA_VALUES_MAX);
	if (json_object_get(metadata, key))
		return fail_duplicate(p, key);
	r = read_string(p);
	if (r < 0)
		return r;
	return json_object_set_new(metadata, key, json_string(p->name_end)) < 0 ? load_no_memory()
										: 0;
}

static int read_metadata(struct parse *p)
{
	if (!take_char(p, '{'))
		return load_fail(EBADMSG, "%s: " METADATA " is not a JSON object", p->path);
	if (p->h->metadata)
		return fail_duplicate(p, METADATA);
	p->h->metadata = json_object();
	return p->h->metadata ? read_members(p, read_entry) : load_no_memory();
}

/* ---- all tensors ---- */

/* Memory for what a text of that many commas can have. A tensor has at least three of them, and one
 * more for each axis but the first. What is not used is never touched. */
static int allocate(struct parse *p)
{
	size_t commas = 0;

	for (const char *c = p->text; c < p->end; c++)
		commas += *c == ',';
	p->h->tensors = calloc(commas / 3 + 2, sizeof(*p->h->tensors));
	p->h->names = p->name_end = malloc((size_t)(p->end - p->text) + 1);
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
			return fail_duplicate(p, name);
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

/* ---- the whole ---- */

static int read_value(struct parse *p, const char *name)
{
	return strcmp(name, METADATA) == 0 ? read_metadata(p) : read_tensor(p, name);
}

static int parse_text(struct parse *p)
{
	int r;

	if (p->at == p->end || *p->at != '{')
		return load_fail(EBADMSG, "%s: its header does not begin with '{'", p->path);
	p->at++;
	r = allocate(p);
	if (r == 0)
		r = read_members(p, read_value);
	if (r < 0)
		return r;
	skip_spaces(p);
	return p->at == p->end ? 0 : fail_json(p, "end of file expected", 0);
}

int header_parse(const char *path, const char *text, size_t length, uint64_t data_bytes,
		 struct header *ret)
{
	_cleanup_(header_done) struct header h = { 0 };
	struct parse p = { .path = path, .text = text, .at = text, .end = text + length, .h = &h };
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
