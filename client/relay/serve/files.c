/* SPDX-License-Identifier: MIT
 *
 * Host memory is sent from where it is. What lies in a GPU, has strides, or is being pulled is
 * copied to a piece of memory first: OFFER_READ_MAX for the first requests of a transfer, little
 * for further ones.
 */
#include "client/relay/serve/files.h"

#include "client/gpushm_load_private.h"
#include "client/relay/fleet/fanout.h"
#include "client/relay/serve/range.h"
#include "proto/base/uri.h"

#include <inttypes.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IOV_PARTS 256 /* that libmicrohttpd can take in a connection's memory */

/* With at most 256 requests of an address they take less than 64 MiB together. */
#define LARGE_MAX 12u
#define SMALL (64u << 10)

/* A reply's body. */
struct body {
	struct offer *offer;	 /* owned: a reference */
	const struct mapping *m; /* held; NULL: offer_read() is used */
	uint64_t begin, n;
	uint64_t header; /* bytes of the file before its first block */
	struct fanout_pass pass;
	struct MHD_Connection *reader; /* NULL: it does not wait for blocks */
};

static void free_body(void *arg)
{
	struct body *b = arg;

	if (b->m)
		offer_leave(b->offer, b->m);
	fanout_leave(&b->pass);
	offer_release(b->offer);
	free(b);
}

/* Bytes that are there are sent before those of the next block have come. */
static size_t up_to_block(const struct body *b, uint64_t offset, size_t n)
{
	uint64_t left = offset < b->header ? b->header - offset
					   : BLOCK_BYTES - (offset - b->header) % BLOCK_BYTES;

	return left < n ? (size_t)left : n;
}

static ssize_t read_body(void *arg, uint64_t at, char *to, size_t max)
{
	struct body *b = arg;
	size_t n = b->n - at < max ? (size_t)(b->n - at) : max;

	if (n == 0)
		return MHD_CONTENT_READER_END_OF_STREAM;
	n = up_to_block(b, b->begin + at, n < OFFER_READ_MAX ? n : OFFER_READ_MAX);
	return offer_read(b->offer, b->begin + at, to, n, b->reader) < 0
		       ? MHD_CONTENT_READER_END_WITH_ERROR
		       : (ssize_t)n;
}

/* NULL: it can't be sent from where it is. */
static struct MHD_Response *in_place(struct body *b, struct MHD_Connection *reader)
{
	struct MHD_IoVec iov[IOV_PARTS];
	struct iovec parts[IOV_PARTS];
	struct MHD_Response *r;
	int n;

	if (offer_enter(b->offer, reader, &b->m) < 0)
		return NULL;
	n = gpushm_private_mapping_iov(b->m, b->begin, b->n, parts, IOV_PARTS);
	for (int i = 0; i < n; i++)
		iov[i] = (struct MHD_IoVec){ parts[i].iov_base, parts[i].iov_len };
	r = n < 0 ? NULL : MHD_create_response_from_iovec(iov, (unsigned)n, free_body, b);
	if (!r) {
		offer_leave(b->offer, b->m);
		b->m = NULL;
	}
	return r;
}

/* Takes the pass. NULL: out of memory. */
static struct MHD_Response *make_body(const struct exchange *x, struct offer *o,
				      const struct offer_facts *f, uint64_t begin, uint64_t n,
				      struct fanout_pass *pass)
{
	struct body *b = calloc(1, sizeof(*b));
	struct MHD_Response *r;
	size_t max = pass->requests > 0 && pass->requests <= LARGE_MAX ? OFFER_READ_MAX : SMALL;
	size_t piece = n < max ? (size_t)n : max;

	if (!b) {
		fanout_leave(pass);
		return NULL;
	}
	*b = (struct body){ .offer = offer_ref(o),
			    .begin = begin,
			    .n = n,
			    .header = f->header,
			    .pass = *pass,
			    .reader = pass->may_wait ? x->http : NULL };
	r = in_place(b, x->http);
	if (!r)
		r = MHD_create_response_from_callback(n, piece, read_body, b, free_body);
	if (!r)
		free_body(b);
	return r;
}

/* ---- conditions ---- */

static bool has_digest_wish(const struct exchange *x)
{
	const char *want = exchange_header(x, "Want-Repr-Digest");

	return want && strstr(want, "sha-256") && !strstr(want, "sha-256=0");
}

/* RFC 9530. A digest that can't be computed is left out. */
static void add_digest(const struct exchange *x, struct offer *o, struct MHD_Response *r)
{
	unsigned char hash[32];
	char text[BASE64_ENCODE_RAW_LENGTH(sizeof(hash)) + 1] = "";

	if (!has_digest_wish(x) || offer_sha256(o, x->http, hash) < 0)
		return;
	base64_encode_raw(text, sizeof(hash), hash);
	exchange_add(r, "Repr-Digest", "sha-256=:%s:", text);
}

static void add_headers(const struct exchange *x, struct offer *o, const struct offer_facts *f,
			struct MHD_Response *r)
{
	if (!r)
		return;
	exchange_add(r, MHD_HTTP_HEADER_ETAG, "%s", f->etag);
	exchange_add(r, MHD_HTTP_HEADER_ACCEPT_RANGES, "bytes");
	exchange_add(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache, no-transform");
	add_digest(x, o, r);
}

static enum MHD_Result send_empty(const struct exchange *x, struct offer *o,
				  const struct offer_facts *f, unsigned status)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);

	add_headers(x, o, f, r);
	return exchange_send(x, status, r);
}

static enum MHD_Result send_part(const struct exchange *x, struct offer *o,
				 const struct offer_facts *f, unsigned status, uint64_t begin,
				 uint64_t n)
{
	struct MHD_Response *r;
	struct fanout_pass pass;
	enum MHD_Result busy;

	if (status == MHD_HTTP_PARTIAL_CONTENT)
		fanout_cut(x, o, f, begin, &n);
	if (!fanout_enter(x, o, f, begin, n, &pass, &busy))
		return busy;
	r = make_body(x, o, f, begin, n, &pass);
	add_headers(x, o, f, r);
	exchange_add(r, MHD_HTTP_HEADER_CONTENT_TYPE, "application/octet-stream");
	if (status == MHD_HTTP_PARTIAL_CONTENT)
		exchange_add(r, MHD_HTTP_HEADER_CONTENT_RANGE,
			     "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, begin, begin + n - 1,
			     f->size);
	return exchange_send(x, status, r);
}

static enum MHD_Result send_unsatisfiable(const struct exchange *x, const struct offer_facts *f)
{
	char *text = strdup("{\"error\":\"no byte of this range exists\"}");
	struct MHD_Response *r = exchange_text("application/json", "no-store", text);

	exchange_add(r, MHD_HTTP_HEADER_CONTENT_RANGE, "bytes */%" PRIu64, f->size);
	return exchange_send(x, MHD_HTTP_RANGE_NOT_SATISFIABLE, r);
}

/* In the order of RFC 9110, 13.2.2. */
static enum MHD_Result send_file(const struct exchange *x, struct offer *o,
				 const struct offer_facts *f)
{
	const char *match = exchange_header(x, MHD_HTTP_HEADER_IF_MATCH);
	const char *none = exchange_header(x, MHD_HTTP_HEADER_IF_NONE_MATCH);
	const char *if_range = exchange_header(x, MHD_HTTP_HEADER_IF_RANGE);
	const char *range = exchange_header(x, MHD_HTTP_HEADER_RANGE);
	uint64_t begin = 0, n = f->size;
	enum range_what what;

	if (match && !range_has_etag(match, f->etag, false))
		return exchange_error(x, MHD_HTTP_PRECONDITION_FAILED, "\"%s\" has the ETag %s now",
				      x->name, f->etag);
	if (none && range_has_etag(none, f->etag, true))
		return send_empty(x, o, f, MHD_HTTP_NOT_MODIFIED);
	if (x->head || (if_range && strcmp(if_range, f->etag) != 0))
		range = NULL;
	what = range_parse(range, f->size, &begin, &n);
	if (what == RANGE_NONE)
		return send_unsatisfiable(x, f);
	return send_part(x, o, f, what == RANGE_PART ? MHD_HTTP_PARTIAL_CONTENT : MHD_HTTP_OK,
			 begin, n);
}

enum MHD_Result files_get(const struct exchange *x)
{
	return exchange_known(x, exchange_header(x, MHD_HTTP_HEADER_IF_RANGE), send_file);
}

/* ---- the list ---- */

static json_t *text_or_null(const char *text)
{
	return *text ? json_string(text) : json_null();
}

static json_t *describe(struct offer *o, struct MHD_Connection *reader)
{
	struct offer_facts f;
	char path[3 * OFFER_NAME_MAX + 1];
	json_t *item;

	offer_look(o, reader);
	offer_facts(o, &f);
	uri_encode(f.name, strlen(f.name), URI_PATH, path);
	item = json_pack("{s:s, s:I, s:I, s:I, s:b}", "name", f.name, "id", (json_int_t)f.id,
			 "bytes", (json_int_t)f.bytes, "arrays", (json_int_t)f.arrays, "complete",
			 f.complete);
	if (!item)
		return NULL;
	if (f.why[0]) {
		json_object_set_new(item, "why", json_string(f.why));
		return item;
	}
	json_object_set_new(item, "content", text_or_null(f.content));
	json_object_set_new(item, "etag", text_or_null(f.etag));
	json_object_set_new(item, "size", f.size ? json_integer((json_int_t)f.size) : json_null());
	json_object_set_new(item, "url", json_sprintf("/v1/buffers/%s", path));
	json_object_set_new(item, "manifest", json_sprintf("/v1/manifests/%s", path));
	return item;
}

enum MHD_Result files_list(const struct exchange *x)
{
	json_t *list;
	struct offer **offers;
	size_t n;

	if (!offers_known(x->offers))
		return exchange_error(x, MHD_HTTP_SERVICE_UNAVAILABLE,
				      "the daemon of this machine does not reply");
	list = json_array();
	if (offers_list(x->offers, &offers, &n) < 0) {
		json_decref(list);
		return exchange_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
	}
	for (size_t i = 0; i < n; i++) {
		if (config_offers(x->config, offer_name(offers[i])) &&
		    allow_read(x->config, x->peer, offer_name(offers[i])))
			json_array_append_new(list, describe(offers[i], x->http));
		offer_release(offers[i]);
	}
	free(offers);
	return exchange_json(x, MHD_HTTP_OK, json_pack("{s:o}", "buffers", list));
}
