/* SPDX-License-Identifier: MIT
 *
 * DLPack tensors as a consumer reads them: through structs that are written here once more from
 * dlpack.h v1.1, so that a field at another offset fails the test.
 */
#include "tests/lib/suite.h"
#include "tests/unit/lib/array_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

/* dmlc/dlpack at v1.1, include/dlpack/dlpack.h, with the device's enum as the int that it is. */
struct DLTensor {
	void *data;
	struct {
		int device_type;
		int32_t device_id;
	} device;
	int32_t ndim;
	struct {
		uint8_t code;
		uint8_t bits;
		uint16_t lanes;
	} dtype;
	int64_t *shape;
	int64_t *strides;
	uint64_t byte_offset;
};

struct DLManagedTensor {
	struct DLTensor dl_tensor;
	void *manager_ctx;
	void (*deleter)(struct DLManagedTensor *self);
};

struct DLManagedTensorVersioned {
	struct {
		uint32_t major;
		uint32_t minor;
	} version;
	void *manager_ctx;
	void (*deleter)(struct DLManagedTensorVersioned *self);
	uint64_t flags;
	struct DLTensor dl_tensor;
};

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

static struct DLManagedTensorVersioned *export(const struct gpushm_array *a)
{
	void *managed = NULL;

	ck_assert_msg(gpushm_array_to_dlpack(a, &managed) == 0, "%s", gpushm_error());
	return managed;
}

START_TEST(a_tensor_has_the_fields_of_its_array)
{
	struct gpushm_array *a = array_of(&s, "float32", 3, SHAPE(2, 3, 4), SHAPE(4, 96, -8), 512);
	struct DLManagedTensorVersioned *m = export(a);
	const struct DLTensor *t = &m->dl_tensor;

	ck_assert_uint_eq(m->version.major, 1);
	ck_assert_uint_eq(m->version.minor, 1);
	ck_assert_uint_eq(m->flags, 0);
	ck_assert_ptr_eq(t->data, s.memory + 512);
	ck_assert_uint_eq(t->byte_offset, 0);
	ck_assert_int_eq(t->device.device_type, 1);
	ck_assert_int_eq(t->device.device_id, 0);
	ck_assert(t->dtype.code == 2 && t->dtype.bits == 32 && t->dtype.lanes == 1);
	ck_assert_int_eq(t->ndim, 3);
	ck_assert_mem_eq(t->shape, SHAPE(2, 3, 4), 3 * sizeof(int64_t));
	ck_assert_mem_eq(t->strides, SHAPE(1, 24, -2), 3 * sizeof(int64_t));
	m->deleter(m);
	gpushm_array_free(a);
}
END_TEST

/* PyTorch finds the memory format of a weight by all strides. */
START_TEST(an_axis_of_one_element_keeps_its_stride_or_gets_1)
{
	struct gpushm_array *a = array_of(&s, "float32", 4, SHAPE(8, 1, 3, 3), NULL, 0);
	struct gpushm_array *odd = array_of(&s, "complex64", 3, SHAPE(1, 2, 1), SHAPE(4, 8, -8), 0);
	struct DLManagedTensorVersioned *m = export(a), *n = export(odd);

	ck_assert_mem_eq(m->dl_tensor.strides, SHAPE(9, 9, 3, 1), 4 * sizeof(int64_t));
	/* What DLPack has no word for, or PyTorch refuses, is 1. */
	ck_assert_mem_eq(n->dl_tensor.strides, SHAPE(1, 1, 1), 3 * sizeof(int64_t));
	m->deleter(m);
	n->deleter(n);
	gpushm_array_free(a);
	gpushm_array_free(odd);
}
END_TEST

START_TEST(the_legacy_tensor_has_the_fields_of_its_array)
{
	struct gpushm_array *a = array_of(&s, "complex64", 1, SHAPE(5), NULL, 256);
	struct DLManagedTensor *m;
	void *managed = NULL;

	ck_assert_int_eq(gpushm_array_to_dlpack_legacy(a, &managed), 0);
	gpushm_array_free(a);
	m = managed;
	ck_assert_ptr_eq(m->dl_tensor.data, s.memory + 256);
	ck_assert_int_eq(m->dl_tensor.dtype.code, 5);
	ck_assert_int_eq(m->dl_tensor.dtype.bits, 64);
	ck_assert_int_eq(m->dl_tensor.shape[0], 5);
	ck_assert_int_eq(m->dl_tensor.strides[0], 1);
	ck_assert_uint_eq(s.buffer.arrays, 1);
	m->deleter(m);
	ck_assert_uint_eq(s.buffer.arrays, 0);
}
END_TEST

START_TEST(a_tensor_is_counted_and_outlives_its_array)
{
	struct gpushm_array *a = array_of(&s, "int8", 1, SHAPE(5), NULL, 0);
	struct DLManagedTensorVersioned *m = export(a), *n = export(a);

	ck_assert_uint_eq(s.buffer.arrays, 3);
	gpushm_array_free(a);
	ck_assert_int_eq(gpushm_close(&s.buffer), -EBUSY);
	ck_assert_int_eq(m->dl_tensor.shape[0], 5);
	m->deleter(m);
	n->deleter(n);
	ck_assert_uint_eq(s.buffer.arrays, 0);
}
END_TEST

static void *delete_all(void *tensors)
{
	for (struct DLManagedTensorVersioned **m = tensors; *m; m++)
		(*m)->deleter(*m);
	return NULL;
}

START_TEST(deleters_on_other_threads_keep_count)
{
	static struct DLManagedTensorVersioned *tensors[4][501];
	struct gpushm_array *a = array_of(&s, "int8", 1, SHAPE(5), NULL, 0);
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 500; j++)
			tensors[i][j] = export(a);
	gpushm_array_free(a);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, delete_all, tensors[i]), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(s.buffer.arrays, 0);
}
END_TEST

START_TEST(a_deleter_in_a_forked_child_returns)
{
	struct gpushm_array *a = array_of(&s, "int8", 1, SHAPE(5), NULL, 0);
	struct DLManagedTensorVersioned *m = export(a);
	int status;
	pid_t child;

	pthread_mutex_lock(&s.buffer.lock);
	child = fork();
	if (child == 0) {
		m->deleter(m);
		_exit(0);
	}
	pthread_mutex_unlock(&s.buffer.lock);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	m->deleter(m);
	gpushm_array_free(a);
}
END_TEST

START_TEST(a_read_only_array_is_exported_as_read_only)
{
	struct gpushm_array *a = array_of(&s, "int8", 1, SHAPE(5), NULL, 0);
	struct DLManagedTensorVersioned *m;
	void *legacy = NULL;

	s.buffer.access = GPUSHM_READ;
	m = export(a);
	ck_assert_uint_eq(m->flags, 1);
	m->deleter(m);
	ck_assert_int_eq(gpushm_array_to_dlpack_legacy(a, &legacy), -EROFS);
	ck_assert_ptr_null(legacy);
	gpushm_array_free(a);
}
END_TEST

START_TEST(an_array_that_dlpack_can_not_describe_is_refused)
{
	struct gpushm_array *record = array_of(&s, "record8", 1, SHAPE(4), NULL, 0);
	struct gpushm_array *apart = array_of(&s, "float32x3", 2, SHAPE(2, 1), SHAPE(16, 4), 0),
			    *odd;
	void *managed = NULL;

	ck_assert_int_eq(gpushm_array_to_dlpack(record, &managed), -ENOTSUP);
	ck_assert_int_eq(gpushm_array_to_dlpack_legacy(record, &managed), -ENOTSUP);
	ck_assert_int_eq(gpushm_array_to_dlpack(apart, &managed), -ENOTSUP);
	ck_assert_ptr_null(managed);
	ck_assert_uint_eq(s.buffer.arrays, 2);

	/* The axis of length 1 has no stride that matters. */
	ck_assert_int_eq(gpushm_array_slice(apart, 0, 0, 1, 1, &odd), 0);
	ck_assert_int_eq(gpushm_array_to_dlpack(odd, &managed), 0);
	((struct DLManagedTensorVersioned *)managed)->deleter(managed);
	gpushm_array_free(odd);
	gpushm_array_free(record);
	gpushm_array_free(apart);
}
END_TEST

START_TEST(a_tensor_always_has_strides_and_an_empty_one_no_address)
{
	struct gpushm_array *scalar = array_of(&s, "bfloat16", 0, NULL, NULL, 8);
	struct gpushm_array *empty = array_of(&s, "int32", 3, SHAPE(4, 0, INT64_MAX),
					      SHAPE(INT64_MIN, 8, INT64_MAX - 3), 8);
	struct gpushm_array *none = array_of(&s, "float32x3", 2, SHAPE(0, 2), SHAPE(16, 4), 0);
	struct DLManagedTensorVersioned *m = export(scalar);

	ck_assert_int_eq(m->dl_tensor.ndim, 0);
	ck_assert_ptr_nonnull(m->dl_tensor.strides);
	ck_assert_ptr_nonnull(m->dl_tensor.shape);
	ck_assert_ptr_eq(m->dl_tensor.data, s.memory + 8);
	ck_assert_int_eq(m->dl_tensor.dtype.code, 4);
	m->deleter(m);

	m = export(empty);
	ck_assert_ptr_null(m->dl_tensor.data);
	ck_assert_ptr_nonnull(m->dl_tensor.strides);
	ck_assert_int_eq(m->dl_tensor.shape[2], INT64_MAX);
	m->deleter(m);
	m = export(none);
	ck_assert_mem_eq(m->dl_tensor.strides, SHAPE(2, 1), 2 * sizeof(int64_t));
	m->deleter(m);
	gpushm_array_free(none);
	gpushm_array_free(scalar);
	gpushm_array_free(empty);
}
END_TEST

START_TEST(a_packed_array_has_strides_in_elements)
{
	struct gpushm_array *a = array_of(&s, "float4_e2m1fn", 3, SHAPE(2, 3, 4), NULL, 0);
	struct DLManagedTensorVersioned *m = export(a);

	ck_assert_mem_eq(m->dl_tensor.strides, SHAPE(12, 4, 1), 3 * sizeof(int64_t));
	ck_assert_int_eq(m->dl_tensor.dtype.code, 17);
	ck_assert_int_eq(m->dl_tensor.dtype.bits, 4);
	/* Without DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED. */
	ck_assert_uint_eq(m->flags, 0);
	m->deleter(m);
	gpushm_array_free(a);
}
END_TEST

START_TEST(lanes_are_part_of_an_element)
{
	struct gpushm_array *a = array_of(&s, "float32x4", 2, SHAPE(2, 3), NULL, 0);
	struct DLManagedTensorVersioned *m = export(a);

	ck_assert_mem_eq(m->dl_tensor.strides, SHAPE(3, 1), 2 * sizeof(int64_t));
	ck_assert_int_eq(m->dl_tensor.dtype.lanes, 4);
	ck_assert_int_eq(m->dl_tensor.dtype.bits, 32);
	m->deleter(m);
	gpushm_array_free(a);
}
END_TEST

static void check_device(enum gpushm_kind kind, int type, int id)
{
	struct scene other;
	struct gpushm_array *a;
	struct DLManagedTensorVersioned *m;
	int got_type = -7, got_id = -7;

	scene_open(&other, kind, 4096);
	a = array_of(&other, "int8", 1, SHAPE(4), NULL, 256);
	m = export(a);
	gpushm_array_dlpack_device(a, &got_type, &got_id);
	ck_assert_int_eq(got_type, type);
	ck_assert_int_eq(got_id, id);
	ck_assert_int_eq(m->dl_tensor.device.device_type, type);
	ck_assert_int_eq(m->dl_tensor.device.device_id, id);
	ck_assert_ptr_eq(m->dl_tensor.data, other.memory + 256);
	m->deleter(m);
	gpushm_array_free(a);
	scene_close(&other);
}

START_TEST(a_tensor_is_on_the_device_of_its_pool)
{
	check_device(GPUSHM_HOST, 1, 0);
	check_device(GPUSHM_PINNED, 3, 0);
	check_device(GPUSHM_VMM, 2, 5);
	check_device(GPUSHM_MEMPOOL, 2, 5);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("dlpack");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_tensor_has_the_fields_of_its_array);
	tcase_add_test(tc, an_axis_of_one_element_keeps_its_stride_or_gets_1);
	tcase_add_test(tc, the_legacy_tensor_has_the_fields_of_its_array);
	tcase_add_test(tc, a_tensor_is_counted_and_outlives_its_array);
	tcase_add_test(tc, deleters_on_other_threads_keep_count);
	tcase_add_test(tc, a_deleter_in_a_forked_child_returns);
	tcase_add_test(tc, a_read_only_array_is_exported_as_read_only);
	tcase_add_test(tc, an_array_that_dlpack_can_not_describe_is_refused);
	tcase_add_test(tc, a_tensor_always_has_strides_and_an_empty_one_no_address);
	tcase_add_test(tc, a_packed_array_has_strides_in_elements);
	tcase_add_test(tc, lanes_are_part_of_an_element);
	tcase_add_test(tc, a_tensor_is_on_the_device_of_its_pool);
	return suite_run("dlpack", tc, NULL);
}
