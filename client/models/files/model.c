/* SPDX-License-Identifier: MIT
 *
 * Tensors become arrays in the order in which they lie in the files, so that neighbours stay one
 * copy, and a stream can be read once. Tied weights are arrays at the same offset, described last.
 */
#include "client/models/files/model.h"

#include "client/models/fail.h"
#include "client/models/files/file.h"
#include "client/models/web/remote.h"
#include "proto/base/grow.h"
#include "proto/base/hashtable.h"
#include "proto/base/own.h"
#include "proto/dtype.h"
#include "proto/limits.h"
#include "proto/name.h"

#include <endian.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- keys ---- */

static void hash_u64(struct sha256_ctx *hash, uint64_t n)
{
	n = htole64(n);
	sha256_update(hash, sizeof(n), (const uint8_t *)&n);
}

static void hash_text(struct sha256_ctx *hash, const char *text)
{
	hash_u64(hash, strlen(text));
	sha256_update(hash, strlen(text), (const uint8_t *)text);
}

static void finish_key(struct sha256_ctx *hash, char ret[65])
{
	uint8_t digest[SHA256_DIGEST_SIZE];

	sha256_digest(hash, sizeof(digest), digest);
	for (size_t i = 0; i < sizeof(digest); i++)
		sprintf(ret + 2 * i, "%02x", digest[i]);
}

/* What is taken of the files is part of the key, where it is not all. */
static void hash_selection(struct sha256_ctx *hash, const struct gpushm_load_options *load)
{
	if (!load)
		return;
	for (size_t i = 0; i < load->n_only; i++)
		hash_text(hash, load->only[i]);
	if (load->strip && load->strip[0]) {
		hash_text(hash, "strip");
		hash_text(hash, load->strip);
	}
}

/* Without the device's number, which containers see differently. */
static void hash_identity(struct sha256_ctx *hash, const struct load_file *f)
{
	const struct stat *st = &f->st;

	if (f->remote) {
		hash_text(hash, f->path);
		hash_text(hash, remote_version(f->remote));
		return;
	}
	hash_u64(hash, st->st_ino);
	hash_u64(hash, (uint64_t)st->st_mtim.tv_sec);
	hash_u64(hash, (uint64_t)st->st_mtim.tv_nsec);
}

/* A stream has none, nor has a file whose server does not tell its versions apart. */
static bool has_identities(const struct checkpoint *cp)
{
	for (size_t i = 0; i < cp->files.n; i++) {
		const struct load_file *f = &cp->files.files[i];

		if (f->stream || (f->remote && !remote_version(f->remote)[0]))
			return false;
	}
	return true;
}

void model_keys(const struct checkpoint *cp, const struct gpushm_load_options *load,
		char ret_source[65], char ret_files[65])
{
	struct sha256_ctx hash;

	sha256_init(&hash);
	for (size_t i = 0; i < cp->files.n; i++) {
		const struct load_file *f = &cp->files.files[i];

		if (f->in_memory)
			continue;
		sha256_update(&hash, sizeof(f->header_sha256), f->header_sha256);
		hash_u64(&hash, f->size);
	}
	hash_selection(&hash, load);
	finish_key(&hash, ret_source);
	ret_files[0] = '\0';
	if (!has_identities(cp))
		return;
	hash_text(&hash, ret_source); /* finish_key() has started the hash anew */
	for (size_t i = 0; i < cp->files.n; i++)
		if (!cp->files.files[i].in_memory)
			hash_identity(&hash, &cp->files.files[i]);
	finish_key(&hash, ret_files);
}

/* ---- which tensors, under which names ---- */

static bool is_wanted(const struct gpushm_load_options *load, const char *name)
{
	if (!load || load->n_only == 0)
		return true;
	for (size_t i = 0; i < load->n_only; i++)
		if (fnmatch(load->only[i], name, 0) == 0)
			return true;
	return false;
}

static const char *stripped(const struct gpushm_load_options *load, const char *name)
{
	size_t n = load && load->strip ? strlen(load->strip) : 0;

	return n && strncmp(name, load->strip, n) == 0 ? name + n : name;
}

/* A model that is being put together. */
struct build {
	const struct gpushm_load_options *load;
	struct model *m;
	struct origin {
		uint32_t file;
		const struct tensor *tensor;
	} * origins; /* owned; of the placed specs */
	struct tied {
		struct gpushm_array_spec spec;
		size_t to; /* spec that has the bytes */
	} * tied;	   /* owned; they follow the others when all are known */
	size_t n_tied;
};

static int make_spec(const struct build *b, const char *path, const struct tensor *t,
		     const char *name, struct gpushm_array_spec *ret)
{
	const char *wrong;

	*ret = (struct gpushm_array_spec){ .struct_size = sizeof(*ret),
					   .name = stripped(b->load, name),
					   .dtype = t->dtype,
					   .ndim = (int)t->ndim,
					   .shape = t->shape };
	wrong = strcmp(ret->name, METADATA) == 0 ? "that is the metadata's name"
						 : name_check_array(ret->name, strlen(ret->name));
	if (!wrong)
		return 0;
	return load_fail(EINVAL, "%s: tensor \"%.100s\": an array can't be named \"%.100s\": %s",
			 path, name, ret->name, wrong);
}

/* One name of a tensor; *placed says whether the tensor has a spec with its bytes already. */
static int add_name(struct build *b, const struct checkpoint *cp, uint32_t file,
		    const struct tensor *t, const char *name, bool *placed)
{
	struct gpushm_array_spec spec;
	int r;

	if (!is_wanted(b->load, name))
		return 0;
	r = make_spec(b, cp->files.files[file].path, t, name, &spec);
	if (r < 0)
		return r;
	if (*placed) {
		b->tied[b->n_tied++] = (struct tied){ .spec = spec, .to = b->m->n_placed - 1 };
		return 0;
	}
	*placed = true;
	b->origins[b->m->n_placed] = (struct origin){ .file = file, .tensor = t };
	b->m->specs[b->m->n_placed++] = spec;
	return 0;
}

static int by_tensor(const void *a, const void *b)
{
	const struct tensor_alias *x = a, *y = b;

	if (x->tensor != y->tensor)
		return x->tensor < y->tensor ? -1 : 1;
	return strcmp(x->name, y->name);
}

static int add_file(struct build *b, const struct checkpoint *cp, uint32_t file)
{
	struct header *h = &cp->headers[file];
	size_t alias = 0;
	int r = 0;

	if (h->n_aliases > 0)
		qsort(h->aliases, h->n_aliases, sizeof(*h->aliases), by_tensor);
	for (size_t i = 0; i < h->n && r == 0; i++) {
		bool placed = false;

		r = add_name(b, cp, file, &h->tensors[i], h->tensors[i].name, &placed);
		for (; r == 0 && alias < h->n_aliases && h->aliases[alias].tensor == i; alias++)
			r = add_name(b, cp, file, &h->tensors[i], h->aliases[alias].name, &placed);
	}
	return r;
}

/* Room for all names, and one for metadata. */
static int allocate(struct build *b, const struct checkpoint *cp)
{
	size_t tensors = 1, aliases = 1;

	for (size_t i = 0; i < cp->files.n; i++) {
		tensors += cp->headers[i].n;
		aliases += cp->headers[i].n_aliases;
	}
	b->m->specs = calloc(tensors + aliases, sizeof(*b->m->specs));
	b->origins = calloc(tensors, sizeof(*b->origins));
	b->tied = calloc(aliases, sizeof(*b->tied));
	return b->m->specs && b->origins && b->tied ? 0 : load_no_memory();
}

static int add_tensors(struct build *b, const struct checkpoint *cp)
{
	int r = allocate(b, cp);

	for (size_t i = 0; i < cp->files.n && r == 0; i++)
		r = add_file(b, cp, (uint32_t)i);
	if (r == 0 && b->m->n_placed == 0)
		r = load_fail(ENODATA,
			      b->load && b->load->n_only
				      ? "no tensor has a name that matches \"%.100s\"%s"
				      : "there is no tensor in %s%s",
			      b->load && b->load->n_only ? b->load->only[0]
							 : cp->files.files[0].path,
			      b->load && b->load->n_only > 1 ? " or another pattern" : "");
	return r;
}

/* ---- metadata ---- */

/* Of several files: all entries; of one key the first file's. */
static int merge_metadata(struct model *m, const struct checkpoint *cp)
{
	_cleanup_(json_decrefp) json_t *merged = json_object();
	int r = merged ? 0 : -1;

	for (size_t i = 0; i < cp->files.n && r == 0; i++)
		if (cp->headers[i].metadata)
			r = json_object_update_missing(merged, cp->headers[i].metadata);
	if (r == 0 && json_object_size(merged) > 0) {
		m->metadata = json_dumps(merged, JSON_COMPACT);
		r = m->metadata ? 0 : -1;
	}
	m->metadata_len = m->metadata ? strlen(m->metadata) : 0;
	return r < 0 ? load_no_memory() : 0;
}

static int add_metadata(struct build *b, struct checkpoint *cp)
{
	static const struct tensor bytes; /* the run is made from the spec */
	struct model *m = b->m;
	int r = merge_metadata(m, cp);

	if (r < 0 || m->metadata_len <= MODEL_METADATA_MAX)
		return r;
	r = load_files_add_memory(&cp->files, METADATA, m->metadata, m->metadata_len);
	if (r < 0)
		return r;
	m->has_metadata_array = true;
	m->metadata_shape = (int64_t)m->metadata_len;
	b->origins[m->n_placed] =
		(struct origin){ .file = (uint32_t)cp->files.n - 1, .tensor = &bytes };
	m->specs[m->n_placed++] = (struct gpushm_array_spec){
		.struct_size = sizeof(*m->specs),
		.name = METADATA,
		.dtype = { .code = DTYPE_UINT, .bits = 8, .lanes = 1 },
		.ndim = 1,
		.shape = &m->metadata_shape,
	};
	return 0;
}

/* ---- names are unique ---- */

struct named {
	struct hashtable_link link;
	const char *name;
};

static int insert_unique(struct hashtable *names, struct named *n, const char *name)
{
	uint64_t hash = hashtable_hash(name, strlen(name));
	struct named *it;

	hashtable_foreach (it, names, hash, link)
		if (strcmp(it->name, name) == 0)
			return load_fail(EEXIST,
					 "two tensors are named \"%.100s\": load one of them by "
					 "patterns, or the files into two buffers",
					 name);
	n->name = name;
	hashtable_insert(names, &n->link, hash);
	return 0;
}

static int check_names(const struct model *m)
{
	_cleanup_(free_ptr) struct named *named = calloc(m->n + 1, sizeof(*named));
	struct hashtable names;
	int r = 0;

	if (!named || hashtable_init(&names) < 0)
		return load_no_memory();
	for (size_t i = 0; i < m->n && r == 0; i++)
		r = insert_unique(&names, &named[i], m->specs[i].name);
	hashtable_done(&names);
	return r;
}

/* ---- places ---- */

static void append_tied(struct build *b)
{
	struct model *m = b->m;

	m->n = m->n_placed;
	for (size_t i = 0; i < b->n_tied; i++) {
		m->specs[m->n] = b->tied[i].spec;
		m->specs[m->n++].offset = m->specs[b->tied[i].to].offset;
	}
}

void plan_add(struct plan *plan, const struct run *run)
{
	struct run *last = plan->n ? &plan->runs[plan->n - 1] : NULL;

	if (run->bytes == 0)
		return;
	plan->bytes += run->bytes;
	if (last && last->file == run->file &&
	    last->file_offset + last->bytes == run->file_offset &&
	    last->buffer_offset + last->bytes == run->buffer_offset)
		last->bytes += run->bytes;
	else
		plan->runs[plan->n++] = *run;
}

static int make_plan(struct build *b, const struct checkpoint *cp)
{
	struct plan *plan = &b->m->plan;

	plan->runs = calloc(b->m->n_placed + 1, sizeof(*plan->runs));
	if (!plan->runs)
		return load_no_memory();
	for (size_t i = 0; i < b->m->n_placed; i++) {
		const struct origin *o = &b->origins[i];
		const struct load_file *f = &cp->files.files[o->file];
		struct run run = { .file = o->file,
				   .file_offset = f->data + o->tensor->begin,
				   .buffer_offset = b->m->specs[i].offset,
				   .bytes = f->in_memory ? f->size
							 : o->tensor->end - o->tensor->begin };

		plan_add(plan, &run);
	}
	return 0;
}

static int place(struct build *b, const struct checkpoint *cp)
{
	int r = gpushm_layout(b->m->specs, b->m->n_placed, &b->m->bytes);

	if (r < 0)
		return r;
	append_tied(b);
	if (b->m->n > ARRAYS_MAX)
		return load_fail(EDQUOT, "%zu tensors: a buffer has at most %u arrays", b->m->n,
				 ARRAYS_MAX);
	r = check_names(b->m);
	return r < 0 ? r : make_plan(b, cp);
}

static void build_done(struct build *b)
{
	free(b->origins);
	free(b->tied);
}

int model_build(struct checkpoint *cp, const struct gpushm_load_options *load, struct model *ret)
{
	_cleanup_(build_done) struct build b = { .load = load, .m = ret };
	int r;

	*ret = (struct model){ 0 };
	model_keys(cp, load, ret->source, ret->files);
	r = add_tensors(&b, cp);
	if (r == 0)
		r = add_metadata(&b, cp);
	if (r == 0)
		r = place(&b, cp);
	if (r < 0)
		model_clear(ret);
	return r;
}

void model_clear(struct model *m)
{
	free(m->specs);
	free(m->plan.runs);
	free(m->metadata);
	*m = (struct model){ 0 };
}

/* ---- types ---- */

struct type_count {
	struct gpushm_dtype dtype;
	uint64_t tensors, bytes;
};

struct counts {
	struct type_count *v; /* owned */
	size_t n;
};

static int by_bytes(const void *a, const void *b)
{
	const struct type_count *x = a, *y = b;

	return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

/* The model's own layout has checked the product. */
static uint64_t bytes_of(const struct gpushm_array_spec *s)
{
	uint64_t bits = gpushm_dtype_bits(s->dtype);

	for (int i = 0; i < s->ndim; i++)
		bits *= (uint64_t)s->shape[i];
	return (bits + 7) / 8;
}

static bool same_dtype(struct gpushm_dtype a, struct gpushm_dtype b)
{
	return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

static int count_one(struct counts *c, const struct gpushm_array_spec *s, bool tied)
{
	struct type_count *t = c->v;

	while (t < c->v + c->n && !same_dtype(t->dtype, s->dtype))
		t++;
	if (t == c->v + c->n) {
		t = grow_append(&c->v, &c->n, sizeof(*t));
		if (!t)
			return load_no_memory();
		t->dtype = s->dtype;
	}
	t->tensors++;
	t->bytes += tied ? 0 : bytes_of(s);
	return 0;
}

static void write_text(const struct counts *c, char *ret, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < c->n && used < size; i++) {
		char name[32] = "?";

		gpushm_dtype_format(c->v[i].dtype, name, sizeof(name));
		used += (size_t)snprintf(ret + used, size - used, "%s%s %" PRIu64 " %" PRIu64,
					 i ? ", " : "", name, c->v[i].tensors, c->v[i].bytes);
	}
	if (used >= size)
		*ret = '\0';
}

int model_types(const struct model *m, char *ret, size_t size)
{
	struct counts c = { 0 };
	int r = 0;

	*ret = '\0';
	for (size_t i = 0; i < m->n && r == 0; i++)
		if (m->specs[i].shape != &m->metadata_shape)
			r = count_one(&c, &m->specs[i], i >= m->n_placed);
	if (r == 0 && c.n > 0) {
		qsort(c.v, c.n, sizeof(*c.v), by_bytes);
		write_text(&c, ret, size);
	}
	free(c.v);
	return r;
}
