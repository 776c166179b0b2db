/* SPDX-License-Identifier: MIT
 *
 * A request and its reply.
 */
#pragma once

#include "client/relay/config.h"
#include "client/relay/offer/offers.h"
#include "client/relay/serve/allow.h"

#include <jansson.h>
#include <microhttpd.h>

#define EXCHANGE_BODY_MAX (64u << 10) /* bytes of a request's body */

struct exchange {
	struct MHD_Connection *http;
	const struct config *config;
	struct offers *offers;
	const struct peer *peer;
	const char *name; /* of the buffer, without percent signs; "" without one */
	const char *body; /* of a POST; with a NUL behind it */
	size_t n_body;
	bool head;	   /* HEAD: the reply has no body */
	const char *allow; /* the methods of this resource; NULL: there is no such resource */
};

/* NULL: the request does not have it. */
const char *exchange_header(const struct exchange *x, const char *name);

/* Adds a header to a response. */
void exchange_add(struct MHD_Response *r, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* A response with that text, which it takes; malloc'd. NULL: out of memory. cache: of the header
 * Cache-Control. */
struct MHD_Response *exchange_text(const char *type, const char *cache, char *text);

/* Sends the response, and frees it. NULL: out of memory; the connection ends. */
enum MHD_Result exchange_send(const struct exchange *x, unsigned status, struct MHD_Response *r);

/* How many replies of that status were sent. */
uint64_t exchange_count(unsigned status);

/* {"error": "..."}. */
enum MHD_Result exchange_error(const struct exchange *x, unsigned status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* For a negative errno of an offer, with gpushm_error() as the text. */
enum MHD_Result exchange_failed(const struct exchange *x, int result);

/* Takes the object. NULL: out of memory. */
enum MHD_Result exchange_json(const struct exchange *x, unsigned status, json_t *object);

/* Replies about the offer that the request names, and whose file is known by then; or says that its
 * client may not read it, or that no offer has that name. etag: as for offers_find(). */
enum MHD_Result exchange_known(const struct exchange *x, const char *etag,
			       enum MHD_Result (*reply)(const struct exchange *x, struct offer *o,
							const struct offer_facts *f));
