/* SPDX-License-Identifier: MIT
 *
 * gpushm_open, gpushm_wait, gpushm_unlink and gpushm_clean: what is asked about a name. Waiting is
 * the daemon's: a request with a deadline is answered when the name is published or when the time
 * is over, and until then the connection is busy with it.
 */
#include "client/base/error.h"
#include "client/base/options.h"
#include "client/buffer/buffer.h"
#include "client/link/attach.h"
#include "proto/base/own.h"

int gpushm_open(struct gpushm *c, const char *name, enum gpushm_access access, uint64_t timeout_ms,
		const struct gpushm_options *options, struct gpushm_buffer **ret)
{
	_cleanup_(attach_done) struct attach a = ATTACH_NONE;
	Gpushm__Proto__Open open = GPUSHM__PROTO__OPEN__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;
	struct gpushm_options o;
	int r = connection_check_name(name);

	if (r == 0 && access != GPUSHM_READ && access != GPUSHM_WRITE)
		r = error_set(EINVAL, "buffer \"%s\": access is GPUSHM_READ or GPUSHM_WRITE", name);
	if (r == 0)
		r = options_read(options, &o);
	if (r < 0)
		return r;
	open.has_name = open.has_access = true;
	open.name = connection_bytes(name);
	open.access = (Gpushm__Proto__Access)access;
	open.has_wait_ms = timeout_ms > 0;
	open.wait_ms = timeout_ms;
	open.has_refuse_dirty = open.refuse_dirty = !!(o.flags & GPUSHM_REFUSE_DIRTY);
	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_OPEN;
	request.open = &open;
	r = attach_call(c, &request, &a);
	return r < 0 ? r : buffer_adopt(c, name, &a, o.device, ret);
}

int gpushm_wait(struct gpushm *c, const char *name, uint64_t timeout_ms)
{
	Gpushm__Proto__Stat stat = GPUSHM__PROTO__STAT__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;
	Gpushm__Proto__Reply *reply;
	int r = connection_check_name(name);

	if (r < 0)
		return r;
	stat.has_name = true;
	stat.name = connection_bytes(name);
	stat.has_wait_ms = timeout_ms > 0;
	stat.wait_ms = timeout_ms;
	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_STAT;
	request.stat = &stat;
	r = connection_call(c, &request, GPUSHM__PROTO__REPLY__RESULT_STAT, &reply);
	if (r < 0)
		return r;
	/* Its creator is told of a buffer that he is still filling. */
	if (reply->stat->state == GPUSHM__PROTO__STATE__STATE_FILLING)
		r = error_set(EAGAIN, "buffer \"%s\" is still being filled", name);
	connection_done(c);
	return r;
}

int gpushm_unlink(struct gpushm *c, const char *name)
{
	Gpushm__Proto__Unlink unlink = GPUSHM__PROTO__UNLINK__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;
	int r = connection_check_name(name);

	if (r < 0)
		return r;
	unlink.has_name = true;
	unlink.name = connection_bytes(name);
	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_UNLINK;
	request.unlink = &unlink;
	return connection_tell(c, &request);
}

int gpushm_clean(struct gpushm *c, const char *name)
{
	Gpushm__Proto__Clean clean = GPUSHM__PROTO__CLEAN__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;
	int r = connection_check_name(name);

	if (r < 0)
		return r;
	clean.has_name = true;
	clean.name = connection_bytes(name);
	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_CLEAN;
	request.clean = &clean;
	return connection_tell(c, &request);
}
