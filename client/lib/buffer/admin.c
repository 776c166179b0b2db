/* SPDX-License-Identifier: MIT
 *
 * UNLINK, CLEAN, EVICT, KEEP, ASK, RENAME, FLUSH and RESTART: requests of owners and
 * administrators, whose reply says nothing but success.
 */
#include "client/gpushm_memory.h"
#include "client/gpushm_query.h"
#include "client/lib/base/error.h"
#include "client/lib/buffer/buffer.h"
#include "client/lib/link/request.h"

#include <string.h>

int gpushm_unlink(struct gpushm *c, const char *name)
{
	Gpushm__Proto__Unlink unlink = GPUSHM__PROTO__UNLINK__INIT;
	int r = request_set_name(name, &unlink.has_name, &unlink.name);

	return r < 0 ? r : request_ack(c, request_with(UNLINK, unlink, &unlink));
}

int gpushm_clean(struct gpushm *c, const char *name)
{
	Gpushm__Proto__Clean clean = GPUSHM__PROTO__CLEAN__INIT;
	int r = request_set_name(name, &clean.has_name, &clean.name);

	return r < 0 ? r : request_ack(c, request_with(CLEAN, clean, &clean));
}

/* Where the daemon refuses the request since it knows of no source, and there is one, the request
 * is made again and names it: *source and *has_source are its fields. */
static int ack_with_source(struct gpushm *c, const char *name,
			   const Gpushm__Proto__Request *request, uint64_t *source,
			   protobuf_c_boolean *has_source)
{
	struct error why;
	int r = request_ack(c, request), found;

	if (r != -EBUSY || strcmp(gpushm_error_code(), "NO_COPY") != 0)
		return r;
	error_keep(&why);
	found = buffer_check_source(c, name, source);
	if (found == -ENOENT) {
		error_put_back(&why);
		return r;
	}
	*has_source = found == 0;
	return found < 0 ? found : request_ack(c, request);
}

int gpushm_evict(struct gpushm *c, const char *name)
{
	Gpushm__Proto__Evict evict = GPUSHM__PROTO__EVICT__INIT;
	int r = request_set_name(name, &evict.has_name, &evict.name);

	return r < 0 ? r
		     : ack_with_source(c, name, request_with(EVICT, evict, &evict), &evict.source,
				       &evict.has_source);
}

int gpushm_set_keep(struct gpushm *c, const char *name, uint64_t keep_ms, int priority)
{
	Gpushm__Proto__Keep keep = GPUSHM__PROTO__KEEP__INIT;
	int r = request_set_name(name, &keep.has_name, &keep.name);

	SET(&keep, keep_ms, keep_ms);
	SET(&keep, priority, priority);
	return r < 0 ? r
		     : ack_with_source(c, name, request_with(KEEP, keep, &keep), &keep.source,
				       &keep.has_source);
}

static int read_done(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	*(uint64_t *)to = reply->done->yield_ms;
	return 0;
}

int gpushm_ask_suspend(struct gpushm *c, const char *name, uint64_t *ret_yield_ms)
{
	Gpushm__Proto__Ask ask = GPUSHM__PROTO__ASK__INIT;
	uint64_t ignored;
	int r = request_set_name(name, &ask.has_name, &ask.name);

	return r < 0 ? r
		     : request_read(c, request_with(ASK, ask, &ask), read_done,
				    ret_yield_ms ? ret_yield_ms : &ignored);
}

int gpushm_ask_resume(struct gpushm *c, const char *name)
{
	Gpushm__Proto__Ask ask = GPUSHM__PROTO__ASK__INIT;
	int r = request_set_name(name, &ask.has_name, &ask.name);

	ask.has_back = ask.back = true;
	return r < 0 ? r : request_ack(c, request_with(ASK, ask, &ask));
}

/* *ret is 0 where this user sees no such buffer. 0, or -ENOMEM. */
static int find_id(struct gpushm *c, const char *name, uint64_t *ret)
{
	struct gpushm_stat *s = NULL;
	int r = gpushm_stat(c, name, 0, 0, &s);

	*ret = r == 0 ? s->id : 0;
	gpushm_free(s);
	return r == -ENOMEM ? r : 0;
}

/* A daemon that died may have renamed it before: then its successor does not find the old name, and
 * the new one means this buffer. Any other buffer there is the one that was to be replaced. */
static int call_rename(struct gpushm *c, const Gpushm__Proto__Request *request, const char *from,
		       const char *to)
{
	Gpushm__Proto__Reply *reply;
	uint64_t id, found;
	unsigned sends;
	int r = find_id(c, from, &id);

	if (r < 0)
		return r;
	r = request_call(c, request, &reply, &sends);
	if (r == 0)
		request_done(c);
	if (r != -ENOENT || sends < 2 || id == 0)
		return r;
	error_guard();
	return find_id(c, to, &found) == 0 && found == id ? 0 : r;
}

int gpushm_rename(struct gpushm *c, const char *from, const char *to, uint32_t flags)
{
	Gpushm__Proto__Rename rename = GPUSHM__PROTO__RENAME__INIT;
	int r = request_set_name(from, &rename.has_name, &rename.name);

	if (r == 0)
		r = request_set_name(to, &rename.has_to, &rename.to);
	if (r == 0)
		r = error_flags(flags, GPUSHM_REPLACE);
	if (r < 0)
		return r;
	rename.has_replace = rename.replace = !!(flags & GPUSHM_REPLACE);
	return call_rename(c, request_with(RENAME, rename, &rename), from, to);
}

int gpushm_flush(struct gpushm *c, const char *pool)
{
	Gpushm__Proto__Flush flush = GPUSHM__PROTO__FLUSH__INIT;

	if (pool)
		SET(&flush, pool, connection_bytes(pool));
	return request_ack(c, request_with(FLUSH, flush, &flush));
}

int gpushm_restart(struct gpushm *c)
{
	Gpushm__Proto__Restart restart = GPUSHM__PROTO__RESTART__INIT;

	return request_send_restart(c, request_with(RESTART, restart, &restart));
}
