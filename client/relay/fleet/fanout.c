/* SPDX-License-Identifier: MIT
 *
 * The first bytes of a file, with its header, are for everybody: a machine that is turned away must
 * learn what the file is.
 */
#include "client/relay/fleet/fanout.h"

#include "client/gpushm_load_private.h"
#include "client/relay/fleet/pulls.h"
#include "client/relay/fleet/transfers.h"
#include "client/relay/serve/range.h"
#include "proto/base/own.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FREE_BYTES (256u << 10)
#define PATIENCE_NS 10000000000ull

static struct mirrors *mirrors;
static struct transfers *transfers;

int fanout_start(void)
{
	mirrors = mirrors_new();
	transfers = transfers_new();
	return mirrors && transfers ? 0 : -ENOMEM;
}

/* A client that is not itself a relay may wait for any block. If this relay's own pull has no start
 * time, no other pull waits for it: that could be a cycle. */
static bool may_wait(const char *name, const struct announcement *asks)
{
	struct announcement own;

	return !asks || (pulls_own(name, &own) && announcement_before(&own, asks));
}

/* ---- announcements ---- */

static bool is_same_address(const char *a, const char *b)
{
	int family = strchr(a, ':') ? AF_INET6 : AF_INET;
	unsigned char x[sizeof(struct in6_addr)] = { 0 }, y[sizeof(x)] = { 0 };

	return inet_pton(family, a, x) == 1 && inet_pton(family, b, y) == 1 &&
	       memcmp(x, y, sizeof(x)) == 0;
}

/* RFC 6125: in a certificate "*.example.com" stands for names with one label more. */
static bool is_named(const char *name, const char *host)
{
	const char *dot = strchr(host, '.');

	if (strncmp(name, "*.", 2) == 0)
		return dot && dot > host && strcasecmp(name + 1, dot) == 0;
	return strcasecmp(name, host) == 0;
}

/* A machine may announce itself only, or its clients would be sent to a victim. */
static bool is_its_own(const struct peer *p, const char *host)
{
	if (is_same_address(p->address, host))
		return true;
	for (size_t i = 0; i < p->names.n; i++)
		if (is_named(p->names.items[i], host))
			return true;
	return false;
}

/* The announcement of the request, in *ret; NULL: it has none, or one that the relay does not
 * believe. */
static const struct announcement *read_announcement(const struct exchange *x,
						    struct announcement *ret)
{
	const char *text = exchange_header(x, RELAY_HEADER);

	if (!text || announcement_parse(text, ret) < 0 || !is_its_own(x->peer, ret->host))
		return NULL;
	memcpy(ret->address, x->peer->address, sizeof(ret->address));
	return ret;
}

/* ---- requests ---- */

static enum MHD_Result reply_busy(const struct exchange *x, const struct offer_facts *facts,
				  const struct announcement *asks)
{
	char *text =
		strdup("{\"error\":\"this relay is busy; Link names others that have the file or "
		       "are getting it\"}");
	_cleanup_(free_ptr) char *link = mirrors_link(mirrors, facts->etag, asks);
	struct MHD_Response *r = exchange_text("application/json", "no-store", text);

	exchange_add(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
	if (link)
		exchange_add(r, MHD_HTTP_HEADER_LINK, "%s", link);
	return exchange_send(x, MHD_HTTP_SERVICE_UNAVAILABLE, r);
}

/* A machine that pulls can go elsewhere: it is sent away early, but not for long if nobody that is
 * named serves it. */
static unsigned begin(const struct exchange *x, const struct offer_facts *facts,
		      const struct announcement *asks)
{
	const struct config *c = x->config;
	uint32_t max = c->max_transfers;

	if (asks && c->fan_out > 0 && (max == 0 || c->fan_out < max) &&
	    transfers_refused_ns(transfers, x->peer->address, facts->etag) < PATIENCE_NS &&
	    mirrors_has_older(mirrors, facts->etag, asks))
		max = c->fan_out;
	return transfers_begin(transfers, x->peer->address, facts->etag, max);
}

void fanout_cut(const struct exchange *x, struct offer *o, const struct offer_facts *facts,
		uint64_t begin_at, uint64_t *n)
{
	struct announcement says;

	if (facts->complete || begin_at >= facts->header || begin_at + *n <= facts->header)
		return;
	if (!offer_has(o, facts->header) && !may_wait(facts->name, read_announcement(x, &says)))
		*n = facts->header - begin_at;
}

bool fanout_enter(const struct exchange *x, struct offer *o, const struct offer_facts *facts,
		  uint64_t begin_at, uint64_t n, struct fanout_pass *ret,
		  enum MHD_Result *ret_reply)
{
	struct announcement says;
	const struct announcement *asks = read_announcement(x, &says);
	uint64_t data = begin_at < facts->header ? facts->header : begin_at;
	bool is_header = begin_at + n <= facts->header;
	bool is_free = is_header || begin_at + n <= FREE_BYTES, is_served;

	*ret = (struct fanout_pass){ .may_wait = facts->complete || may_wait(facts->name, asks) };
	is_served = is_header || ret->may_wait || offer_has(o, data);
	if (asks && !is_free)
		mirrors_note(mirrors, facts->etag, asks);
	if (x->head || (is_free && is_served))
		return true;
	if (is_served)
		ret->requests = begin(x, facts, asks);
	if (ret->requests == 0) {
		*ret_reply = reply_busy(x, facts, asks);
		return false;
	}
	memcpy(ret->address, x->peer->address, sizeof(ret->address));
	memcpy(ret->etag, facts->etag, sizeof(ret->etag));
	return true;
}

void fanout_leave(struct fanout_pass *p)
{
	if (p->requests)
		transfers_end(transfers, p->address, p->etag);
	p->requests = 0;
}

size_t fanout_mirrors(const struct exchange *x, const char *etag,
		      struct announcement ret[MIRRORS_NAMED])
{
	struct announcement says;

	return mirrors_choose(mirrors, etag, read_announcement(x, &says), MIRRORS_OLDER, ret);
}

/* It has, or is getting, just the file that is here now, if it says so. */
void fanout_hear(const struct exchange *x, const struct offer_facts *facts)
{
	const char *has = exchange_header(x, MHD_HTTP_HEADER_IF_NONE_MATCH);
	struct announcement says;

	if (has && range_has_etag(has, facts->etag, false) && read_announcement(x, &says))
		mirrors_note(mirrors, facts->etag, &says);
}
