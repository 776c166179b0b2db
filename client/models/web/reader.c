/* SPDX-License-Identifier: MIT
 *
 * A reply is read as long as the reads follow each other in it. Where they don't, or where it
 * breaks, there is another request from the first missing byte.
 */
#include "client/gpushm_private.h"
#include "client/models/fail.h"
#include "client/models/web/remote_internal.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SKIP_MAX (1u << 20)   /* bytes that are read and dropped rather than asked around */
#define DRAIN_MAX (64u << 10) /* the same to keep a connection */
#define DRAIN_MS 200u
#define NAP_FIRST_MS 100u
#define NAP_MAX_MS 5000u
#define SLOW_MS 60000u /* for which a slow server is left alone, if there is another one */
#define OPEN_TRIES 3u  /* unless the server says that it is busy */

/* ---- readers ---- */

int remote_reader_new(struct remote_reader **ret)
{
	struct remote_reader *rr = calloc(1, sizeof(*rr));
	int r = rr ? fetch_new(&rr->fetch) : load_no_memory();

	if (r < 0) {
		free(rr);
		return r;
	}
	*ret = rr;
	return 0;
}

static void drain(struct remote_reader *rr)
{
	static const struct load_stop never;
	enum fate fate;
	size_t got;

	if (rr->end == REMOTE_NO_SIZE || rr->end - rr->at > DRAIN_MAX)
		return;
	fetch_hurry(rr->fetch, DRAIN_MS);
	fetch_body(rr->fetch, NULL, (size_t)(rr->end - rr->at), &got, never, &fate);
}

/* Drops the reply that is open. Keeps gpushm_error(). */
static void drop_reply(struct remote_reader *rr)
{
	struct remote *r = rr->remote;

	if (!r)
		return;
	private_error_guard();
	drain(rr);
	fetch_end(rr->fetch);
	places_give(&r->places, rr->place);
	rr->remote = NULL;
	rr->place = NULL;
	remote_release(r);
}

struct remote_reader *remote_reader_free(struct remote_reader *rr)
{
	if (!rr)
		return NULL;
	drop_reply(rr);
	fetch_free(rr->fetch);
	free(rr);
	return NULL;
}

/* ---- what a reply says of itself ---- */

/* Whether the reply is of the version that was opened. The part that an If-Range gives is, also if
 * it does not say so. */
static bool is_same_version(const struct remote_reader *rr, const struct remote *r)
{
	const struct head *h = &rr->fetch->head;

	if (!rr->place->original || (r->etag[0] && h->etag[0]))
		return strcmp(h->etag, r->etag) == 0;
	if (r->last_modified[0] && h->last_modified[0])
		return strcmp(h->last_modified, r->last_modified) == 0;
	return !remote_version(r)[0] || (h->status == 206 && rr->asked_if_range);
}

static int canceled(void)
{
	return load_fail(ECANCELED, "reading was stopped");
}

static int changed(const struct fetch *f, struct trial *t)
{
	t->fate = FATE_ELSEWHERE;
	return load_fail(ESTALE, "%s changed while it was read: load it again", f->at.name);
}

static int broken(const struct fetch *f, struct trial *t, const char *how)
{
	t->fate = FATE_ELSEWHERE;
	return load_fail(EREMOTEIO, "%s: the server's reply is wrong: %s", f->at.name, how);
}

static void learn(struct remote *r, const struct head *h, uint64_t size, bool has_ranges)
{
	r->size = size;
	r->has_ranges = has_ranges;
	memcpy(r->etag, h->etag, sizeof(r->etag));
	memcpy(r->last_modified, h->last_modified, sizeof(r->last_modified));
}

/* 206 */
static int check_part(struct remote_reader *rr, struct remote *r, uint64_t first, uint64_t last,
		      struct trial *t)
{
	const struct fetch *f = rr->fetch;
	const struct head *h = &f->head;

	if (h->encoded || !h->has_range)
		return broken(f, t, "a part has no Content-Range, or is compressed");
	if (h->first != first || h->last > last)
		return broken(f, t, "the part is another one than was asked for");
	if (h->length != HEAD_UNKNOWN && h->length != h->last - h->first + 1)
		return broken(f, t, "Content-Length and Content-Range disagree");
	if (t->opening && h->total == HEAD_UNKNOWN)
		return broken(f, t, "Content-Range does not say how long the file is");
	if (t->opening)
		learn(r, h, h->total, true);
	else if (!is_same_version(rr, r) || (h->total != HEAD_UNKNOWN && h->total != r->size))
		return changed(f, t);
	rr->at = h->first;
	rr->end = h->last + 1;
	return 0;
}

/* 200: to a request for a part. */
static int check_whole(struct remote_reader *rr, struct remote *r, struct trial *t)
{
	const struct fetch *f = rr->fetch;
	const struct head *h = &f->head;

	if (h->encoded)
		return broken(f, t, "the file is compressed, which was not asked for");
	if (t->opening) {
		learn(r, h, h->length == HEAD_UNKNOWN ? REMOTE_NO_SIZE : h->length, false);
		rr->at = 0;
		rr->end = r->size;
		return 0;
	}
	if (!is_same_version(rr, r) || (h->length != HEAD_UNKNOWN && h->length != r->size))
		return changed(f, t);
	if (!r->has_ranges && remote_version(r)[0]) {
		rr->at = 0;
		rr->end = r->size;
		return 0;
	}
	if (!r->has_ranges)
		return broken(f, t,
			      "it sends no parts and says no version of the file, so that what "
			      "a broken connection has cost can't be asked for again");
	/* The file is the same, so the server does not understand the validator. */
	if (rr->asked_if_range) {
		r->no_if_range = true;
		t->fate = FATE_AGAIN;
		return load_fail(EREMOTEIO, "%s: the server ignores If-Range", f->at.name);
	}
	return broken(f, t, "it sends all of the file, though it has sent parts before");
}

/* 416: there is no such part. */
static int check_none(struct remote_reader *rr, struct remote *r, struct trial *t)
{
	const struct head *h = &rr->fetch->head;

	if (t->opening && h->total == 0) {
		learn(r, h, 0, true);
		rr->at = rr->end = 0;
		return 0;
	}
	if (!t->opening && h->total != HEAD_UNKNOWN && h->total != r->size)
		return changed(rr->fetch, t);
	return broken(rr->fetch, t, "416 for a part that the file has");
}

/* Only a strong ETag says that two servers have the same bytes. */
static void add_duplicates(struct remote *r, const struct head *h)
{
	for (size_t i = 0; i < h->n_duplicates && head_is_strong(r->etag); i++) {
		struct url u = { 0 };

		if (url_parse(h->duplicates[i], &u) == 0)
			places_add(&r->places, &u);
		else
			url_clear(&u);
	}
}

static int check_reply(struct remote_reader *rr, struct remote *r, uint64_t first, uint64_t last,
		       struct trial *t)
{
	struct head *h = &rr->fetch->head;
	int error;

	switch (h->status) {
	case 206:
		return check_part(rr, r, first, last, t);
	case 200:
		return check_whole(rr, r, t);
	case 416:
		return check_none(rr, r, t);
	default:
		break;
	}
	if (h->status < 400)
		return broken(rr->fetch, t, "its status is for other requests");
	add_duplicates(r, h);
	t->nap_ms = rr->fetch->retry_after_ms;
	error = status_error(rr->fetch, &r->credentials, t->stop, &t->fate);
	if (load_stopped(t->stop)) {
		t->fate = FATE_NEVER;
		return canceled();
	}
	return error;
}

/* ---- asking ---- */

static int ask_place(struct remote_reader *rr, struct remote *r, const struct url *u,
		     uint64_t first, uint64_t last, struct trial *t)
{
	const char *version = head_is_strong(r->etag) ? r->etag : r->last_modified;
	const struct ask ask = {
		.credentials = &r->credentials,
		.home = rr->place->original ? &r->places.v[0]->url : NULL,
		.ranged = true,
		.first = first,
		.last = last,
		.if_range = r->no_if_range ? "" : version,
		.relay = r->relay,
		.stall_ms = r->stall_ms,
	};
	int error;

	rr->asked_if_range = ask.if_range[0] != '\0';
	error = fetch_begin(rr->fetch, &ask, u, t->stop, &t->fate);

	return error < 0 ? error : check_reply(rr, r, first, last, t);
}

/* What a failure means for the place. A link that it has led to may have expired: then the place's
 * own URL is asked again. */
static void note_failure(struct remote *r, struct place *place, bool fresh, int error,
			 struct trial *t)
{
	if (t->fate == FATE_NEVER)
		return;
	if (!fresh) {
		places_set_target(&r->places, place, NULL);
		if (t->fate == FATE_ELSEWHERE) {
			t->fate = FATE_AGAIN;
			t->nap_ms = 0;
			return;
		}
	}
	if (t->fate == FATE_ELSEWHERE)
		places_mark_bad(&r->places, place, error);
	if (t->fate == FATE_BUSY)
		places_mark_busy(&r->places, place, t->nap_ms ? t->nap_ms : NAP_FIRST_MS);
	t->avoid = place;
}

static int wait_for_place(struct remote *r, uint64_t ms, struct trial *t)
{
	uint64_t left = t->since_ms + r->credentials.patience_ms;
	uint64_t now = clock_monotonic_ms();

	t->fate = FATE_NEVER;
	if (ms == UINT64_MAX)
		return places_error(&r->places); /* which another thread may not have told yet */
	if (ms == 0)
		return load_no_memory();
	left = left > now ? left - now : 0;
	if (!load_nap(ms < left ? ms : left, t->stop))
		return canceled();
	return ms <= left ? -EAGAIN
			  : load_fail(EBUSY,
				      "%s: the server was busy for %u s, and asks to come again "
				      "later",
				      remote_name(r), r->credentials.patience_ms / 1000);
}

int reader_ask(struct remote_reader *rr, struct remote *r, uint64_t first, uint64_t last,
	       struct trial *t)
{
	_cleanup_(url_clear) struct url u = { 0 };
	struct place *place;
	uint64_t wait_ms;
	bool fresh;
	int error;

	drop_reply(rr);
	for (;;) {
		place = places_take(&r->places, t->avoid, &u, &fresh, &wait_ms);
		if (place)
			break;
		error = wait_for_place(r, wait_ms, t);
		if (error != -EAGAIN)
			return error;
	}
	remote_hold(r);
	rr->remote = r;
	rr->place = place;
	rr->at = 0;
	rr->end = REMOTE_NO_SIZE;
	error = ask_place(rr, r, &u, first, last, t);
	if (error < 0) {
		note_failure(r, place, fresh, error, t);
		drop_reply(rr);
		return error;
	}
	if (fresh && rr->fetch->hops > 0)
		places_set_target(&r->places, place, &rr->fetch->at);
	rr->last = place;
	rr->last_of = r;
	return 0;
}

/* ---- trying again ---- */

void trial_begin(struct trial *t, struct load_stop stop, bool opening)
{
	*t = (struct trial){ .stop = stop,
			     .opening = opening,
			     .since_ms = clock_monotonic_ms(),
			     .fate = FATE_NEVER };
}

static bool is_over(const struct trial *t, const struct remote *r, int error)
{
	if (t->fate == FATE_NEVER)
		return true;
	/* A name with a mistake in it, or a server that is not there, is known at once. */
	if (t->opening && t->fate == FATE_AGAIN)
		return t->tries > OPEN_TRIES || error == -EHOSTUNREACH;
	return clock_monotonic_ms() - t->since_ms > r->credentials.patience_ms;
}

/* 100 ms, 200 ms, ... with a quarter more or less, so that many readers don't come at once. */
static uint64_t back_off(const struct trial *t)
{
	uint64_t ms = t->tries < 6 ? (uint64_t)NAP_FIRST_MS << (t->tries - 1) : NAP_MAX_MS;
	uint64_t noise = clock_monotonic_ns() / 64 % 512;

	return ms * 3 / 4 + ms * noise / 1024;
}

int trial_failed(struct trial *t, struct remote *r, int error)
{
	struct gpushm_private_error why;
	size_t left = places_left(&r->places);
	uint64_t end = t->since_ms + r->credentials.patience_ms, now = clock_monotonic_ms();
	uint64_t ms;

	t->tries++;
	if (is_over(t, r, error) || left == 0)
		return error;
	/* Another place can be asked at once, until each of them has failed; a busy one is waited
	 * for where the next one is chosen. */
	if (t->fate == FATE_ELSEWHERE || (t->fate == FATE_BUSY && !t->alone) ||
	    (left > 1 && t->tries < left))
		return 0;
	/* The first break of a connection that was idle may be the server's impatience. */
	if (t->tries == 1 && !t->opening)
		return 0;
	ms = back_off(t);
	if (t->nap_ms > ms)
		ms = t->nap_ms;
	t->nap_ms = 0;
	if (end > now && ms > end - now)
		ms = end - now + 1;
	gpushm_private_keep(&why);
	if (!load_nap(ms, t->stop))
		return canceled();
	gpushm_private_put_back(&why);
	return 0;
}

/* ---- reading ---- */

void remote_expect(struct remote_reader *rr, struct remote *r, uint64_t offset, uint64_t bytes)
{
	if (!rr && !r->own)
		remote_reader_new(&r->own); /* or else it fails when it reads */
	rr = rr ? rr : r->own;
	if (!rr)
		return;
	rr->expected_of = r;
	rr->expected_from = offset;
	rr->expected_end = bytes < UINT64_MAX - offset ? offset + bytes : UINT64_MAX;
}

/* The last byte of a request that begins at the offset, for n bytes at least. */
static uint64_t last_to_ask(const struct remote_reader *rr, const struct remote *r, uint64_t offset,
			    size_t n)
{
	uint64_t end = offset + n;

	/* A server that sends no parts sends all. */
	if (!r->has_ranges)
		return UINT64_MAX / 2;
	if (rr->expected_of == r && offset >= rr->expected_from && offset < rr->expected_end &&
	    rr->expected_end > end)
		end = rr->expected_end;
	return (end < r->size ? end : r->size) - 1;
}

/* The next bytes of the open reply. *got counts those that are in the caller's memory. */
static int read_open(struct remote_reader *rr, struct remote *r, char *to, size_t n,
		     uint64_t offset, size_t *ret_got, struct trial *t)
{
	size_t skipped = 0;
	int error = 0;

	*ret_got = 0;
	if (offset > rr->at) {
		size_t skip = (size_t)(offset - rr->at);

		error = fetch_body(rr->fetch, NULL, skip, &skipped, t->stop, &t->fate);
		rr->at += skipped;
		if (error < 0 || skipped < skip)
			return error;
	}
	if (rr->end != REMOTE_NO_SIZE && n > rr->end - rr->at)
		n = (size_t)(rr->end - rr->at);
	rr->fetch->leave = places_has_other(&r->places, rr->place);
	error = fetch_body(rr->fetch, to, n, ret_got, t->stop, &t->fate);
	rr->at += *ret_got;
	if (*ret_got > 0) {
		t->since_ms = clock_monotonic_ms();
		t->tries = 0;
		t->avoid = NULL;
	}
	return error;
}

static bool is_at(const struct remote_reader *rr, const struct remote *r, uint64_t offset)
{
	if (rr->remote != r || offset < rr->at)
		return false;
	return !r->has_ranges || (offset < rr->end && offset - rr->at <= SKIP_MAX);
}

/* A step of a read: asks, unless a reply is open that has the bytes, and takes what comes. */
static int read_step(struct remote_reader *rr, struct remote *r, char *to, size_t n,
		     uint64_t offset, size_t *ret_got, struct trial *t)
{
	int error = 0;

	*ret_got = 0;
	if (!is_at(rr, r, offset))
		error = reader_ask(rr, r, offset, last_to_ask(rr, r, offset, n), t);
	if (error == 0)
		error = read_open(rr, r, to, n, offset, ret_got, t);
	if (error == 0 && *ret_got == 0 && r->has_ranges) {
		t->fate = FATE_AGAIN;
		error = load_fail(ENETRESET, "%s: the server ended a part too early",
				  remote_name(r));
	}
	if (error == 0)
		return 0;
	/* A reply that has begun well: what broke it may be over, and is not asked for in haste. */
	if (rr->remote == r && t->fate == FATE_ELSEWHERE)
		t->fate = FATE_AGAIN;
	/* It is slow; it may be faster later. */
	if (rr->remote == r && t->fate == FATE_BUSY)
		places_mark_busy(&r->places, rr->place, SLOW_MS);
	rr->end = rr->at; /* nothing to drain */
	drop_reply(rr);
	return trial_failed(t, r, error);
}

static int read_all(struct remote_reader *rr, struct remote *r, char *to, size_t n, uint64_t offset,
		    size_t *ret_got, struct load_stop stop)
{
	size_t done = 0;
	struct trial t;
	int error = 0;

	trial_begin(&t, stop, false);
	while (error == 0 && done < n) {
		size_t got;

		error = read_step(rr, r, to + done, n - done, offset + done, &got, &t);
		done += got;
		if (error == 0 && got == 0 && rr->remote == r)
			break; /* the end of a stream */
	}
	*ret_got = done;
	return error;
}

int remote_read_up_to(struct remote_reader *rr, struct remote *r, void *to, size_t n,
		      uint64_t offset, size_t *ret_got, struct load_stop stop)
{
	int error = 0;

	*ret_got = 0;
	if (r->size != REMOTE_NO_SIZE && (offset >= r->size || n > r->size - offset))
		n = offset < r->size ? (size_t)(r->size - offset) : 0;
	if (n == 0)
		return 0;
	if (!r->has_ranges)
		rr = NULL;
	if (!rr && !r->own)
		error = remote_reader_new(&r->own);
	return error < 0 ? error : read_all(rr ? rr : r->own, r, to, n, offset, ret_got, stop);
}

int remote_read(struct remote_reader *rr, struct remote *r, void *to, size_t n, uint64_t offset,
		struct load_stop stop)
{
	size_t got = 0;
	int error = remote_read_up_to(rr, r, to, n, offset, &got, stop);

	if (error < 0 || got == n)
		return error;
	return load_fail(ESTALE, "%s ends at byte %" PRIu64 ", before what is read of it",
			 remote_name(r), offset + got);
}

int remote_blame(struct remote_reader *rr, struct remote *r)
{
	struct place *wrong;

	rr = rr ? rr : r->own;
	wrong = rr && rr->last_of == r ? rr->last : NULL;
	if (!wrong)
		return load_fail(ENODATA, "%s: nothing was read", remote_name(r));
	if (rr->remote == r) {
		rr->end = rr->at; /* nothing to drain */
		drop_reply(rr);
	}
	if (places_drop(&r->places, wrong))
		return 0;
	return load_fail(ENODATA, "%s has sent wrong bytes, and no other server has the file",
			 wrong->url.name);
}
