/* SPDX-License-Identifier: MIT
 *
 * Streams in a host pool, with the producer and its readers in one process: what each call returns,
 * and what it refuses.
 */
#include "client/gpushm_handle.h"
#include "tests/system/lib/stream_fixture.h"

#include <pthread.h>

/* ---- frames ---- */

START_TEST(each_frame_arrives_once_and_in_order)
{
	struct gpushm_frame *f;

	create(4);
	r = follow(GPUSHM_EVERY, 2);
	expect_none(r);
	for (uint64_t seq = 1; seq <= 100; seq++) {
		ck_assert_uint_eq(produce(), seq);
		f = next(r);
		ck_assert_uint_eq(gpushm_frame_seq(f), seq);
		ck_assert_uint_ne(gpushm_frame_time(f), 0);
		ck_assert_uint_eq(gpushm_frame_skipped(f), 0);
		ck_assert_uint_lt(gpushm_frame_slot(f), 4);
		release(f);
		expect_none(r);
	}
}
END_TEST

START_TEST(an_array_of_a_frame_is_that_of_its_slot)
{
	struct gpushm_array *a = NULL;
	struct gpushm_frame *f = NULL;

	create(3);
	ck_assert_uint_eq(gpushm_stream_slots(p), 3);
	ck_assert_int_eq(gpushm_frame_begin(p, NULL, 0, &f), 0);
	ck_assert_int_eq(gpushm_frame_array(f, "words", &a), 0);
	ck_assert_int_eq(gpushm_array_ndim(a), 1);
	ck_assert_int_eq(gpushm_array_dim(a, 0), STREAMER_WORDS);
	ck_assert_int_eq(gpushm_array_read_only(a), 0);
	ck_assert_str_eq(gpushm_array_name(a), "words");
	a = gpushm_array_free(a);
	ck_assert_int_eq(gpushm_frame_array(f, "other", &a), -ENOENT);
	says("no array called \"other\"");
	ck_assert_int_eq(gpushm_frame_array(f, "number", &a), 0);
	ck_assert_int_eq(gpushm_array_ndim(a), 0);
	a = gpushm_array_free(a);
	gpushm_frame_cancel(f);
	ck_assert_int_eq(gpushm_array_get(gpushm_stream_buffer(p), "words", &a), 0);
	ck_assert_int_eq(gpushm_array_ndim(a), 2);
	ck_assert_int_eq(gpushm_array_dim(a, 0), 3);
	a = gpushm_array_free(a);
	produce();
	r = follow(GPUSHM_LATEST, 1);
	f = next(r);
	ck_assert_int_eq(gpushm_frame_array(f, "words", &a), 0);
	ck_assert_int_eq(gpushm_array_read_only(a), 1);
	a = gpushm_array_free(a);
	gpushm_frame_cancel(f);
}
END_TEST

START_TEST(a_frame_and_its_stream_have_no_handle)
{
	char handle[GPUSHM_HANDLE_MAX];
	struct gpushm_array *a = NULL;
	struct gpushm_frame *f;
	size_t n;

	create(2);
	r = follow(GPUSHM_EVERY, 1);
	produce();
	f = next(r);
	ck_assert_int_eq(gpushm_frame_array(f, "words", &a), 0);
	ck_assert_int_eq(gpushm_array_handle(a, handle, sizeof(handle), &n), -ENOTSUP);
	says("gpushm_stream_open()");
	ck_assert_int_eq(gpushm_buffer_handle(gpushm_stream_buffer(p), handle, sizeof(handle), &n),
			 -ENOTSUP);
	gpushm_array_free(a);
	release(f);
}
END_TEST

START_TEST(meta_arrives_and_has_a_limit)
{
	char bytes[GPUSHM_META_MAX + 1] = "metadata";
	struct gpushm_frame *f = NULL;
	size_t n;

	create(2);
	r = follow(GPUSHM_EVERY, 1);
	ck_assert_int_eq(gpushm_frame_begin(p, NULL, 0, &f), 0);
	ck_assert_int_eq(gpushm_frame_publish(f, NULL, bytes, sizeof(bytes)), -EINVAL);
	ck_assert_int_eq(gpushm_frame_publish(f, NULL, bytes, GPUSHM_META_MAX), 0);
	ck_assert_int_eq(gpushm_frame_next(r, NULL, 0, &f), 0);
	ck_assert_mem_eq(gpushm_frame_meta(f, &n), bytes, GPUSHM_META_MAX);
	ck_assert_uint_eq(n, GPUSHM_META_MAX);
	release(f);
	ck_assert_int_eq(gpushm_frame_begin(p, NULL, 0, &f), 0);
	ck_assert_int_eq(gpushm_frame_publish(f, NULL, NULL, 0), 0);
	ck_assert_int_eq(gpushm_frame_next(r, NULL, 0, &f), 0);
	gpushm_frame_meta(f, &n);
	ck_assert_uint_eq(n, 0);
	release(f);
}
END_TEST

START_TEST(latest_gets_the_newest_frame_once)
{
	struct gpushm_frame *f;

	create(4);
	produce_many(2);
	r = follow(GPUSHM_LATEST, 1);
	expect_next(r, 2);
	expect_none(r);
	produce_many(10);
	f = next(r);
	ck_assert_uint_eq(gpushm_frame_seq(f), 12);
	ck_assert_uint_eq(gpushm_frame_skipped(f), 9);
	/* It holds one, and the producer goes on. */
	produce_many(10);
	ck_assert(streamer_is_right(f));
	ck_assert_int_eq(gpushm_frame_ok(f), 0);
	release(f);
	expect_next(r, 22);
}
END_TEST

START_TEST(every_begins_with_the_first_frame_after_its_join)
{
	create(4);
	produce();
	r = follow(GPUSHM_EVERY, 1);
	expect_none(r);
	produce_many(2);
	expect_next(r, 2);
	expect_next(r, 3);
	expect_none(r);
}
END_TEST

START_TEST(share_gives_each_frame_to_one_member)
{
	struct gpushm_frame *f, *g;

	create(8);
	r = follow(GPUSHM_SHARE, 2);
	r2 = follow(GPUSHM_SHARE, 2);
	produce_many(4);
	f = next(r);
	g = next(r2);
	ck_assert_uint_eq(gpushm_frame_seq(f), 1);
	ck_assert_uint_eq(gpushm_frame_seq(g), 2);
	gpushm_frame_release(f, NULL);
	gpushm_frame_release(g, NULL);
	expect_next(r2, 3);
	expect_next(r2, 4);
	expect_none(r);
	expect_none(r2);
}
END_TEST

START_TEST(a_closed_members_frames_go_to_the_others)
{
	struct gpushm_frame *f;

	create(8);
	r = follow(GPUSHM_SHARE, 2);
	r2 = follow(GPUSHM_SHARE, 2);
	produce_many(2);
	f = next(r);
	ck_assert_uint_eq(gpushm_frame_seq(f), 1);
	r = gpushm_stream_close(r);
	client_status();
	expect_next(r2, 1);
	expect_next(r2, 2);
	expect_none(r2);
}
END_TEST

/* ---- limits ---- */

START_TEST(every_slows_its_producer)
{
	struct gpushm_frame *f = NULL;

	hostile_reader_stays_away("the reader is named by its seat");
	create(3);
	r = follow(GPUSHM_EVERY, 1);
	produce_many(3);
	begin_fails(0, -EAGAIN);
	says("reader 0");
	begin_fails(20, -ETIMEDOUT);
	says("has not taken");
	f = next(r);
	begin_fails(0, -EAGAIN);
	says("has held frame 1");
	gpushm_frame_release(f, NULL);
	ck_assert_uint_eq(produce(), 4);
}
END_TEST

START_TEST(a_reader_holds_max_held_frames_at_most)
{
	struct gpushm_frame *f, *g;

	create(4);
	r = follow(GPUSHM_EVERY, 2);
	produce_many(3);
	f = next(r);
	g = next(r);
	next_fails(r, 0, -ENOBUFS);
	says("max_held");
	/* In any order. */
	release(g);
	expect_next(r, 3);
	release(f);
}
END_TEST

START_TEST(a_slow_reader_is_dropped_and_told)
{
	struct gpushm_frame *f;
	struct gpushm_stream_stats st = { .struct_size = sizeof(st) };

	hostile_reader_stays_away("readers are counted");
	create_with((struct gpushm_stream_spec){ .slots = 2, .limit_ms = 50 });
	r = follow(GPUSHM_EVERY, 1);
	produce();
	f = next(r);
	produce();
	begins(5000);
	/* Told to both. */
	ck_assert_int_eq(gpushm_frame_ok(f), -ESTALE);
	ck_assert_int_eq(gpushm_frame_release(f, NULL), -ESTALE);
	next_fails(r, 1000, -ESTALE);
	says("open it again");
	ck_assert_int_eq(gpushm_stream_stats(p, &st), 0);
	ck_assert_uint_eq(st.readers, 0);
	ck_assert_uint_eq(st.stalls, 1);
	ck_assert_uint_ge(st.stalled_ns, 40000000);
	r = gpushm_stream_close(r);
	r = follow(GPUSHM_EVERY, 1);
	produce();
	f = next(r);
	gpushm_frame_release(f, NULL);
}
END_TEST

static void expect_dropped(struct gpushm_stream *s)
{
	next_fails(s, 0, -ESTALE);
}

/* All that are in the way go at the same time, also members of the group that take nothing. */
START_TEST(slow_readers_are_dropped_together)
{
	enum gpushm_follow how = _i ? GPUSHM_SHARE : GPUSHM_EVERY;

	create_with((struct gpushm_stream_spec){ .slots = 3, .limit_ms = 50 });
	r = follow(how, 1);
	r2 = follow(how, 1);
	produce_many(3);
	begins(10000);
	expect_dropped(r);
	if (how == GPUSHM_EVERY)
		expect_dropped(r2);
	produce_many(5);
}
END_TEST

static void *begin_and_cancel(void *unused)
{
	begins(60000);
	return NULL;
}

/* It gets the frame only when the first one is dropped. */
START_TEST(a_member_that_inherits_a_frame_has_time_for_it)
{
	struct gpushm_stream *r3;
	struct gpushm_frame *f, *g = NULL;
	pthread_t producer;

	create_with((struct gpushm_stream_spec){ .slots = 2, .limit_ms = 2000 });
	r = follow(GPUSHM_SHARE, 1);
	r2 = follow(GPUSHM_SHARE, 1);
	r3 = follow(GPUSHM_LATEST, 1);
	produce();
	f = next(r);
	produce();
	expect_next(r2, 2);
	pthread_create(&producer, NULL, begin_and_cancel, NULL);
	ck_assert_msg(gpushm_frame_next(r2, NULL, 60000, &g) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(gpushm_frame_seq(g), 1);
	ck_assert_int_eq(gpushm_frame_ok(f), -ESTALE);
	/* A release is why the producer looks again. */
	expect_next(r3, 2);
	poll(NULL, 0, 50);
	release(g);
	pthread_join(producer, NULL);
	gpushm_stream_close(r3);
}
END_TEST

/* It says that it waits, and takes nothing. */
START_TEST(a_member_that_takes_nothing_is_dropped)
{
	create_with((struct gpushm_stream_spec){ .slots = 2, .limit_ms = 50 });
	r = follow(GPUSHM_SHARE, 1);
	ck_assert_int_ge(gpushm_stream_fd(r), 0);
	produce_many(2);
	begins(10000);
	expect_dropped(r);
}
END_TEST

START_TEST(a_queue_is_kept_without_readers)
{
	create_with((struct gpushm_stream_spec){ .slots = 3, .flags = GPUSHM_KEEP_QUEUE });
	produce_many(3);
	begin_fails(0, -EAGAIN);
	says("`share`");
	r = follow(GPUSHM_SHARE, 1);
	expect_next(r, 1);
	ck_assert_uint_eq(produce(), 4);
	for (uint64_t seq = 2; seq <= 4; seq++)
		expect_next(r, seq);
}
END_TEST

START_TEST(an_ended_stream_cannot_be_continued)
{
	struct gpushm_stream_spec spec = { .slots = 4, .flags = GPUSHM_KEEP_STREAM };
	struct gpushm_stream *s = NULL;

	create_with(spec);
	produce();
	p = gpushm_stream_close(p);
	/* It keeps its name and its frames. */
	r = follow(GPUSHM_LATEST, 1);
	expect_next(r, 1);
	spec.flags |= GPUSHM_ADOPT;
	ck_assert_int_eq(streamer_create(c, "s", &spec, &s), -EEXIST);
	says("ended");
	ck_assert_int_eq(gpushm_unlink(c, "s"), 0);
	create_with(spec);
	ck_assert_uint_eq(produce(), 1);
	ck_assert_int_eq(gpushm_unlink(c, "s"), 0);
}
END_TEST

START_TEST(a_producer_begins_one_frame_at_a_time)
{
	struct gpushm_frame *f = NULL;

	create(4);
	ck_assert_int_eq(gpushm_frame_begin(p, NULL, 0, &f), 0);
	begin_fails(0, -EALREADY);
	gpushm_frame_cancel(f);
	ck_assert_uint_eq(produce(), 1);
}
END_TEST

START_TEST(a_cuda_stream_is_refused_for_host_memory)
{
	struct gpushm_frame *f = NULL;
	int word;

	create(4);
	ck_assert_int_eq(gpushm_frame_begin(p, &word, 0, &f), -ENOTSUP);
	says("host pool");
	r = follow(GPUSHM_LATEST, 1);
	ck_assert_int_eq(gpushm_frame_next(r, &word, 0, &f), -ENOTSUP);
	ck_assert_int_eq(gpushm_frame_begin(p, NULL, 0, &f), 0);
	ck_assert_int_eq(gpushm_frame_publish(f, &word, NULL, 0), -ENOTSUP);
	/* It is not published, and not being filled any more. */
	expect_none(r);
	ck_assert_uint_eq(produce(), 1);
}
END_TEST

START_TEST(each_side_is_refused_the_others_calls)
{
	struct gpushm_frame *f = NULL;

	create(4);
	r = follow(GPUSHM_LATEST, 1);
	next_fails(p, 0, -EBADF);
	ck_assert_int_eq(gpushm_frame_begin(r, NULL, 0, &f), -EBADF);
	produce();
	f = next(r);
	ck_assert_int_eq(gpushm_frame_publish(f, NULL, NULL, 0), -EBADF);
	release(f);
	ck_assert_int_eq(gpushm_frame_begin(p, NULL, 0, &f), 0);
	ck_assert_int_eq(gpushm_frame_release(f, NULL), -EBADF);
	ck_assert_int_eq(gpushm_frame_ok(f), -EBADF);
	gpushm_frame_cancel(f);
}
END_TEST

/* ---- ends ---- */

START_TEST(the_last_frames_of_a_closed_stream_are_read)
{
	struct gpushm_stat *st = NULL;

	create(4);
	r = follow(GPUSHM_EVERY, 1);
	produce_many(2);
	p = gpushm_stream_close(p);
	/* The name is free at once. */
	ck_assert_int_eq(gpushm_stat(c, "s", 0, 0, &st), -ENOENT);
	expect_next(r, 1);
	expect_next(r, 2);
	next_fails(r, 1000, -EPIPE);
	says("closed");
	create(4);
	r2 = follow(GPUSHM_EVERY, 1);
	ck_assert_uint_eq(produce(), 1);
	expect_next(r2, 1);
	next_fails(r, 1000, -EPIPE);
}
END_TEST

START_TEST(close_gives_back_what_is_filled_or_held)
{
	struct gpushm_frame *f = NULL;

	create(3);
	r = follow(GPUSHM_EVERY, 1);
	r2 = follow(GPUSHM_EVERY, 2);
	produce_many(2);
	f = next(r);
	next(r2);
	r = gpushm_stream_close(r);
	r2 = gpushm_stream_close(r2);
	client_status();
	produce_many(5);
	ck_assert_int_eq(gpushm_frame_begin(p, NULL, 0, &f), 0);
	p = gpushm_stream_close(p);
}
END_TEST

START_TEST(memory_stays_while_an_array_exists)
{
	struct gpushm_array *a = NULL, *kept = NULL;
	struct gpushm_frame *f;
	uint64_t first;

	create(3);
	r = follow(GPUSHM_EVERY, 1);
	produce();
	f = next(r);
	ck_assert_int_eq(gpushm_frame_array(f, "words", &a), 0);
	first = *(uint64_t *)gpushm_array_host_ptr(a);
	ck_assert_int_eq(gpushm_array_get(gpushm_stream_buffer(p), "words", &kept), 0);
	r = gpushm_stream_close(r);
	/* It has left: the producer does not wait for it. */
	produce_many(2);
	ck_assert_uint_eq(*(uint64_t *)gpushm_array_host_ptr(a), first);
	a = gpushm_array_free(a);
	r = follow(GPUSHM_EVERY, 1);
	p = gpushm_stream_close(p);
	next_fails(r, 1000, -EPIPE);
	r = gpushm_stream_close(r);
	ck_assert_uint_ne(client_used_bytes(), 0);
	kept = gpushm_array_free(kept);
}
END_TEST

START_TEST(a_stream_that_was_left_refuses_calls)
{
	struct gpushm_array *a = NULL;
	struct gpushm_frame *f;

	create(3);
	r = follow(GPUSHM_EVERY, 1);
	produce();
	f = next(r);
	ck_assert_int_eq(gpushm_frame_array(f, "words", &a), 0);
	ck_assert_int_eq(gpushm_stream_leave(r), 0);
	ck_assert_int_eq(gpushm_stream_leave(r), 0);
	next_fails(r, 0, -EBADF);
	says("left");
	produce_many(5);
	a = gpushm_array_free(a);
	r2 = follow(GPUSHM_LATEST, 1);
	ck_assert_int_eq(gpushm_stream_leave(p), 0);
	expect_next(r2, 6);
	next_fails(r2, 1000, -EPIPE);
	begin_fails(0, -EBADF);
}
END_TEST

/* ---- what create and open refuse ---- */

static int try_spec(const char *name, struct gpushm_stream_spec spec)
{
	struct gpushm_stream *s = NULL;
	int result = streamer_create(c, name, &spec, &s);

	gpushm_stream_close(s);
	return result;
}

START_TEST(a_wrong_spec_is_refused)
{
	static const struct gpushm_stream_spec wrong[] = {
		{ .slots = 1 },		{ .slots = 4097 }, { .readers = 65 },
		{ .flags = 1u << 31 },	{ .delivery = 3 }, { .flags = GPUSHM_TRANSIENT },
		{ .spin_us = 1000001 },
	};
	struct gpushm_stream_spec spec = { .struct_size = sizeof(spec) };
	struct gpushm_array_spec narrow = { .struct_size = sizeof(narrow),
					    .name = "a",
					    .dtype = { 0, 4, 1, 0 } };
	struct {
		struct gpushm_stream_spec spec;
		uint64_t later;
	} newer = { .spec.struct_size = sizeof(newer), .later = 1 };
	struct gpushm_stream *s = NULL;

	for (size_t i = 0; i < array_size(wrong); i++)
		ck_assert_msg(try_spec("t", wrong[i]) == -EINVAL, "spec %zu", i);
	ck_assert_int_eq(gpushm_stream_create(c, "t", &spec, NULL, &s), -EINVAL);
	says("an array at least");
	ck_assert_int_eq(gpushm_stream_create(c, "t", NULL, NULL, &s), -EINVAL);
	spec.arrays = &narrow;
	spec.n_arrays = 1;
	ck_assert_int_eq(gpushm_stream_create(c, "t", &spec, NULL, &s), -ENOTSUP);
	says("narrower than a byte");
	spec.struct_size = 0;
	ck_assert_int_eq(gpushm_stream_create(c, "t", &spec, NULL, &s), -EINVAL);
	ck_assert_int_eq(gpushm_stream_create(c, "t", &newer.spec, NULL, &s), -EINVAL);
	says("newer");
	newer.later = 0;
	ck_assert_int_eq(gpushm_stream_create(c, "t", &newer.spec, NULL, &s), -EINVAL);
	says("an array at least");
	ck_assert_uint_eq(client_used_bytes(), 0);
}
END_TEST

START_TEST(a_name_in_use_is_refused)
{
	static const struct {
		const char *name;
		struct gpushm_stream_spec spec;
		int error;
		const char *says;
	} taken[] = {
		{ "s", { .slots = 4 }, -EEXIST, "" },
		{ "s", { .slots = 4, .flags = GPUSHM_ADOPT }, -EBUSY, "" },
		{ "s", { .slots = 5, .flags = GPUSHM_ADOPT }, -EEXIST, "other arrays or slots" },
		{ "b", { .slots = 4, .flags = GPUSHM_ADOPT }, -EEXIST, "" },
	};
	struct gpushm_buffer *b = client_create("b", 100, NULL);

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	create(4);
	ck_assert_int_eq(try_spec("t", (struct gpushm_stream_spec){ .slots = 4 }), 0);
	for (size_t i = 0; i < array_size(taken); i++) {
		ck_assert_int_eq(try_spec(taken[i].name, taken[i].spec), taken[i].error);
		says(taken[i].says);
	}
	client_close_and_unlink(b, "b");
	/* The stream goes on. */
	r = follow(GPUSHM_EVERY, 1);
	expect_next(r, produce());
}
END_TEST

START_TEST(a_wrong_open_is_refused)
{
	static const struct {
		const char *name;
		enum gpushm_follow how;
		uint32_t max_held;
		uint64_t timeout_ms;
		uint32_t flags;
		int error;
	} wrong[] = {
		{ "b", GPUSHM_EVERY, 1, 0, 0, -ENOTSUP },
		{ "nothing", GPUSHM_EVERY, 1, 0, 0, -ENOENT },
		{ "nothing", GPUSHM_EVERY, 1, 10, 0, -ETIMEDOUT },
		{ "s", 0, 1, 0, 0, -EINVAL },
		{ "s", GPUSHM_EVERY, 4, 0, 0, -EINVAL },
		{ "s", GPUSHM_EVERY, 1, 0, GPUSHM_COPY_ON_WRITE, -EINVAL },
	};
	struct gpushm_buffer *b = client_create("b", 100, NULL), *written;
	struct gpushm_follow_options o = { .struct_size = sizeof(o) };
	struct gpushm_stream *s = NULL;

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	create(4);
	for (size_t i = 0; i < array_size(wrong); i++) {
		o.flags = wrong[i].flags;
		ck_assert_msg(gpushm_stream_open(c, wrong[i].name, wrong[i].how, wrong[i].max_held,
						 wrong[i].timeout_ms, &o, &s) == wrong[i].error,
			      "open %zu: %s", i, gpushm_error());
	}
	client_close_and_unlink(b, "b");
	ck_assert_int_eq(gpushm_open(c, "s", GPUSHM_WRITE, 0, NULL, &written), -EBUSY);
	says("GPUSHM_ADOPT");
}
END_TEST

START_TEST(a_stream_has_as_many_readers_as_seats)
{
	struct gpushm_stream *s = NULL, *all[64];

	hostile_reader_stays_away("seats are counted");
	create_with((struct gpushm_stream_spec){ .slots = 4, .readers = 1 });
	r = follow(GPUSHM_EVERY, 1);
	ck_assert_int_eq(gpushm_stream_open(c, "s", GPUSHM_EVERY, 1, 0, NULL, &s), -EUSERS);
	r = gpushm_stream_close(r);
	client_status();
	r = follow(GPUSHM_EVERY, 1);
	expect_next(r, produce());
	r = gpushm_stream_close(r);
	p = gpushm_stream_close(p);
	create_with((struct gpushm_stream_spec){ .slots = 80, .readers = 64 });
	for (int i = 0; i < 64; i++)
		all[i] = follow(i % 2 ? GPUSHM_EVERY : GPUSHM_LATEST, 1);
	for (uint64_t seq = 1; seq <= 20; seq++) {
		produce();
		for (int i = 0; i < 64; i++)
			expect_next(all[i], seq);
	}
	for (int i = 0; i < 64; i++)
		gpushm_stream_close(all[i]);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *frames = tcase_create("frames"), *limits = tcase_create("limits");
	TCase *ends = tcase_create("ends"), *refused = tcase_create("refused");
	TCase *all[] = { frames, limits, ends, refused };

	for (size_t i = 0; i < array_size(all); i++)
		tcase_add_checked_fixture(all[i], client_setup, teardown);
	tcase_set_timeout(limits, 60);
	tcase_add_test(frames, each_frame_arrives_once_and_in_order);
	tcase_add_test(frames, an_array_of_a_frame_is_that_of_its_slot);
	tcase_add_test(frames, a_frame_and_its_stream_have_no_handle);
	tcase_add_test(frames, meta_arrives_and_has_a_limit);
	tcase_add_test(frames, latest_gets_the_newest_frame_once);
	tcase_add_test(frames, every_begins_with_the_first_frame_after_its_join);
	tcase_add_test(frames, share_gives_each_frame_to_one_member);
	tcase_add_test(frames, a_closed_members_frames_go_to_the_others);
	tcase_add_test(limits, every_slows_its_producer);
	tcase_add_test(limits, a_reader_holds_max_held_frames_at_most);
	tcase_add_test(limits, a_slow_reader_is_dropped_and_told);
	tcase_add_loop_test(limits, slow_readers_are_dropped_together, 0, 2);
	tcase_add_test(limits, a_member_that_inherits_a_frame_has_time_for_it);
	tcase_add_test(limits, a_member_that_takes_nothing_is_dropped);
	tcase_add_test(limits, a_queue_is_kept_without_readers);
	tcase_add_test(limits, an_ended_stream_cannot_be_continued);
	tcase_add_test(limits, a_producer_begins_one_frame_at_a_time);
	tcase_add_test(limits, a_cuda_stream_is_refused_for_host_memory);
	tcase_add_test(limits, each_side_is_refused_the_others_calls);
	tcase_add_test(ends, the_last_frames_of_a_closed_stream_are_read);
	tcase_add_test(ends, close_gives_back_what_is_filled_or_held);
	tcase_add_test(ends, memory_stays_while_an_array_exists);
	tcase_add_test(ends, a_stream_that_was_left_refuses_calls);
	tcase_add_test(refused, a_wrong_spec_is_refused);
	tcase_add_test(refused, a_name_in_use_is_refused);
	tcase_add_test(refused, a_wrong_open_is_refused);
	tcase_add_test(refused, a_stream_has_as_many_readers_as_seats);
	return suite_run("streams", frames, limits, ends, refused, NULL);
}
