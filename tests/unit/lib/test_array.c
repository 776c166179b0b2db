/* SPDX-License-Identifier: MIT
 *
 * Arrays by name, by position and over bytes; their getters; their counts on the buffer.
 */
#include "tests/lib/suite.h"
#include "tests/unit/lib/array_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

static struct scene s;

static void setup(void)
{
	fds_mark();
	scene_open(&s, GPUSHM_HOST, 4096);
}

static void teardown(void)
{
	scene_close(&s);
	fds_check();
}

/* The buffer is being filled, and has a table that grows. */
static void describe(const char *name, const char *dtype, uint32_t ndim, uint64_t length,
		     const char *descr)
{
	struct table_array t = { .name = name,
				 .name_len = strlen(name),
				 .dtype = dtype_from_public(dtype_of(dtype)),
				 .descr = descr,
				 .descr_len = descr ? strlen(descr) : 0,
				 .ndim = ndim };
	struct fault err;

	for (uint32_t i = 0; i < ndim; i++)
		t.shape[i] = length;
	if (!s.buffer.builder)
		ck_assert_int_eq(table_builder_new(s.buffer.bytes, &s.buffer.builder), 0);
	ck_assert_msg(table_builder_add(s.buffer.builder, &t, &err) == 0, "%s", err.text);
}

START_TEST(an_array_is_found_by_name_with_all_that_was_described)
{
	struct gpushm_array *a = NULL;

	describe("", "float32", 2, 3, NULL);
	describe("points", "record12", 1, 5, "[('x', '<f4'), ('y', '<f8')]");
	ck_assert_int_eq(gpushm_array_get(&s.buffer, "points", &a), 0);
	ck_assert_str_eq(gpushm_array_name(a), "points");
	ck_assert_str_eq(gpushm_array_descr(a), "[('x', '<f4'), ('y', '<f8')]");
	ck_assert_int_eq(gpushm_array_dtype(a).itemsize, 12);
	ck_assert_int_eq(gpushm_array_ndim(a), 1);
	ck_assert_int_eq(gpushm_array_dim(a, 0), 5);
	ck_assert_int_eq(gpushm_array_dim(a, 1), -1);
	ck_assert_int_eq(gpushm_array_dim(a, -1), -1);
	ck_assert_int_eq(gpushm_array_strides(a)[0], 12);
	ck_assert_uint_eq(gpushm_array_nbytes(a), 60);
	ck_assert_ptr_eq(gpushm_array_buffer(a), &s.buffer);
	ck_assert_ptr_null(gpushm_array_free(a));

	ck_assert_int_eq(gpushm_array_get(&s.buffer, "", &a), 0);
	ck_assert_str_eq(gpushm_array_name(a), "");
	ck_assert_ptr_null(gpushm_array_descr(a));
	ck_assert_int_eq(gpushm_array_size(a), 9);
	gpushm_array_free(a);
}
END_TEST

START_TEST(an_array_described_after_a_lookup_is_found)
{
	struct gpushm_array *a = NULL;

	describe("a", "int8", 1, 4, NULL);
	ck_assert_int_eq(gpushm_array_get(&s.buffer, "b", &a), -ENOENT);
	describe("b", "int8", 1, 6, NULL);
	ck_assert_int_eq(gpushm_array_get(&s.buffer, "b", &a), 0);
	ck_assert_uint_eq(gpushm_array_nbytes(a), 6);
	gpushm_array_free(a);
}
END_TEST

START_TEST(arrays_keep_the_order_of_their_description)
{
	static const char *const names[] = { "z", "a", "m" };
	struct gpushm_array *a = NULL;

	for (size_t i = 0; i < 3; i++)
		describe(names[i], "uint8", 1, i + 1, NULL);
	ck_assert_uint_eq(gpushm_buffer_arrays(&s.buffer), 3);
	for (size_t i = 0; i < 3; i++) {
		ck_assert_int_eq(gpushm_array_at(&s.buffer, i, &a), 0);
		ck_assert_str_eq(gpushm_array_name(a), names[i]);
		gpushm_array_free(a);
	}
	a = NULL;
	ck_assert_int_eq(gpushm_array_at(&s.buffer, 3, &a), -ENOENT);
	ck_assert_int_eq(gpushm_array_at(&s.buffer, SIZE_MAX, &a), -ENOENT);
	ck_assert_int_eq(gpushm_array_at(&s.buffer, (size_t)UINT32_MAX + 1, &a), -ENOENT);
	ck_assert_ptr_null(a);
}
END_TEST

START_TEST(a_buffer_without_arrays_says_so_and_counts_nothing)
{
	struct gpushm_array *a = NULL;

	ck_assert_int_eq(gpushm_array_get(&s.buffer, "x", &a), -ENOENT);
	ck_assert_str_ne(gpushm_error(), "");
	ck_assert_int_eq(gpushm_array_at(&s.buffer, 0, &a), -ENOENT);
	ck_assert_uint_eq(gpushm_buffer_arrays(&s.buffer), 0);
	ck_assert_ptr_null(a);
	ck_assert_uint_eq(s.buffer.arrays, 0);
	ck_assert_ptr_null(gpushm_array_free(NULL));
}
END_TEST

START_TEST(a_failed_lookup_releases_the_buffers_lock)
{
	struct gpushm_array *a = NULL;

	describe("a", "int8", 1, 4, NULL);
	ck_assert_int_eq(gpushm_array_get(&s.buffer, "nope", &a), -ENOENT);
	ck_assert_int_eq(pthread_mutex_trylock(&s.buffer.lock), 0);
	pthread_mutex_unlock(&s.buffer.lock);
	ck_assert_int_eq(gpushm_array_at(&s.buffer, 9, &a), -ENOENT);
	ck_assert_int_eq(pthread_mutex_trylock(&s.buffer.lock), 0);
	pthread_mutex_unlock(&s.buffer.lock);
}
END_TEST

/* ---- over bytes ---- */

static int try_over(const char *dtype, int ndim, const int64_t *shape, const int64_t *strides,
		    uint64_t offset)
{
	struct gpushm_array_spec spec = { .struct_size = sizeof(spec),
					  .dtype = dtype_of(dtype),
					  .ndim = ndim,
					  .shape = shape,
					  .strides = strides,
					  .offset = offset };
	struct gpushm_array *a = NULL;
	int r = gpushm_array_over(&s.buffer, &spec, &a);

	gpushm_array_free(a);
	return r;
}

START_TEST(an_array_outside_of_the_buffer_is_refused)
{
	ck_assert_int_eq(try_over("float32", 1, SHAPE(1024), NULL, 0), 0);
	ck_assert_int_eq(try_over("float32", 1, SHAPE(1025), NULL, 0), -ERANGE);
	ck_assert_int_eq(try_over("float32", 1, SHAPE(1024), NULL, 4), -ERANGE);
	ck_assert_int_eq(try_over("uint8", 1, SHAPE(1), NULL, 4096), -ERANGE);
	ck_assert_int_eq(try_over("uint8", 1, SHAPE(0), NULL, 4096), 0);
	ck_assert_int_eq(try_over("uint8", 1, SHAPE(2), SHAPE(-1), 0), -ERANGE);
	ck_assert_int_eq(try_over("uint8", 1, SHAPE(2), SHAPE(-1), 1), 0);
	ck_assert_int_eq(try_over("uint8", 1, SHAPE(2), SHAPE(INT64_MIN), 0), -ERANGE);
	ck_assert_int_eq(try_over("uint8", 1, SHAPE(1), SHAPE(INT64_MIN), 0), 0);
	ck_assert_int_eq(try_over("uint8", 2, SHAPE(INT64_MAX, INT64_MAX), NULL, 0), -ERANGE);
}
END_TEST

START_TEST(an_invalid_spec_is_refused)
{
	int64_t ones[33];

	for (int i = 0; i < 33; i++)
		ones[i] = 1;
	ck_assert_int_eq(try_over("int8", 1, SHAPE(-1), NULL, 0), -EINVAL);
	ck_assert_int_eq(try_over("int8", -1, ones, NULL, 0), -EINVAL);
	ck_assert_int_eq(try_over("int8", 33, ones, NULL, 0), -EINVAL);
	ck_assert_int_eq(try_over("int8", 32, ones, NULL, 0), 0);
	ck_assert_int_eq(try_over("int8", 1, NULL, NULL, 0), -EINVAL);
	ck_assert_int_eq(try_over("float32", 1, SHAPE(4), NULL, 2), -ERANGE);
	ck_assert_int_eq(try_over("float32", 1, SHAPE(4), SHAPE(6), 0), -ERANGE);
	ck_assert_uint_eq(s.buffer.arrays, 0);
}
END_TEST

START_TEST(uncountable_elements_are_refused_even_if_they_span_one)
{
	ck_assert_int_eq(try_over("float64", 1, SHAPE(INT64_MAX), SHAPE(0), 0), -ERANGE);
	ck_assert_int_eq(try_over("float64", 1, SHAPE(INT64_MAX / 64), SHAPE(0), 0), 0);
}
END_TEST

START_TEST(a_record_laid_over_bytes_keeps_its_descr_and_no_name)
{
	struct gpushm_array_spec spec = { .struct_size = sizeof(spec),
					  .name = "not used",
					  .dtype = dtype_of("record8"),
					  .descr = "[('a', '<i8')]",
					  .ndim = 0 };
	struct gpushm_array *a = NULL;

	ck_assert_int_eq(gpushm_array_over(&s.buffer, &spec, &a), 0);
	ck_assert_str_eq(gpushm_array_name(a), "");
	ck_assert_str_eq(gpushm_array_descr(a), spec.descr);
	ck_assert_ptr_ne(gpushm_array_descr(a), spec.descr);
	ck_assert_int_eq(gpushm_array_size(a), 1);
	gpushm_array_free(a);
}
END_TEST

/* ---- getters ---- */

START_TEST(a_pointer_is_the_maps_plus_the_offset_or_null_without_one)
{
	struct gpushm_array *a = array_of(&s, "int16", 1, SHAPE(4), NULL, 256);

	ck_assert_ptr_eq(gpushm_array_host_ptr(a), s.memory + 256);
	ck_assert_ptr_null(gpushm_array_device_ptr(a));
	s.map.map.device_ptr = s.memory;
	s.map.map.host_ptr = NULL;
	ck_assert_ptr_eq(gpushm_array_device_ptr(a), s.memory + 256);
	ck_assert_ptr_null(gpushm_array_host_ptr(a));
	gpushm_array_free(a);
}
END_TEST

START_TEST(publishing_sealed_makes_arrays_that_exist_read_only)
{
	struct gpushm_array *a = array_of(&s, "int16", 1, SHAPE(4), NULL, 0);

	ck_assert_int_eq(gpushm_array_read_only(a), 0);
	s.buffer.access = GPUSHM_READ;
	ck_assert_int_eq(gpushm_array_read_only(a), 1);
	gpushm_array_free(a);
}
END_TEST

START_TEST(packed_bytes_are_rounded_up)
{
	struct gpushm_array *a = array_of(&s, "float4_e2m1fn", 1, SHAPE(5), NULL, 1);
	struct gpushm_array *b = array_of(&s, "float6_e2m3fn", 2, SHAPE(3, 3), NULL, 0);

	ck_assert_uint_eq(gpushm_array_nbytes(a), 3);
	ck_assert_uint_eq(gpushm_array_nbytes(b), 7);
	ck_assert_int_eq(gpushm_array_strides(b)[0], 0);
	ck_assert_int_eq(gpushm_array_is_c_contiguous(b), 1);
	ck_assert_int_eq(gpushm_array_is_f_contiguous(b), 0);
	ck_assert_int_eq(gpushm_array_is_f_contiguous(a), 1);
	gpushm_array_free(a);
	gpushm_array_free(b);
}
END_TEST

static void check_order(int ndim, const int64_t *shape, const int64_t *strides, int c, int f)
{
	struct gpushm_array *a = array_of(&s, "int32", ndim, shape, strides, 1024);

	ck_assert_int_eq(gpushm_array_is_c_contiguous(a), c);
	ck_assert_int_eq(gpushm_array_is_f_contiguous(a), f);
	gpushm_array_free(a);
}

START_TEST(contiguity_follows_numpys_rule)
{
	check_order(0, NULL, NULL, 1, 1);
	check_order(1, SHAPE(5), SHAPE(4), 1, 1);
	check_order(1, SHAPE(5), SHAPE(8), 0, 0);
	check_order(1, SHAPE(5), SHAPE(-4), 0, 0);
	check_order(1, SHAPE(5), SHAPE(0), 0, 0);
	check_order(1, SHAPE(1), SHAPE(400), 1, 1);
	check_order(2, SHAPE(2, 3), SHAPE(12, 4), 1, 0);
	check_order(2, SHAPE(2, 3), SHAPE(4, 8), 0, 1);
	check_order(2, SHAPE(2, 3), SHAPE(16, 4), 0, 0);
	check_order(2, SHAPE(1, 3), SHAPE(-44, 4), 1, 1);
	check_order(3, SHAPE(3, 1, 2), SHAPE(8, 100, 4), 1, 0);
	check_order(2, SHAPE(0, 3), SHAPE(-44, 8), 1, 1);
}
END_TEST

/* ---- counting ---- */

static void *get_and_free(void *arg)
{
	for (int i = 0; i < 2000; i++) {
		struct gpushm_array *a = NULL, *v = NULL;

		if (gpushm_array_get(arg, "w", &a) < 0 || gpushm_array_dup(a, &v) < 0)
			return (void *)"failed";
		gpushm_array_free(a);
		if (strcmp(gpushm_array_name(v), "w") != 0)
			return (void *)"a view outlived its name";
		gpushm_array_free(v);
	}
	return NULL;
}

START_TEST(arrays_are_counted_when_four_threads_get_and_free_them)
{
	pthread_t threads[4];
	void *failed;

	describe("w", "float32", 2, 8, NULL);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, get_and_free, &s.buffer), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &failed);
		ck_assert_msg(!failed, "%s", (char *)failed);
	}
	ck_assert_uint_eq(s.buffer.arrays, 0);
}
END_TEST

/* Returns the number of the first function that does not return -ECHILD; 0: all do. */
static int refusals_after_fork(struct gpushm_array *a)
{
	struct gpushm_array_spec spec = { .struct_size = sizeof(spec), .dtype = dtype_of("int8") };
	struct gpushm_array *v;
	unsigned char bytes[64];
	void *tensor;
	const int results[] = {
		gpushm_array_get(&s.buffer, "w", &v),
		gpushm_array_at(&s.buffer, 0, &v),
		gpushm_array_over(&s.buffer, &spec, &v),
		gpushm_array_slice(a, 0, 0, 1, 1, &v),
		gpushm_array_index(a, 0, 0, &v),
		gpushm_array_reshape(a, 'C', 1, SHAPE(4), &v),
		gpushm_array_ravel(a, 'C', &v),
		gpushm_array_transpose(a, NULL, &v),
		(int)gpushm_array_split_count(a, 2),
		gpushm_array_split(a, 2, 0, &v),
		gpushm_array_view(a, dtype_of("uint8"), &v),
		gpushm_array_dup(a, &v),
		gpushm_copy_to_host(a, bytes, NULL),
		gpushm_copy_from_host(a, bytes, NULL),
		gpushm_copy_to_host_async(a, bytes, NULL, NULL),
		gpushm_copy_from_host_async(a, bytes, NULL, NULL),
		gpushm_read(&s.buffer, 0, bytes, 1),
		gpushm_write(&s.buffer, 0, bytes, 1),
		gpushm_array_to_dlpack(a, &tensor),
		gpushm_array_to_dlpack_legacy(a, &tensor),
	};

	for (size_t i = 0; i < array_size(results); i++)
		if (results[i] != -ECHILD)
			return (int)i + 1;
	return 0;
}

/* Runs in a forked child, of which it returns the exit status. */
static int in_child(int (*work)(struct gpushm_array *), struct gpushm_array *a)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		int failed = work(a);

		gpushm_array_free(a);
		_exit(failed);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int refused(struct gpushm_array *a)
{
	int failed = refusals_after_fork(a);

	return gpushm_array_host_ptr(a) || gpushm_array_device_ptr(a) ? 100 : failed;
}

START_TEST(a_forked_child_is_refused_the_drivers_memory_and_may_free)
{
	struct gpushm_array *a = array_of(&s, "int8", 1, SHAPE(4), NULL, 0);

	s.pool.map.kind = GPUSHM_PINNED;
	ck_assert_int_eq(in_child(refused, a), 0);
	s.pool.map.kind = GPUSHM_HOST;
	ck_assert_int_eq(gpushm_array_read_only(a), 0);
	gpushm_array_free(a);
}
END_TEST

/* With the buffer's lock held by a thread of the parent. */
static int used(struct gpushm_array *a)
{
	struct gpushm_array *found = NULL;
	char bytes[4] = { 0 }, *memory = gpushm_array_host_ptr(a);
	int r = gpushm_copy_from_host(a, "abcd", NULL);

	if (r == 0)
		r = gpushm_copy_to_host(a, bytes, NULL);
	if (r < 0 || !memory || memcmp(bytes, "abcd", 4) != 0 || memcmp(memory, "abcd", 4) != 0)
		return 1;
	return gpushm_array_get(&s.buffer, "none", &found) == -ENOENT ? 0 : 2;
}

START_TEST(a_forked_child_uses_the_hosts_memory_without_its_parents_locks)
{
	struct gpushm_array *a = array_of(&s, "int8", 1, SHAPE(4), NULL, 0);

	pthread_mutex_lock(&s.buffer.lock);
	ck_assert_int_eq(in_child(used, a), 0);
	pthread_mutex_unlock(&s.buffer.lock);
	gpushm_array_free(a);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("array");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, an_array_is_found_by_name_with_all_that_was_described);
	tcase_add_test(tc, an_array_described_after_a_lookup_is_found);
	tcase_add_test(tc, arrays_keep_the_order_of_their_description);
	tcase_add_test(tc, a_buffer_without_arrays_says_so_and_counts_nothing);
	tcase_add_test(tc, a_failed_lookup_releases_the_buffers_lock);
	tcase_add_test(tc, an_array_outside_of_the_buffer_is_refused);
	tcase_add_test(tc, an_invalid_spec_is_refused);
	tcase_add_test(tc, uncountable_elements_are_refused_even_if_they_span_one);
	tcase_add_test(tc, a_record_laid_over_bytes_keeps_its_descr_and_no_name);
	tcase_add_test(tc, a_pointer_is_the_maps_plus_the_offset_or_null_without_one);
	tcase_add_test(tc, publishing_sealed_makes_arrays_that_exist_read_only);
	tcase_add_test(tc, packed_bytes_are_rounded_up);
	tcase_add_test(tc, contiguity_follows_numpys_rule);
	tcase_add_test(tc, arrays_are_counted_when_four_threads_get_and_free_them);
	tcase_add_test(tc, a_forked_child_is_refused_the_drivers_memory_and_may_free);
	tcase_add_test(tc, a_forked_child_uses_the_hosts_memory_without_its_parents_locks);
	return suite_run("array", tc, NULL);
}
