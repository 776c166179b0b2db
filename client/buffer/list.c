/* SPDX-License-Identifier: MIT
 *
 * gpushm_list: page after page, each asked for after the last id that is had already. The daemon's
 * ids grow, so a page that does not go on where the last one ended would be asked for without end:
 * that is a violation, not a loop.
 */
#include "client/base/error.h"
#include "client/buffer/stat.h"
#include "proto/base/own.h"

struct listing {
	struct gpushm_stat *stats; /* owned */
	size_t n;
	uint64_t after;
	bool more;
};

static void listing_done(struct listing *l)
{
	l->stats = gpushm_stat_free(l->stats, l->n);
	l->n = 0;
}

static int add_page(const struct gpushm *c, const Gpushm__Proto__ListReply *page, struct listing *l)
{
	struct gpushm_stat *grown;

	if (page->more && page->n_buffers == 0)
		return error_set(EPROTO, "the daemon's list has a page without buffers");
	grown = realloc(l->stats, (l->n + page->n_buffers + 1) * sizeof(*grown));
	if (!grown)
		return error_set(ENOMEM, "out of memory for a list of buffers");
	l->stats = grown;
	for (size_t i = 0; i < page->n_buffers; i++) {
		int r = stat_decode(c, page->buffers[i], &l->stats[l->n]);

		if (r < 0)
			return r;
		l->n++;
		if (page->buffers[i]->id <= l->after)
			return error_set(EPROTO, "the daemon's list is not in order");
		l->after = page->buffers[i]->id;
	}
	l->more = page->more;
	return 0;
}

static int call_page(struct gpushm *c, const char *prefix, uint32_t flags, struct listing *l)
{
	Gpushm__Proto__List list = GPUSHM__PROTO__LIST__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;
	Gpushm__Proto__Reply *reply;
	int r;

	list.has_after = list.has_prefix = true;
	list.after = l->after;
	list.prefix = connection_bytes(prefix);
	list.has_holders = list.holders = !!(flags & GPUSHM_HOLDERS);
	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_LIST;
	request.list = &list;
	r = connection_call(c, &request, GPUSHM__PROTO__REPLY__RESULT_LIST, &reply);
	if (r < 0)
		return r;
	r = add_page(c, reply->list, l);
	if (r == -EPROTO)
		return connection_violated(c);
	connection_done(c);
	return r;
}

int gpushm_list(struct gpushm *c, const char *prefix, uint32_t flags, struct gpushm_stat **ret,
		size_t *ret_n)
{
	_cleanup_(listing_done) struct listing l = { .more = true };
	int r = prefix ? connection_check_name(prefix) : 0;

	while (r == 0 && l.more)
		r = call_page(c, prefix ? prefix : "", flags, &l);
	if (r < 0)
		return r;
	*ret_n = l.n;
	l.n = 0;
	*ret = take_ptr(l.stats);
	return 0;
}
