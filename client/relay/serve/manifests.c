/* SPDX-License-Identifier: MIT
 *
 * With "Prefer: wait=N" (RFC 7240) a request waits until the name has other contents than the ETag
 * of If-None-Match, or, without one, until the name exists.
 */
#include "client/relay/serve/manifests.h"

#include "client/common/clients.h"
#include "client/relay/fleet/fanout.h"
#include "client/relay/locks.h"
#include "client/relay/serve/range.h"
#include "proto/base/clock.h"
#include "proto/base/list.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- the manifest ---- */

/* What belongs to the machine that has loaded the buffer, and not to its contents. */
static bool is_local(const char *key)
{
	return strcmp(key, "gpushm.files") == 0 || strcmp(key, "gpushm.path") == 0;
}

/* What a manifest borrows. */
struct parts {
	struct announcement mirrors[MIRRORS_NAMED];
	char *urls[MIRRORS_NAMED];   /* of the mirrors */
	struct manifest_attr *attrs; /* owned; the rest is the offer's */
};

static int fill(const struct exchange *x, struct offer *o, struct parts *p, struct manifest *m)
{
	int r = offer_manifest(o, x->http, m);
	size_t n = 0;

	if (r < 0)
		return r;
	p->attrs = calloc(m->n_attrs + 1, sizeof(*p->attrs));
	if (!p->attrs)
		return -ENOMEM;
	for (size_t i = 0; i < m->n_attrs; i++)
		if (!is_local(m->attrs[i].key))
			p->attrs[n++] = m->attrs[i];
	m->attrs = p->attrs;
	m->n_attrs = n;
	m->mirrors = p->urls;
	m->n_mirrors = fanout_mirrors(x, m->etag, p->mirrors);
	for (size_t i = 0; i < m->n_mirrors; i++)
		p->urls[i] = p->mirrors[i].url;
	return 0;
}

static enum MHD_Result send_manifest(const struct exchange *x, struct offer *o)
{
	struct parts p = { .attrs = NULL };
	struct manifest m = { .n_attrs = 0 };
	struct MHD_Response *response;
	char *text = NULL;
	size_t n = 0;
	int r = fill(x, o, &p, &m);

	if (r == 0)
		r = gpushm_private_manifest_format(&m, &text, &n);
	free(p.attrs);
	if (r < 0)
		return exchange_failed(x, r);
	response = exchange_text("application/json", "no-cache", text);
	exchange_add(response, MHD_HTTP_HEADER_ETAG, "%s", m.etag);
	return exchange_send(x, MHD_HTTP_OK, response);
}

static enum MHD_Result send_same(const struct exchange *x, const char *etag)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);

	exchange_add(r, MHD_HTTP_HEADER_ETAG, "%s", etag);
	return exchange_send(x, MHD_HTTP_NOT_MODIFIED, r);
}

/* ---- waiting ---- */

struct waiter {
	struct list link; /* waiters */
	const struct exchange *x;
	const char *none; /* If-None-Match; NULL: none */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list waiters = { &waiters, &waiters }; /* under lock */

/* A machine waits with a connection for each name that it follows. Half of the connections are for
 * those that read. When the other half is taken, a client gets its reply at once and asks again. */
static bool begin_wait(struct waiter *w)
{
	const struct config *c = w->x->config;
	size_t n = 0, of_address = 0;
	const struct waiter *other;
	bool may;

	lock_guard(&lock, LOCK_WAITERS);
	list_foreach (other, &waiters, link) {
		n++;
		of_address += strcmp(other->x->peer->address, w->x->peer->address) == 0;
	}
	may = n < (c->max_connections + 1) / 2 &&
	      of_address < (c->max_connections_per_address + 1) / 2;
	if (may)
		list_insert(&waiters, &w->link);
	return may;
}

static void end_wait(struct waiter *w)
{
	lock_guard(&lock, LOCK_WAITERS);
	list_drop(&w->link);
}

static bool is_wanted(void *user, struct offer *is)
{
	const struct waiter *w = user;
	struct offer_facts f;

	if (clients_has_gone(w->x->http))
		return true;
	if (!is)
		return false;
	if (!w->none || offer_know(is, w->x->http) < 0)
		return true;
	offer_facts(is, &f);
	return !range_has_etag(w->none, f.etag, true);
}

static void await(const struct exchange *x, unsigned wait_s)
{
	struct waiter w = { .x = x, .none = exchange_header(x, MHD_HTTP_HEADER_IF_NONE_MATCH) };

	if (!begin_wait(&w))
		return;
	offer_release(offers_wait(x->offers, x->name, clock_monotonic_ns() + wait_s * 1000000000ull,
				  is_wanted, &w));
	end_wait(&w);
}

static enum MHD_Result reply(const struct exchange *x, struct offer *o, const struct offer_facts *f)
{
	const char *none = exchange_header(x, MHD_HTTP_HEADER_IF_NONE_MATCH);

	fanout_hear(x, f);
	return none && range_has_etag(none, f->etag, true) ? send_same(x, f->etag)
							   : send_manifest(x, o);
}

enum MHD_Result manifests_get(const struct exchange *x)
{
	unsigned wait_s = range_wait(exchange_header(x, "Prefer"));
	struct exchange later = *x;
	struct config *config;
	enum MHD_Result ret;

	if (wait_s == 0 || !config_offers(x->config, x->name) ||
	    !allow_read(x->config, x->peer, x->name))
		return exchange_known(x, NULL, reply);
	await(x, wait_s);
	/* The configuration may be another one by now. */
	later.config = config = config_current();
	ret = exchange_known(&later, NULL, reply);
	config_release(config);
	return ret;
}
