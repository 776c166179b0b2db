/* SPDX-License-Identifier: MIT
 *
 * NULL for a connection, buffer, array or watch: every public function returns an error with a text
 * for it. The header's declarations are read, so that a new function can't be forgotten here.
 */
#include "client/gpushm_async.h"
#include "client/gpushm_events.h"
#include "client/gpushm_handle.h"
#include "client/gpushm_metrics.h"
#include "client/gpushm_query.h"
#include "client/gpushm_stream.h"
#include "proto/base/own.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* What a function returned, as a number: -EINVAL, 0 where it returns a pointer or is unsigned, or
 * -1 as a uid. */
struct call {
	const char *function;
	intptr_t (*run)(void);
	intptr_t wanted;
};

static const struct gpushm_array_spec spec = { .struct_size = sizeof(spec), .name = "a" };
static const int64_t ints[1];
static char bytes[8];
static struct gpushm_stat **stats, *stat;
static struct gpushm_status *status;
static struct gpushm_metrics *metrics;
static struct gpushm_events *events;
static struct gpushm_pool **pools;
static struct gpushm_buffer *buffer;
static struct gpushm_array *array;
static struct gpushm_watch *watch;
static struct gpushm_call *call_made;
static struct gpushm_event event = { .struct_size = sizeof(event) };
static struct gpushm_stream *stream;
static struct gpushm_frame *frame;
static struct gpushm_graph_frame *graph_frame;
static struct gpushm_stream_stats stream_stats = { .struct_size = sizeof(stream_stats) };
static struct gpushm_stream_info **streams;
static const void *value;
static void *tensor;
static size_t n;
static uint64_t offset;
static uint32_t notice;
static uint64_t size;

#define CALL(f, wanted, ...)                     \
	static intptr_t run_##f(void)            \
	{                                        \
		return (intptr_t)f(__VA_ARGS__); \
	}
#define CALLS                                                                                     \
	INT(gpushm_set_timeout, NULL, 1)                                                          \
	INT(gpushm_fd, NULL)                                                                      \
	INT(gpushm_create, NULL, "x", 1, NULL, &buffer)                                           \
	INT(gpushm_create_arrays, NULL, "x", (struct gpushm_array_spec *)&spec, 0, NULL, &buffer) \
	INT(gpushm_layout, NULL, 1, &size)                                                        \
	INT(gpushm_copy_many, NULL, 1, 0, NULL)                                                   \
	INT(gpushm_describe, NULL, &spec, 1)                                                      \
	INT(gpushm_publish, NULL, GPUSHM_SEALED)                                                  \
	INT(gpushm_publish_as, NULL, GPUSHM_SEALED, "x", 0)                                       \
	INT(gpushm_set_attrs, NULL, NULL, 0)                                                      \
	INT(gpushm_open, NULL, "x", GPUSHM_READ, 0, NULL, &buffer)                                \
	INT(gpushm_open_or_create, NULL, "x", GPUSHM_READ, 0, NULL, 1, NULL, &buffer)             \
	INT(gpushm_rename, NULL, "x", "y", 0)                                                     \
	INT(gpushm_unlink, NULL, "x")                                                             \
	INT(gpushm_clean, NULL, "x")                                                              \
	INT(gpushm_wait, NULL, "x", 0)                                                            \
	ZERO(gpushm_buffer_id, NULL)                                                              \
	ZERO(gpushm_buffer_bytes, NULL)                                                           \
	ZERO(gpushm_buffer_digest, NULL)                                                          \
	ZERO(gpushm_buffer_state, NULL)                                                           \
	ZERO(gpushm_buffer_access, NULL)                                                          \
	ZERO(gpushm_buffer_kind, NULL)                                                            \
	ZERO(gpushm_buffer_pool, NULL)                                                            \
	INT(gpushm_buffer_copy_on_write, NULL)                                                    \
	INT(gpushm_buffer_kept, NULL)                                                             \
	INT(gpushm_buffer_lost, NULL)                                                             \
	INT(gpushm_buffer_dirty, NULL)                                                            \
	ZERO(gpushm_buffer_name, NULL)                                                            \
	NOBODY(gpushm_buffer_uid, NULL)                                                           \
	INT(gpushm_buffer_device, NULL)                                                           \
	ZERO(gpushm_buffer_device_ptr, NULL)                                                      \
	ZERO(gpushm_buffer_host_ptr, NULL)                                                        \
	INT(gpushm_buffer_attr, NULL, "k", &value, &n)                                            \
	ZERO(gpushm_buffer_notice, NULL)                                                          \
	INT(gpushm_buffer_wait, NULL, 0, 0, &notice)                                              \
	INT(gpushm_array_handle, NULL, bytes, sizeof(bytes), &n)                                  \
	INT(gpushm_buffer_handle, NULL, bytes, sizeof(bytes), &n)                                 \
	INT(gpushm_open_handle, NULL, bytes, sizeof(bytes), NULL, &array)                         \
	INT(gpushm_open_buffer_handle, NULL, bytes, sizeof(bytes), NULL, &buffer)                 \
	INT(gpushm_pin, NULL, 1, 0, NULL)                                                         \
	INT(gpushm_unpin, NULL)                                                                   \
	INT(gpushm_send_open, NULL, "x", GPUSHM_READ, 0, NULL, &call_made)                        \
	INT(gpushm_send_create, NULL, "x", 1, NULL, &call_made)                                   \
	INT(gpushm_send_wait, NULL, "x", 0, &call_made)                                           \
	INT(gpushm_call_fd, NULL)                                                                 \
	INT(gpushm_call_process, NULL)                                                            \
	ZERO(gpushm_call_buffer, NULL)                                                            \
	INT(gpushm_watch_new, NULL, &watch)                                                       \
	INT(gpushm_watch_name, NULL, "x")                                                         \
	INT(gpushm_watch_buffer, NULL, NULL)                                                      \
	INT(gpushm_watch_fd, NULL)                                                                \
	INT(gpushm_watch_next, NULL, 0, &event)                                                   \
	INT(gpushm_array_get, NULL, "a", &array)                                                  \
	INT(gpushm_array_at, NULL, 0, &array)                                                     \
	ZERO(gpushm_buffer_arrays, NULL)                                                          \
	INT(gpushm_array_over, NULL, NULL, &array)                                                \
	ZERO(gpushm_array_buffer, NULL)                                                           \
	ZERO(gpushm_array_name, NULL)                                                             \
	ZERO(gpushm_array_descr, NULL)                                                            \
	INT(gpushm_array_ndim, NULL)                                                              \
	INT(gpushm_array_dim, NULL, 0)                                                            \
	ZERO(gpushm_array_shape, NULL)                                                            \
	ZERO(gpushm_array_strides, NULL)                                                          \
	INT(gpushm_array_size, NULL)                                                              \
	ZERO(gpushm_array_nbytes, NULL)                                                           \
	ZERO(gpushm_array_offset, NULL)                                                           \
	INT(gpushm_array_read_only, NULL)                                                         \
	ZERO(gpushm_array_device_ptr, NULL)                                                       \
	ZERO(gpushm_array_host_ptr, NULL)                                                         \
	INT(gpushm_array_is_c_contiguous, NULL)                                                   \
	INT(gpushm_array_is_f_contiguous, NULL)                                                   \
	INT(gpushm_array_slice, NULL, 0, 0, 1, 1, &array)                                         \
	INT(gpushm_array_index, NULL, 0, 0, &array)                                               \
	INT(gpushm_array_reshape, NULL, 'C', 1, ints, &array)                                     \
	INT(gpushm_array_ravel, NULL, 'C', &array)                                                \
	INT(gpushm_array_transpose, NULL, NULL, &array)                                           \
	INT(gpushm_array_split_count, NULL, 1)                                                    \
	INT(gpushm_array_split, NULL, 1, 0, &array)                                               \
	INT(gpushm_array_view, NULL, (struct gpushm_dtype){ 0 }, &array)                          \
	INT(gpushm_array_dup, NULL, &array)                                                       \
	INT(gpushm_copy_to_host, NULL, bytes, NULL)                                               \
	INT(gpushm_copy_from_host, NULL, bytes, NULL)                                             \
	INT(gpushm_copy_to_host_async, NULL, bytes, NULL, NULL)                                   \
	INT(gpushm_copy_from_host_async, NULL, bytes, NULL, NULL)                                 \
	INT(gpushm_read, NULL, 0, bytes, 1)                                                       \
	INT(gpushm_write, NULL, 0, bytes, 1)                                                      \
	INT(gpushm_array_to_dlpack, NULL, &tensor)                                                \
	INT(gpushm_array_to_dlpack_legacy, NULL, &tensor)                                         \
	INT(gpushm_stat, NULL, "x", 0, 0, &stat)                                                  \
	INT(gpushm_list, NULL, "", 0, &stats, &n)                                                 \
	INT(gpushm_pools, NULL, &pools, &n)                                                       \
	INT(gpushm_flush, NULL, NULL)                                                             \
	INT(gpushm_restart, NULL)                                                                 \
	INT(gpushm_status, NULL, &status)                                                         \
	INT(gpushm_metrics, NULL, &metrics)                                                       \
	INT(gpushm_events, NULL, NULL, &events)                                                   \
	INT(gpushm_stream_create, NULL, "x", NULL, NULL, &stream)                                 \
	INT(gpushm_stream_open, NULL, "x", GPUSHM_EVERY, 1, 0, NULL, &stream)                     \
	INT(gpushm_stream_leave, NULL)                                                            \
	INT(gpushm_stream_fd, NULL)                                                               \
	ZERO(gpushm_stream_buffer, NULL)                                                          \
	ZERO(gpushm_stream_slots, NULL)                                                           \
	INT(gpushm_stream_stats, NULL, &stream_stats)                                             \
	INT(gpushm_frame_begin, NULL, NULL, 0, &frame)                                            \
	INT(gpushm_frame_publish, NULL, NULL, NULL, 0)                                            \
	INT(gpushm_frame_next, NULL, NULL, 0, &frame)                                             \
	INT(gpushm_frame_ok, NULL)                                                                \
	INT(gpushm_frame_array, NULL, "a", &array)                                                \
	ZERO(gpushm_frame_seq, NULL)                                                              \
	ZERO(gpushm_frame_time, NULL)                                                             \
	ZERO(gpushm_frame_meta, NULL, &n)                                                         \
	ZERO(gpushm_frame_skipped, NULL)                                                          \
	ZERO(gpushm_frame_slot, NULL)                                                             \
	INT(gpushm_graph_acquire, NULL, NULL, NULL, &graph_frame)                                 \
	INT(gpushm_graph_release, NULL, NULL)                                                     \
	INT(gpushm_graph_offset, NULL, "a", &offset)                                              \
	INT(gpushm_graph_next, NULL, NULL, 0, &frame)                                             \
	INT(gpushm_streams, NULL, NULL, &streams, &n)
#define INT(f, ...) CALL(f, -EINVAL, __VA_ARGS__)
#define ZERO(f, ...) CALL(f, 0, __VA_ARGS__)
#define NOBODY(f, ...) CALL(f, (uid_t)-1, __VA_ARGS__) /* 0 would be root */
CALLS
#undef INT
#undef ZERO
#undef NOBODY
#define INT(f, ...) { #f, run_##f, -EINVAL },
#define ZERO(f, ...) { #f, run_##f, 0 },
#define NOBODY(f, ...) { #f, run_##f, (uid_t)-1 },
static const struct call calls[] = { CALLS };
#define N_CALLS (int)(sizeof(calls) / sizeof(calls[0]))

START_TEST(null_is_an_error_with_a_text)
{
	const struct call *c = &calls[_i];

	ck_assert_int_lt(gpushm_dtype_parse(NULL, NULL), 0); /* leaves another text */
	ck_assert_msg(c->run() == c->wanted, "%s", c->function);
	ck_assert_msg(strstr(gpushm_error(), " is NULL") != NULL, "%s: \"%s\"", c->function,
		      gpushm_error());
}
END_TEST

START_TEST(null_has_no_dtype_and_no_device)
{
	struct gpushm_dtype t = gpushm_array_dtype(NULL);
	int type = 7, id = 7;

	ck_assert_int_eq(t.bits, 0);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "the array is NULL"));
	gpushm_array_dlpack_device(NULL, &type, &id);
	ck_assert_int_eq(type, 0);
	ck_assert_int_eq(id, 0);
}
END_TEST

START_TEST(what_frees_accepts_null)
{
	ck_assert_int_eq(gpushm_close(NULL), 0);
	ck_assert_int_eq(gpushm_discard(NULL), 0);
	ck_assert_ptr_null(gpushm_disconnect(NULL));
	ck_assert_ptr_null(gpushm_array_free(NULL));
	ck_assert_ptr_null(gpushm_watch_free(NULL));
	ck_assert_ptr_null(gpushm_call_free(NULL));
	ck_assert_ptr_null(gpushm_free(NULL));
	ck_assert_ptr_null(gpushm_stream_close(NULL));
	ck_assert_ptr_null(gpushm_frame_cancel(NULL));
	ck_assert_int_eq(gpushm_frame_release(NULL, NULL), 0);
	ck_assert_ptr_null(gpushm_graph_free(NULL));
	ck_assert_ptr_null(gpushm_free(NULL));
}
END_TEST

/* Whether the test above, or one of the two after it, calls the function. */
static bool is_called(const char *function)
{
	static const char *const others[] = { "gpushm_array_dtype",   "gpushm_array_dlpack_device",
					      "gpushm_close",	      "gpushm_discard",
					      "gpushm_disconnect",    "gpushm_array_free",
					      "gpushm_watch_free",    "gpushm_call_free",
					      "gpushm_stream_close",  "gpushm_frame_cancel",
					      "gpushm_frame_release", "gpushm_graph_free" };

	for (int i = 0; i < N_CALLS; i++)
		if (strcmp(calls[i].function, function) == 0)
			return true;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (strcmp(others[i], function) == 0)
			return true;
	return false;
}

/* The name of the function whose declaration this line begins, if its first parameter is one of the
 * library's objects; else NULL. */
static const char *takes_an_object(char *line)
{
	static const char *const objects[] = {
		"struct gpushm *",	 "struct gpushm_buffer *",     "struct gpushm_array *",
		"struct gpushm_watch *", "struct gpushm_call *",       "struct gpushm_stream *",
		"struct gpushm_frame *", "struct gpushm_graph_frame *"
	};
	char *parameters = strchr(line, '('), *name = parameters;

	if (!parameters || strchr(" \t/*#", line[0]))
		return NULL;
	*parameters++ = '\0';
	while (name > line && !strchr(" *", name[-1]))
		name--;
	if (strncmp(parameters, "const ", 6) == 0)
		parameters += 6;
	for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++)
		if (strncmp(parameters, objects[i], strlen(objects[i])) == 0)
			return name;
	return NULL;
}

/* The number of functions in it that take an object. */
static int try_header(const char *path)
{
	FILE *header = fopen(path, "re");
	char line[256];
	int found = 0;

	ck_assert_ptr_nonnull(header);
	while (fgets(line, sizeof(line), header)) {
		const char *function = takes_an_object(line);

		found += function != NULL;
		ck_assert_msg(!function || is_called(function), "no test calls %s(NULL)", function);
	}
	fclose(header);
	return found;
}

START_TEST(every_function_of_the_headers_is_tried)
{
	static const char *const names[] = { "",	 "_array",   "_query",	"_events", "_async",
					     "_cleanup", "_metrics", "_stream", "_handle" };
	int found = 0;

	for (size_t i = 0; i < array_size(names); i++) {
		char path[64];

		snprintf(path, sizeof(path), "client/gpushm%s.h", names[i]);
		found += try_header(path);
	}
	ck_assert_int_ge(found, N_CALLS);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("null");

	tcase_add_loop_test(tc, null_is_an_error_with_a_text, 0, N_CALLS);
	tcase_add_test(tc, null_has_no_dtype_and_no_device);
	tcase_add_test(tc, what_frees_accepts_null);
	tcase_add_test(tc, every_function_of_the_headers_is_tried);
	return suite_run("null", tc, NULL);
}
