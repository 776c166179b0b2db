/* SPDX-License-Identifier: MIT
 *
 * A producer and two readers of the stream "s" in the test's own process.
 */
#pragma once

#include "client/gpushm_stream.h"
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/hostile_reader.h"
#include "tests/lib/streamer.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <string.h>

static struct gpushm_stream *p, *r, *r2;

static inline void says(const char *text)
{
	ck_assert_msg(strstr(gpushm_error(), text), "\"%s\" is not in: %s", text, gpushm_error());
}

static inline void create_with(struct gpushm_stream_spec spec)
{
	ck_assert_msg(streamer_create(c, "s", &spec, &p) == 0, "%s", gpushm_error());
	hostile_reader_join(d.socket, "s");
}

static inline int create_in(const char *pool, uint32_t slots)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_stream_spec spec = { .struct_size = sizeof(spec),
					   .arrays = streamer_arrays,
					   .n_arrays = STREAMER_ARRAYS,
					   .slots = slots };
	int error = gpushm_stream_create(c, "s", &spec, &o, &p);

	if (error == 0)
		hostile_reader_join(d.socket, "s");
	return error;
}

static inline void create(uint32_t slots)
{
	create_with((struct gpushm_stream_spec){ .slots = slots });
}

static inline struct gpushm_stream *follow(enum gpushm_follow how, uint32_t max_held)
{
	const struct gpushm_follow_options o = { .struct_size = sizeof(o),
						 .spin_us = streamer_spin_us };
	struct gpushm_stream *s = NULL;

	ck_assert_msg(gpushm_stream_open(c, "s", how, max_held, 0, &o, &s) == 0, "%s",
		      gpushm_error());
	return s;
}

static inline void teardown(void)
{
	r = gpushm_stream_close(r);
	r2 = gpushm_stream_close(r2);
	p = gpushm_stream_close(p);
	client_teardown();
}

static inline void fill_and_publish(struct gpushm_frame *f)
{
	uint64_t seq = gpushm_frame_seq(f);

	ck_assert_int_eq(streamer_fill(f), 0);
	ck_assert_int_eq(gpushm_frame_publish(f, GPUSHM_ON_HOST, &seq, sizeof(seq)), 0);
}

static inline uint64_t produce(void)
{
	struct gpushm_frame *f = NULL;
	uint64_t seq;

	ck_assert_msg(gpushm_frame_begin(p, NULL, 0, &f) == 0, "%s", gpushm_error());
	seq = gpushm_frame_seq(f);
	fill_and_publish(f);
	return seq;
}

static inline void produce_many(unsigned n)
{
	while (n-- > 0)
		produce();
}

static inline void begins(uint64_t timeout_ms)
{
	struct gpushm_frame *f = NULL;

	ck_assert_msg(gpushm_frame_begin(p, NULL, timeout_ms, &f) == 0, "%s", gpushm_error());
	gpushm_frame_cancel(f);
}

static inline void begin_fails(uint64_t timeout_ms, int error)
{
	struct gpushm_frame *f = NULL;

	ck_assert_int_eq(gpushm_frame_begin(p, NULL, timeout_ms, &f), error);
}

static inline struct gpushm_frame *next(struct gpushm_stream *s)
{
	struct gpushm_frame *f = NULL;

	ck_assert_msg(gpushm_frame_next(s, NULL, 0, &f) == 0, "%s", gpushm_error());
	ck_assert(streamer_is_right(f));
	ck_assert_int_eq(gpushm_frame_ok(f), 0);
	return f;
}

static inline void release(struct gpushm_frame *f)
{
	ck_assert_int_eq(gpushm_frame_release(f, NULL), 0);
}

static inline void expect_next(struct gpushm_stream *s, uint64_t seq)
{
	struct gpushm_frame *f = next(s);

	ck_assert_uint_eq(gpushm_frame_seq(f), seq);
	release(f);
}

static inline void next_fails(struct gpushm_stream *s, uint64_t timeout_ms, int error)
{
	struct gpushm_frame *f = NULL;

	ck_assert_int_eq(gpushm_frame_next(s, NULL, timeout_ms, &f), error);
	ck_assert_ptr_null(f);
}

static inline void expect_none(struct gpushm_stream *s)
{
	next_fails(s, 0, -EAGAIN);
}
