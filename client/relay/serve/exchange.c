/* SPDX-License-Identifier: MIT
 *
 * Replies that all resources have in common.
 */
#include "client/relay/serve/exchange.h"

#include "client/relay/fleet/pulls.h"
#include "client/relay/serve/allow.h"
#include "proto/base/own.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATUS_MAX 600u

static atomic_uint_least64_t replies[STATUS_MAX]; /* by status */

const char *exchange_header(const struct exchange *x, const char *name)
{
	return MHD_lookup_connection_value(x->http, MHD_HEADER_KIND, name);
}

void exchange_add(struct MHD_Response *r, const char *name, const char *format, ...)
{
	_cleanup_(free_ptr) char *text = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	if (r && text)
		MHD_add_response_header(r, name, text);
}

uint64_t exchange_count(unsigned status)
{
	return status < STATUS_MAX ? replies[status] : 0;
}

/* Who may not read a buffer does not learn where it comes from. */
static void add_via(const struct exchange *x, struct MHD_Response *r)
{
	char via[PULL_VIA_MAX];

	pulls_via(x->name, via);
	if (via[0] && config_offers(x->config, x->name) && allow_read(x->config, x->peer, x->name))
		MHD_add_response_header(r, MHD_HTTP_HEADER_VIA, via);
}

enum MHD_Result exchange_send(const struct exchange *x, unsigned status, struct MHD_Response *r)
{
	enum MHD_Result sent;

	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
	add_via(x, r);
	sent = MHD_queue_response(x->http, status, r);
	if (sent == MHD_YES && status < STATUS_MAX)
		replies[status]++;
	MHD_destroy_response(r);
	return sent;
}

struct MHD_Response *exchange_text(const char *type, const char *cache, char *text)
{
	struct MHD_Response *r =
		text ? MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE)
		     : NULL;

	if (!r)
		free(text);
	exchange_add(r, MHD_HTTP_HEADER_CONTENT_TYPE, "%s", type);
	exchange_add(r, MHD_HTTP_HEADER_CACHE_CONTROL, "%s", cache);
	return r;
}

enum MHD_Result exchange_json(const struct exchange *x, unsigned status, json_t *object)
{
	char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
	struct MHD_Response *r = exchange_text("application/json", "no-store", text);

	json_decref(object);
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		exchange_add(r, MHD_HTTP_HEADER_ALLOW, "%s", x->allow);
	return exchange_send(x, status, r);
}

/* What can't be shown as JSON (no UTF-8) becomes '?'. */
static json_t *string(char *text)
{
	json_t *value = json_string(text);

	for (char *p = text; !value && *p; p++)
		if (*p & 0x80)
			*p = '?';
	return value ? value : json_string(text);
}

enum MHD_Result exchange_error(const struct exchange *x, unsigned status, const char *format, ...)
{
	_cleanup_(free_ptr) char *text = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	return text ? exchange_json(x, status, json_pack("{s:o}", "error", string(text))) : MHD_NO;
}

enum MHD_Result exchange_failed(const struct exchange *x, int result)
{
	static const struct {
		int error;
		unsigned status;
	} table[] = { { ENOENT, MHD_HTTP_NOT_FOUND },
		      { EACCES, MHD_HTTP_FORBIDDEN },
		      { ENOTSUP, MHD_HTTP_NOT_IMPLEMENTED },
		      { EBADMSG, MHD_HTTP_INTERNAL_SERVER_ERROR } };
	_cleanup_(free_ptr) char *text = strdup(gpushm_error());

	for (size_t i = 0; i < array_size(table); i++)
		if (result == -table[i].error)
			return exchange_error(x, table[i].status, "%s", text ? text : "");
	return exchange_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, "%s", text ? text : "");
}

/* NULL: a reply says why not, whose result is *ret. */
static struct offer *find_offer(const struct exchange *x, const char *etag, enum MHD_Result *ret)
{
	struct offer *o;

	if (!allow_read(x->config, x->peer, x->name)) {
		*ret = exchange_error(x, MHD_HTTP_FORBIDDEN,
				      "\"%s\": no [allow] section of this relay lets your "
				      "certificate (%s) read it",
				      x->name, x->peer->names.n ? x->peer->names.items[0] : "");
		return NULL;
	}
	/* What the relay pulls is in the table, whatever its name. */
	o = config_offers(x->config, x->name) ? offers_find(x->offers, x->name, etag) : NULL;
	if (!o && !offers_known(x->offers))
		*ret = exchange_error(x, MHD_HTTP_SERVICE_UNAVAILABLE,
				      "\"%s\": the daemon of this machine does not reply", x->name);
	else if (!o)
		*ret = exchange_error(x, MHD_HTTP_NOT_FOUND,
				      "\"%s\": this relay offers no buffer of that name; it offers "
				      "sealed buffers that it may open and that its configuration "
				      "does not hide",
				      x->name);
	return o;
}

enum MHD_Result exchange_known(const struct exchange *x, const char *etag,
			       enum MHD_Result (*reply)(const struct exchange *x, struct offer *o,
							const struct offer_facts *f))
{
	enum MHD_Result ret;
	struct offer *o = find_offer(x, etag, &ret);
	struct offer_facts facts;
	int r;

	if (!o)
		return ret;
	r = offer_know(o, x->http);
	offer_facts(o, &facts);
	ret = r < 0 ? exchange_failed(x, r) : reply(x, o, &facts);
	offer_release(o);
	return ret;
}
