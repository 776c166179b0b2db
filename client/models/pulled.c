/* SPDX-License-Identifier: MIT
 *
 * A relay is believed in what its manifest says about the contents, as a web server is believed in
 * its files: its certificate was checked. What is checked here is that all of it fits together, so
 * that a broken relay, or two generations of one name, are an error, and that what another machine
 * sends is what this relay has.
 */
#include "client/models/pulled.h"

#include "client/models/fail.h"
#include "client/models/nixl/nixl_file.h"
#include "client/models/web/remote.h"
#include "proto/base/own.h"
#include "proto/base/sized.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIRRORS_MAX 32u /* that are asked; a relay may name more */

/* ---- the file ---- */

/* "xxh3-<digest of the contents>-<the first bytes of the header's SHA-256>", with its quotes. */
static int check_etag(const struct pulled *p, const struct load_file *f)
{
	const char *content = strchr(p->m->content, ':');
	char expected[80];

	snprintf(expected, sizeof(expected), "\"xxh3-%s-", content ? content + 1 : "");
	for (size_t i = 0; i < 8; i++)
		sprintf(expected + strlen(expected), "%02x", f->header_sha256[i]);
	strcat(expected, "\"");
	if (strcmp(p->m->etag, expected) == 0)
		return 0;
	return load_fail(EBADMSG,
			 "%s: its header is not the one that the relay's digest says: its ETag "
			 "would be %s, and is %s",
			 f->path, expected, p->m->etag);
}

static int check_sizes(const struct pulled *p, const struct load_file *f)
{
	if (f->size != p->m->size)
		return load_fail(EBADMSG,
				 "%s has %" PRIu64 " bytes, and the relay's manifest says %" PRIu64,
				 f->path, f->size, p->m->size);
	if (f->data != p->m->header)
		return load_fail(EBADMSG,
				 "%s: its header has %" PRIu64 " bytes, and the relay's manifest "
				 "says %" PRIu64,
				 f->path, f->data, p->m->header);
	return 0;
}

/* A mirror that would show the data, or the name of this machine, to a network is left out, unless
 * the source does that already. */
static bool may_use(const struct pulled *p, const char *mirror)
{
	return url_is(mirror) &&
	       (strncmp(mirror, "https://", 8) == 0 || strncmp(p->url, "http://", 7) == 0);
}

static int add_mirrors(const struct pulled *p, struct load_file *f)
{
	int r = 0;

	for (size_t i = 0; i < p->m->n_mirrors && i < MIRRORS_MAX && r != -ENOMEM; i++)
		if (may_use(p, p->m->mirrors[i]))
			r = remote_add_mirror(f->remote, p->m->mirrors[i]);
	/* One that is no URL is not used. */
	return r == -ENOMEM ? r : 0;
}

int pulled_check(struct pulled *p, struct checkpoint *cp)
{
	struct load_file *f = &cp->files.files[0];
	int r;

	if (!f->remote || f->stream)
		return load_fail(EBADMSG, "%s: its server sends no ranges: it is no relay",
				 f->path);
	if (strcmp(remote_etag(f->remote), p->m->etag) != 0)
		return load_fail(ESTALE, "%s changed while it was asked for: it was %s and is %s",
				 f->path, p->m->etag, remote_etag(f->remote));
	r = check_sizes(p, f);
	if (r == 0)
		r = check_etag(p, f);
	if (r == 0 && p->observer && p->observer->relay)
		r = remote_set_relay(f->remote, p->observer->relay);
	return r < 0 ? r : add_mirrors(p, f);
}

/* ---- a buffer that is there ---- */

static bool same_array(const struct gpushm_array *a, const struct gpushm_array_spec *s)
{
	struct gpushm_dtype t = gpushm_array_dtype(a);

	return t.code == s->dtype.code && t.bits == s->dtype.bits && t.lanes == s->dtype.lanes &&
	       gpushm_array_ndim(a) == s->ndim &&
	       memcmp(gpushm_array_shape(a), s->shape, (size_t)s->ndim * sizeof(*s->shape)) == 0;
}

static bool has_array(struct gpushm_buffer *b, const struct gpushm_array_spec *s)
{
	_cleanup_(free_array) struct gpushm_array *a = NULL;

	return gpushm_array_get(b, s->name, &a) == 0 && same_array(a, s);
}

static bool has_arrays(const struct model *m, struct gpushm_buffer *b)
{
	bool all = gpushm_buffer_arrays(b) == m->n;

	for (size_t i = 0; all && i < m->n; i++)
		all = has_array(b, &m->specs[i]);
	return all;
}

static bool is_ours(const char *key)
{
	return strncmp(key, "gpushm.", strlen("gpushm.")) == 0;
}

/* Those that a load makes itself. */
static bool is_made(const char *key)
{
	return strcmp(key, "gpushm.files") == 0 || strcmp(key, "gpushm.content") == 0 ||
	       strcmp(key, "gpushm.types") == 0 || strcmp(key, "gpushm.metadata") == 0 ||
	       strcmp(key, "gpushm.path") == 0 || strcmp(key, PULLED_ETAG) == 0;
}

bool pulled_has_attr(const struct gpushm_buffer *b, const char *key, const void *value, size_t size)
{
	const void *at;
	size_t n;

	return gpushm_buffer_attr(b, key, &at, &n) == 0 && n == size && memcmp(at, value, n) == 0;
}

/* A module's class and configuration, for example. The files that it came from may be others. */
static bool has_attrs(const struct manifest *m, const struct gpushm_buffer *b)
{
	bool all = true;

	for (size_t i = 0; all && i < m->n_attrs; i++) {
		const struct manifest_attr *a = &m->attrs[i];

		if (is_ours(a->key) && !is_made(a->key) && strcmp(a->key, "gpushm.source") != 0)
			all = pulled_has_attr(b, a->key, a->value, a->size);
	}
	return all;
}

bool pulled_matches(const struct pulled *p, const struct model *m, struct gpushm_buffer *b)
{
	const char *name = gpushm_buffer_name(b), *content = p->m->content;

	const void *at;
	size_t n;
	/* Metadata that are an array count for a buffer's digest, and not for its file's. */
	bool same = gpushm_buffer_attr(b, PULLED_ETAG, &at, &n) == 0
			    ? pulled_has_attr(b, PULLED_ETAG, p->m->etag, strlen(p->m->etag))
			    : pulled_has_attr(b, "gpushm.content", content, strlen(content));

	if (same && has_arrays(m, b) && has_attrs(p->m, b))
		return true;
	load_fail(EEXIST, "buffer \"%s\" has other contents than \"%s\" of the relay", name,
		  p->m->name);
	return false;
}

/* ---- attributes ---- */

static bool is_given(const struct gpushm_attr *own, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++) {
		const struct gpushm_attr *a = sized_at(own, i);

		if (a->key && strcmp(a->key, key) == 0)
			return true;
	}
	return false;
}

int pulled_attrs(const struct pulled *p, const struct gpushm_attr *own, size_t n,
		 struct gpushm_attr **ret, size_t *ret_n)
{
	struct gpushm_attr *found = calloc(p->m->n_attrs + 1, sizeof(*found));

	if (!found)
		return load_no_memory();
	found[0] =
		(struct gpushm_attr){ sizeof(*found), PULLED_ETAG, p->m->etag, strlen(p->m->etag) };
	*ret_n = 1;
	for (size_t i = 0; i < p->m->n_attrs; i++) {
		const struct manifest_attr *a = &p->m->attrs[i];

		if (!is_made(a->key) && !is_given(own, n, a->key))
			found[(*ret_n)++] =
				(struct gpushm_attr){ sizeof(*found), a->key, a->value, a->size };
	}
	*ret = found;
	return 0;
}

/* ---- the observer ---- */

/* Once more: the text of the first time is gone when the header is parsed. */
static int read_header(struct pulled *p, struct load_file *f)
{
	uint8_t digest[SHA256_DIGEST_SIZE];
	struct sha256_ctx hash;
	int r;

	p->header = malloc(f->data);
	if (!p->header)
		return load_no_memory();
	r = remote_read(NULL, f->remote, p->header, f->data, 0, f->stop);
	if (r < 0)
		return r;
	sha256_init(&hash);
	sha256_update(&hash, f->data, (const uint8_t *)p->header);
	sha256_digest(&hash, sizeof(digest), digest);
	if (memcmp(digest, f->header_sha256, sizeof(digest)) != 0)
		return load_fail(EBADMSG, "%s: its header is another one each time it is read",
				 f->path);
	return 0;
}

int pulled_begin(struct pulled *p, struct checkpoint *cp, struct gpushm_buffer *b)
{
	const struct pull_observer *o = p->observer;
	struct load_file *f = &cp->files.files[0];
	int r = o && o->begun ? read_header(p, f) : 0;

	if (r == 0 && p->nixl)
		r = nixl_file_open(p->url, p->m->etag, p->m->header, p->m->size, p->remote, f->stop,
				   &f->nixl);
	if (r < 0)
		return r;
	p->check = (struct engine_check){ .blocks = p->m->blocks,
					  .n = p->m->n_blocks,
					  .bytes = p->m->data,
					  .block = o ? o->block : NULL,
					  .user = o ? o->user : NULL };
	if (o && o->begun)
		o->begun(o->user, p->m, p->header, b);
	p->begun = true;
	return 0;
}

void pulled_end(struct pulled *p, int result)
{
	const struct pull_observer *o = p->observer;

	if (p->begun && o && o->ended)
		o->ended(o->user, result);
	p->begun = false;
	free(p->header);
	p->header = NULL;
}
