/* SPDX-License-Identifier: MIT
 *
 * What is computed once (the file, its digests) is computed by the first thread that needs it,
 * without the lock; the others wait for it. The link's thread asks the daemon, and closes buffers.
 * Those who wait look once a second whether their client still does.
 *
 * A mapping that is in use is never closed. If the daemon lost the lease meanwhile, the next reader
 * gets a new mapping, and the old one is closed by its last reader.
 */
#include "client/relay/offer/offer.h"

#include "client/common/clients.h"
#include "client/gpushm_load_private.h"
#include "client/gpushm_private.h"
#include "client/relay/locks.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/base/thread.h"

#include <microhttpd.h>
#include <nettle/sha2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHA_BYTES (1u << 20) /* that are hashed at once */

struct opened {
	struct mapping m;
	unsigned readers;
	struct daemon_question closing;
};

struct pull {
	struct mapping m; /* of a lent buffer */
	unsigned readers; /* that copy now */
	bool *there;	  /* owned; of each block */
};

struct offer {
	struct daemon_link *link;
	char name[OFFER_NAME_MAX];

	pthread_mutex_t lock; /* of all that follows */
	pthread_cond_t changed;
	unsigned refs;
	uint64_t id, bytes;
	size_t arrays;
	bool transient; /* it ends with its last lease, which must not be ours */
	bool busy;	/* a thread computes something, or asks this: */
	struct daemon_question question;
	unsigned answers; /* that have come; the last one: */
	int answer;
	struct gpushm_private_error answer_why; /* if it is an error */
	struct opened *opened;
	uint64_t used_ns; /* CLOCK_MONOTONIC: when its last reader left */
	struct pull *pull;
	bool pull_failed;

	/* Once known. */
	uint64_t header, size;
	char header_hash[17]; /* "": the file is not known yet */
	char etag[64], content[DIGEST_TEXT], why[512];
	int why_error;	  /* that goes with it: ENOTSUP or EBADMSG */
	uint64_t *blocks; /* owned: the digests of blocks; NULL: not computed yet */
	uint64_t n_blocks;
	struct manifest_attr *attrs; /* owned; NULL: not known yet */
	size_t n_attrs;
	bool hashing, has_sha256; /* a thread computes it, without `busy`; and it was */
	unsigned char sha256[SHA256_DIGEST_SIZE];
};

/* ---- references ---- */

static struct offer *make(struct daemon_link *link, const char *name, uint64_t id, uint64_t bytes)
{
	struct offer *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->link = link;
	snprintf(o->name, sizeof(o->name), "%s", name);
	pthread_mutex_init(&o->lock, NULL);
	thread_cond_init(&o->changed);
	o->refs = 1;
	o->id = id;
	o->bytes = bytes;
	return o;
}

struct offer *offer_new(struct daemon_link *link, const struct gpushm_stat *stat)
{
	struct offer *o = make(link, stat->name, stat->id, stat->bytes);

	if (o) {
		o->arrays = stat->arrays;
		o->transient = stat->transient;
	}
	return o;
}

struct offer *offer_ref(struct offer *o)
{
	lock_guard(&o->lock, LOCK_OFFER);
	o->refs++;
	return o;
}

static void free_attrs(struct manifest_attr *attrs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(attrs[i].key);
		free(attrs[i].value);
	}
	free(attrs);
}

static void close_now(struct daemon_question *q, int r)
{
	struct opened *p = container_of(q, struct opened, closing);

	gpushm_private_mapping_close(&p->m);
	free(p);
}

static void close_opened(struct daemon_link *link, struct opened *p)
{
	if (!p)
		return;
	p->closing = (struct daemon_question){ .done = close_now };
	daemon_link_put(link, &p->closing);
}

struct offer *offer_release(struct offer *o)
{
	bool last;

	if (!o)
		return NULL;
	lock_take(&o->lock, LOCK_OFFER);
	last = --o->refs == 0;
	lock_drop(&o->lock);
	if (!last)
		return NULL;
	close_opened(o->link, o->opened);
	free_attrs(o->attrs, o->n_attrs);
	free(o->blocks);
	pthread_cond_destroy(&o->changed);
	pthread_mutex_destroy(&o->lock);
	free(o);
	return NULL;
}

/* ---- facts ---- */

const char *offer_name(const struct offer *o)
{
	return o->name;
}

void offer_facts(struct offer *o, struct offer_facts *ret)
{
	lock_guard(&o->lock, LOCK_OFFER);
	*ret = (struct offer_facts){ .name = o->name,
				     .id = o->id,
				     .bytes = o->bytes,
				     .arrays = o->arrays,
				     .header = o->header,
				     .size = o->size,
				     .complete = !o->pull };
	memcpy(ret->etag, o->etag, sizeof(ret->etag));
	memcpy(ret->content, o->content, sizeof(ret->content));
	memcpy(ret->why, o->why, sizeof(ret->why));
}

/* ---- the mapping ---- */

static bool is_usable(const struct opened *p)
{
	return !gpushm_buffer_lost(p->m.buffer) &&
	       !(gpushm_buffer_notice(p->m.buffer) & GPUSHM_NOTICE_GONE);
}

/* Under the lock: takes away a mapping that the daemon does not know any more. */
static struct opened *drop_unusable(struct offer *o)
{
	struct opened *p = o->opened;

	if (!p || is_usable(p))
		return NULL;
	o->opened = NULL;
	return p->readers == 0 ? p : NULL;
}

static struct offer *offer_of(struct daemon_question *q)
{
	return container_of(q, struct offer, question);
}

/* Its name has another buffer, of which this relay will know in a moment. */
static int replaced(const struct offer *o)
{
	return gpushm_private_fail(EAGAIN, "buffer \"%s\" is replaced just now: ask again",
				   o->name);
}

static int open_it(int (*open)(struct gpushm *, const char *, struct mapping *), struct gpushm *c,
		   const struct offer *o, struct mapping *ret)
{
	int r = open(c, o->name, ret);

	if (r < 0 || gpushm_buffer_id(ret->buffer) == o->id)
		return r;
	gpushm_private_mapping_close(ret);
	return replaced(o);
}

/* A buffer that does not fit the format is closed at once. */
static int ask_open(struct gpushm *c, struct daemon_question *q)
{
	_cleanup_(free_ptr) struct opened *p = calloc(1, sizeof(*p));
	struct offer *o = offer_of(q);
	int r = p ? open_it(gpushm_private_mapping_open, c, o, &p->m)
		  : gpushm_private_fail(ENOMEM, "out of memory");

	if (r < 0)
		return r;
	lock_guard(&o->lock, LOCK_OFFER);
	o->opened = take_ptr(p);
	return 0;
}

static void set_content(struct offer *o, const char content[DIGEST_TEXT])
{
	memcpy(o->content, content, DIGEST_TEXT);
	snprintf(o->etag, sizeof(o->etag), "\"xxh3-%.16s-%s\"", content + 5, o->header_hash);
}

/* Its table says it. */
static int ask_file(struct gpushm *c, struct daemon_question *q)
{
	char content[DIGEST_TEXT], hash[17];
	struct offer *o = offer_of(q);
	struct mapping m;
	bool known;
	int r = open_it(gpushm_private_mapping_look, c, o, &m);

	if (r < 0)
		return r;
	known = gpushm_private_mapping_content(&m, content);
	gpushm_private_mapping_hash_header(&m, hash);
	lock_take(&o->lock, LOCK_OFFER);
	o->header = m.n_header;
	o->size = m.size;
	o->arrays = m.n_arrays;
	memcpy(o->header_hash, hash, sizeof(hash));
	if (known)
		set_content(o, content);
	lock_drop(&o->lock);
	gpushm_private_mapping_close(&m);
	return 0;
}

/* ---- attributes ---- */

/* False: out of memory. */
static bool copy_attr(struct manifest_attr *to, const char *key, const void *value, size_t size)
{
	*to = (struct manifest_attr){ strdup(key), malloc(size + 1), size };
	if (to->key && to->value)
		memcpy(to->value, value, size);
	return to->key && to->value;
}

/* NULL: out of memory. */
static struct manifest_attr *copy_attrs(const struct gpushm_stat *s)
{
	struct manifest_attr *to = calloc(s->n_attrs + 1, sizeof(*to));
	bool whole = to;

	for (size_t i = 0; whole && i < s->n_attrs; i++)
		whole = copy_attr(&to[i], s->attrs[i]->key, s->attrs[i]->value, s->attrs[i]->size);
	if (!whole && to)
		free_attrs(take_ptr(to), s->n_attrs);
	return to;
}

static int ask_attrs(struct gpushm *c, struct daemon_question *q)
{
	_cleanup_(free_result) struct gpushm_stat *stat = NULL;
	struct offer *o = offer_of(q);
	struct manifest_attr *fresh;
	int r = gpushm_stat(c, o->name, 0, 0, &stat);

	if (r < 0)
		return r;
	if (stat->id != o->id)
		return replaced(o);
	fresh = copy_attrs(stat);
	if (!fresh)
		return gpushm_private_fail(ENOMEM, "out of memory");
	lock_guard(&o->lock, LOCK_OFFER);
	o->attrs = fresh;
	o->n_attrs = stat->n_attrs;
	return 0;
}

/* ---- questions ---- */

static void keep_why(struct offer *o, int r)
{
	if (r != -ENOTSUP && r != -EFBIG && r != -EINVAL && r != -EBADMSG)
		return;
	snprintf(o->why, sizeof(o->why), "%s", gpushm_error());
	o->why_error = r == -EBADMSG ? EBADMSG : ENOTSUP;
}

/* On the link's thread. */
static void take_answer(struct daemon_question *q, int r)
{
	struct offer *o = offer_of(q);

	lock_take(&o->lock, LOCK_OFFER);
	keep_why(o, r);
	o->answers++;
	o->answer = r;
	if (r < 0)
		gpushm_private_keep(&o->answer_why);
	o->used_ns = clock_monotonic_ns();
	o->busy = false;
	pthread_cond_broadcast(&o->changed);
	lock_drop(&o->lock);
	offer_release(o);
}

/* Under the lock: for a second at most, since a client that goes away wakes nobody. */
static void await_change(struct offer *o)
{
	thread_cond_wait(&o->changed, &o->lock, clock_deadline(1000));
}

/* Under the lock: until `is` is false. 0, or -ECANCELED: the client does not wait any more. */
static int await_end(struct offer *o, const bool *is, struct MHD_Connection *reader)
{
	while (*is) {
		if (reader && clients_has_gone(reader))
			return gpushm_private_fail(ECANCELED, "the client has gone");
		await_change(o);
	}
	return 0;
}

/* Under the lock, which it gives away meanwhile: asks until `done` says that it is done. An answer
 * to another one that has come meanwhile counts for this one. */
static int ask(struct offer *o, bool (*done)(const struct offer *),
	       int (*how)(struct gpushm *, struct daemon_question *), struct MHD_Connection *reader)
{
	unsigned seen = o->answers;
	int r;

	while ((r = await_end(o, &o->busy, reader)) == 0 && !done(o)) {
		if (o->why[0])
			return gpushm_private_fail(o->why_error, "%s", o->why);
		if (o->answers != seen && o->answer < 0) {
			gpushm_private_put_back(&o->answer_why);
			return o->answer;
		}
		close_opened(o->link, drop_unusable(o));
		o->busy = true;
		o->refs++;
		o->question = (struct daemon_question){ .ask = how, .done = take_answer };
		daemon_link_put(o->link, &o->question);
	}
	return r;
}

static bool is_ready(const struct offer *o)
{
	return o->pull || (o->opened && is_usable(o->opened));
}

static bool has_attrs(const struct offer *o)
{
	return o->attrs;
}

/* ---- reading through the mapping ---- */

static struct opened *opened_of(const struct mapping *m)
{
	return container_of((struct mapping *)m, struct opened, m);
}

int offer_enter(struct offer *o, struct MHD_Connection *reader, const struct mapping **ret)
{
	int r;

	lock_guard(&o->lock, LOCK_OFFER);
	r = ask(o, is_ready, ask_open, reader);
	if (r == 0 && o->pull)
		r = gpushm_private_fail(EBUSY, "buffer \"%s\" is being pulled", o->name);
	if (r == 0) {
		o->opened->readers++;
		*ret = &o->opened->m;
	}
	return r;
}

void offer_leave(struct offer *o, const struct mapping *m)
{
	struct opened *p = opened_of(m);
	bool last;

	lock_take(&o->lock, LOCK_OFFER);
	last = --p->readers == 0 && o->opened != p;
	o->used_ns = clock_monotonic_ns();
	lock_drop(&o->lock);
	if (last)
		close_opened(o->link, p);
}

bool offer_is_open(struct offer *o)
{
	lock_guard(&o->lock, LOCK_OFFER);
	return o->opened || o->busy || o->pull;
}

void offer_close_idle(struct offer *o, uint64_t idle_ns)
{
	struct opened *p = NULL;

	lock_take(&o->lock, LOCK_OFFER);
	if (o->opened && o->opened->readers == 0 && !o->busy &&
	    (o->transient || clock_monotonic_ns() - o->used_ns >= idle_ns)) {
		p = o->opened;
		o->opened = NULL;
	}
	lock_drop(&o->lock);
	close_opened(o->link, p);
}

/* ---- what is computed once ---- */

static int compute_sha256(const struct mapping *m, unsigned char ret[SHA256_DIGEST_SIZE])
{
	_cleanup_(free_ptr) char *bytes = malloc(SHA_BYTES);
	struct sha256_ctx ctx;
	int r = bytes ? 0 : gpushm_private_fail(ENOMEM, "out of memory");

	sha256_init(&ctx);
	for (uint64_t at = 0; r == 0 && at < m->size; at += SHA_BYTES) {
		size_t n = m->size - at < SHA_BYTES ? (size_t)(m->size - at) : SHA_BYTES;

		r = gpushm_private_mapping_read(m, at, bytes, n);
		if (r == 0)
			sha256_update(&ctx, n, (const uint8_t *)bytes);
	}
	if (r == 0)
		sha256_digest(&ctx, SHA256_DIGEST_SIZE, ret);
	return r;
}

/* Takes the blocks. */
static int accept_blocks(struct offer *o, const char *content, uint64_t **blocks, uint64_t n)
{
	if (o->content[0] && strcmp(o->content, content) != 0)
		return gpushm_private_fail(EBADMSG,
					   "buffer \"%s\": its contents have the digest %s, and "
					   "its attribute \"gpushm.content\" says %s",
					   o->name, content, o->content);
	set_content(o, content);
	o->blocks = take_ptr(*blocks);
	o->n_blocks = n;
	return 0;
}

/* Computes with the buffer open, unless `done` says that it was done meanwhile. */
static int compute_blocks(struct offer *o, struct MHD_Connection *reader,
			  bool (*done)(const struct offer *))
{
	_cleanup_(free_ptr) uint64_t *blocks = NULL;
	char content[DIGEST_TEXT];
	struct opened *p;
	uint64_t n;
	int r = 0;

	lock_take(&o->lock, LOCK_OFFER);
	if (o->why[0])
		r = gpushm_private_fail(o->why_error, "%s", o->why);
	while (r == 0 && (o->busy || !done(o))) {
		r = ask(o, is_ready, ask_open, reader);
		if (r == 0 && o->pull && !done(o))
			r = gpushm_private_fail(EBUSY, "buffer \"%s\" is being pulled", o->name);
		if (r < 0 || done(o))
			break;
		p = o->opened;
		p->readers++;
		o->busy = true;
		lock_drop(&o->lock);
		r = gpushm_private_mapping_hash(&p->m, &blocks, &n, content);
		lock_take(&o->lock, LOCK_OFFER);
		if (r == 0)
			r = accept_blocks(o, content, &blocks, n);
		keep_why(o, r);
		p->readers--;
		o->used_ns = clock_monotonic_ns();
		o->busy = false;
		pthread_cond_broadcast(&o->changed);
	}
	lock_drop(&o->lock);
	return r;
}

static bool has_file(const struct offer *o)
{
	return o->header_hash[0];
}

static bool has_blocks(const struct offer *o)
{
	return o->blocks;
}

static bool has_etag(const struct offer *o)
{
	return o->etag[0];
}

int offer_look(struct offer *o, struct MHD_Connection *reader)
{
	lock_guard(&o->lock, LOCK_OFFER);
	if (o->why[0])
		return gpushm_private_fail(o->why_error, "%s", o->why);
	return has_file(o) ? 0 : ask(o, has_file, ask_file, reader);
}

int offer_know(struct offer *o, struct MHD_Connection *reader)
{
	int r = offer_look(o, reader);

	return r < 0 ? r : compute_blocks(o, reader, has_etag);
}

int offer_manifest(struct offer *o, struct MHD_Connection *reader, struct manifest *ret)
{
	int r = offer_look(o, reader);

	if (r == 0)
		r = compute_blocks(o, reader, has_blocks);
	if (r < 0)
		return r;
	lock_guard(&o->lock, LOCK_OFFER);
	r = has_attrs(o) ? 0 : ask(o, has_attrs, ask_attrs, reader);
	*ret = (struct manifest){ .name = o->name,
				  .id = o->id,
				  .etag = o->etag,
				  .size = o->size,
				  .header = o->header,
				  .data = o->size - o->header,
				  .blocks = o->blocks,
				  .n_blocks = o->n_blocks,
				  .attrs = o->attrs,
				  .n_attrs = o->n_attrs,
				  .complete = !o->pull };
	memcpy(ret->content, o->content, sizeof(ret->content));
	return r;
}

/* *ret: the caller computes it, and calls end_hashing(). */
static int begin_hashing(struct offer *o, struct MHD_Connection *reader, bool *ret)
{
	int r;

	lock_guard(&o->lock, LOCK_OFFER);
	r = await_end(o, &o->hashing, reader);
	*ret = r == 0 && !o->has_sha256;
	o->hashing |= *ret;
	return r;
}

static void end_hashing(struct offer *o, int r, const unsigned char hash[SHA256_DIGEST_SIZE])
{
	lock_guard(&o->lock, LOCK_OFFER);
	if (r == 0)
		memcpy(o->sha256, hash, sizeof(o->sha256));
	o->has_sha256 = r == 0;
	o->hashing = false;
	pthread_cond_broadcast(&o->changed);
}

/* One thread hashes half a GB a second: nobody else waits for it, as they would if it were busy. */
int offer_sha256(struct offer *o, struct MHD_Connection *reader, unsigned char ret[32])
{
	unsigned char hash[SHA256_DIGEST_SIZE];
	const struct mapping *m;
	bool begun;
	int r = begin_hashing(o, reader, &begun);

	if (begun) {
		r = offer_enter(o, reader, &m);
		if (r == 0) {
			r = compute_sha256(m, hash);
			offer_leave(o, m);
		}
		end_hashing(o, r, hash);
	}
	if (r == 0)
		memcpy(ret, o->sha256, sizeof(o->sha256));
	return r;
}

/* ---- pulls ---- */

static void free_pull(struct pull *p)
{
	if (p) {
		gpushm_private_mapping_close(&p->m);
		free(p->there);
	}
	free(p);
}

static int take_manifest(struct offer *o, const struct manifest *m)
{
	bool whole = (o->attrs = calloc(m->n_attrs + 1, sizeof(*o->attrs)));

	for (const struct manifest_attr *a = m->attrs; whole && o->n_attrs < m->n_attrs; a++)
		whole = copy_attr(&o->attrs[o->n_attrs++], a->key, a->value, a->size);
	if (!whole)
		return -ENOMEM;
	o->header = m->header;
	o->size = m->size;
	snprintf(o->etag, sizeof(o->etag), "%s", m->etag);
	snprintf(o->content, sizeof(o->content), "%s", m->content);
	o->blocks = calloc(m->n_blocks + 1, sizeof(*o->blocks));
	o->n_blocks = m->n_blocks;
	if (!o->blocks)
		return -ENOMEM;
	memcpy(o->blocks, m->blocks, m->n_blocks * sizeof(*m->blocks));
	return 0;
}

struct offer *offer_new_pulled(struct daemon_link *link, const char *name, const struct manifest *m,
			       const char *header, struct gpushm_buffer *b)
{
	struct offer *o = make(link, name, gpushm_buffer_id(b), gpushm_buffer_bytes(b));
	struct pull *p = o ? calloc(1, sizeof(*p)) : NULL;
	int r = p ? gpushm_private_mapping_lend(b, header, m->header, &p->m) : -ENOMEM;

	if (r == 0 && p->m.size != m->size)
		r = gpushm_private_fail(EBADMSG, "the file's header and its size disagree");
	if (r == 0)
		r = take_manifest(o, m);
	if (r == 0) {
		gpushm_private_mapping_hash_header(&p->m, o->header_hash);
		p->there = calloc(m->n_blocks + 1, sizeof(*p->there));
		r = p->there ? 0 : -ENOMEM;
	}
	if (r < 0) {
		free_pull(p);
		return offer_release(o);
	}
	o->arrays = p->m.n_arrays;
	o->pull = p;
	return o;
}

void offer_pull_block(struct offer *o, uint64_t block)
{
	lock_guard(&o->lock, LOCK_OFFER);
	if (o->pull && block < o->n_blocks) {
		o->pull->there[block] = true;
		pthread_cond_broadcast(&o->changed);
	}
}

void offer_pull_end(struct offer *o, int result)
{
	struct pull *p;

	lock_take(&o->lock, LOCK_OFFER);
	p = o->pull;
	o->pull_failed = result < 0;
	o->pull = NULL;
	pthread_cond_broadcast(&o->changed);
	while (p && p->readers > 0)
		pthread_cond_wait(&o->changed, &o->lock);
	lock_drop(&o->lock);
	free_pull(p);
}

/* ---- reading ---- */

/* Whether all blocks of this part of the file are there. */
static bool is_there(const struct offer *o, uint64_t offset, size_t n)
{
	uint64_t end = offset + n;

	if (end <= o->header)
		return true;
	offset = offset < o->header ? 0 : offset - o->header;
	for (uint64_t i = offset / BLOCK_BYTES; i <= (end - o->header - 1) / BLOCK_BYTES; i++)
		if (!o->pull->there[i])
			return false;
	return true;
}

/* 0: it was read; 1: it is pulled no more. */
static int read_pulled(struct offer *o, uint64_t offset, void *to, size_t n,
		       struct MHD_Connection *reader)
{
	struct pull *p;
	int r = 1;

	lock_take(&o->lock, LOCK_OFFER);
	while (o->pull && reader && !is_there(o, offset, n) && !clients_has_gone(reader))
		await_change(o);
	p = o->pull;
	if (p && !is_there(o, offset, n)) {
		p = NULL;
		r = gpushm_private_fail(EAGAIN, "these bytes of \"%s\" are not here yet", o->name);
	} else if (p)
		p->readers++;
	else if (o->pull_failed)
		r = gpushm_private_fail(ECANCELED, "the pull of \"%s\" has failed", o->name);
	lock_drop(&o->lock);
	if (!p)
		return r;
	r = gpushm_private_mapping_read(&p->m, offset, to, n);
	lock_take(&o->lock, LOCK_OFFER);
	p->readers--;
	pthread_cond_broadcast(&o->changed);
	lock_drop(&o->lock);
	return r;
}

bool offer_has(struct offer *o, uint64_t offset)
{
	lock_guard(&o->lock, LOCK_OFFER);
	return !o->pull || is_there(o, offset, 1);
}

int offer_read(struct offer *o, uint64_t offset, void *to, size_t n, struct MHD_Connection *reader)
{
	const struct mapping *m;
	int r = read_pulled(o, offset, to, n, reader);

	if (r <= 0)
		return r;
	r = offer_enter(o, reader, &m);
	if (r < 0)
		return r;
	r = gpushm_private_mapping_read(m, offset, to, n);
	offer_leave(o, m);
	return r;
}
