/* SPDX-License-Identifier: MIT
 *
 * libgpushm: shm_open for GPUs. Named arrays in GPU and host memory, shared between processes.
 *
 * A daemon, gpushmd, owns the memory. This library asks the daemon for buffers by name, maps them
 * into the calling process and returns typed, strided arrays in them. Link with -lgpushm
 * (pkg-config gpushm). The library loads libcuda at run time, for GPU and pinned pools only.
 *
 *	struct gpushm *c = NULL;
 *	struct gpushm_buffer *b = NULL;
 *	struct gpushm_array *w = NULL;
 *
 *	if (gpushm_connect(NULL, &c) < 0 ||
 *	    gpushm_open(c, "model/weights", GPUSHM_READ, 5000, NULL, &b) < 0 ||
 *	    gpushm_array_get(b, "layer0", &w) < 0)
 *		errx(1, "%s", gpushm_error());
 *	launch(gpushm_array_device_ptr(w), gpushm_array_dim(w, 0));
 *	...
 *	gpushm_array_free(w);
 *	gpushm_close(b);
 *	gpushm_disconnect(c);
 *
 * Errors. A function that returns int returns 0, or a negative errno. After an error,
 * gpushm_error() says in words what happened, to which name, and what to do. Results are the last
 * parameters and are written on success only. NULL for a connection, buffer, array or watch is an
 * error like others: -EINVAL where a function returns a signed number, else NULL or 0, with a text;
 * the functions that release something accept it. The library never logs, installs no signal
 * handler and never exits.
 *
 * Ownership. The caller frees what a function returns: a connection with gpushm_disconnect(), a
 * buffer with gpushm_close(), an array or view with gpushm_array_free(), and so on. Strings and
 * arrays of numbers that a getter returns belong to the object that was asked, and are valid as
 * long as the object.
 *
 * Threads. Any thread may call any function. A connection handles one request at a time: a thread
 * that waits for a name needs a connection of its own. An array never changes, but its memory does.
 *
 * Fork. A connection, buffer, array or watch that was made before fork() is the parent's: in the
 * child what asks the daemon returns -ECHILD, and the child must connect anew. Memory of a host
 * pool is the child's, too: its arrays work, and gpushm_close() ends the child's mapping alone.
 *CUDA does not survive a fork: other memory is -ECHILD there.
 *
 * Blocking. A function that "asks the daemon" makes a round trip of some 10 us, and has a deadline:
 * gpushm_set_timeout(). If the daemon dies and systemd keeps what is published, the function
 * connects to the daemon's successor and goes on; else it returns -ECONNRESET. It stops trying to
 * connect after $GPUSHM_RECONNECT_MS (10,000), also where the socket exists but no daemon replies.
 * No function waits for the GPU unless its comment says so.
 *
 * GPU context. A function that needs CUDA uses the calling thread's current context if that is of
 * the right device, else the device's primary context. It leaves the thread's current context as it
 * was.
 */
#ifndef GPUSHM_H
#define GPUSHM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define GPUSHM_VERSION_MAJOR 0
#define GPUSHM_VERSION_MINOR 3
#define GPUSHM_VERSION_PATCH 0

#define GPUSHM_MAX_NDIM 32
#define GPUSHM_MAX_NAME 255	       /* bytes of a buffer's, array's or attribute's name */
#define GPUSHM_WAIT_FOREVER UINT64_MAX /* as a timeout, in ms */
#define GPUSHM_OWN_DEVICE (-1)	       /* map for the GPU that has the memory */
#define GPUSHM_CURRENT_DEVICE (-2)     /* map for the GPU of the thread's current context */

struct gpushm;	      /* a connection to the daemon */
struct gpushm_buffer; /* a buffer as this process has it: a lease and a mapping */
struct gpushm_array;  /* an array in a buffer, or a view of one */

enum gpushm_kind { GPUSHM_HOST = 1, GPUSHM_PINNED = 2, GPUSHM_VMM = 3, GPUSHM_MEMPOOL = 4 };
enum gpushm_state { GPUSHM_FILLING = 1, GPUSHM_SEALED = 2, GPUSHM_SHARED = 3 };
enum gpushm_access { GPUSHM_READ = 1, GPUSHM_WRITE = 2 };
enum gpushm_residence { GPUSHM_RESIDENT = 1, GPUSHM_IN_TWIN = 2, GPUSHM_IN_SOURCE = 3 };

/* Whether a struct that the library has filled in has that member: GPUSHM_HAS(stat, opens). */
#define GPUSHM_HAS(s, member) \
	((const char *)(&(s)->member + 1) - (const char *)(s) <= (ptrdiff_t)(s)->struct_size)

/* ------------------------------------------------------------------ errors */

/* The text of this thread's last error; "" if there was none. Valid until the thread's next call of
 * a gpushm function. Never NULL. */
const char *gpushm_error(void);

/* The daemon's code for that error as a word ("NOT_FOUND", "POOL_FULL", ...; gpushm-protocol(7)
 * lists them); "NO_REPLY": there was no reply in time; "" for other errors. Never NULL. */
const char *gpushm_error_code(void);

/* The version of the loaded library: "0.3.0". */
const char *gpushm_version(void);

/* Frees all that a function of gpushm_query.h, gpushm_events.h or gpushm_metrics.h has returned at
 * once. NULL is allowed. Returns NULL. */
void *gpushm_free(void *result);

/* -------------------------------------------------------------- connection */

/* Connects to the daemon at socket_path. NULL means the first of these that is set or exists:
 * $GPUSHM_SOCKET, /run/gpushm/gpushmd.sock, the socket of the user's own daemon, which gpushmd(8)
 * puts into $XDG_RUNTIME_DIR, /run/user/UID or /tmp. The daemon must run as root, as the caller's
 * own user, as user "gpushm", or as the owner of the folder /run/gpushm if only root may write to
 * /run. The library trusts no other, and none that the user namespace does not map unless
 * $GPUSHM_UNMAPPED_DAEMON is "trust" (gpushm(7)).
 *
 * Errors: -ENOENT (no socket), -ECONNREFUSED (no daemon listens; or none has replied within
 * $GPUSHM_RECONNECT_MS and at least a second, because it is stopped or systemd, which has its
 * socket, can't start it), -EACCES (the socket's mode), -EPROTONOSUPPORT (no common version of the
 * protocol), -EPERM (the server is not trusted, or can't identify this process), -EDQUOT (the user
 * has too many connections), -EINVAL ($GPUSHM_UNMAPPED_DAEMON), -ENAMETOOLONG, -ENOMEM. */
int gpushm_connect(const char *socket_path, struct gpushm **ret);

/* Releases the connection. It closes when the last buffer that was opened through it is closed.
 * NULL is allowed. Returns NULL. */
struct gpushm *gpushm_disconnect(struct gpushm *c);

/* How long requests wait for the daemon's reply from now on, beside the time for which the caller
 * lets the daemon wait, and in gpushm_create() 1 ms for each MiB. 0: without a limit. At first it
 * is $GPUSHM_TIMEOUT_MS, or 60,000. After it a request returns -ETIMEDOUT with "NO_REPLY" as
 * gpushm_error_code(), and gpushm_error() names the daemon's process and its state. The connection
 * stays good: the next request waits, in its own time, for the late reply, and drops it; what that
 * brings is given back. What changes something may happen all the same: look before you repeat it.
 * gpushm_publish() may be repeated; a buffer that gpushm_describe() was for can only be discarded.
 * 0; -EINVAL, -ECHILD. */
int gpushm_set_timeout(struct gpushm *c, uint64_t timeout_ms);

/* The connection's socket, for poll(). If it is hung up, or readable while no request is under way
 * and no reply is late, the daemon has gone; the next request reconnects or fails. Do not read,
 * write or close it. */
int gpushm_fd(const struct gpushm *c);

/* ------------------------------------------------- creating and publishing */

/* What a caller fills in begins with its size, so that it can grow at its end. Members that are 0
 * mean the defaults, unless their comment says otherwise; the elements of an array of such structs
 * all have the same size. What this library does not know must be 0. All that is -EINVAL. */
struct gpushm_attr {
	size_t struct_size; /* sizeof(struct gpushm_attr) */
	const char *key;
	const void *value;
	size_t size; /* bytes */
};

/* A flag means one thing in all calls; a call that does not take it returns -EINVAL. */
#define GPUSHM_TRANSIENT (1u << 0) /* create: unlink it when its last lease ends */
#define GPUSHM_SET_GID (1u << 1)
#define GPUSHM_SET_DEVICE (1u << 2)
#define GPUSHM_REFUSE_DIRTY (1u << 3)  /* open: refuse a dirty buffer, or wait until it is clean */
#define GPUSHM_COPY_ON_WRITE (1u << 4) /* open: map host memory privately; see gpushm_open() */
#define GPUSHM_TABLE (1u << 14)	       /* open: the table without the memory; see gpushm_open() */
#define GPUSHM_REPLACE (1u << 5)       /* rename and publish_as: take the name from another */

/* Options of gpushm_create(). NULL means the defaults. */
struct gpushm_create_options {
	size_t struct_size; /* sizeof(struct gpushm_create_options) */
	const char *pool;   /* NULL is the daemon's default */
	mode_t mode;	    /* 0 is 0600 */
	gid_t gid;	    /* with GPUSHM_SET_GID */
	uint32_t flags;	    /* GPUSHM_TRANSIENT, GPUSHM_SET_GID, GPUSHM_SET_DEVICE */
	int device;	    /* with GPUSHM_SET_DEVICE: as in struct gpushm_open_options */
	const struct gpushm_attr *attrs; /* 4,096 bytes in all */
	size_t n_attrs;
	uint64_t wait_ms; /* how long to wait for space in a full pool or device */
};

/* Options of gpushm_open(). NULL means the defaults. */
struct gpushm_open_options {
	size_t struct_size; /* sizeof(struct gpushm_open_options) */
	uint32_t flags;	    /* GPUSHM_REFUSE_DIRTY, GPUSHM_COPY_ON_WRITE, GPUSHM_TABLE,
			       GPUSHM_SET_DEVICE */
	int device; /* with GPUSHM_SET_DEVICE: map for the GPU of this CUDA ordinal, with peer
		       access; GPUSHM_CURRENT_DEVICE: GPU 0 without a context, none for the host */
};

/* Creates a buffer of `bytes` bytes and maps it for writing. No other process can open it until it
 * is published; if this process dies before that, the buffer is freed. Its contents are zero, or
 * those of an earlier buffer of the same user. Asks the daemon, which may wait for the driver.
 *
 * Errors: -EEXIST (name taken), -EINVAL (name, size 0, mode), -ENOENT (no such pool), -EACCES (pool
 * not allowed, or not a group of the caller), -EDQUOT (a limit of this user), -ENOSPC (the pool is
 * full, also after options' wait_ms; gpushm_error() names the largest holders), -EFBIG (too
 * large for this pool; mempool: above 4 GiB), -ENODEV (the pool's device failed, or this process
 * can't use it), -EMFILE (this process may open no more files), -EIO (driver). */
int gpushm_create(struct gpushm *c, const char *name, uint64_t bytes,
		  const struct gpushm_create_options *options, struct gpushm_buffer **ret);

/* Lets other processes open the buffer. GPUSHM_SEALED: nobody writes to it again; this process's
 * mapping becomes read-only, and pointers to it must be used for reading only. GPUSHM_SHARED: the
 * buffer stays writable. Waits for the work that is queued on the GPUs that have the buffer mapped,
 * on any stream of the GPU's primary context and of the thread's current one, then asks the daemon.
 * -EBUSY if it was published before; -ECONNRESET as for gpushm_describe(). */
int gpushm_publish(struct gpushm_buffer *b, enum gpushm_state state);

/* gpushm_publish() under another name, in one step: nobody sees the buffer published under the name
 * that it was created with. With GPUSHM_REPLACE the name may be another buffer's, which loses it as
 * by gpushm_rename(). Errors as for both. */
int gpushm_publish_as(struct gpushm_buffer *b, enum gpushm_state state, const char *name,
		      uint32_t flags);

/* Sets attributes of a buffer that is not published yet; one of the same key is replaced, and one
 * of size 0 is removed. After an error nothing has changed. Values that gpushm_buffer_attr() gave
 * before are not valid any more. Asks the daemon. Errors: -EDQUOT (more than 4,096 bytes in all),
 * -EINVAL (a key), -EBUSY (published already). */
int gpushm_set_attrs(struct gpushm_buffer *b, const struct gpushm_attr *attrs, size_t n);

/* Whether the published buffer survives the daemon's death. 1: it does. 0: it is not published, or
 * this daemon keeps no buffer. -ENOSPC: this daemon keeps buffers, and had no place left for this
 * one; gpushm_error() says what to do. -EINVAL: b is NULL. */
int gpushm_buffer_kept(const struct gpushm_buffer *b);

/* ------------------------------------------------------- opening and closing */

/* Opens a published buffer and maps it. timeout_ms: how long to wait until the name is published; 0
 * does not wait. Writing needs a shared buffer. If this process has the buffer open already, both
 * opens share one mapping. A dirty buffer (a process died that had it open for writing) is opened
 * too, see gpushm_buffer_dirty(), unless GPUSHM_REFUSE_DIRTY is set. Asks the daemon: one round
 * trip, whatever the number of arrays.
 *
 * With GPUSHM_COPY_ON_WRITE and GPUSHM_READ this process may write to the memory, and nobody else
 * ever sees that: the kernel copies each page at the first write to it, and charges the copy to
 * this process. The other pages stay those of the buffer, and show what others write to it. Each
 * such open has a mapping of its own. For buffers of host pools; -ENOTSUP for the others.
 *
 * With GPUSHM_TABLE nothing is mapped, and an evicted buffer stays evicted: the arrays and
 * attributes can be read, as of a buffer that is suspended, and can't be resumed.
 *
 * Errors: -ENOENT (no such name), -EAGAIN (not published, timeout 0), -ETIMEDOUT, -EACCES, -EROFS
 * (writing to a sealed buffer), -EUCLEAN (dirty, timeout 0), -EDQUOT (a limit of this user),
 * -ENODEV (this process can't use the GPU), -EMFILE (this process may open no more files),
 * -EPROTONOSUPPORT (more arrays than this version of the library reads: upgrade it). */
int gpushm_open(struct gpushm *c, const char *name, enum gpushm_access access, uint64_t timeout_ms,
		const struct gpushm_open_options *options, struct gpushm_buffer **ret);

/* Opens the buffer of that name, or creates it if nobody has: of many processes that call this at
 * the same time one creates it, and the others wait until it is published. Returns GPUSHM_CREATED,
 * which is not an error, to the one that created: it fills the buffer and publishes it. If it dies
 * or closes the buffer before that, one of the others creates. timeout_ms: how long to wait for
 * another process's gpushm_publish(). Errors as for gpushm_open() and gpushm_create(), without
 * -EEXIST and -ENOENT for the name. */
int gpushm_open_or_create(struct gpushm *c, const char *name, enum gpushm_access access,
			  uint64_t timeout_ms, const struct gpushm_open_options *opening,
			  uint64_t bytes, const struct gpushm_create_options *creating,
			  struct gpushm_buffer **ret);
#define GPUSHM_CREATED 1

/* Waits for the work that this process has queued on the buffer's device, unmaps the buffer and
 * ends its lease. NULL is allowed. Sends the daemon a message and waits for no reply; the next
 * request of this connection finds the lease ended. If the daemon has gone, the buffer is freed all
 * the same and 0 is returned. Within gpushm_defer_cleanup() all of that happens later; see below.
 *
 * GPUSHM_UNPUBLISHED, which is not an error: the buffer is closed, but this process created it and
 * did not publish it, so its contents are gone. gpushm_error() says so. A process that opens the
 * name soon afterwards gets an error that names the process that closed it. A program that wants
 * no contents calls gpushm_discard(); after gpushm_unlink() 0 is returned, too.
 *
 * Errors: -EBUSY (arrays of the buffer exist: gpushm_error() says how many; free them first; the
 * buffer stays open), -EIO (the driver could not unmap it; the buffer is freed, and its lease lasts
 * until this process ends). */
int gpushm_close(struct gpushm_buffer *b);
#define GPUSHM_UNPUBLISHED 1

/* Closes a buffer that is not published, on purpose: the contents are dropped and the name is free.
 * Otherwise as gpushm_close(). NULL is allowed. Errors: -EBUSY also if it is published: then
 * gpushm_unlink() frees its name, and gpushm_close() closes it. */
int gpushm_discard(struct gpushm_buffer *b);

/* Frees the name at once; the memory is freed when the last lease ends. For the owner and
 * administrators. Asks the daemon. Errors: -ENOENT, -EACCES. */
int gpushm_unlink(struct gpushm *c, const char *name);

/* Gives a published buffer another name, in one step: there is no moment in which neither name, or
 * both, mean it. With GPUSHM_REPLACE, `to` may be the name of another buffer, which loses it in the
 * same step, as by gpushm_unlink(): processes that have that buffer open keep it, and get
 * GPUSHM_NOTICE_UNLINKED; a watch of the name reports the new buffer, with its previous one.
 * After a restart of the daemon all of it has happened, or nothing. For the owner of both buffers
 * and administrators. Asks the daemon.
 *
 * Errors: -ENOENT (no buffer `from`), -EEXIST (`to` is taken), -EAGAIN (one of them is not
 * published), -EACCES, -EINVAL (`to` breaks the rules for names). */
int gpushm_rename(struct gpushm *c, const char *from, const char *to, uint32_t flags);

/* Says that the contents of a dirty buffer are good again, and wakes processes that wait for that.
 * A buffer that is not dirty stays as it is. For the owner and administrators. Asks the daemon.
 * Errors: -ENOENT, -EACCES. */
int gpushm_clean(struct gpushm *c, const char *name);

/* Waits until the name is published, without opening it. Errors as for gpushm_open(). */
int gpushm_wait(struct gpushm *c, const char *name, uint64_t timeout_ms);

/* An id is never used again. */
uint64_t gpushm_buffer_id(const struct gpushm_buffer *b);
uint64_t gpushm_buffer_bytes(const struct gpushm_buffer *b);
/* Of the layout of the arrays: equal layouts have equal digests. */
uint64_t gpushm_buffer_digest(const struct gpushm_buffer *b);
/* As it is now. */
enum gpushm_state gpushm_buffer_state(const struct gpushm_buffer *b);
enum gpushm_access gpushm_buffer_access(const struct gpushm_buffer *b);
/* 1: it was opened with GPUSHM_COPY_ON_WRITE: its access is GPUSHM_WRITE, its lease for reading. */
int gpushm_buffer_copy_on_write(const struct gpushm_buffer *b);
enum gpushm_kind gpushm_buffer_kind(const struct gpushm_buffer *b);
/* The name of its pool. */
const char *gpushm_buffer_pool(const struct gpushm_buffer *b);
/* 1: the daemon does not know this lease any more, because it was started anew without it or the
 * memory was lost with its GPU. The mapping stays, but nothing keeps the memory. */
int gpushm_buffer_lost(const struct gpushm_buffer *b);
/* 1: a process died while it had the buffer open for writing, and gpushm_clean() was not called
 * since. As it is now. */
int gpushm_buffer_dirty(const struct gpushm_buffer *b);
/* As the caller gave it, at last to gpushm_publish_as(). gpushm_rename() does not change it. */
const char *gpushm_buffer_name(const struct gpushm_buffer *b);
/* The user who created it; (uid_t)-1: this process's user namespace does not map him. */
uid_t gpushm_buffer_uid(const struct gpushm_buffer *b);
/* This process's CUDA ordinal of the memory's GPU; -1 for host and pinned memory. */
int gpushm_buffer_device(const struct gpushm_buffer *b);
/* The CUDA ordinal of the thread's current context; -1: none, or nothing has used a GPU so far. */
int gpushm_current_device(void);

/* The start of the memory. Device: a CUdeviceptr; NULL for host pools. Host: NULL for pools on a
 * GPU. A pinned buffer has both, with the same value. */
void *gpushm_buffer_device_ptr(const struct gpushm_buffer *b);
void *gpushm_buffer_host_ptr(const struct gpushm_buffer *b);

/* An attribute. *ret_value belongs to the buffer and has no NUL at its end. 0 or -ENOENT. */
int gpushm_buffer_attr(const struct gpushm_buffer *b, const char *key, const void **ret_value,
		       size_t *ret_size);

/* Copies bytes of a buffer, whatever arrays are in it; done on return. -ERANGE outside of it. */
int gpushm_read(const struct gpushm_buffer *b, uint64_t offset, void *host, uint64_t bytes);
int gpushm_write(struct gpushm_buffer *b, uint64_t offset, const void *host, uint64_t bytes);

/* ---------------------------------------------------------------- notices */

/* The daemon publishes what happens to a buffer in a word of memory that this process can read. The
 * low byte of the word has these flags. The other bits are a count of changes: the word differs
 * after each change, also where the flags are the same again, and after each start of a daemon. */
#define GPUSHM_NOTICE_SEALED (1u << 0)
#define GPUSHM_NOTICE_SHARED (1u << 1)
#define GPUSHM_NOTICE_DIRTY (1u << 2)
#define GPUSHM_NOTICE_UNLINKED (1u << 3) /* its name is free, or another buffer's */
/* The daemon does not have it any more and its lease has ended; the mapping stays. Final. */
#define GPUSHM_NOTICE_GONE (1u << 4)

/* The word as it is now: one read of memory. Where the daemon has no word for this buffer, the
 * flags that the library knows. */
uint32_t gpushm_buffer_notice(const struct gpushm_buffer *b);

/* Waits until the word is not `seen`, a value of gpushm_buffer_notice(), and writes the new word.
 * Makes no request and holds no lock while it waits, so that any number of threads may wait on one
 * connection. When the daemon dies, its successor wakes them. Errors: -ETIMEDOUT; -EIDRM (seen has
 * GPUSHM_NOTICE_GONE: nothing will change any more); -ECONNRESET (no daemon is there, over all
 * calls for this buffer, since $GPUSHM_RECONNECT_MS); -ENOTSUP (the daemon has no word for it). */
int gpushm_buffer_wait(struct gpushm_buffer *b, uint32_t seen, uint64_t timeout_ms,
		       uint32_t *ret_notice);

/* -------------------------------------------------------------- the daemon */

/* Returns the memory of freed buffers, which a pool keeps for reuse, to the driver or the kernel:
 * that of one pool, or, for NULL, of every pool that this user may create in. It is returned when
 * the function returns. Asks the daemon, which waits for the driver. Errors: -ENOENT, -EACCES,
 * -ENODEV (a driver call does not return: gpushm_error() names its pools, which will return their
 * memory when it does; the others have). */
int gpushm_flush(struct gpushm *c, const char *pool);

/* Makes the daemon run its program again in the same process, or the program that an update has put
 * in its place. Returns when the new one replies. Published buffers, leases and charges stay;
 * buffers that are not published are lost, as in a crash. For administrators. Errors: -EACCES;
 * -ENOEXEC (the program can't take over; the daemon goes on as before); -ECONNRESET (no daemon
 * replies). */
int gpushm_restart(struct gpushm *c);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
