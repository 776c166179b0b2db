/* SPDX-License-Identifier: MIT
 *
 * Arrays as DLPack tensors. A tensor is one allocation: the struct that the consumer has, its shape
 * and its strides. It has one count on the buffer, which the deleter releases. A consumer may call
 * the deleter from any thread, while CUDA is shutting down, and in a forked child: so the deleter
 * frees and counts, and does nothing else.
 *
 * byte_offset is always 0, because many consumers ignore it. data need not be aligned to 256 bytes,
 * in spite of the header: producers of views never did that.
 */
#include "client/gpushm_array.h"
#include "proto/dlpack_abi.h"

#include "client/lib/array/array.h"
#include "client/lib/base/error.h"
#include "client/lib/buffer/buffer.h"
#include "proto/base/own.h"

#include <string.h>

struct managed {
	union {
		struct dlpack_versioned versioned;
		struct dlpack_legacy legacy;
	};
	struct gpushm_buffer *buffer; /* counted */
	int64_t dims[];		      /* ndim lengths, ndim strides */
};

static void release(struct managed *m)
{
	buffer_put(m->buffer);
	free(m);
}

static void on_delete_versioned(struct dlpack_versioned *self)
{
	if (self)
		release(container_of(self, struct managed, versioned));
}

static void on_delete_legacy(struct dlpack_legacy *self)
{
	if (self)
		release(container_of(self, struct managed, legacy));
}

void gpushm_array_dlpack_device(const struct gpushm_array *a, int *ret_type, int *ret_id)
{
	enum gpushm_kind kind;
	bool on_gpu;

	*ret_type = *ret_id = 0;
	if (error_null(a, "array") < 0)
		return;
	kind = gpushm_buffer_kind(a->buffer);
	on_gpu = kind_of(kind)->on_gpu;
	/* A consumer launches its kernels on this device: the one that has access, which is another
	 * one than the memory's where the buffer is mapped for a peer. The specification wants id 0
	 * for pinned memory. */
	*ret_id = on_gpu ? a->buffer->device : 0;
	*ret_type = on_gpu ? DLPACK_CUDA : kind_of(kind)->by_driver ? DLPACK_CUDA_HOST : DLPACK_CPU;
}

/* Whether the tensor gets strides of C order: those of an array without elements mean nothing, and
 * those of a packed type are 0. */
static bool is_dense(const struct gpushm_array *a)
{
	return a->size == 0 || dtype_packed(a->layout.dtype);
}

static int check_exportable(const struct gpushm_array *a)
{
	const struct array_layout *l;
	int r = array_check(a);

	if (r == 0)
		r = buffer_check_mapped(a->buffer);
	if (r < 0)
		return r;
	l = &a->layout;
	if (l->dtype.code == DTYPE_RECORD)
		return array_error(a, ENOTSUP, "DLPack has no records");
	for (int i = 0; i < l->ndim && !is_dense(a); i++)
		if (l->shape[i] != 1 && l->strides[i] % array_itemsize(l) != 0)
			return array_error(a, ENOTSUP,
					   "DLPack counts strides in elements, and axis %d has one "
					   "that is no multiple of the item size",
					   i);
	return 0;
}

/* Whether the stride of an axis can be passed on. That of one element may be anything. */
static bool is_exportable(int64_t length, int64_t stride, int64_t itemsize)
{
	return length != 1 || (stride >= 0 && stride % itemsize == 0);
}

/* In elements. Always filled in: version 1.2 forbids NULL for C order. An axis of one element keeps
 * its stride, too: PyTorch takes (9, 1, 3, 1) of a weight (32, 1, 3, 3) for channels_last, and then
 * computes in that order. */
static void fill_strides(const struct gpushm_array *a, int64_t *strides)
{
	const struct array_layout *l = &a->layout;
	bool dense = is_dense(a);
	int64_t stride = 1;

	for (int i = l->ndim - 1; i >= 0; i--) {
		strides[i] = stride;
		/* Without elements the product may overflow, and nothing uses it. PyTorch's own
		 * counts an empty axis as one element. */
		if (dense && l->shape[i] != 0 &&
		    __builtin_mul_overflow(stride, l->shape[i], &stride))
			stride = 0;
		if (!dense && is_exportable(l->shape[i], l->strides[i], array_itemsize(l)))
			strides[i] = l->strides[i] / array_itemsize(l);
	}
}

static void fill_tensor(const struct gpushm_array *a, int64_t *dims, struct dlpack_tensor *t)
{
	const struct array_layout *l = &a->layout;
	int type, id;

	gpushm_array_dlpack_device(a, &type, &id);
	t->device_type = type;
	t->device_id = id;
	t->data = type == DLPACK_CPU ? gpushm_array_host_ptr(a) : gpushm_array_device_ptr(a);
	if (a->size == 0)
		t->data = NULL;
	t->ndim = l->ndim;
	t->code = l->dtype.code;
	t->bits = l->dtype.bits;
	t->lanes = l->dtype.lanes;
	/* A scalar's pointers are not NULL: they point past the end of the allocation. */
	t->shape = memcpy(dims, l->shape, (size_t)l->ndim * sizeof(dims[0]));
	t->strides = dims + l->ndim;
	fill_strides(a, t->strides);
}

/* The allocation, with its count on the buffer; the consumer's struct is empty. */
static int managed_new(const struct gpushm_array *a, struct managed **ret)
{
	struct managed *m;
	int r = check_exportable(a);

	if (r < 0)
		return r;
	m = calloc(1, sizeof(*m) + 2 * (size_t)a->layout.ndim * sizeof(m->dims[0]));
	if (!m)
		return error_set(ENOMEM, "no memory for a DLPack tensor");
	m->buffer = a->buffer;
	buffer_get(m->buffer);
	*ret = m;
	return 0;
}

int gpushm_array_to_dlpack(const struct gpushm_array *a, void **ret_managed_tensor_versioned)
{
	struct managed *m;
	int r = managed_new(a, &m);

	if (r < 0)
		return r;
	m->versioned = (struct dlpack_versioned){
		.major = DLPACK_MAJOR,
		.minor = DLPACK_MINOR,
		.manager_ctx = m,
		.deleter = on_delete_versioned,
		.flags = gpushm_array_read_only(a) ? DLPACK_READ_ONLY : 0,
	};
	fill_tensor(a, m->dims, &m->versioned.tensor);
	*ret_managed_tensor_versioned = &m->versioned;
	return 0;
}

int gpushm_array_to_dlpack_legacy(const struct gpushm_array *a, void **ret_managed_tensor)
{
	struct managed *m;
	int r = array_check(a);

	if (r == 0 && gpushm_array_read_only(a))
		r = error_set(EROFS,
			      "array \"%s\" is read-only, which a legacy DLPack tensor can't say",
			      a->text);
	if (r == 0)
		r = managed_new(a, &m);
	if (r < 0)
		return r;
	m->legacy = (struct dlpack_legacy){ .manager_ctx = m, .deleter = on_delete_legacy };
	fill_tensor(a, m->dims, &m->legacy.tensor);
	*ret_managed_tensor = &m->legacy;
	return 0;
}
