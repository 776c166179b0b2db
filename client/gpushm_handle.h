/* SPDX-License-Identifier: MIT
 *
 * Handles, by which another process opens an array, a view or a buffer; and memory of the program's
 * own that the driver pins. Errors, ownership and threads are as gpushm.h says.
 */
#ifndef GPUSHM_HANDLE_H
#define GPUSHM_HANDLE_H

#include <gpushm_array.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* A handle is bytes that a pipe, a queue or a file may carry: the buffer's name and id, its maker's
 * access, and an array's layout. They are the same in C and Python. A handle keeps no memory, and
 * is no permission. */
#define GPUSHM_HANDLE_MAX 1024 /* bytes */

/* Writes the handle of an array or view, or of a buffer with all its arrays. It opens for writing
 * if the buffer is shared and open for writing here; it may be made before the buffer is published.
 * Errors: -E2BIG (more than 16 dimensions; a record whose fields neither fit nor are those of the
 * buffer's array of that name), -ENOTSUP (a stream's frame), -ENOSPC (size is too small). */
int gpushm_array_handle(const struct gpushm_array *a, void *buf, size_t size, size_t *ret_len);
int gpushm_buffer_handle(const struct gpushm_buffer *b, void *buf, size_t size, size_t *ret_len);

/* Options of gpushm_open_handle(). NULL means the defaults. */
struct gpushm_handle_options {
	size_t struct_size; /* sizeof(struct gpushm_handle_options) */
	uint32_t flags;	    /* this and device as in struct gpushm_open_options */
	int device;
	enum gpushm_access access; /* 0: that of the handle */
	uint64_t timeout_ms;	   /* how long to wait until the buffer is published */
};

/* Opens the array of a handle in any process; c is connected to the daemon that has the buffer. The
 * last array or view that is freed closes the buffer, at once also within gpushm_defer_cleanup();
 * gpushm_close() is not for it. Asks the daemon. Errors: -EINVAL (no handle, one of a later
 * version, or a buffer's), -EBADMSG (its bytes were changed or cut), -ESTALE (its buffer was
 * unlinked, and another one has the name), -ERANGE (it does not fit the buffer), and those of
 * gpushm_open(). */
int gpushm_open_handle(struct gpushm *c, const void *handle, size_t size,
		       const struct gpushm_handle_options *options, struct gpushm_array **ret);

/* The same for the buffer of a buffer's or an array's handle; gpushm_close() closes it. */
int gpushm_open_buffer_handle(struct gpushm *c, const void *handle, size_t size,
			      const struct gpushm_handle_options *options,
			      struct gpushm_buffer **ret);

/* Pins writable memory of this process, so that copies to and from each GPU are fast and
 * asynchronous. With GPUSHM_PIN_MAPPED GPUs may use it, at the address *ret_device_ptr; without,
 * that may be NULL. Takes some 0.4 ms for each MiB. Errors: -ENODEV (no driver or GPU), -EIO
 * (driver: it is pinned already, or it is not memory), -ENOMEM. */
int gpushm_pin(void *memory, size_t size, uint32_t flags, void **ret_device_ptr);
#define GPUSHM_PIN_MAPPED (1u << 12)

/* Unpins what gpushm_pin() was given. Waits for no GPU: first wait for what uses the memory, then
 * unpin it, then free it. Errors: -ENODEV, -EIO (driver: it is not pinned). */
int gpushm_unpin(void *memory);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
