/* SPDX-License-Identifier: MIT
 *
 * The structs that DLPack passes between libraries, as in v1.1: dmlc/dlpack at tag v1.1,
 * include/dlpack/dlpack.h. They are written here again so that building does not need that header.
 * Their layout must agree, and is asserted below.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
	DLPACK_MAJOR = 1,
	DLPACK_MINOR = 1,

	DLPACK_CPU = 1,	      /* kDLCPU */
	DLPACK_CUDA = 2,      /* kDLCUDA */
	DLPACK_CUDA_HOST = 3, /* kDLCUDAHost: pinned */

	DLPACK_READ_ONLY = 1 << 0, /* DLPACK_FLAG_BITMASK_READ_ONLY */
};

/* DLTensor. Its device_type is an enum there: an int of 4 bytes. */
struct dlpack_tensor {
	void *data; /* NULL for a tensor without elements */
	int32_t device_type;
	int32_t device_id;
	int32_t ndim;
	uint8_t code;
	uint8_t bits;
	uint16_t lanes;
	int64_t *shape;
	int64_t *strides;     /* elements */
	uint64_t byte_offset; /* from data */
};

/* DLManagedTensor: before version 1.0. */
struct dlpack_legacy {
	struct dlpack_tensor tensor;
	void *manager_ctx;
	void (*deleter)(struct dlpack_legacy *self);
};

/* DLManagedTensorVersioned. A consumer that does not know the major version may only read and call
 * the deleter. */
struct dlpack_versioned {
	uint32_t major;
	uint32_t minor;
	void *manager_ctx;
	void (*deleter)(struct dlpack_versioned *self);
	uint64_t flags;
	struct dlpack_tensor tensor;
};

/* DLPackExchangeAPI of v1.3: functions of a library that makes and reads its own tensors in C. They
 * are called with the GIL and order no streams. -1: a Python exception is set. */
struct dlpack_exchange_api {
	uint32_t major, minor;
	struct dlpack_exchange_api *previous; /* of an older major version, or NULL */
	void *allocate;
	int (*from_object)(void *object, struct dlpack_versioned **ret);
	int (*to_object)(struct dlpack_versioned *tensor, void **ret); /* takes the tensor over */
	void *borrow;
	int (*current_stream)(int device_type, int32_t device_id, void **ret); /* CUstream */
};

#if UINTPTR_MAX == UINT64_MAX
_Static_assert(offsetof(struct dlpack_tensor, device_type) == 8, "DLTensor.device");
_Static_assert(offsetof(struct dlpack_tensor, ndim) == 16, "DLTensor.ndim");
_Static_assert(offsetof(struct dlpack_tensor, code) == 20, "DLTensor.dtype");
_Static_assert(offsetof(struct dlpack_tensor, lanes) == 22, "DLTensor.dtype.lanes");
_Static_assert(offsetof(struct dlpack_tensor, shape) == 24, "DLTensor.shape");
_Static_assert(offsetof(struct dlpack_tensor, strides) == 32, "DLTensor.strides");
_Static_assert(offsetof(struct dlpack_tensor, byte_offset) == 40, "DLTensor.byte_offset");
_Static_assert(sizeof(struct dlpack_tensor) == 48, "DLTensor");
_Static_assert(offsetof(struct dlpack_legacy, manager_ctx) == 48, "DLManagedTensor.manager_ctx");
_Static_assert(offsetof(struct dlpack_legacy, deleter) == 56, "DLManagedTensor.deleter");
_Static_assert(offsetof(struct dlpack_versioned, manager_ctx) == 8, "...Versioned.manager_ctx");
_Static_assert(offsetof(struct dlpack_versioned, deleter) == 16, "...Versioned.deleter");
_Static_assert(offsetof(struct dlpack_versioned, flags) == 24, "...Versioned.flags");
_Static_assert(offsetof(struct dlpack_exchange_api, from_object) == 24, "DLPackExchangeAPI");
_Static_assert(sizeof(struct dlpack_exchange_api) == 56, "DLPackExchangeAPI");
_Static_assert(offsetof(struct dlpack_versioned, tensor) == 32, "...Versioned.dl_tensor");
#endif
