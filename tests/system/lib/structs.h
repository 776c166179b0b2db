/* SPDX-License-Identifier: MIT
 *
 * A program whose headers are those of another version than the library's, in which each struct
 * that begins with its size has another one (tests/abi/resize.awk). It includes no other header of
 * gpushm, and no header of tests/lib that does. Before this file it includes the structs.h of its
 * version, and says what is done with the member that a larger struct has:
 *
 *	SET_ONE_MORE(s, value)	  sets it
 *	ONE_MORE_OF(s)		  0 where there is none
 *	HAS_ONE_MORE(s)		  whether the library says that it has it
 */
#pragma once

#include "tests/lib/daemon.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct daemon d;
static struct gpushm *c;
static const char name[] = "a";

static void structs_setup(void)
{
	fds_mark();
	daemon_start(&d, "", NULL);
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
}

static void structs_teardown(void)
{
	c = gpushm_disconnect(c);
	daemon_stop(&d);
	fds_check();
}

/* ---- structs that a caller fills in; give_X(0) returns 0 ---- */

static const int64_t shape[] = { 4 };

/* Two, because the library finds the second one by the size of the first. */
static void fill_specs(struct gpushm_array_spec specs[2], uint64_t one_more)
{
	for (int i = 0; i < 2; i++) {
		specs[i] = (struct gpushm_array_spec){ .struct_size = sizeof(*specs),
						       .name = i == 0 ? "x" : "y",
						       .ndim = 1,
						       .shape = shape };
		ck_assert_int_eq(gpushm_dtype_parse("uint8", &specs[i].dtype), 0);
	}
	SET_ONE_MORE(&specs[1], one_more);
}

static int create_arrays(struct gpushm_buffer **ret)
{
	const struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "host" };
	struct gpushm_array_spec specs[2];

	fill_specs(specs, 0);
	return gpushm_create_arrays(c, name, specs, 2, &o, ret);
}

static int give_array_spec(uint64_t one_more)
{
	struct gpushm_array_spec specs[2];
	struct gpushm_buffer *b = NULL;
	int r;

	fill_specs(specs, one_more);
	r = gpushm_create_arrays(c, name, specs, 2, NULL, &b);
	if (r < 0)
		return r;
	ck_assert_uint_eq(specs[1].offset, 256);
	ck_assert_uint_eq(gpushm_buffer_arrays(b), 2);
	return gpushm_discard(b);
}

/* The size of a value is the last member: a smaller attribute is empty. */
static int give_attr(uint64_t one_more)
{
	struct gpushm_attr attrs[2] = { { .struct_size = sizeof(*attrs), .key = "k", .value = "v" },
					{ .struct_size = sizeof(*attrs), .key = "l" } };
	struct gpushm_buffer *b = NULL;
	int r;

	SET_ONE_MORE(&attrs[1], one_more);
	ck_assert_int_eq(gpushm_create(c, name, 1, NULL, &b), 0);
	r = gpushm_set_attrs(b, attrs, 2);
	ck_assert_int_eq(gpushm_discard(b), 0);
	return r;
}

static int give_create_options(uint64_t one_more)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "host", .mode = 0640 };
	struct gpushm_buffer *b = NULL;
	int r;

	SET_ONE_MORE(&o, one_more);
	r = gpushm_create(c, name, 1, &o, &b);
	return r < 0 ? r : gpushm_discard(b);
}

static struct gpushm_buffer *publish(void)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(create_arrays(&b) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	return b;
}

static void unpublish(struct gpushm_buffer *b)
{
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, name), 0);
}

static int give_open_options(uint64_t one_more)
{
	struct gpushm_open_options o = { .struct_size = sizeof(o), .flags = GPUSHM_REFUSE_DIRTY };
	struct gpushm_buffer *b = publish(), *again = NULL;
	int r;

	SET_ONE_MORE(&o, one_more);
	r = gpushm_open(c, name, GPUSHM_READ, 0, &o, &again);
	if (r == 0)
		ck_assert_int_eq(gpushm_close(again), 0);
	unpublish(b);
	return r;
}

static int give_handle_options(uint64_t one_more)
{
	struct gpushm_handle_options o = { .struct_size = sizeof(o), .access = GPUSHM_READ };
	struct gpushm_buffer *b = publish();
	struct gpushm_array *a = NULL, *again = NULL;
	char handle[GPUSHM_HANDLE_MAX];
	size_t n = 0;
	int r;

	SET_ONE_MORE(&o, one_more);
	ck_assert_int_eq(gpushm_array_at(b, 0, &a), 0);
	ck_assert_int_eq(gpushm_array_handle(a, handle, sizeof(handle), &n), 0);
	r = gpushm_open_handle(c, handle, n, &o, &again);
	gpushm_array_free(again);
	gpushm_array_free(a);
	unpublish(b);
	return r;
}

static int copy_both(struct gpushm_buffer *b, uint64_t one_more)
{
	unsigned char from[2][4] = { { 1, 2, 3, 4 }, { 5, 6, 7, 8 } };
	struct gpushm_copy copies[2] = { 0 };
	int r;

	for (size_t i = 0; i < 2; i++) {
		copies[i].struct_size = sizeof(*copies);
		copies[i].memory = from[i];
		copies[i].device = GPUSHM_HOST_MEMORY;
		ck_assert_int_eq(gpushm_array_at(b, i, &copies[i].array), 0);
	}
	SET_ONE_MORE(&copies[1], one_more);
	r = gpushm_copy_many(copies, 2, 0, NULL);
	if (r == 0)
		ck_assert_mem_eq(gpushm_array_host_ptr(copies[1].array), from[1], 4);
	for (size_t i = 0; i < 2; i++)
		gpushm_array_free(copies[i].array);
	return r;
}

static int give_copy(uint64_t one_more)
{
	struct gpushm_buffer *b = publish();
	int r = copy_both(b, one_more);

	unpublish(b);
	return r;
}

static int give_events_options(uint64_t one_more)
{
	struct gpushm_events_options o = { .struct_size = sizeof(o), .after = GPUSHM_EVENTS_NEW };
	struct gpushm_events *events = NULL;
	int r;

	SET_ONE_MORE(&o, one_more);
	r = gpushm_events(c, &o, &events);
	if (r == 0)
		ck_assert_uint_eq(events->n_events, 0);
	gpushm_free(events);
	return r;
}

static int create_stream(uint64_t one_more, struct gpushm_stream **ret)
{
	struct gpushm_array_spec specs[2];
	struct gpushm_stream_spec spec = {
		.struct_size = sizeof(spec), .arrays = specs, .n_arrays = 2, .slots = 3
	};
	const struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "host" };

	fill_specs(specs, 0);
	SET_ONE_MORE(&spec, one_more);
	return gpushm_stream_create(c, name, &spec, &o, ret);
}

static int give_stream_spec(uint64_t one_more)
{
	struct gpushm_stream *s = NULL;
	int r = create_stream(one_more, &s);

	if (r == 0)
		ck_assert_uint_eq(gpushm_stream_slots(s), 3);
	gpushm_stream_close(s);
	return r;
}

static int give_follow_options(uint64_t one_more)
{
	struct gpushm_follow_options o = { .struct_size = sizeof(o) };
	struct gpushm_stream *p = NULL, *s = NULL;
	int r;

	SET_ONE_MORE(&o, one_more);
	ck_assert_int_eq(create_stream(0, &p), 0);
	r = gpushm_stream_open(c, name, GPUSHM_EVERY, 1, 0, &o, &s);
	gpushm_stream_close(s);
	gpushm_stream_close(p);
	return r;
}

/* ---- models ---- */

static const char *file(void)
{
	static char path[96];

	snprintf(path, sizeof(path), "%s/model.safetensors", d.folder);
	return path;
}

static int save(struct gpushm_save_options *o)
{
	struct gpushm_buffer *b = publish();
	int r = gpushm_save(b, file(), o);

	unpublish(b);
	return r;
}

static int give_save_options(uint64_t one_more)
{
	struct gpushm_save_options o = { .struct_size = sizeof(o), .threads = 1 };
	int r;

	SET_ONE_MORE(&o, one_more);
	r = save(&o);
	return r < 0 ? r : unlink(file());
}

/* From a file that is saved before. */
static int load(struct gpushm_load_options *o)
{
	const char *sources[] = { file() };
	int r;

	ck_assert_msg(save(NULL) == 0, "%s", gpushm_error());
	r = gpushm_load(c, sources, 1, name, NULL, o, NULL);
	ck_assert_int_eq(unlink(file()), 0);
	if (r == 0)
		ck_assert_int_eq(gpushm_unlink(c, name), 0);
	return r;
}

static int give_load_options(uint64_t one_more)
{
	struct gpushm_load_options o = { .struct_size = sizeof(o), .threads = 1 };

	SET_ONE_MORE(&o, one_more);
	return load(&o);
}

/* No relay is there, which is waited for. */
static int give_remote_options(uint64_t one_more)
{
	struct gpushm_remote_options o = { .struct_size = sizeof(o) };
	int r;

	SET_ONE_MORE(&o, one_more);
	r = gpushm_pull_wait("http://127.0.0.1:1/v1/buffers/a", NULL, &o, 1, NULL, NULL);
	return r == -ETIMEDOUT ? 0 : r;
}

/* ---- structs that the library returns ---- */

/* A member of its first version is there, and the one that it does not know is not. */
#define RETURNED(s)                                                                     \
	do {                                                                            \
		ck_assert_ptr_nonnull(s);                                               \
		ck_assert_uint_ge((s)->struct_size, sizeof(size_t) + sizeof(uint32_t)); \
		ck_assert(!HAS_ONE_MORE(s));                                            \
	} while (0)
/* A list of them; who needs one says so himself. */
#define ALL_RETURNED(list, n)               \
	for (size_t i_ = 0; i_ < (n); i_++) \
	RETURNED((list)[i_])

static struct gpushm_stat *stat_of(void)
{
	struct gpushm_stat *st = NULL;

	ck_assert_msg(gpushm_stat(c, name, 0, GPUSHM_HOLDERS, &st) == 0, "%s", gpushm_error());
	return st;
}

static void get_stat(void)
{
	struct gpushm_buffer *b = publish();
	struct gpushm_stat *st = stat_of(), **all = NULL;
	size_t n = 0;

	RETURNED(st);
	ck_assert_str_eq(st->name, name);
	ck_assert_uint_eq(st->arrays, 2);
	ck_assert_int_eq(gpushm_list(c, NULL, 0, &all, &n), 0);
	ck_assert_uint_eq(n, 1);
	RETURNED(all[0]);
	ck_assert_uint_eq(all[0]->id, st->id);
	gpushm_free(all);
	gpushm_free(st);
	unpublish(b);
}

static void get_holder(void)
{
	struct gpushm_buffer *b = publish();
	struct gpushm_stat *st = stat_of();

	ck_assert_uint_eq(st->n_holders, 1);
	RETURNED(st->holders[0]);
	ck_assert_int_eq(st->holders[0]->pid, getpid());
	gpushm_free(st);
	unpublish(b);
}

/* A load leaves some. */
static void get_attr(void)
{
	const char *sources[] = { file() };
	struct gpushm_stat *st;

	ck_assert_int_eq(save(NULL), 0);
	ck_assert_int_eq(gpushm_load(c, sources, 1, name, NULL, NULL, NULL), 0);
	st = stat_of();
	ck_assert_uint_gt(st->n_attrs, 0);
	ALL_RETURNED(st->attrs, st->n_attrs);
	ck_assert_int_eq(strncmp(st->attrs[0]->key, "gpushm.", 7), 0);
	gpushm_free(st);
	ck_assert_int_eq(gpushm_unlink(c, name), 0);
	ck_assert_int_eq(unlink(file()), 0);
}

static void get_pool(void)
{
	struct gpushm_pool **pools = NULL;
	size_t n = 0;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	ck_assert_uint_gt(n, 0);
	ALL_RETURNED(pools, n);
	ck_assert_uint_gt(pools[0]->bytes, 0);
	gpushm_free(pools);
}

/* A status of a daemon that has refused a request. */
static struct gpushm_status *status(void)
{
	struct gpushm_status *st = NULL;

	ck_assert_int_eq(gpushm_unlink(c, "missing"), -ENOENT);
	ck_assert_int_eq(gpushm_status(c, &st), 0);
	return st;
}

static void get_status(void)
{
	struct gpushm_status *st = status();

	RETURNED(st);
	ck_assert_int_eq(st->pid, d.pid);
	ck_assert_uint_gt(st->requests, 0);
	gpushm_free(st);
}

static void get_usage(void)
{
	struct gpushm_status *st = status();

	ck_assert_uint_eq(st->n_usage, 1);
	RETURNED(st->usage[0]);
	ck_assert_uint_eq(st->usage[0]->uid, getuid());
	gpushm_free(st);
}

static void get_refusal(void)
{
	struct gpushm_status *st = status();

	ck_assert_uint_eq(st->n_refusals, 1);
	RETURNED(st->refusals[0]);
	ck_assert_str_eq(st->refusals[0]->code, "NOT_FOUND");
	gpushm_free(st);
}

static void get_events(void)
{
	struct gpushm_events *events = NULL;

	ck_assert_int_eq(gpushm_events(c, NULL, &events), 0);
	RETURNED(events);
	ck_assert_uint_gt(events->last, 0);
	gpushm_free(events);
}

static void get_logged_event(void)
{
	struct gpushm_events *events = NULL;

	ck_assert_int_eq(gpushm_events(c, NULL, &events), 0);
	ck_assert_uint_gt(events->n_events, 0);
	ALL_RETURNED(events->events, events->n_events);
	ck_assert_str_eq(events->events[0]->type, "started");
	gpushm_free(events);
}

/* The daemon's description of a stream that has a reader. */
static void get_streams(bool readers)
{
	struct gpushm_stream_info **all = NULL;
	struct gpushm_stream *p = NULL, *s = NULL;
	size_t n = 0;

	ck_assert_int_eq(create_stream(0, &p), 0);
	ck_assert_int_eq(gpushm_stream_open(c, name, GPUSHM_EVERY, 1, 0, NULL, &s), 0);
	ck_assert_int_eq(gpushm_streams(c, NULL, &all, &n), 0);
	ck_assert_uint_eq(n, 1);
	ck_assert_uint_eq(all[0]->n_readers, 1);
	if (readers)
		RETURNED(all[0]->readers[0]);
	else
		RETURNED(all[0]);
	ck_assert_str_eq(all[0]->name, name);
	ck_assert_int_eq(all[0]->readers[0]->pid, getpid());
	gpushm_free(all);
	gpushm_stream_close(s);
	gpushm_stream_close(p);
}

static void get_stream_info(void)
{
	get_streams(false);
}

static void get_stream_reader(void)
{
	get_streams(true);
}

/* Of a daemon that has replied before. */
static struct gpushm_metrics *metrics(void)
{
	struct gpushm_metrics *m = NULL;

	ck_assert_int_eq(gpushm_flush(c, NULL), 0);
	ck_assert_int_eq(gpushm_metrics(c, &m), 0);
	ck_assert_uint_gt(m->n_verbs, 0);
	return m;
}

static void get_metrics(void)
{
	struct gpushm_metrics *m = metrics();

	RETURNED(m);
	ck_assert_uint_gt(m->n_bounds_ns, 0);
	gpushm_free(m);
}

static void get_verb_metrics(void)
{
	struct gpushm_metrics *m = metrics();

	ALL_RETURNED(m->verbs, m->n_verbs);
	ck_assert_uint_eq(m->verbs[0]->n_buckets, m->n_bounds_ns + 1);
	gpushm_free(m);
}

static void get_result(void)
{
	struct gpushm_metrics *m = metrics();

	ck_assert_uint_gt(m->verbs[0]->n_results, 0);
	ALL_RETURNED(m->verbs[0]->results, m->verbs[0]->n_results);
	ck_assert_str_eq(m->verbs[0]->results[0]->code, "OK");
	gpushm_free(m);
}

static void get_pool_metrics(void)
{
	struct gpushm_metrics *m = metrics();

	ck_assert_uint_gt(m->n_pools, 0);
	ALL_RETURNED(m->pools, m->n_pools);
	RETURNED(m->pools[0]->pool);
	gpushm_free(m);
}

/* Without a driver there is none. */
static void get_driver_call(void)
{
	struct gpushm_metrics *m = metrics();

	ALL_RETURNED(m->driver_calls, m->n_driver_calls);
	gpushm_free(m);
}

static void get_stream_metrics(void)
{
	struct gpushm_stream *p = NULL;
	struct gpushm_metrics *m;

	ck_assert_int_eq(create_stream(0, &p), 0);
	m = metrics();
	RETURNED(m->streams);
	ck_assert_uint_eq(m->streams->running, 1);
	gpushm_free(m);
	gpushm_stream_close(p);
}

static int on_progress(void *user, const struct gpushm_load_progress *progress)
{
	RETURNED(progress);
	*(uint64_t *)user = progress->done;
	return 0;
}

static void get_load_progress(void)
{
	uint64_t done = 0;
	struct gpushm_load_options o = { .struct_size = sizeof(o),
					 .progress = on_progress,
					 .user = &done };

	ck_assert_msg(load(&o) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(done, 8);
}

/* ---- structs of the caller that the library fills in ---- */

#define CANARY 0xa5

/* One of them, with memory behind it that belongs to somebody else. */
#define FRAMED(type)                                    \
	union {                                         \
		type s;                                 \
		unsigned char bytes[sizeof(type) + 64]; \
	}
#define FRAME(f)                                              \
	do {                                                  \
		memset((f).bytes, CANARY, sizeof((f).bytes)); \
		(f).s.struct_size = sizeof((f).s);            \
	} while (0)
#define FRAME_CHECK(f)                                                        \
	do {                                                                  \
		ck_assert_uint_eq((f).s.struct_size, sizeof((f).s));          \
		ck_assert_uint_eq(ONE_MORE_OF(&(f).s), 0);                    \
		for (size_t i_ = sizeof((f).s); i_ < sizeof((f).bytes); i_++) \
			ck_assert_uint_eq((f).bytes[i_], CANARY);             \
	} while (0)

static void get_event(void)
{
	FRAMED(struct gpushm_event) f;
	struct gpushm_buffer *b = publish();
	struct gpushm_watch *w = NULL;

	FRAME(f);
	ck_assert_int_eq(gpushm_watch_new(c, &w), 0);
	ck_assert_int_eq(gpushm_watch_name(w, name), 0);
	ck_assert_msg(gpushm_watch_next(w, 60000, &f.s) == 0, "%s", gpushm_error());
	FRAME_CHECK(f);
	ck_assert_int_eq(f.s.what, GPUSHM_EVENT_PUBLISHED);
	ck_assert_str_eq(f.s.name, name);
	gpushm_watch_free(w);
	unpublish(b);
}

static void get_stream_stats(void)
{
	FRAMED(struct gpushm_stream_stats) f;
	struct gpushm_stream *p = NULL;

	FRAME(f);
	ck_assert_int_eq(create_stream(0, &p), 0);
	ck_assert_int_eq(gpushm_stream_stats(p, &f.s), 0);
	FRAME_CHECK(f);
	ck_assert_int_eq(f.s.state, GPUSHM_STREAM_RUNNING);
	gpushm_stream_close(p);
}

static void get_load_report(void)
{
	FRAMED(struct gpushm_load_report) f;
	struct gpushm_load_options o = { .struct_size = sizeof(o), .report = &f.s };

	FRAME(f);
	ck_assert_msg(load(&o) == 0, "%s", gpushm_error());
	FRAME_CHECK(f);
	ck_assert_uint_eq(f.s.tensors, 2);
}

/* ---- all of them ---- */

/* give: a caller fills it in; get: the library does. */
static const struct row {
	int (*give)(uint64_t one_more);
	void (*get)(void);
} rows[STRUCTS] = {
	[STRUCT_attr] = { give_attr, get_attr },
	[STRUCT_create_options] = { give_create_options, NULL },
	[STRUCT_open_options] = { give_open_options, NULL },
	[STRUCT_handle_options] = { give_handle_options, NULL },
	[STRUCT_array_spec] = { give_array_spec, NULL },
	[STRUCT_copy] = { give_copy, NULL },
	[STRUCT_event] = { NULL, get_event },
	[STRUCT_events_options] = { give_events_options, NULL },
	[STRUCT_stream_spec] = { give_stream_spec, NULL },
	[STRUCT_follow_options] = { give_follow_options, NULL },
	[STRUCT_stream_stats] = { NULL, get_stream_stats },
	[STRUCT_holder] = { NULL, get_holder },
	[STRUCT_stat] = { NULL, get_stat },
	[STRUCT_pool] = { NULL, get_pool },
	[STRUCT_usage] = { NULL, get_usage },
	[STRUCT_refusal] = { NULL, get_refusal },
	[STRUCT_status] = { NULL, get_status },
	[STRUCT_logged_event] = { NULL, get_logged_event },
	[STRUCT_events] = { NULL, get_events },
	[STRUCT_stream_reader] = { NULL, get_stream_reader },
	[STRUCT_stream_info] = { NULL, get_stream_info },
	[STRUCT_result] = { NULL, get_result },
	[STRUCT_verb_metrics] = { NULL, get_verb_metrics },
	[STRUCT_driver_call] = { NULL, get_driver_call },
	[STRUCT_pool_metrics] = { NULL, get_pool_metrics },
	[STRUCT_stream_metrics] = { NULL, get_stream_metrics },
	[STRUCT_metrics] = { NULL, get_metrics },
	[STRUCT_load_progress] = { NULL, get_load_progress },
	[STRUCT_load_report] = { NULL, get_load_report },
	[STRUCT_remote_options] = { give_remote_options, NULL },
	[STRUCT_load_options] = { give_load_options, NULL },
	[STRUCT_save_options] = { give_save_options, NULL },
};

START_TEST(a_struct_of_another_size_serves)
{
	const struct row *row = &rows[_i];

	ck_assert_msg(row->give || row->get, "struct gpushm_%s is in a header, and not in rows[]",
		      struct_names[_i]);
	if (row->give)
		ck_assert_msg(row->give(0) == 0, "struct gpushm_%s: %s", struct_names[_i],
			      gpushm_error());
	if (row->get)
		row->get();
}
END_TEST

static TCase *structs_case(const char *of)
{
	TCase *t = tcase_create(of);

	tcase_add_checked_fixture(t, structs_setup, structs_teardown);
	tcase_add_loop_test(t, a_struct_of_another_size_serves, 0, STRUCTS);
	return t;
}
