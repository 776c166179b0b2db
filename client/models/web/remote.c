/* SPDX-License-Identifier: MIT
 *
 * Opens files on web servers. The first request is for a part: so a server that has ranges sends
 * one, and says how long the file is; HEAD would not work with signed URLs, which are for GET
 * alone.
 */
#include "client/models/web/remote.h"

#include "client/gpushm_private.h"
#include "client/models/fail.h"
#include "client/models/web/remote_internal.h"

#include <stdlib.h>
#include <string.h>

/* What the first request asks for: the header of most files. */
#define FIRST_BYTES (64u << 10)
#define STALL_MAX_MS 20000u
#define STALL_MIN_MS 500u

/* A connection that stalls is given up in time for another one. */
static unsigned stall_of(unsigned patience_ms)
{
	unsigned ms = patience_ms / 3;

	return ms > STALL_MAX_MS ? STALL_MAX_MS : ms < STALL_MIN_MS ? STALL_MIN_MS : ms;
}

void remote_hold(struct remote *r)
{
	atomic_fetch_add(&r->holders, 1);
}

void remote_release(struct remote *r)
{
	if (atomic_fetch_sub(&r->holders, 1) > 1)
		return;
	places_clear(&r->places);
	credentials_clear(&r->credentials);
	free(r->relay);
	free(r);
}

struct remote *remote_close(struct remote *r)
{
	if (!r)
		return NULL;
	private_error_guard();
	r->own = remote_reader_free(r->own);
	remote_release(r);
	return NULL;
}

int remote_new(const char *url, const struct gpushm_remote_options *o, struct remote **ret)
{
	struct remote *r = calloc(1, sizeof(*r));
	struct url u = { 0 };
	int error;

	if (!r)
		return load_no_memory();
	r->holders = 1;
	r->size = REMOTE_NO_SIZE;
	places_init(&r->places);
	error = url_parse(url, &u);
	if (error == 0)
		error = credentials_read(o, &u, &r->credentials);
	if (error < 0)
		url_clear(&u);
	else if (places_add(&r->places, &u) < 0)
		error = load_no_memory();
	r->stall_ms = stall_of(r->credentials.patience_ms);
	*ret = r;
	return error;
}

/* The reply of a server without ranges stays with the file: there is no other one. */
static int keep_stream(struct remote_reader *rr, struct remote *r)
{
	struct fetch *reply = rr->fetch;
	int error;

	if (r->has_ranges || rr == r->own)
		return 0;
	error = remote_reader_new(&r->own);
	if (error < 0)
		return error;
	rr->fetch = r->own->fetch;
	*r->own = *rr;
	r->own->fetch = reply;
	rr->remote = NULL;
	rr->place = NULL;
	return 0;
}

static int open_by(struct remote_reader *rr, struct remote *r, struct load_stop stop)
{
	struct trial t;
	int error;

	trial_begin(&t, stop, true);
	for (;;) {
		error = reader_ask(rr, r, 0, FIRST_BYTES - 1, &t);
		if (error == 0)
			return keep_stream(rr, r);
		error = trial_failed(&t, r, error);
		if (error < 0)
			return error;
	}
}

int remote_open(struct remote_reader *rr, const char *url, const struct gpushm_remote_options *o,
		struct load_stop stop, struct remote **ret)
{
	struct remote *r = NULL;
	int error = remote_new(url, o, &r);

	if (error == 0 && !rr)
		error = remote_reader_new(&r->own);
	if (error == 0)
		error = open_by(rr ? rr : r->own, r, stop);
	if (error < 0) {
		remote_close(r);
		return error;
	}
	*ret = r;
	return 0;
}

const char *remote_name(const struct remote *r)
{
	return r->places.v[0]->url.name;
}

uint64_t remote_size(const struct remote *r)
{
	return r->size;
}

const char *remote_etag(const struct remote *r)
{
	return head_is_strong(r->etag) ? r->etag : "";
}

const char *remote_version(const struct remote *r)
{
	return r->etag[0] ? r->etag : r->last_modified;
}

bool remote_has_ranges(const struct remote *r)
{
	return r->has_ranges;
}

int remote_add_mirror(struct remote *r, const char *url)
{
	struct url u = { 0 };
	int error = url_parse(url, &u);

	if (error == 0 && !head_is_strong(r->etag))
		error = load_fail(EINVAL,
				  "%s: the server sends no strong ETag, by which the file could "
				  "be known elsewhere",
				  remote_name(r));
	if (error == 0)
		return places_add(&r->places, &u) < 0 ? load_no_memory() : 0;
	url_clear(&u);
	return error;
}

int remote_set_relay(struct remote *r, const char *relay)
{
	char *copy = strdup(relay);

	if (!copy)
		return load_no_memory();
	free(r->relay);
	r->relay = copy;
	r->places.together = true;
	return 0;
}
