/* SPDX-License-Identifier: MIT
 *
 * gpushm's streams, and gpushm's buffers with a name for each frame.
 */
#include "proto/base/own.h"
#include "tests/bench/streams/lane.h"

#include <stdio.h>

#define TIMEOUT_MS 20000

/* ---- a stream ---- */

static void stream_open(struct lane *l)
{
	const struct job *job = &side.board->job;
	const int64_t shape[] = { (int64_t)job->bytes };
	const struct gpushm_array_spec array = { .struct_size = sizeof(array),
						 .name = "frame",
						 .dtype = { 1, 8, 1, 0 },
						 .ndim = 1,
						 .shape = shape };
	const struct gpushm_stream_spec spec = { .struct_size = sizeof(spec),
						 .arrays = &array,
						 .n_arrays = 1,
						 .slots = job->depth < 2 ? 2 : job->depth };
	const struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = lane_pool() };
	const struct gpushm_follow_options spins = { .struct_size = sizeof(spins),
						     .spin_us = job->spin_us };

	if (l->producer)
		side_must(gpushm_stream_create(side.c, lane_label(l), &spec, &o, &l->stream),
			  "a stream");
	else
		side_must(gpushm_stream_open(side.c, lane_label(l), GPUSHM_EVERY, 1, TIMEOUT_MS,
					     &spins, &l->stream),
			  "joining a stream");
}

static void stream_close(struct lane *l)
{
	l->stream = gpushm_stream_close(l->stream);
}

/* A hop is that of the frame alone: no memory is touched. */
static uintptr_t frame_address(struct lane *l)
{
	if (side.board->job.work == 0 && !side.board->job.array)
		return 0;
	side_must(gpushm_frame_array(l->frame, "frame", &l->array), "a frame's array");
	return (uintptr_t)(side.board->job.gpu ? gpushm_array_device_ptr(l->array)
					       : gpushm_array_host_ptr(l->array));
}

static uintptr_t stream_begin(struct lane *l, uint64_t i)
{
	side_must(gpushm_frame_begin(l->stream, work_stream(), TIMEOUT_MS, &l->frame), "begin");
	return frame_address(l);
}

static void stream_publish(struct lane *l, uint64_t i)
{
	l->array = gpushm_array_free(l->array);
	side_must(gpushm_frame_publish(l->frame, work_stream(), NULL, 0), "publish");
}

static uintptr_t stream_next(struct lane *l, uint64_t i)
{
	uint64_t timeout = side.board->job.spin ? 0 : TIMEOUT_MS;
	int r;

	do
		r = gpushm_frame_next(l->stream, work_stream(), timeout, &l->frame);
	while (r == -EAGAIN);
	side_must(r, "next");
	if (gpushm_frame_seq(l->frame) != i)
		side_fail("frame %llu came instead of %llu",
			  (unsigned long long)gpushm_frame_seq(l->frame), (unsigned long long)i);
	return frame_address(l);
}

static void stream_release(struct lane *l, uint64_t i)
{
	l->array = gpushm_array_free(l->array);
	side_must(gpushm_frame_release(l->frame, work_stream()), "release");
}

const struct lane_ops lane_stream = { stream_open,    NULL,	   stream_close,  stream_begin,
				      stream_publish, stream_next, stream_release };

/* ---- a name for each frame ---- */

static void name_open(struct lane *l)
{
}

static const char *frame_name(const struct lane *l, uint64_t i)
{
	static char name[80];

	snprintf(name, sizeof(name), "%s/%llu", lane_label(l), (unsigned long long)i);
	return name;
}

static uintptr_t name_begin(struct lane *l, uint64_t i)
{
	const struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = lane_pool() };
	uint64_t back;

	if (i > side.board->job.depth)
		lane_receive(l, &back, sizeof(back), NULL);
	side_must(gpushm_create(side.c, frame_name(l, i), side.board->job.bytes, &o, &l->buffer),
		  "a buffer");
	return lane_address(l->buffer);
}

/* gpushm_publish() waits for the GPU. */
static void name_publish(struct lane *l, uint64_t i)
{
	side_must(gpushm_publish(l->buffer, GPUSHM_SEALED), "publishing a buffer");
	lane_send(l, &i, sizeof(i), -1);
	side_must(gpushm_close(take_ptr(l->buffer)), "closing a buffer");
}

static uintptr_t name_next(struct lane *l, uint64_t i)
{
	uint64_t number;

	lane_receive(l, &number, sizeof(number), NULL);
	side_must(gpushm_open(side.c, frame_name(l, number), GPUSHM_READ, TIMEOUT_MS, NULL,
			      &l->buffer),
		  "opening a buffer");
	return lane_address(l->buffer);
}

/* gpushm_close() waits for the GPU. */
static void name_release(struct lane *l, uint64_t i)
{
	side_must(gpushm_close(take_ptr(l->buffer)), "closing a buffer");
	side_must(gpushm_unlink(side.c, frame_name(l, i)), "unlinking a buffer");
	lane_send(l, &i, sizeof(i), -1);
}

/* Takes the messages that nobody has waited for. */
static void name_close(struct lane *l)
{
	uint64_t back;

	for (unsigned i = 0; l->producer && i < side.board->job.depth; i++)
		lane_receive(l, &back, sizeof(back), NULL);
}

const struct lane_ops lane_name = { name_open,	  NULL,	     name_close,  name_begin,
				    name_publish, name_next, name_release };
