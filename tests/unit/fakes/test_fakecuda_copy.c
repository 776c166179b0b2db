/* SPDX-License-Identifier: MIT
 *
 * The fake driver's work on memory: copies, streams, registered host memory, and the attributes of
 * a pointer.
 */
#include "tests/fakecuda/words.h"

SCENARIO(a_copy_is_checked_to_the_byte)
{
	char host[64] = "what a host has";
	CUdeviceptr p;

	start_driver(0);
	OK(cu(cuMemAlloc)(&p, 10));
	OK(cu(cuMemcpyHtoD)(p, host, 10));
	INVALID(cu(cuMemcpyHtoD)(p, host, 11));
	INVALID(cu(cuMemcpyDtoH)(host, p + 1, 10));
	INVALID(cu(cuMemsetD8)(p + 9, 0, 2));
	INVALID(cu(cuMemcpyDtoH)(host, (CUdeviceptr)host, 8));
	INVALID(cu(cuMemsetD32)(p + 1, 0, 1));
	OK(cu(cuMemcpy)((CUdeviceptr)(host + 32), p, 10));
	MUST(!memcmp(host, host + 32, 10));
	OK(cu(cuMemsetD8)(p + 1, 'x', 2));
	OK(cu(cuMemcpyDtoH)(host, p, 10));
	MUST(!memcmp(host, "wxxt a hos", 10));
	OK(cu(cuMemFree)(p));
	INVALID(cu(cuMemcpyDtoH)(host, p, 1));
}

/* A 3x2 corner of a 4x4 device matrix, into a dense host one and back to another place. */
SCENARIO(a_strided_copy_moves_the_box_and_nothing_else)
{
	CUDA_MEMCPY2D c = { .WidthInBytes = 3, .Height = 2 };
	char matrix[17] = "abcdefghijklmnop", box[7] = { 0 };
	CUdeviceptr p;

	start_driver(0);
	OK(cu(cuMemAlloc)(&p, 16));
	OK(cu(cuMemcpyHtoD)(p, matrix, 16));
	c.srcMemoryType = CU_MEMORYTYPE_DEVICE;
	c.srcDevice = p;
	c.srcXInBytes = c.srcY = 1;
	c.srcPitch = 4;
	c.dstMemoryType = CU_MEMORYTYPE_HOST;
	c.dstHost = box;
	OK(cu(cuMemcpy2D)(&c));
	MUST(!strcmp(box, "fghjkl"));
	c.srcPitch = 3;
	INVALID(cu(cuMemcpy2D)(&c));

	c = (CUDA_MEMCPY2D){ .WidthInBytes = 3, .Height = 2, .dstPitch = 4, .dstDevice = p };
	c.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
	c.srcDevice = (CUdeviceptr)box;
	c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	c.dstY = 2;
	OK(cu(cuMemcpy2DAsync)(&c, NULL));
	OK(cu(cuMemcpyDtoH)(matrix, p, 16));
	MUST(!strcmp(matrix, "abcdefghfghljklp"));
	c.dstY = 3;
	INVALID(cu(cuMemcpy2D)(&c));
	OK(cu(cuMemFree)(p));
}

SCENARIO(a_box_of_slices_is_copied_slice_by_slice)
{
	CUDA_MEMCPY3D c = { .WidthInBytes = 2, .Height = 1, .Depth = 2 };
	char from[9] = "abcdefgh", to[5] = { 0 };
	CUdeviceptr p;

	start_driver(0);
	OK(cu(cuMemAlloc)(&p, 8));
	OK(cu(cuMemcpyHtoD)(p, from, 8));
	c.srcMemoryType = CU_MEMORYTYPE_DEVICE;
	c.srcDevice = p;
	c.srcPitch = 2;
	c.srcHeight = 2;
	c.dstMemoryType = CU_MEMORYTYPE_HOST;
	c.dstHost = to;
	OK(cu(cuMemcpy3D)(&c));
	MUST(!strcmp(to, "abef"));
	OK(cu(cuMemFree)(p));
}

SCENARIO(a_destroyed_stream_aborts, .signal = SIGABRT, .says = "is no stream")
{
	CUstream stream;
	CUevent event;

	start_driver(0);
	OK(cu(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	OK(cu(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
	OK(cu(cuEventRecord)(event, stream));
	OK(cu(cuStreamSynchronize)(stream));
	OK(cu(cuStreamQuery)(stream));
	OK(cu(cuEventSynchronize)(event));
	OK(cu(cuEventDestroy)(event));
	OK(cu(cuStreamDestroy)(stream));
	cu(cuStreamSynchronize)(stream);
}

SCENARIO(read_only_pages_are_registered_only_as_such)
{
	int fd = memfd_create("pages", MFD_CLOEXEC);
	CUdeviceptr p;
	void *read_only;

	start_driver(0);
	MUST(ftruncate(fd, 8192) == 0);
	read_only = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
	INVALID(cu(cuMemHostRegister)(read_only, 8192, 0));
	OK(cu(cuMemHostRegister)(read_only, 8192, CU_MEMHOSTREGISTER_READ_ONLY));
	GIVES(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
	      cu(cuMemHostRegister)((char *)read_only + 4096, 4096, CU_MEMHOSTREGISTER_READ_ONLY));
	OK(cu(cuMemHostGetDevicePointer)(&p, read_only, 0));
	MUST(p == (CUdeviceptr)read_only && word_at(p) == 0);
	INVALID(cu(cuMemsetD8)(p, 1, 1));
	INVALID(cu(cuMemHostUnregister)((char *)read_only + 4096));
	OK(cu(cuMemHostUnregister)(read_only));
	GIVES(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu(cuMemHostUnregister)(read_only));
	munmap(read_only, 8192);
	close(fd);
}

SCENARIO(a_pointer_tells_what_it_is, .env = "FAKECUDA_DEVICES=2")
{
	unsigned int type;
	CUdeviceptr p;
	int ordinal;

	start_driver(1);
	OK(cu(cuMemAlloc)(&p, 64));
	OK(cu(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 63));
	MUST(type == CU_MEMORYTYPE_DEVICE);
	OK(cu(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
	MUST(ordinal == 1);
	INVALID(cu(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					  (CUdeviceptr)&type));
	OK(cu(cuMemFree)(p));
}

SCENARIO(a_second_free_aborts, .signal = SIGABRT, .says = "not allocated")
{
	CUdeviceptr p;

	start_driver(0);
	OK(cu(cuMemAlloc)(&p, 64));
	OK(cu(cuMemFree)(p));
	cu(cuMemFree)(p);
}

#define ALL(X)                                           \
	X(a_copy_is_checked_to_the_byte)                 \
	X(a_strided_copy_moves_the_box_and_nothing_else) \
	X(a_box_of_slices_is_copied_slice_by_slice)      \
	X(a_destroyed_stream_aborts)                     \
	X(read_only_pages_are_registered_only_as_such)   \
	X(a_pointer_tells_what_it_is)                    \
	X(a_second_free_aborts)

const struct scenario scenarios[] = { ALL(SCENARIO_ENTRY){ NULL, NULL } };

static void add(TCase *tests)
{
	ALL(SCENARIO_ADD)
}

int main(int argc, char **argv)
{
	return scenario_main(argc, argv, "fakecuda copy", add);
}
