/* SPDX-License-Identifier: MIT
 *
 * Small resources, read as a whole: an index, a manifest, an exchange of a few KiB.
 */
#include "client/models/fail.h"
#include "client/models/web/remote.h"
#include "client/models/web/remote_internal.h"
#include "proto/base/own.h"

#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES (64u << 10)
#define WAIT_SLACK_MS 10000u

static int read_body(struct fetch *f, const struct remote_request *q, struct remote_reply *ret,
		     struct trial *t)
{
	size_t got = PIECE_BYTES, room = 0;
	int error = 0;

	while (error == 0 && got == PIECE_BYTES) {
		if (ret->n_body + PIECE_BYTES + 1 > room) {
			size_t more = 2 * room + PIECE_BYTES + 1;
			char *grown = realloc(ret->body, more);

			t->fate = FATE_NEVER;
			if (!grown)
				return load_no_memory();
			ret->body = grown;
			room = more;
		}
		error = fetch_body(f, ret->body + ret->n_body, PIECE_BYTES, &got, t->stop,
				   &t->fate);
		ret->n_body += got;
		ret->body[ret->n_body] = '\0';
		if (error == 0 && ret->n_body > q->max_bytes) {
			t->fate = FATE_NEVER;
			error = load_fail(EFBIG, "%s has more than %zu bytes", f->at.name,
					  q->max_bytes);
		}
	}
	return error;
}

static int check_head(struct fetch *f, struct remote *r, struct remote_reply *ret, struct trial *t)
{
	const struct head *h = &f->head;

	if (h->status >= 400) {
		t->nap_ms = f->retry_after_ms;
		return status_error(f, &r->credentials, t->stop, &t->fate);
	}
	t->fate = FATE_NEVER;
	if (h->encoded)
		return load_fail(EREMOTEIO, "%s: the reply is compressed, which was not asked for",
				 f->at.name);
	ret->status = h->status;
	return 0;
}

static int attempt(struct fetch *f, struct remote *r, const struct ask *a,
		   const struct remote_request *q, struct remote_reply *ret, struct trial *t)
{
	int error = fetch_begin(f, a, &r->places.v[0]->url, t->stop, &t->fate);

	if (error == 0)
		error = check_head(f, r, ret, t);
	if (error == 0)
		error = read_body(f, q, ret, t);
	if (error < 0)
		remote_reply_clear(ret);
	if (error < 0 && f->head.status >= 400)
		ret->status = f->head.status;
	memcpy(ret->via, f->head.via, sizeof(ret->via));
	fetch_end(f);
	return error;
}

static int run(struct fetch *f, struct remote *r, const struct remote_request *q,
	       struct remote_reply *ret)
{
	struct ask ask = { .method = q->method,
			   .credentials = &r->credentials,
			   .home = &r->places.v[0]->url,
			   .wait_s = q->wait_s,
			   .if_none_match = q->if_none_match,
			   .relay = q->relay,
			   .body = q->body,
			   .n_body = q->n_body,
			   .stall_ms = r->stall_ms };
	struct trial t;
	int error = 0;

	if (q->if_none_match && strpbrk(q->if_none_match, "\r\n"))
		return load_fail(EINVAL, "an ETag has no line breaks");
	if (q->wait_s)
		ask.stall_ms = r->stall_ms + q->wait_s * 1000u + WAIT_SLACK_MS;
	trial_begin(&t, q->stop, !q->again);
	t.alone = true;
	while (error == 0) {
		error = attempt(f, r, &ask, q, ret, &t);
		if (error == 0)
			return 0;
		if (t.fate == FATE_ELSEWHERE || (q->body && !q->again && t.fate != FATE_BUSY))
			return error;
		error = trial_failed(&t, r, error);
	}
	return error;
}

int remote_request(const struct remote_request *q, struct remote_reply *ret)
{
	struct fetch *f = NULL;
	struct remote *r = NULL;
	int error;

	*ret = (struct remote_reply){ 0 };
	error = remote_new(q->url, q->options, &r);
	if (error == 0)
		error = fetch_new(&f);
	if (error == 0)
		error = run(f, r, q, ret);
	fetch_free(f);
	remote_close(r);
	return error;
}

void remote_reply_clear(struct remote_reply *r)
{
	free(r->body);
	*r = (struct remote_reply){ 0 };
}
