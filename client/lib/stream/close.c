/* SPDX-License-Identifier: MIT
 *
 * A stream's end: leave and close.
 *
 * Its producer frees the name when it closes the stream, so that another stream can have it while
 * readers take the last frames of this one.
 *
 * Where an array of a frame outlives the stream, the memory stays mapped, and the lease with it,
 * until the last of them is freed. The stream is left at once all the same.
 */
#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "client/lib/link/hello.h"
#include "client/lib/link/request.h"
#include "client/lib/stream/pages.h"
#include "client/lib/stream/stream.h"
#include "proto/stream_atomic.h"

#define RESUME_MS 100u

/* Where a connection could not be made again a short time ago, or the daemon has not replied in
 * time, the end of a stream does not wait as long once more: a process that ends may have many. */
static int find_daemon(struct gpushm *c)
{
	int r = 0;

	lock_guard(&c->lock, LOCK_CONNECTION);
	if (c->broken && hello_gave_up_lately(c))
		r = hello_resume(c, RESUME_MS);
	else if (!c->broken && connection_settle(c, 0) == -ETIMEDOUT)
		r = -ETIMEDOUT;
	if (r == -EAGAIN)
		r = outage_error(c);
	return r;
}

/* By its id: if the stream was renamed, the name may be another buffer's. */
static void free_name(struct gpushm_stream *s)
{
	Gpushm__Proto__Unlink unlink = GPUSHM__PROTO__UNLINK__INIT;

	error_guard();
	SET(&unlink, name, connection_bytes(s->buffer->name));
	SET(&unlink, buffer, s->buffer->id);
	if (find_daemon(s->buffer->connection) == 0)
		request_ack(s->buffer->connection, request_with(UNLINK, unlink, &unlink));
}

/* All but the lease and the memory, and what the daemon has to know. */
static void leave(struct gpushm_stream *s)
{
	if (s->has_left)
		return;
	s->has_left = true;
	map_synchronize(s->buffer->map);
	notify_stop(s);
	if (s->is_producer)
		producer_done(s);
	else if (s->follower.page.host)
		follower_done(s);
	list_move(&s->frames, &s->spare);
	if (s->is_producer)
		stream_store(&stream_head(s)->closed, 1);
	stream_unmap(s, &s->follower.page);
	stream_unmap(s, &s->group);
	stream_unmap(s, &s->head);
	stream_free_arrays(s);
}

static int tell_daemon(struct gpushm_stream *s)
{
	int r;

	if (s->has_told)
		return 0;
	if (s->is_producer && !s->keep_name)
		free_name(s);
	r = find_daemon(s->buffer->connection);
	if (r == 0)
		r = pages_drop(s->buffer, 0, 0, 0);
	s->has_told = r != -ECONNRESET && r != -ETIMEDOUT;
	return r;
}

static void stream_free(struct gpushm_stream *s)
{
	struct gpushm_frame *f;

	list_drain (f, &s->spare, link)
		free(f);
	free(s->fresh);
	pthread_mutex_destroy(&s->lock);
	free(s->ended_on);
	free(s);
}

struct gpushm_stream *gpushm_stream_close(struct gpushm_stream *s)
{
	struct error before;

	/* In a forked child all of it is the parent's. */
	if (!s || connection_check_fork(s->buffer->connection->generation) < 0)
		return NULL;
	leave(s);
	/* Its own count is the last one, unless arrays exist: then the lease goes on. A CLOSE may
	 * be lost with the daemon, and readers would take the producer for dead. */
	error_keep(&before);
	if (s->is_producer || s->buffer->arrays > 1)
		tell_daemon(s);
	error_put_back(&before);
	buffer_put_and_close(s->buffer);
	stream_free(s);
	return NULL;
}

int gpushm_stream_leave(struct gpushm_stream *s)
{
	int r = error_null(s, "stream");

	if (r == 0)
		r = buffer_check(s->buffer);
	if (r < 0)
		return r;
	leave(s);
	return tell_daemon(s);
}

/* Ends what has begun, and keeps the error. A stream that was to be adopted stays without a
 * producer. */
int stream_give_up(struct gpushm_stream *s, int r)
{
	error_guard();
	/* Nothing was claimed. */
	s->is_producer = false;
	s->buffer->discard |= s->buffer->state == GPUSHM_FILLING;
	stream_unmap(s, &s->follower.page);
	if (!s->buffer->discard && s->buffer->access == GPUSHM_WRITE)
		free_name(s);
	gpushm_stream_close(s);
	return r;
}
