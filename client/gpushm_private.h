/* SPDX-License-Identifier: MIT
 *
 * What libgpushm exports for our other products alone, under the version node GPUSHM_PRIVATE. It is
 * not installed, and may change with every version.
 */
#pragma once

#include "client/gpushm_array.h"
#include "proto/base/own.h"

#include <errno.h>
#include <stdbool.h>

#pragma GCC visibility push(default)

/* Sets the text of gpushm_error() for this thread. Returns -number, so that a check is one line. */
int gpushm_private_fail(int number, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Saves the thread's error while an undo runs that may fail with another one; and carries an error
 * from one thread to another. */
struct gpushm_private_error {
	char text[768];
	const char *code; /* static; NULL: an error that the daemon did not send */
};
void gpushm_private_keep(struct gpushm_private_error *ret);
void gpushm_private_put_back(const struct gpushm_private_error *e);

/* Makes a connection for calls of gpushm_async.h. The first call connects it, so this function does
 * not wait for the daemon. While the connection has no buffer, its calls also continue with another
 * daemon. like: NULL, or another connection to this daemon: if that daemon's buffers outlive it,
 * the first call waits for a successor. */
int gpushm_private_connect_later(const char *socket_path, const struct gpushm *like,
				 struct gpushm **ret);

/* Whether its daemon is there, and it has no buffer, no call, and no late reply. */
bool gpushm_private_is_idle(struct gpushm *c);

/* The memfd of host memory that this process fills: data that are written to it cost less than half
 * of what a store to a fresh mapping does, which the kernel clears first, page by page. Lent, until
 * the buffer is published or closed; -1: another kind of memory, less than 1 MiB, or not being
 * filled. */
int gpushm_private_memory(const struct gpushm_buffer *b);

/* Whether this is a forked child, and the buffer is its parent's. */
bool gpushm_private_is_inherited(const struct gpushm_buffer *b);

/* The first array that has that byte of a published buffer: the bytes of its name, and the name,
 * without a NUL; 0: none has it. For a signal handler: takes no lock and no memory. */
size_t gpushm_private_array_with(const struct gpushm_buffer *b, uint64_t offset,
				 const char **ret_name);

/* The kind of that pool, or, for NULL, of the default one, as the daemon said when c was connected;
 * 0: it has not named it. Does not ask the daemon. */
enum gpushm_kind gpushm_private_pool_kind(struct gpushm *c, const char *pool);

/* From now on a request that waits for the daemon for longer than an instant asks this function,
 * each 100 ms and after signals, with the connection's lock held. Not 0: the wait ends with -EINTR,
 * as it does with -ETIMEDOUT when its time is over. */
void gpushm_private_on_interrupt(int (*is_interrupted)(void));

/* What libgpushm-load does for memory that comes back. Each returns 0, or -errno with
 * gpushm_error() set. b is the evicted buffer, of which the table alone may be asked; fresh is what
 * becomes its memory. */
struct gpushm_private_loader {
	/* Copies the twin, which has as many bytes in host memory, and compares the arrays with the
	 * digest that b has: -EBADMSG. */
	int (*copy)(struct gpushm_buffer *b, struct gpushm_buffer *twin,
		    struct gpushm_buffer *fresh);
	/* Loads the source of b; where fresh is NULL, reads its headers alone. -ENOENT: b has none;
	 * -ENODATA: it can't be read; -ESTALE: it has changed; -ETIMEDOUT: it is on a server, and
	 * is not here at the time `until` of CLOCK_MONOTONIC, in ns. */
	int (*load)(struct gpushm *c, struct gpushm_buffer *b, struct gpushm_buffer *fresh,
		    uint64_t until);
};
/* loader: static. */
void gpushm_private_set_loader(const struct gpushm_private_loader *loader);
/* The library calls find() when it needs a loader and has none: it may load the one that sets it.
 */
void gpushm_private_set_loader_finder(void (*find)(void));

/* What the bytes of a handle say. Must not move: its texts and spec point into it. */
struct gpushm_private_handle {
	uint64_t bytes[128];
	const char *name, *socket; /* the buffer's; its daemon's, "": the default one */
	uint64_t id, size;	   /* of the buffer; bytes of the array, or of the buffer */
	uid_t uid;		   /* the buffer's owner */
	enum gpushm_access access;
	bool copy_on_write, is_buffer, fields_in_table;
	struct gpushm_array_spec spec; /* of an array; descr "": none, or fields_in_table */
};
/* 0; -EINVAL, -EBADMSG as gpushm_open_handle(). Whether the array fits is not checked. */
int gpushm_private_read_handle(const void *bytes, size_t size, struct gpushm_private_handle *ret);

#pragma GCC visibility pop

/* gpushm_error() at the end of the block in which this stands is what it is here: for an undo. */
#define private_error_guard()                                                 \
	_cleanup_(gpushm_private_put_back) struct gpushm_private_error kept_; \
	gpushm_private_keep(&kept_)
