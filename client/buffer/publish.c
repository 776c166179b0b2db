/* SPDX-License-Identifier: MIT
 *
 * gpushm_publish. All that can fail on this side is done before the daemon is asked: the GPU's work
 * is waited for, and the table finished. The daemon's digest of the layout must then be ours. What
 * is left to do for a sealed buffer is to take the write permission out of our own mapping.
 */
#include "client/base/error.h"
#include "client/buffer/buffer.h"
#include "proto/base/own.h"

static int call_publish(struct gpushm_buffer *b, enum gpushm_state state, uint64_t digest)
{
	Gpushm__Proto__Publish publish = GPUSHM__PROTO__PUBLISH__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;
	Gpushm__Proto__Reply *reply;
	bool again;
	int r;

	publish.has_lease = publish.has_state = true;
	publish.lease = b->lease;
	publish.state = (Gpushm__Proto__State)state;
	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_PUBLISH;
	request.publish = &publish;
	r = connection_call_again(b->connection, &request, GPUSHM__PROTO__REPLY__RESULT_PUBLISHED,
				  &reply, &again);
	/* The daemon died after it had published the buffer, and before it could say so. */
	if (again && r == -EBUSY)
		return 0;
	if (r == -EBADF && (again || b->held.lost))
		return error_set(ECONNRESET,
				 "buffer \"%s\": the daemon died while it was being filled: "
				 "create it again",
				 b->name);
	if (r < 0)
		return r;
	if (reply->published->digest != digest) {
		error_set(EPROTO, "buffer \"%s\": the daemon has another layout than this process",
			  b->name);
		return connection_violated(b->connection);
	}
	connection_done(b->connection);
	return 0;
}

static int publish_with(struct gpushm_buffer *b, enum gpushm_state state, struct image *table)
{
	uint64_t digest;
	int r = map_synchronize(b->map);

	if (r < 0)
		return error_set_about(-r, "buffer", b->name);
	r = image_finish(b->builder, b->bytes, table, &digest);
	if (r == 0)
		r = call_publish(b, state, digest);
	if (r < 0)
		return r;
	b->digest = digest;
	b->state = state;
	return 0;
}

static int publish(struct gpushm_buffer *b, enum gpushm_state state)
{
	_cleanup_(image_done) struct image table = IMAGE_NONE;
	struct image old = b->table;
	int r;

	if (!b->builder)
		return error_set(EBUSY, "buffer \"%s\" is published already", b->name);
	r = publish_with(b, state, &table);
	if (r < 0)
		return r;
	b->table = table;
	table = old;
	b->builder = table_builder_free(b->builder);
	if (state == GPUSHM_SHARED)
		return 0;
	/* For others it is sealed by now: whatever the driver says, we are readers. */
	b->access = GPUSHM_READ;
	r = map_protect(b->map);
	return r < 0 ? error_set_about(-r, "buffer", b->name) : 0;
}

int gpushm_publish(struct gpushm_buffer *b, enum gpushm_state state)
{
	int r = buffer_check(b);

	if (r < 0)
		return r;
	if (state != GPUSHM_SEALED && state != GPUSHM_SHARED)
		return error_set(EINVAL,
				 "buffer \"%s\": a buffer is published GPUSHM_SEALED or "
				 "GPUSHM_SHARED",
				 b->name);
	pthread_mutex_lock(&b->lock);
	r = publish(b, state);
	pthread_mutex_unlock(&b->lock);
	return r;
}
