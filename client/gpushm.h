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
 * child every function that takes one returns -ECHILD. The child must connect anew. CUDA itself
 * does not survive a fork.
 *
 * Blocking. A function that "asks the daemon" makes a round trip of some 10 us, and waits for the
 * daemon's reply without a limit. If the daemon dies and systemd keeps what is published, the
 * function connects to the daemon's successor and goes on; else it returns -ECONNRESET. It stops
 * trying to connect after $GPUSHM_RECONNECT_MS (10,000), also where the socket exists but no daemon
 * replies. No function waits for the GPU unless its comment says so.
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
#define GPUSHM_VERSION_MINOR 2
#define GPUSHM_VERSION_PATCH 0

#define GPUSHM_MAX_NDIM 32
#define GPUSHM_MAX_NAME 255	       /* bytes of a buffer's, array's or attribute's name */
#define GPUSHM_WAIT_FOREVER UINT64_MAX /* as a timeout, in ms */
#define GPUSHM_OWN_DEVICE (-1)	       /* map for the GPU that has the memory */
#define GPUSHM_CURRENT_DEVICE (-2)     /* map for the GPU of the thread's current context */

struct gpushm;	      /* a connection to the daemon */
struct gpushm_buffer; /* a buffer as this process has it: a lease and a mapping */
struct gpushm_array;  /* an array in a buffer, or a view of one */
struct gpushm_watch;  /* names and buffers whose changes are reported */

enum gpushm_kind { GPUSHM_HOST = 1, GPUSHM_PINNED = 2, GPUSHM_VMM = 3, GPUSHM_MEMPOOL = 4 };
enum gpushm_state { GPUSHM_FILLING = 1, GPUSHM_SEALED = 2, GPUSHM_SHARED = 3 };
enum gpushm_access { GPUSHM_READ = 1, GPUSHM_WRITE = 2 };

/* ------------------------------------------------------------------ errors */

/* The text of this thread's last error; "" if there was none. Valid until the thread's next call of
 * a gpushm function. Never NULL. */
const char *gpushm_error(void);

/* The daemon's code for that error as a word ("NOT_FOUND", "POOL_FULL", ...; gpushm-protocol(7)
 * lists them); "" for an error that the library itself found. Never NULL. */
const char *gpushm_error_code(void);

/* The version of the loaded library: "0.2.0". */
const char *gpushm_version(void);

/* -------------------------------------------------------------- connection */

/* Connects to the daemon at socket_path. NULL means the first of these that is set or exists:
 * $GPUSHM_SOCKET, /run/gpushm/gpushmd.sock, $XDG_RUNTIME_DIR/gpushm/gpushmd.sock. The daemon must
 * run as root, as the caller's own user, as user "gpushm", or as the owner of the folder
 * /run/gpushm if only root may write to /run. The library trusts no other, and none that the user
 * namespace does not map unless $GPUSHM_UNMAPPED_DAEMON is "trust" (gpushm(7)).
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

/* The connection's socket, for poll(). If it is readable or hung up while no request is under way,
 * the daemon has gone; the next request reconnects or fails. Do not read, write or close it. */
int gpushm_fd(const struct gpushm *c);

/* ------------------------------------------------------------------- dtypes */

/* The type of an element: DLPack's DLDataType (code, bits, lanes), or a record of itemsize bytes
 * (code 255). */
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

/* ------------------------------------------------- creating and publishing */

struct gpushm_attr {
	const char *key;
	const void *value;
	size_t size; /* bytes */
};

/* Options of create and open. NULL, or all zero but struct_size, means the defaults. */
struct gpushm_options {
	size_t struct_size; /* sizeof(struct gpushm_options) */
	const char *pool;   /* create: NULL is the daemon's default */
	mode_t mode;	    /* create: 0 is 0600 */
	gid_t gid;	    /* create: with GPUSHM_SET_GID in flags */
	uint32_t flags;	    /* GPUSHM_TRANSIENT, ... */
	int device; /* with GPUSHM_SET_DEVICE: map for the GPU of this CUDA ordinal, with peer
		       access; GPUSHM_CURRENT_DEVICE: GPU 0 without a context, none for the host */
	const struct gpushm_attr *attrs; /* create: attributes, 4,096 bytes in all */
	size_t n_attrs;
	uint64_t wait_ms; /* create: how long to wait for space in a full pool or device */
	uint64_t spin_us; /* streams: how long a wait spins; see gpushm_stream.h */
};
#define GPUSHM_TRANSIENT (1u << 0) /* create: unlink it when its last lease ends */
#define GPUSHM_SET_GID (1u << 1)
#define GPUSHM_SET_DEVICE (1u << 2)
#define GPUSHM_REFUSE_DIRTY (1u << 3)  /* open: refuse a dirty buffer, or wait until it is clean */
#define GPUSHM_COPY_ON_WRITE (1u << 4) /* open: map host memory privately; see gpushm_open() */

/* The description of one array, for describe and layout. */
struct gpushm_array_spec {
	const char *name; /* "" for the buffer's own array */
	struct gpushm_dtype dtype;
	const char *descr;	/* records: NumPy's descr as text; else NULL */
	int ndim;		/* 0 to GPUSHM_MAX_NDIM */
	const int64_t *shape;	/* elements; ndim of them, none negative */
	const int64_t *strides; /* bytes; NULL is C order */
	uint64_t offset;	/* bytes from the buffer's start to element [0, 0, ...] */
};

/* Lays arrays out one after the other, each on a multiple of 256 bytes. Writes the offset of each
 * spec, and the size in bytes of a buffer for all of them. Does not ask the daemon. 0; -EINVAL
 * (dtype, ndim, shape); -EOVERFLOW. */
int gpushm_layout(struct gpushm_array_spec *specs, size_t n, uint64_t *ret_bytes);

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
		  const struct gpushm_options *options, struct gpushm_buffer **ret);

/* gpushm_layout(), gpushm_create() and gpushm_describe() in one: creates a buffer for exactly these
 * arrays. Writes the offsets of specs. */
int gpushm_create_arrays(struct gpushm *c, const char *name, struct gpushm_array_spec *specs,
			 size_t n, const struct gpushm_options *options,
			 struct gpushm_buffer **ret);

/* Adds arrays to a buffer that is not published yet. Asks the daemon, once for each batch that fits
 * a message. After an error the arrays of earlier batches stay, and gpushm_error() says which one
 * was wrong. Errors: -ERANGE (does not fit, or overflows), -EINVAL (dtype, name, shape), -EEXIST,
 * -EDQUOT, -EBUSY (published already), -ECONNRESET (ended with its daemon: create it again). */
int gpushm_describe(struct gpushm_buffer *b, const struct gpushm_array_spec *specs, size_t n);

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
 * Errors: -ENOENT (no such name), -EAGAIN (not published, timeout 0), -ETIMEDOUT, -EACCES, -EROFS
 * (writing to a sealed buffer), -EUCLEAN (dirty, timeout 0), -EDQUOT (a limit of this user),
 * -ENODEV (this process can't use the GPU), -EMFILE (this process may open no more files),
 * -EPROTONOSUPPORT (more arrays than this version of the library reads: upgrade it). */
int gpushm_open(struct gpushm *c, const char *name, enum gpushm_access access, uint64_t timeout_ms,
		const struct gpushm_options *options, struct gpushm_buffer **ret);

/* Opens the buffer of that name, or creates it if nobody has: of many processes that call this at
 * the same time one creates it, and the others wait until it is published. Returns GPUSHM_CREATED,
 * which is not an error, to the one that created: it fills the buffer and publishes it. If it dies
 * or closes the buffer before that, one of the others creates. `access` is for opening; `bytes` and
 * `options` are those of gpushm_create(). timeout_ms: how long to wait for another process's
 * gpushm_publish(). Errors as for gpushm_open() and gpushm_create(), without -EEXIST and -ENOENT
 * for the name. */
int gpushm_open_or_create(struct gpushm *c, const char *name, enum gpushm_access access,
			  uint64_t timeout_ms, uint64_t bytes, const struct gpushm_options *options,
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
 * GPUSHM_NOTICE_UNLINKED; a watch of the name reports the new buffer (gpushm_watch_previous()).
 * After a restart of the daemon all of it has happened, or nothing. For the owner of both buffers
 * and administrators. Asks the daemon.
 *
 * Errors: -ENOENT (no buffer `from`), -EEXIST (`to` is taken), -EAGAIN (one of them is not
 * published), -EACCES, -EINVAL (`to` breaks the rules for names). */
int gpushm_rename(struct gpushm *c, const char *from, const char *to, uint32_t flags);
#define GPUSHM_REPLACE (1u << 0) /* of gpushm_rename() and gpushm_publish_as() */

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
/* 1: it was opened with GPUSHM_COPY_ON_WRITE. Its access is GPUSHM_WRITE then, and its lease is one
 * for reading. */
int gpushm_buffer_copy_on_write(const struct gpushm_buffer *b);
enum gpushm_kind gpushm_buffer_kind(const struct gpushm_buffer *b);
/* The name of its pool. */
const char *gpushm_buffer_pool(const struct gpushm_buffer *b);
/* 1: the daemon does not know this lease any more, because it was started anew without it or the
 * memory was lost with its GPU. The mapping stays, but nothing keeps the memory for this process.
 */
int gpushm_buffer_lost(const struct gpushm_buffer *b);
/* 1: a process died while it had the buffer open for writing, and gpushm_clean() was not called
 * since. As it is now. */
int gpushm_buffer_dirty(const struct gpushm_buffer *b);
/* The name as the caller gave it, at last to gpushm_publish_as(). gpushm_rename() does not change
 * it. */
const char *gpushm_buffer_name(const struct gpushm_buffer *b);
/* The user who created it, as this process's user namespace has him; (uid_t)-1: it does not map
 * him. */
uid_t gpushm_buffer_uid(const struct gpushm_buffer *b);
/* This process's CUDA ordinal of the memory's GPU; -1 for host and pinned memory. */
int gpushm_buffer_device(const struct gpushm_buffer *b);
/* The CUDA ordinal of the calling thread's current context; -1: it has none, or the library has not
 * started the driver yet, which the first GPU or pinned buffer does. */
int gpushm_current_device(void);

/* The start of the memory. Device: a CUdeviceptr; NULL for host pools. Host: NULL for pools on a
 * GPU. A pinned buffer has both, with the same value. */
void *gpushm_buffer_device_ptr(const struct gpushm_buffer *b);
void *gpushm_buffer_host_ptr(const struct gpushm_buffer *b);

/* An attribute. *ret_value belongs to the buffer and has no NUL at its end. 0 or -ENOENT. */
int gpushm_buffer_attr(const struct gpushm_buffer *b, const char *key, const void **ret_value,
		       size_t *ret_size);

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

/* A watch reports changes of many names and buffers through an fd for poll() and event loops. It
 *has a connection of its own, so that its waiting blocks no other request.
 *
 *	gpushm_watch_new(c, &w);
 *	gpushm_watch_name(w, "model/weights");
 *	while (poll(&(struct pollfd){ gpushm_watch_fd(w), POLLIN }, 1, -1) > 0)
 *		while (gpushm_watch_next(w, 0, &event) == 0)
 *			...
 *	gpushm_watch_free(w);
 *
 * An event is a difference from what was reported last. A change that is undone in between is not
 * reported. */
enum gpushm_event_kind {
	GPUSHM_EVENT_PUBLISHED = 1, /* a buffer of that name is published, or another one */
	GPUSHM_EVENT_DIRTY = 2,
	GPUSHM_EVENT_CLEAN = 3,
	GPUSHM_EVENT_UNLINKED = 4,  /* the name does not mean that buffer any more */
	GPUSHM_EVENT_GONE = 5,	    /* a watched buffer was freed: its last event */
	GPUSHM_EVENT_RESTARTED = 6, /* the daemon was started anew; what it lost is reported next */
};

struct gpushm_event {
	enum gpushm_event_kind what;
	uint64_t buffer;		/* its id; 0 for RESTARTED */
	char name[GPUSHM_MAX_NAME + 1]; /* as it was given; "" for RESTARTED */
};

/* Makes an empty watch on the daemon of connection c, which may be disconnected before the watch is
 * freed. Errors as for gpushm_connect(). */
int gpushm_watch_new(struct gpushm *c, struct gpushm_watch **ret);

/* Watches a name, which need not exist yet. If it is published, that is the first event. A buffer
 * that this user may not see (gpushm_stat()) is not reported. -EINVAL (name), -ENOSPC: a watch has
 * at most 256 names and buffers, with names of some 59,000 bytes. Does not block; wakes a thread in
 * gpushm_watch_next(). */
int gpushm_watch_name(struct gpushm_watch *w, const char *name);

/* Watches a buffer, whatever its name: changes after this call are reported. The buffer may be
 * closed meanwhile. Otherwise as gpushm_watch_name(). */
int gpushm_watch_buffer(struct gpushm_watch *w, const struct gpushm_buffer *b);

/* An fd that is readable when gpushm_watch_next() has something to do, which may not be an event
 * yet. It does not change. Do not read, write or close it. */
int gpushm_watch_fd(const struct gpushm_watch *w);

/* The next event; waits for it at most timeout_ms, 0 does not wait. Reconnects when the daemon is
 * back, also to one that has lost its buffers. Errors: -ETIMEDOUT; -ECONNRESET (the daemon has been
 * gone for $GPUSHM_RECONNECT_MS; a later call tries again); -EACCES (another user's private name).
 */
int gpushm_watch_next(struct gpushm_watch *w, uint64_t timeout_ms, struct gpushm_event *ret);

/* Of the last event that this thread got, if it is GPUSHM_EVENT_PUBLISHED: the id of the buffer
 * that the name meant before, which the new one has replaced; else 0. */
uint64_t gpushm_watch_previous(const struct gpushm_watch *w);

/* NULL is allowed. Returns NULL. */
struct gpushm_watch *gpushm_watch_free(struct gpushm_watch *w);

/* ------------------------------------------------------------------ events */

/* Something that has happened, as the daemon logged it. Texts are "" where the event has none.
 * type: "started" (the daemon), "created", "published", "opened", "closed", "renamed", "replaced",
 * "unlinked", "freed", "dirty", "cleaned", "died" (a holder), "lost", "refused", "disconnected",
 * "suspect", "pool-failed", "pool-recovered", "joined", "dropped", "orphaned", "continued";
 * gpushmctl(1) describes them. "unknown": a later daemon may have others. */
struct gpushm_logged_event {
	uint64_t number, time_ns; /* numbers grow, also over restarts; CLOCK_REALTIME */
	const char *type;
	const char *command; /* of the process that did it, with pid and uid; (uid_t)-1: the */
	pid_t pid;	     /* daemon did it, or this user may not know */
	uid_t uid;
	uid_t owner;	 /* of the buffer; (uid_t)-1 without one */
	uint64_t buffer; /* id; 0: it is about no buffer */
	uint64_t bytes;
	const char *name, *pool;
	const char *former;	   /* renamed, published: the name before, if it was another one */
	enum gpushm_access access; /* opened, closed, died; else 0 */
	enum gpushm_state state;
	const char *verb, *code; /* refused: the request, and as gpushm_error_code() */
	const char *text;	 /* why */
};

struct gpushm_events {
	const struct gpushm_logged_event *const *events; /* n of them, the oldest first */
	size_t n;
	uint64_t last;	/* pass it as `after` to get what follows */
	uint64_t lost;	/* events of all users before `last` for which the daemon had no space */
	uint64_t first; /* number of the first event of this run of the daemon */
	int more;	/* 1: there are more already */
};

/* NULL, or all zero but struct_size, means: all events that the daemon has kept. */
struct gpushm_events_options {
	size_t struct_size;  /* sizeof(struct gpushm_events_options) */
	uint64_t after;	     /* events with a higher number; GPUSHM_EVENTS_NEW: none so far */
	uint64_t timeout_ms; /* how long to wait for the first event */
	const char *types;   /* "refused,pool-failed": only these; NULL: all */
};
#define GPUSHM_EVENTS_NEW UINT64_MAX

/* What this user's processes did, what happened to buffers that it may gpushm_stat(), and what
 * concerns everybody; for administrators everything. n is 0 after the timeout. To follow, call it
 * again with `last`: then nothing is missed, also over a restart of the daemon. One that waits gets
 * a reply at most every 20 ms. Asks the daemon. Errors: -EINVAL (types), -EDQUOT (this user waits
 * for too much). */
int gpushm_events(struct gpushm *c, const struct gpushm_events_options *options,
		  struct gpushm_events **ret);
/* NULL is allowed. Returns NULL. */
struct gpushm_events *gpushm_events_free(struct gpushm_events *e);

/* -------------------------------------------------------- deferred cleanup */

/* Closing a buffer on a GPU waits for all work of that GPU, which a hot section of a program can't
 * afford. Between gpushm_defer_cleanup() and gpushm_resume_cleanup() gpushm_close() only puts the
 * buffer on a list of this process: no driver call, no request. Sections nest; they are counted for
 * the whole process, and another thread may leave a section than entered it. Buffers of host pools
 * are always closed at once.
 *
 *	gpushm_defer_cleanup();
 *	for (...) {
 *		gpushm_open(..., &b); launch(b); gpushm_close(b);
 *	}
 *	gpushm_resume_cleanup();
 *	gpushm_flush_cleanup();
 *
 * A buffer on the list is closed for the application, but keeps its lease, its mapping and, if it
 * was not published, its name. The library cleans up what is on the list, oldest first:
 *  - in gpushm_flush_cleanup(), outside of sections;
 *  - in a gpushm_close() outside of sections that exceeds a limit: more than max_count buffers on
 *    all GPUs together, or more bytes on its GPU than max_ratio of that GPU's memory. The buffer
 *    that exceeds the limit is cleaned up with the others. Leaving a section cleans up nothing;
 *  - in gpushm_disconnect(), for buffers of that connection;
 *  - when a create or an open finds no space: a full pool, a limit of this user, or no memory for a
 *    mapping. Then all buffers are cleaned up, also within a section, and the call tries once more.
 * An error does not stop the cleanup of the others; the first one is returned, with its
 * gpushm_error().
 *
 * These are the rules of Numba's defer_cleanup(), and max_ratio is Numba's 0.2. Two things differ.
 * max_count is 0 and not 10: a close outside of a section cleans up at once, with what a section
 * has left, because a lease that outlives its close keeps memory from others, counts against its
 * user and appears in gpushmctl ls. And where no space is left a section has no effect, because the
 * call would fail instead. */
int gpushm_defer_cleanup(void);	 /* 0, -ENOMEM */
int gpushm_resume_cleanup(void); /* 0; -EINVAL without a section */

/* Cleans up what is on the list. 0; -EBUSY within a section, where it does nothing; else as
 * gpushm_close(). */
int gpushm_flush_cleanup(void);

/* Sets the limits of this process, from the next close on; the ratio is 0 to 1 (-EINVAL). Without
 * this call they are $GPUSHM_MAX_PENDING_UNMAPS_COUNT and $GPUSHM_MAX_PENDING_UNMAPS_RATIO, read at
 * the first close; invalid values are ignored. A forked child starts with those, without a section
 * and with an empty list. */
int gpushm_set_cleanup_limits(unsigned max_count, double max_ratio);

/* The number of buffers on the list and, unless ret_bytes is NULL, their bytes. */
size_t gpushm_pending_cleanup(uint64_t *ret_bytes);

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
 * Errors: -EROFS (the array is read-only), -EINVAL (host_strides), -ENOMEM, -ENODEV, -EIO. */
int gpushm_copy_to_host(const struct gpushm_array *a, void *host, const int64_t *host_strides);
int gpushm_copy_from_host(struct gpushm_array *a, const void *host, const int64_t *host_strides);
int gpushm_copy_to_host_async(const struct gpushm_array *a, void *host, const int64_t *host_strides,
			      void *stream);
int gpushm_copy_from_host_async(struct gpushm_array *a, const void *host,
				const int64_t *host_strides, void *stream);

/* One of many copies. */
struct gpushm_copy {
	struct gpushm_array *array;
	void *memory;		/* the other side: the address of element [0, 0, ...] */
	const int64_t *strides; /* of the memory, in bytes; NULL is C order */
	int device;	/* CUDA ordinal of the GPU that has the memory; GPUSHM_HOST_MEMORY */
	uint32_t flags; /* GPUSHM_COPY_OUT: from the array; 0: into it */
};
#define GPUSHM_HOST_MEMORY (-1)
#define GPUSHM_COPY_OUT (1u << 0)
#define GPUSHM_COPY_ASYNC (1u << 0) /* of the call */

/* Queues all copies, in their order, and waits once; so it is the fast way to fill a model's
 * arrays. Each is a copy as above between an array and memory of the array's shape and dtype; but
 * the memory may be a GPU's, also another GPU's than the array's, and may overlap the array, as if
 * it was copied elsewhere first. flags: with GPUSHM_COPY_ASYNC the call does not wait, as the
 * _async functions; a copy between a GPU and a host pool is done on return.
 *
 * Errors: as above. The copies before the one that failed are done; which one that is, only the
 * text says. */
int gpushm_copy_many(const struct gpushm_copy *copies, size_t n, uint32_t flags, void *stream);

/* Copies bytes of a buffer, whatever arrays are in it; done on return. -ERANGE outside of it. */
int gpushm_read(const struct gpushm_buffer *b, uint64_t offset, void *host, uint64_t bytes);
int gpushm_write(struct gpushm_buffer *b, uint64_t offset, const void *host, uint64_t bytes);

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

/* ----------------------------------------------------------------- queries */

struct gpushm_holder {
	uint64_t lease;
	pid_t pid;
	uid_t uid;
	enum gpushm_access access;
	int suspect;	   /* its socket has closed, but its process still exists */
	uint64_t since_ns; /* CLOCK_REALTIME */
	char command[16];
};

struct gpushm_stat {
	uint64_t id;
	char name[GPUSHM_MAX_NAME + 33]; /* "" if unlinked; another user's private name is
					    "~1001/x", longer than the name itself */
	char pool[64];
	enum gpushm_kind kind; /* 0: one that this library does not know */
	enum gpushm_state state;
	uint64_t bytes, allocated_bytes;
	uid_t uid;
	gid_t gid;
	mode_t mode;
	int transient, dirty;
	int kept;			   /* it is published, and survives the daemon's death */
	uint64_t created_ns, published_ns; /* CLOCK_REALTIME; published_ns is 0 until it is */
	uint32_t arrays;
	int stream; /* 1: it is a stream: gpushm_stream.h */
	uint64_t digest;
	uint32_t readers, writers, suspects;
	uint32_t opens; /* how often it was opened since the daemon started; it wraps */
	struct gpushm_holder *holders; /* with GPUSHM_HOLDERS */
	size_t n_holders;
	struct gpushm_attr *attrs; /* gpushm_stat() only */
	size_t n_attrs;
	pid_t dirty_pid; /* of a dirty buffer: the process that died with it open for writing */
	uid_t dirty_uid;
	uint64_t dirty_ns; /* CLOCK_REALTIME */
	char dirty_command[16];
};
/* A flag of stat and list: fill in the holders, for the buffer's owner and administrators. */
#define GPUSHM_HOLDERS (1u << 0)

/* One buffer; timeout_ms as for gpushm_open(). Free *ret with gpushm_stat_free(*ret, 1). Asks the
 * daemon. */
int gpushm_stat(struct gpushm *c, const char *name, uint64_t timeout_ms, uint32_t flags,
		struct gpushm_stat **ret);
/* All buffers that this user may see and whose names start with prefix (NULL: all). *ret is an
 * array of *ret_n. Asks the daemon, once for some 500; a buffer made meanwhile may be missing. */
int gpushm_list(struct gpushm *c, const char *prefix, uint32_t flags, struct gpushm_stat **ret,
		size_t *ret_n);
/* NULL is allowed. Returns NULL. */
struct gpushm_stat *gpushm_stat_free(struct gpushm_stat *stats, size_t n);

struct gpushm_pool {
	char name[64];
	enum gpushm_kind kind;
	unsigned char device_uuid[16];
	char device_name[64], pci_id[16];
	int device;    /* this process's CUDA ordinal; -1: no GPU, or one it can't see */
	int numa_node; /* -1: none */
	uint64_t bytes, used_bytes, pending_bytes, suspect_bytes, max_buffer_bytes, granularity;
	uint32_t buffers, pending;
	int failed, is_default, allowed;
	char why[256]; /* of a failed pool */
};
/* The pools of the kinds that this library knows. *ret is an array of *ret_n; free() it. Asks the
 * daemon, and may start the driver. */
int gpushm_pools(struct gpushm *c, struct gpushm_pool **ret, size_t *ret_n);

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

struct gpushm_usage {
	uid_t uid;
	uint64_t bytes, bytes_max;
	uint32_t buffers, buffers_max, leases, leases_max, peers, peers_max;
};

/* How many requests were refused with a code, a word as gpushm_error_code() has it. */
struct gpushm_refusal {
	const char *code; /* static */
	uint64_t count;
};

struct gpushm_status {
	char software[64];
	unsigned char daemon[16];
	pid_t pid;
	uint64_t uptime_ms;
	uint32_t peers, buffers, leases, suspects, waiting;
	uint64_t requests, refused, violations;
	uint32_t fds, fds_max;
	struct gpushm_usage *usage; /* this user's; every user's for an administrator */
	size_t n_usage;
	uint32_t pools_failed; /* gpushm_pools() says which and why */
	/* By cause, over restarts of the daemon. */
	struct gpushm_refusal *refusals;
	size_t n_refusals;
	/* Of host memory and tables that were freed: processes still have them open or mapped, and
	 * they count for their owners. */
	uint32_t retained;
	uint64_t retained_bytes;
	int kept; /* published buffers survive the daemon's death: systemd or its keeper keeps them
		   */
};
/* What the daemon counts. Free *ret with gpushm_status_free(). Asks the daemon. */
int gpushm_status(struct gpushm *c, struct gpushm_status **ret);
/* NULL is allowed. Returns NULL. */
struct gpushm_status *gpushm_status_free(struct gpushm_status *s);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
