/* SPDX-License-Identifier: MIT
 *
 * gpushm_pull(): asks the relay for the manifest, and loads the file that it is about. If the name
 * has another buffer there before all is loaded, the pull begins again with that one: the old
 * bytes are gone, and no two generations mix.
 *
 * gpushm_pull_wait(): a long poll (RFC 7240), so that a generation is known when it is published.
 * What goes wrong with the relay is waited for.
 */
#include "client/gpushm_load_private.h"

#include "client/gpushm_private.h"
#include "client/models/fail.h"
#include "client/models/load.h"
#include "client/models/pulled.h"
#include "client/models/web/credentials.h"
#include "client/models/web/manifest.h"
#include "client/models/web/remote.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/base/uri.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 19401u
#define BUFFERS "/v1/buffers/"
#define MANIFESTS "/v1/manifests/"
#define GENERATIONS_MAX 8u /* that are begun, before a pull gives up */
#define POLL_S 50u	   /* of one request: proxies end a reply that does not come in a minute */
#define MISSING_S 1u	   /* a relay knows a buffer some ms after it was published */
#define AGAIN_MS 1000u	   /* between two requests that were not waited for */
#define PATIENCE_S 3u	   /* of a request that is made again anyway */

/* ---- where it is ---- */

/* A buffer of a relay. */
struct place {
	char *url;	/* owned: of the file */
	char *manifest; /* owned: of what the relay says about it */
	char *name;	/* owned: there */
};

static void place_clear(struct place *p)
{
	free(p->url);
	free(p->manifest);
	free(p->name);
}

static int bad_source(const char *source, const char *why)
{
	return load_fail(EINVAL,
			 "\"%.200s\": %s; a source is HOST[:PORT]/NAME or "
			 "https://HOST[:PORT]" BUFFERS "NAME",
			 source, why);
}

/* The host itself is remote_open()'s to check. */
static int find_host(const char *source, struct place *ret)
{
	const char *slash = strchr(source, '/'), *from;
	_cleanup_(free_ptr) char *encoded = NULL;
	int n = slash ? (int)(slash - source) : 0;
	char port[8] = "";

	if (!slash || !slash[1])
		return bad_source(source, "there is no NAME");
	if (n == 0 || (int)strcspn(source, "?#\\@% ") < n)
		return bad_source(source, "that is no host's name");
	from = memrchr(source, ']', (size_t)n);
	from = from ? from : source;
	if (!memchr(from, ':', (size_t)(slash - from)))
		snprintf(port, sizeof(port), ":%u", PORT);
	encoded = malloc(3 * strlen(slash) + 1);
	ret->name = strdup(slash + 1);
	if (!encoded || !ret->name)
		return load_no_memory();
	uri_encode(slash + 1, strlen(slash + 1), URI_PATH, encoded);
	return load_format(&ret->url, "https://%.*s%s" BUFFERS "%s", n, source, port, encoded);
}

static int find_url(const char *source, struct place *ret)
{
	const char *name = strstr(source, BUFFERS);
	size_t n;

	name = name ? name + strlen(BUFFERS) : "";
	n = strcspn(name, "?#");
	if (n == 0)
		return bad_source(source, "that is no URL of a relay's buffer");
	ret->url = strdup(source);
	ret->name = strndup(name, n);
	if (!ret->url || !ret->name)
		return load_no_memory();
	return uri_decode(ret->name, ret->name, n + 1)
		       ? 0
		       : bad_source(source, "its name is not encoded as in URLs");
}

static int find_place(const char *source, struct place *ret)
{
	const char *at;
	int r;

	if (!source)
		return load_fail(EINVAL, "the source is NULL");
	r = url_is(source) ? find_url(source, ret) : find_host(source, ret);
	if (r < 0)
		return r;
	at = strstr(ret->url, BUFFERS);
	return load_format(&ret->manifest, "%.*s" MANIFESTS "%s", (int)(at - ret->url), ret->url,
			   at + strlen(BUFFERS));
}

int gpushm_private_pull_check(const char *source)
{
	_cleanup_(place_clear) struct place place = { 0 };

	return find_place(source, &place);
}

/* ---- pulling ---- */

struct pull {
	struct gpushm *c;
	struct place place;
	const char *name; /* here */
	const struct gpushm_create_options *options;
	struct gpushm_load_options load;
	const struct pull_observer *observer;
};

static bool is_stopped(const void *of)
{
	const struct pull *p = of;
	const struct gpushm_load_progress none = { 0 };

	return p->load.progress(p->load.user, &none) != 0;
}

/* r: of the request. */
static void tell_via(const struct pull_observer *o, int r, const struct remote_reply *reply)
{
	if (o && o->via && (r == 0 || r == -ENOENT))
		o->via(o->user, reply->via);
}

static int get_manifest(const struct pull *p, struct manifest *ret)
{
	const struct remote_request q = {
		.url = p->place.manifest,
		.wait_s = MISSING_S,
		.max_bytes = MANIFEST_BYTES_MAX,
		.relay = p->observer ? p->observer->relay : NULL,
		.options = p->load.remote,
		.stop = { p->load.progress ? is_stopped : NULL, p },
	};
	_cleanup_(remote_reply_clear) struct remote_reply reply = { 0 };
	int r = remote_request(&q, &reply);

	tell_via(p->observer, r, &reply);
	return r < 0 ? r : manifest_parse(p->place.manifest, reply.body, reply.n_body, ret);
}

static int pull_once(const struct pull *p, struct gpushm_buffer **ret)
{
	_cleanup_(gpushm_private_manifest_clear) struct manifest m = { 0 };
	struct pulled pulled = { .m = &m,
				 .observer = p->observer,
				 .url = p->place.url,
				 .nixl = p->load.flags & GPUSHM_LOAD_NIXL,
				 .remote = p->load.remote };
	int r = get_manifest(p, &m);

	return r < 0 ? r : load_run(p->c, NULL, 0, p->name, p->options, &p->load, &pulled, ret);
}

/* What a pull can't do, or has no use for. */
static int read_options(const struct gpushm_load_options *load, struct gpushm_load_options *ret)
{
	int r = load_read_options(load, ret);

	if (r < 0)
		return r;
	if (ret->n_only > 0 || (ret->strip && ret->strip[0]) || ret->sha256)
		return load_fail(EINVAL, "a pull takes a whole buffer, and has its digests: there "
					 "are no patterns, prefix or checksums");
	ret->flags &= GPUSHM_LOAD_IF_MISSING | GPUSHM_LOAD_REPLACE | GPUSHM_LOAD_VERIFY |
		      GPUSHM_LOAD_NIXL | GPUSHM_LOAD_KEEP;
	return 0;
}

int gpushm_private_pull(struct gpushm *c, const char *source, const char *name,
			const struct gpushm_create_options *options,
			const struct gpushm_load_options *load,
			const struct pull_observer *observer, struct gpushm_buffer **ret)
{
	struct pull p = { .c = c, .options = options, .observer = observer };
	int r = read_options(load, &p.load);

	if (r == 0)
		r = find_place(source, &p.place);
	p.name = name ? name : p.place.name;
	for (unsigned i = 0; r == 0 || (r == -ESTALE && i < GENERATIONS_MAX); i++) {
		r = pull_once(&p, ret);
		if (r != -ESTALE)
			break;
	}
	place_clear(&p.place);
	return r;
}

int gpushm_pull(struct gpushm *c, const char *source, const char *name,
		const struct gpushm_create_options *options, const struct gpushm_load_options *load,
		struct gpushm_buffer **ret)
{
	return gpushm_private_pull(c, source, name, options, load, NULL, ret);
}

int gpushm_private_pull_announce(const char *source, const char *etag, const char *relay,
				 const struct gpushm_remote_options *remote)
{
	_cleanup_(remote_reply_clear) struct remote_reply reply = { 0 };
	_cleanup_(place_clear) struct place place = { 0 };
	int r = find_place(source, &place);
	const struct remote_request q = { .url = place.manifest,
					  .if_none_match = etag,
					  .max_bytes = MANIFEST_BYTES_MAX,
					  .relay = relay,
					  .options = remote };

	return r < 0 ? r : remote_request(&q, &reply);
}

/* ---- waiting for another generation ---- */

struct wait {
	struct place place;
	const char *source, *content;
	struct gpushm_remote_options remote;
	uint64_t deadline; /* clock_deadline() */
	gpushm_load_progress_fn *progress;
	void *user;
	const struct pull_observer *observer;
	bool has_replied;		 /* the relay has, to some request */
	bool is_away;			 /* it does not reply, or can't be asked: */
	struct gpushm_private_error why; /* what was wrong then */
	char *etag;			 /* owned: of the manifest that was seen last */
	bool canceled;
};

/* Also asks the caller. */
static bool wait_is_over(const void *of)
{
	struct wait *w = (struct wait *)of;
	const struct gpushm_load_progress p = { .struct_size = sizeof(p),
						.file = w->is_away ? NULL : w->source };

	if (w->is_away)
		gpushm_private_put_back(&w->why);
	if (!w->canceled && w->progress)
		w->canceled = w->progress(w->user, &p) != 0;
	return w->canceled || clock_left_ms(w->deadline) == 0;
}

/* 1: there are other contents; 0: not yet. */
static int read_news(struct wait *w, const struct remote_reply *reply)
{
	_cleanup_(gpushm_private_manifest_clear) struct manifest m = { 0 };
	int r;

	if (reply->status == 304)
		return 0;
	r = manifest_parse(w->place.manifest, reply->body, reply->n_body, &m);
	if (r == 0)
		r = !w->content ||
		    (strcmp(m.content, w->content) != 0 && strcmp(m.etag, w->content) != 0);
	if (r == 0) {
		free(w->etag);
		w->etag = strdup(m.etag);
		r = w->etag ? 0 : load_no_memory();
	}
	return r;
}

/* 1, 0 as above, or an error; -ENODATA: the relay does not have it. *ret_waited: the relay has
 * waited before it replied, or will wait before the next reply. */
static int ask(struct wait *w, bool *ret_waited)
{
	uint64_t left = clock_left_ms(w->deadline) / 1000 + 1;
	const struct remote_request q = {
		.url = w->place.manifest,
		.if_none_match = w->etag,
		.wait_s = (unsigned)(left < POLL_S ? left : POLL_S),
		.max_bytes = MANIFEST_BYTES_MAX,
		.options = &w->remote,
		.stop = { wait_is_over, w },
	};
	_cleanup_(remote_reply_clear) struct remote_reply reply = { 0 };
	uint64_t begin = clock_monotonic_ms();
	bool first = !w->etag;
	int r = remote_request(&q, &reply);

	tell_via(w->observer, r, &reply);
	w->has_replied |= reply.status != 0;
	if (r == -ENOENT && reply.status != 0)
		r = -ENODATA;
	if (r == 0)
		r = read_news(w, &reply);
	*ret_waited = (r == 0 && first && w->etag) || clock_monotonic_ms() - begin >= AGAIN_MS;
	return r;
}

/* Errors that time may cure. What the user must change is an error at once: also a file that is not
 * there from the beginning, while one that was read before may be on its way again. */
static bool is_away(const struct wait *w, int r)
{
	return r != -EINVAL && r != -ENOMEM && r != -ENOSYS && r != -EACCES &&
	       (r != -ENOENT || w->has_replied);
}

static int wait_for_news(struct wait *w)
{
	int r = 0;

	while (!wait_is_over(w)) {
		bool waited = false;

		r = ask(w, &waited);
		if (r > 0)
			return 0;
		if (r < 0 && r != -ECANCELED && !is_away(w, r))
			return r;
		if (r != -ECANCELED)
			w->is_away = r < 0 && r != -ENODATA;
		if (w->is_away && r != -ECANCELED)
			gpushm_private_keep(&w->why);
		if (!waited && !load_nap(AGAIN_MS, (struct load_stop){ wait_is_over, w }))
			break;
	}
	if (w->canceled)
		return load_fail(ECANCELED, "the wait for \"%s\" was stopped", w->source);
	if (w->is_away)
		return load_fail(ETIMEDOUT, "%s", w->why.text);
	return load_fail(ETIMEDOUT, "\"%s\" has no other contents yet", w->source);
}

int gpushm_private_pull_wait(const char *source, const char *content,
			     const struct gpushm_remote_options *remote, uint64_t timeout_ms,
			     gpushm_load_progress_fn *progress, void *user,
			     const struct pull_observer *observer)
{
	struct wait w = { .source = source,
			  .content = content,
			  .progress = progress,
			  .user = user,
			  .observer = observer };
	int r = credentials_read_options(remote, &w.remote);

	/* The request is made again anyway, and why it fails should be known soon. */
	if (!w.remote.patience_s || w.remote.patience_s > PATIENCE_S)
		w.remote.patience_s = PATIENCE_S;
	w.deadline = clock_deadline(timeout_ms);
	if (r == 0)
		r = find_place(source, &w.place);
	/* An ETag: the relay itself waits until it has another one. */
	if (r == 0 && content && content[0] == '"') {
		w.etag = strdup(content);
		r = w.etag ? 0 : load_no_memory();
	}
	if (r == 0)
		r = wait_for_news(&w);
	place_clear(&w.place);
	free(w.etag);
	return r;
}

int gpushm_pull_wait(const char *source, const char *content,
		     const struct gpushm_remote_options *remote, uint64_t timeout_ms,
		     gpushm_load_progress_fn *progress, void *user)
{
	return gpushm_private_pull_wait(source, content, remote, timeout_ms, progress, user, NULL);
}
