/* SPDX-License-Identifier: MIT
 *
 * Arrays: typed, strided parts of a buffer, as NumPy and DLPack have them; their views, and copies
 * between them and other memory. Errors, ownership and threads are as gpushm.h says.
 */
#ifndef GPUSHM_ARRAY_H
#define GPUSHM_ARRAY_H

#include <gpushm.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ------------------------------------------------------------------- dtypes */

/* The type of an element: DLPack's DLDataType (code, bits, lanes), or a record of itemsize bytes
 * (code 255). It is passed by value, and never grows. */
struct gpushm_dtype {
	uint8_t code;
	uint8_t bits;
	uint16_t lanes;
	uint32_t itemsize; /* bytes of a record; else 0 */
};

/* Reads a name: bool, int2 to int64, uint2 to uint64, float16, float32, float64, bfloat16,
 * complex32, complex64, complex128, float8_e4m3fn and the other float8, float6 and float4 types of
 * DLPack 1.1, record40 (a record of 40 bytes); or a NumPy typestr ("<f4"). 0 or -EINVAL. */
int gpushm_dtype_parse(const char *name, struct gpushm_dtype *ret);

/* Writes the name to buf, at most 32 bytes with the NUL. 0, or -EINVAL for an invalid type. */
int gpushm_dtype_format(struct gpushm_dtype t, char *buf, size_t size);

/* Writes NumPy's typestr to buf, which has at least 16 bytes; bfloat16 is "<V2". 0; -EINVAL;
 * -ENOTSUP for types that NumPy does not have (float8, float6, float4, complex32, int4, ...). */
int gpushm_dtype_typestr(struct gpushm_dtype t, char *buf, size_t size);

/* Bits of one element; 0 for an invalid type. */
uint64_t gpushm_dtype_bits(struct gpushm_dtype t);

/* The description of one array, for describe and layout. */
struct gpushm_array_spec {
	size_t struct_size; /* sizeof(struct gpushm_array_spec) */
	const char *name;   /* "" for the buffer's own array */
	struct gpushm_dtype dtype;
	int ndim;		/* 0 to GPUSHM_MAX_NDIM */
	const int64_t *shape;	/* elements; ndim of them, none negative */
	uint64_t offset;	/* bytes from the buffer's start to element [0, 0, ...] */
	const int64_t *strides; /* bytes; NULL is C order */
	const char *descr;	/* records: NumPy's descr as text; else NULL */
};

/* Lays arrays out one after the other, each on a multiple of 256 bytes. Writes the offset of each
 * spec, and the size in bytes of a buffer for all of them. Does not ask the daemon. 0; -EINVAL
 * (dtype, ndim, shape); -EOVERFLOW. */
int gpushm_layout(struct gpushm_array_spec *specs, size_t n, uint64_t *ret_bytes);

/* gpushm_layout(), gpushm_create() and gpushm_describe() in one: creates a buffer for exactly these
 * arrays. Writes the offsets of specs. */
int gpushm_create_arrays(struct gpushm *c, const char *name, struct gpushm_array_spec *specs,
			 size_t n, const struct gpushm_create_options *options,
			 struct gpushm_buffer **ret);

/* Adds arrays to a buffer that is not published yet. Asks the daemon, once for each batch that fits
 * a message. After an error the arrays of earlier batches stay, and gpushm_error() says which one
 * was wrong. Errors: -ERANGE (does not fit, or overflows), -EINVAL (dtype, name, shape), -EEXIST,
 * -EDQUOT, -EBUSY (published already), -ECONNRESET (ended with its daemon: create it again). */
int gpushm_describe(struct gpushm_buffer *b, const struct gpushm_array_spec *specs, size_t n);

/* ------------------------------------------------------------------- arrays */

/* Finds the array of that name; "" is the buffer's own. While an array or view exists, its buffer
 * can't be closed. Does not ask the daemon; O(1). 0, -ENOENT, -ENOMEM. */
int gpushm_array_get(struct gpushm_buffer *b, const char *name, struct gpushm_array **ret);

/* The array at that position, in the order of their descriptions. 0, -ENOENT, -ENOMEM. */
int gpushm_array_at(struct gpushm_buffer *b, size_t index, struct gpushm_array **ret);
size_t gpushm_buffer_arrays(const struct gpushm_buffer *b);

/* An array over the buffer's bytes that is not in its table; checked like one that is. spec->name
 * is not used. -ERANGE, -EINVAL. */
int gpushm_array_over(struct gpushm_buffer *b, const struct gpushm_array_spec *spec,
		      struct gpushm_array **ret);

/* NULL is allowed. Returns NULL. */
struct gpushm_array *gpushm_array_free(struct gpushm_array *a);

struct gpushm_buffer *gpushm_array_buffer(const struct gpushm_array *a);
/* A view has the name of the array that it was made of. */
const char *gpushm_array_name(const struct gpushm_array *a);
struct gpushm_dtype gpushm_array_dtype(const struct gpushm_array *a);
/* Records: NumPy's descr; else NULL. */
const char *gpushm_array_descr(const struct gpushm_array *a);
int gpushm_array_ndim(const struct gpushm_array *a);
/* Elements along that axis; -1 where there is no such axis. */
int64_t gpushm_array_dim(const struct gpushm_array *a, int axis);
/* ndim numbers: elements. */
const int64_t *gpushm_array_shape(const struct gpushm_array *a);
/* ndim numbers: bytes; 0 for types narrower than a byte. */
const int64_t *gpushm_array_strides(const struct gpushm_array *a);
/* Elements. */
int64_t gpushm_array_size(const struct gpushm_array *a);
/* Elements times the bytes of one; rounded up for types narrower than a byte. */
uint64_t gpushm_array_nbytes(const struct gpushm_array *a);
/* Bytes from the buffer's start to element [0, 0, ...]. */
uint64_t gpushm_array_offset(const struct gpushm_array *a);
int gpushm_array_read_only(const struct gpushm_array *a);
/* The address of element [0, 0, ...]; NULL as for buffers. */
void *gpushm_array_device_ptr(const struct gpushm_array *a);
void *gpushm_array_host_ptr(const struct gpushm_array *a);
/* NumPy's rule: axes of length 1 do not count. */
int gpushm_array_is_c_contiguous(const struct gpushm_array *a);
int gpushm_array_is_f_contiguous(const struct gpushm_array *a);

/* ---- views: they share the memory and outlive the array that they were made of. Types narrower
 * than a byte allow reshape and ravel only (-ENOTSUP). ---- */

#define GPUSHM_SLICE_NONE INT64_MIN /* as start or stop: to the end, whichever the step's sign */

/* a[start:stop:step] along one axis, by Python's rules: negative positions count from the end,
 * positions beyond it are clipped, step is not 0 (-EINVAL). */
int gpushm_array_slice(const struct gpushm_array *a, int axis, int64_t start, int64_t stop,
		       int64_t step, struct gpushm_array **ret);
/* a[index] along one axis, which the view does not have. -ERANGE outside. */
int gpushm_array_index(const struct gpushm_array *a, int axis, int64_t index,
		       struct gpushm_array **ret);
/* order is 'C' or 'F'; one dimension may be -1. -EINVAL where the sizes differ; -ENOTSUP where it
 * would need a copy (Numba: "reshape would require a copy"). */
int gpushm_array_reshape(const struct gpushm_array *a, char order, int ndim, const int64_t *shape,
			 struct gpushm_array **ret);
int gpushm_array_ravel(const struct gpushm_array *a, char order, struct gpushm_array **ret);
/* axes is a permutation of 0 to ndim - 1; NULL reverses them. */
int gpushm_array_transpose(const struct gpushm_array *a, const int *axes,
			   struct gpushm_array **ret);
/* Splits a one-dimensional array into parts of `section` elements, as Numba's split(); the last
 * part may be shorter. The number of parts, and the i-th part. */
int64_t gpushm_array_split_count(const struct gpushm_array *a, int64_t section);
int gpushm_array_split(const struct gpushm_array *a, int64_t section, int64_t i,
		       struct gpushm_array **ret);
/* Another dtype over the same bytes, by NumPy's rule: if the item sizes differ, the last axis must
 * be contiguous and is rescaled. */
int gpushm_array_view(const struct gpushm_array *a, struct gpushm_dtype dtype,
		      struct gpushm_array **ret);
/* The same array once more, to be freed on its own. */
int gpushm_array_dup(const struct gpushm_array *a, struct gpushm_array **ret);

/* ---- copies ---- */

/* Copies between an array and host memory of the same shape and dtype. host_strides are in bytes,
 * NULL is C order; both sides may have any strides. Where elements share memory, the last one in C
 * order wins. Bytes between elements are never written.
 *
 * Without _async the copy is done on return. With _async it is queued on `stream` (a CUstream; NULL
 * is the legacy default stream), and the host memory must stay until the stream has passed it. Such
 * a call blocks only where the driver does, for pageable memory, and where short rows or negative
 * strides need a buffer of the library; on host pools the copy is done on return.
 *
 * On a host pool 8 MiB and more that are contiguous on both sides are copied by up to eight
 * threads, one for each processor that the process may use; they end with the call. For 2 MiB and
 * more, into a buffer that is not published, the library asks Linux for huge pages (6.1,
 * MADV_COLLAPSE of madvise(2)); they also hold bytes of the buffer beside these.
 *
 * Errors: -EROFS (the array is read-only), -EINVAL (host_strides), -ENOMEM, -ENODEV, -EIO. */
int gpushm_copy_to_host(const struct gpushm_array *a, void *host, const int64_t *host_strides);
int gpushm_copy_from_host(struct gpushm_array *a, const void *host, const int64_t *host_strides);
int gpushm_copy_to_host_async(const struct gpushm_array *a, void *host, const int64_t *host_strides,
			      void *stream);
int gpushm_copy_from_host_async(struct gpushm_array *a, const void *host,
				const int64_t *host_strides, void *stream);

/* One of many copies. */
struct gpushm_copy {
	size_t struct_size; /* sizeof(struct gpushm_copy) */
	struct gpushm_array *array;
	void *memory;	/* the other side: the address of element [0, 0, ...] */
	int device;	/* CUDA ordinal of the GPU that has the memory; GPUSHM_HOST_MEMORY */
	uint32_t flags; /* GPUSHM_COPY_OUT: from the array; 0: into it */
	const int64_t *strides; /* of the memory, in bytes; NULL is C order */
};
#define GPUSHM_HOST_MEMORY (-1)
#define GPUSHM_COPY_OUT (1u << 7)
#define GPUSHM_COPY_ASYNC (1u << 8) /* of the call */

/* Queues all copies, in their order, and waits once; so it is the fast way to fill a model's
 * arrays. Each is a copy as above between an array and memory of the array's shape and dtype; but
 * the memory may be a GPU's, also another GPU's than the array's, and may overlap the array, as if
 * it was copied elsewhere first. flags: with GPUSHM_COPY_ASYNC the call does not wait, as the
 * _async functions; a copy between a GPU and a host pool is done on return.
 *
 * Errors: as above. The copies before the one that failed are done; which one that is, only the
 * text says. */
int gpushm_copy_many(const struct gpushm_copy *copies, size_t n, uint32_t flags, void *stream);

/* ---- DLPack (dmlc/dlpack v1.1) ---- */

/* The array as a DLManagedTensorVersioned * or, legacy, a DLManagedTensor *, of dlpack.h. Strides
 * are always given, in elements; the device id is this process's; byte_offset is 0. The caller owns
 * the struct, which counts as an array of the buffer until its deleter is called, from any thread.
 * A read-only array sets DLPACK_FLAG_BITMASK_READ_ONLY, and has no legacy form (-EROFS). -ENOTSUP:
 * a record, or strides that are not multiples of the item size. Waits for nothing. */
int gpushm_array_to_dlpack(const struct gpushm_array *a, void **ret_managed_tensor_versioned);
int gpushm_array_to_dlpack_legacy(const struct gpushm_array *a, void **ret_managed_tensor);

/* DLPack's device type of the array (kDLCPU 1, kDLCUDA 2, kDLCUDAHost 3) and id in this process. */
void gpushm_array_dlpack_device(const struct gpushm_array *a, int *ret_type, int *ret_id);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
