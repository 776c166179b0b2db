/* SPDX-License-Identifier: MIT
 *
 * libgpushm: shm_open for GPUs. Named arrays in GPU and host memory, shared between processes.
 *
 * A daemon, gpushmd, owns the memory; this library asks it for buffers by name, maps them into
 * the calling process and gives out typed, strided arrays in them. Link with -lgpushm
 * (pkg-config gpushm). libcuda is looked for at run time, and needed for GPU and pinned pools only.
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
 * Errors. A function that returns int returns 0, or a negative errno, and then gpushm_error() says
 *in words what happened, to which name, and what to do. Results are written on success only. The
 *library never logs, installs no signal handler and never exits.
 *
 * Threads. All functions may be called from any thread; a connection handles one request at a time,
 *so threads that wait for a name (timeouts) want a connection each. An array is immutable but for
 *its memory.
 *
 * Fork. A connection, buffer or array made before fork() is the parent's: in the child every
 * function that is given one returns -ECHILD. Connect anew in the child. CUDA itself does not
 *survive a fork.
 *
 * Blocking. gpushm_connect, and functions that are said to "ask the daemon", make a round trip of
 *some 10 us; a daemon that they are connected to is waited for without a limit. When it dies, and
 *systemd keeps what is published, they connect to its successor and go on; else they return
 *-ECONNRESET. Connecting is given up after $GPUSHM_RECONNECT_MS (10,000), also where there is a
 *socket and nobody who answers. No function waits for the GPU unless it says so.
 *
 * GPU context. Functions that need CUDA use the calling thread's current context, if it is of the
 *wanted device, else the device's primary context, and leave the thread's current context as it
 *was.
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
#define GPUSHM_VERSION_MINOR 1
#define GPUSHM_VERSION_PATCH 0

#define GPUSHM_MAX_NDIM 32
#define GPUSHM_MAX_NAME 255	       /* bytes of a buffer's, array's or attribute's name */
#define GPUSHM_WAIT_FOREVER UINT64_MAX /* as a timeout, in ms */
#define GPUSHM_OWN_DEVICE (-1)	       /* map for the GPU that the memory is on */

struct gpushm;	      /* a connection to the daemon */
struct gpushm_buffer; /* a buffer as this process has it: a lease and a mapping */
struct gpushm_array;  /* an array in a buffer, or a view of one */
struct gpushm_watch;  /* names and buffers whose changes are waited for */

enum gpushm_kind { GPUSHM_HOST = 1, GPUSHM_PINNED = 2, GPUSHM_VMM = 3, GPUSHM_MEMPOOL = 4 };
enum gpushm_state { GPUSHM_FILLING = 1, GPUSHM_SEALED = 2, GPUSHM_SHARED = 3 };
enum gpushm_access { GPUSHM_READ = 1, GPUSHM_WRITE = 2 };

/* ------------------------------------------------------------------ errors */

/* What the last function that failed in this thread has to say; "" if none has. Valid until
 * the thread's next call of a gpushm function. Never NULL. */
const char *gpushm_error(void);

/* The daemon's code for that error as a word ("NOT_FOUND", "POOL_FULL", ...; gpushm-protocol(7)
 * lists them), or "" where the library itself found it. Never NULL. */
const char *gpushm_error_code(void);

/* "0.1.0", of the library that is loaded. */
const char *gpushm_version(void);

/* -------------------------------------------------------------- connection */

/* Connects to the daemon at socket_path; NULL means $GPUSHM_SOCKET, else /run/gpushm/gpushmd.sock,
 * else $XDG_RUNTIME_DIR/gpushm/gpushmd.sock: the first that is set or exists. The daemon must run
 * as root, as the caller's own user or as user "gpushm", or it is not trusted. Errors: -ENOENT,
 * -ECONNREFUSED (no daemon; or, after $GPUSHM_RECONNECT_MS and not less than a second, one that
 * does not answer: stopped, or not started by the systemd that has its socket), -EACCES,
 * -EPROTONOSUPPORT (no common version), -EPERM (the server is not trusted), -ENAMETOOLONG, -ENOMEM.
 */
int gpushm_connect(const char *socket_path, struct gpushm **ret);

/* Gives up the caller's hold on the connection. It really closes when the last buffer that was
 * opened through it has been closed. NULL is allowed. Returns NULL. */
struct gpushm *gpushm_disconnect(struct gpushm *c);

/* The connection's socket, for poll(): readable or hung up without a request under way means that
 * the daemon has gone; the next request comes back to it, or fails. Not to be read, written or
 * closed. */
int gpushm_fd(const struct gpushm *c);

/* ------------------------------------------------------------------- dtypes */

/* A type of element: DLPack's DLDataType (code, bits, lanes), or a record of itemsize bytes (code
 * 255). */
struct gpushm_dtype {
	uint8_t code;
	uint8_t bits;
	uint16_t lanes;
	uint32_t itemsize; /* records; else 0 */
};

/* From a name: bool, int8 to int64, uint8 to uint64, float16, float32, float64, bfloat16,
 * complex64, complex128, float8_e4m3fn and the other float8, float6 and float4 types of DLPack 1.1,
 * record40 (a record of 40 bytes); or a NumPy typestr ("<f4"). 0 or -EINVAL. */
int gpushm_dtype_parse(const char *name, struct gpushm_dtype *ret);

/* To a name; at most 32 bytes with the NUL. 0 or -EINVAL for no valid type. */
int gpushm_dtype_format(struct gpushm_dtype t, char *buf, size_t size);

/* To NumPy's typestr. 0; -ENOTSUP where NumPy has none (float8, float6, float4). bfloat16 is "<V2".
 */
int gpushm_dtype_typestr(struct gpushm_dtype t, char *buf, size_t size);

/* Bits of one element; 0 for no valid type. */
uint64_t gpushm_dtype_bits(struct gpushm_dtype t);

/* ------------------------------------------------- creating and publishing */

struct gpushm_attr {
	const char *key;
	const void *value;
	size_t size; /* bytes */
};

/* Options of create and open; NULL, or zeroed and struct_size set, means the defaults. */
struct gpushm_options {
	size_t struct_size; /* sizeof(struct gpushm_options) */
	const char *pool;   /* create: NULL is the daemon's default */
	mode_t mode;	    /* create: 0 is 0600 */
	gid_t gid;	    /* create: with GPUSHM_SET_GID in flags */
	uint32_t flags;	    /* GPUSHM_TRANSIENT, ... */
	int device; /* map for the GPU device_ordinal, with GPUSHM_SET_DEVICE; it must have peer
		       access */
	const struct gpushm_attr *attrs; /* create: small user attributes, 4,096 bytes in all */
	size_t n_attrs;
	uint64_t wait_ms; /* create: how long to wait for room where the pool or its device is full
			   */
};
#define GPUSHM_TRANSIENT (1u << 0) /* create: unlinked when its last lease ends */
#define GPUSHM_SET_GID (1u << 1)
#define GPUSHM_SET_DEVICE (1u << 2)
#define GPUSHM_REFUSE_DIRTY \
	(1u << 3) /* open: a dirty buffer is refused, or waited for until it is clean */

/* One array to be: what describe and layout are given. */
struct gpushm_array_spec {
	const char *name; /* "" is the buffer's own array */
	struct gpushm_dtype dtype;
	const char *descr;	/* records: NumPy's descr as text; else NULL */
	int ndim;		/* 0 to GPUSHM_MAX_NDIM */
	const int64_t *shape;	/* elements; ndim of them, none negative */
	const int64_t *strides; /* bytes; NULL is C order */
	uint64_t offset;	/* bytes from the buffer's start to element [0, 0, ...] */
};

/* Places C-order arrays one behind the other, each on a multiple of 256 bytes: writes each spec's
 * offset, and the size that a buffer for them must have. Asks nobody. 0; -EINVAL (dtype, ndim,
 * shape); -EOVERFLOW. */
int gpushm_layout(struct gpushm_array_spec *specs, size_t n, uint64_t *ret_bytes);

/* Creates a buffer of `bytes` bytes and maps it for writing. Until it is published nobody else can
 * open it, and if this process dies first it vanishes. Its contents are zero, or what this user had
 * in an earlier buffer that was freed. Asks the daemon, which may wait for the driver. Errors:
 * -EEXIST (name taken), -EINVAL (name, size 0, mode), -ENOENT (no such pool), -EACCES (pool not
 * allowed, or a foreign group), -EDQUOT (a limit of this user), -ENOSPC (pool full, and still so
 * after options' wait_ms; gpushm_error() says who holds the most of it), -EFBIG (too
 * large for this pool; mempool: above 4 GiB), -ENODEV (the pool's device failed, or this process
 * can't use it), -EMFILE (this process may open no more files), -EIO (driver). */
int gpushm_create(struct gpushm *c, const char *name, uint64_t bytes,
		  const struct gpushm_options *options, struct gpushm_buffer **ret);

/* Creates a buffer for exactly these arrays: layout, create and describe in one. specs' offsets are
 * written. */
int gpushm_create_arrays(struct gpushm *c, const char *name, struct gpushm_array_spec *specs,
			 size_t n, const struct gpushm_options *options,
			 struct gpushm_buffer **ret);

/* Adds arrays to a buffer that is being filled. Asks the daemon, once for each batch that fits a
 * message. If it fails, the arrays of earlier batches stay and gpushm_error() says which array was
 * wrong. Errors: -ERANGE (does not fit, or a product overflows), -EINVAL (dtype, name, shape),
 * -EEXIST (name twice), -EDQUOT (too many), -EBUSY (published already). */
int gpushm_describe(struct gpushm_buffer *b, const struct gpushm_array_spec *specs, size_t n);

/* Lets others open the buffer: GPUSHM_SEALED, never written again (this process keeps it read-only
 * from now on, and so must whoever still holds a pointer), or GPUSHM_SHARED. Waits for the GPU work
 * of the current context, then asks the daemon. -EBUSY if it was published before. */
int gpushm_publish(struct gpushm_buffer *b, enum gpushm_state state);

/* ------------------------------------------------------- opening and closing */

/* Attaches to a published buffer. timeout_ms: how long to wait for the name to be published; 0
 * answers at once. Opening for writing needs a shared buffer. A buffer that this process has open
 * already is mapped once only. A dirty one, that a process held for writing when it died, is opened
 * all the same (gpushm_buffer_dirty()), unless GPUSHM_REFUSE_DIRTY is set. Asks the daemon: one
 * round trip, whatever the number of arrays. Errors: -ENOENT, -EAGAIN (being filled, timeout 0),
 * -ETIMEDOUT, -EACCES, -EROFS (writing to a sealed one), -EUCLEAN (dirty, timeout 0), -EDQUOT,
 * -ENODEV, -EMFILE. */
int gpushm_open(struct gpushm *c, const char *name, enum gpushm_access access, uint64_t timeout_ms,
		const struct gpushm_options *options, struct gpushm_buffer **ret);

/* Waits for the work that this process has queued on the buffer's device, unmaps it and ends the
 * lease. Arrays of the buffer must have been freed: else -EBUSY, gpushm_error() says how many are
 * left, and nothing happens. When the daemon is gone the buffer is freed all the same and 0
 * returned. -EIO: the driver could not unmap it; the buffer is freed, and its lease lasts until
 * this process ends. NULL is allowed. Tells the daemon and waits for no answer; what is asked next
 * through this connection finds the lease ended. Within gpushm_defer_cleanup() all of that waits;
 * see below. */
int gpushm_close(struct gpushm_buffer *b);

/* Frees the name at once; the memory goes when the last lease ends. For the owner and admins. Asks
 * the daemon. Errors: -ENOENT, -EACCES. */
int gpushm_unlink(struct gpushm *c, const char *name);

/* Says that a dirty buffer's contents are good again, and wakes those who wait for that. For the
 * owner and admins. A buffer that is not dirty stays as it is. Asks the daemon. Errors: -ENOENT,
 * -EACCES. */
int gpushm_clean(struct gpushm *c, const char *name);

/* Waits until the name is published, without attaching. Errors as for gpushm_open. */
int gpushm_wait(struct gpushm *c, const char *name, uint64_t timeout_ms);

uint64_t gpushm_buffer_id(const struct gpushm_buffer *b); /* never reused */
uint64_t gpushm_buffer_bytes(const struct gpushm_buffer *b);
uint64_t gpushm_buffer_digest(
	const struct gpushm_buffer *b); /* of the layout: equal layouts, equal digests */
enum gpushm_state gpushm_buffer_state(const struct gpushm_buffer *b); /* as it is now */
enum gpushm_access gpushm_buffer_access(const struct gpushm_buffer *b);
enum gpushm_kind gpushm_buffer_kind(const struct gpushm_buffer *b);
const char *gpushm_buffer_pool(const struct gpushm_buffer *b); /* its pool's name */
/* 1: the daemon does not know this lease any more: it was started anew without it, or the memory
 * was lost with its GPU. What is mapped stays mapped, but nobody keeps it for this process. */
int gpushm_buffer_lost(const struct gpushm_buffer *b);
/* 1: a writer died while it held it, and nobody has said that it is clean again. As it is now. */
int gpushm_buffer_dirty(const struct gpushm_buffer *b);
const char *gpushm_buffer_name(const struct gpushm_buffer *b); /* as it was asked for */
int gpushm_buffer_device(
	const struct gpushm_buffer *b); /* this process's CUDA ordinal; -1 for host and pinned */

/* The start of the memory. Device: a CUdeviceptr, NULL for host pools unless registered. Host: NULL
 * for pools on a GPU. A pinned buffer has both, with the same value. */
void *gpushm_buffer_device_ptr(const struct gpushm_buffer *b);
void *gpushm_buffer_host_ptr(const struct gpushm_buffer *b);

/* A user attribute. *ret_value is borrowed from the buffer and not terminated. 0 or -ENOENT. */
int gpushm_buffer_attr(const struct gpushm_buffer *b, const char *key, const void **ret_value,
		       size_t *ret_size);

/* ---------------------------------------------------------------- notices */

/* What has happened to a buffer is told without a call: in a word that this process shares with the
 * daemon, for reading only. Its low byte are these flags, the other bits change with each change,
 * also where the flags are in the end what they were, and whenever a daemon begins anew. */
#define GPUSHM_NOTICE_SEALED (1u << 0)
#define GPUSHM_NOTICE_SHARED (1u << 1)
#define GPUSHM_NOTICE_DIRTY (1u << 2)
#define GPUSHM_NOTICE_UNLINKED (1u << 3) /* its name is free, or another buffer's */
#define GPUSHM_NOTICE_GONE                                                                       \
	(1u << 4) /* the daemon has it no more, its lease has ended; what is mapped stays. Final \
		   */

/* The word as it is now; one read of memory. Where the daemon has none for this buffer, the flags
 * as they were told last. */
uint32_t gpushm_buffer_notice(const struct gpushm_buffer *b);

/* Waits until the word is not `seen`, as gpushm_buffer_notice() told it, and writes what it is
 * then. No request is made and no lock is taken while it waits, so any number of threads may, on
 * one connection. When the daemon dies, its successor wakes all who wait. Errors: -ETIMEDOUT;
 * -EIDRM (seen has GPUSHM_NOTICE_GONE: nothing will change any more); -ECONNRESET (the daemon has
 * gone, and does not come back; noticed within about a second); -ENOTSUP (the daemon has no word
 * for it). */
int gpushm_buffer_wait(struct gpushm_buffer *b, uint32_t seen, uint64_t timeout_ms,
		       uint32_t *ret_notice);

/* A watch tells of changes of many names and buffers, by an fd for poll() and event loops. It has a
 * connection of its own, so that its waiting is in nobody's way.
 *
 *	gpushm_watch_new(c, &w);
 *	gpushm_watch_name(w, "model/weights");
 *	while (poll(&(struct pollfd){ gpushm_watch_fd(w), POLLIN }, 1, -1) > 0)
 *		while (gpushm_watch_next(w, 0, &event) == 0)
 *			...
 *	gpushm_watch_free(w);
 *
 * An event is a difference from what was told last: what came and went in between is not told. */
enum gpushm_event_kind {
	GPUSHM_EVENT_PUBLISHED = 1, /* the name means a buffer that is published, or another one */
	GPUSHM_EVENT_DIRTY = 2,
	GPUSHM_EVENT_CLEAN = 3,
	GPUSHM_EVENT_UNLINKED = 4,  /* the name does not mean that buffer any more */
	GPUSHM_EVENT_GONE = 5,	    /* a watched buffer is no more; nothing is told of it again */
	GPUSHM_EVENT_RESTARTED = 6, /* the daemon was started anew; what it lost is told next */
};

struct gpushm_event {
	enum gpushm_event_kind what;
	uint64_t buffer;		/* its id; 0 for RESTARTED */
	char name[GPUSHM_MAX_NAME + 1]; /* as it was given; "" for RESTARTED */
};

/* A watch of nothing, with a connection to the daemon that c is connected to; c may be disconnected
 * before it. Errors as gpushm_connect(). */
int gpushm_watch_new(struct gpushm *c, struct gpushm_watch **ret);

/* Watches a name, which need not be there yet; where it is published, that is the first event. To
 * who may not look at a buffer (gpushm_stat()) it is not there. Or watches a buffer, whatever its
 * name: first told is what changes after this call; the buffer may be closed meanwhile, and is then
 * told of as to who does not have it. Neither blocks, and both wake a gpushm_watch_next(). At
 * most 256 of both together, with names of some 59,000 bytes: else -ENOSPC. -EINVAL (name). */
int gpushm_watch_name(struct gpushm_watch *w, const char *name);
int gpushm_watch_buffer(struct gpushm_watch *w, const struct gpushm_buffer *b);

/* Readable when gpushm_watch_next() has something to do, which may not be an event yet. It stays
 * the same; not to be read, written or closed. */
int gpushm_watch_fd(const struct gpushm_watch *w);

/* The next event; waits for it, 0 does not. It connects again by itself when the daemon comes back,
 * whether it has kept what it had or not. Errors: -ETIMEDOUT; -ECONNRESET (the daemon has been gone
 * for $GPUSHM_RECONNECT_MS; a later call goes on trying); -EACCES (another user's private name). */
int gpushm_watch_next(struct gpushm_watch *w, uint64_t timeout_ms, struct gpushm_event *ret);

struct gpushm_watch *gpushm_watch_free(struct gpushm_watch *w); /* NULL is allowed; returns NULL */

/* ------------------------------------------------------- cleanup that waits */

/* Closing a buffer on a GPU waits for all work of that GPU, which is the last thing that a hot
 * section wants. Between gpushm_defer_cleanup() and gpushm_resume_cleanup() a close only puts the
 * buffer on a list of this process: no call of the driver, no request. Sections nest, are counted
 * for the whole process and may be left by another thread than entered them. Buffers of host pools
 * are always closed at once.
 *
 *	gpushm_defer_cleanup();
 *	for (...) {
 *		gpushm_open(..., &b); launch(b); gpushm_close(b);
 *	}
 *	gpushm_resume_cleanup();
 *	gpushm_flush_cleanup();
 *
 * A buffer on the list is closed for its user, but keeps its lease, its mapping and, if it was
 * being filled, its name. What is on the list is done, oldest first:
 *  - by gpushm_flush_cleanup(), outside of sections;
 *  - by a gpushm_close(), outside of sections, that exceeds a limit: more than max_count buffers on
 *    all GPUs together, or more bytes on its GPU than max_ratio of that GPU's memory. The one that
 *    exceeds it is done with the others. Leaving a section does nothing by itself;
 *  - by gpushm_disconnect(), what was opened through that connection;
 *  - when a create or an open finds no room: a full pool, a limit of this user, or a mapping for
 *    which there is no memory. Then all is done, in the midst of a section too, and the call tries
 *    once more.
 * One that fails does not stop the others; the first error is returned, and is gpushm_error()'s.
 *
 * The rule and its strictness are those of Numba's defer_cleanup() and its limits, and so is
 * max_ratio, 0.2. Two things differ. max_count is 0 and not 10: a close outside of a section closes
 * at once, and takes along what a section has left. A lease that lives on after its close keeps
 * memory from others, counts against its user and shows up in gpushmctl ls; who wants that says so.
 * And where no room is left a section does not hold: the call would fail instead. */
int gpushm_defer_cleanup(void);	 /* 0, -ENOMEM */
int gpushm_resume_cleanup(void); /* 0; -EINVAL without a section */

/* Does what is on the list. 0; -EBUSY within a section, and nothing is done; else as
 * gpushm_close(). */
int gpushm_flush_cleanup(void);

/* The limits of this process, 0 to 1 for the ratio (-EINVAL); in force from the next close. Without
 * a call they are GPUSHM_MAX_PENDING_UNMAPS_COUNT and GPUSHM_MAX_PENDING_UNMAPS_RATIO of the
 * environment, as they are at the first close; what is no such number there is as if it were not
 * set. A forked child starts with those again, with no section and an empty list. */
int gpushm_set_cleanup_limits(unsigned max_count, double max_ratio);

/* How many buffers are on the list, and, unless it is NULL, their bytes. */
size_t gpushm_pending_cleanup(uint64_t *ret_bytes);

/* ------------------------------------------------------------------- arrays */

/* The array of that name; "" is the buffer's own. Each array and view counts as a use of its
 * buffer. 0, -ENOENT, -ENOMEM. Asks nobody; O(1). */
int gpushm_array_get(struct gpushm_buffer *b, const char *name, struct gpushm_array **ret);

/* By position, in the order in which they were described. 0, -ENOENT, -ENOMEM. */
int gpushm_array_at(struct gpushm_buffer *b, size_t index, struct gpushm_array **ret);
size_t gpushm_buffer_arrays(const struct gpushm_buffer *b);

/* A typed view over the buffer's bytes that was never described: checked like one that was.
 * -ERANGE, -EINVAL. spec->name is not used. */
int gpushm_array_over(struct gpushm_buffer *b, const struct gpushm_array_spec *spec,
		      struct gpushm_array **ret);

struct gpushm_array *gpushm_array_free(struct gpushm_array *a); /* NULL is allowed; returns NULL */

struct gpushm_buffer *gpushm_array_buffer(const struct gpushm_array *a);
const char *gpushm_array_name(
	const struct gpushm_array *a); /* terminated; a view's is its origin's */
struct gpushm_dtype gpushm_array_dtype(const struct gpushm_array *a);
const char *gpushm_array_descr(const struct gpushm_array *a); /* records; else NULL */
int gpushm_array_ndim(const struct gpushm_array *a);
int64_t gpushm_array_dim(const struct gpushm_array *a,
			 int axis);				 /* elements; -1 for no such axis */
const int64_t *gpushm_array_shape(const struct gpushm_array *a); /* elements */
const int64_t *gpushm_array_strides(
	const struct gpushm_array *a); /* bytes; 0 for types narrower than a byte */
int64_t gpushm_array_size(const struct gpushm_array *a); /* elements */
uint64_t gpushm_array_nbytes(
	const struct gpushm_array *a); /* size * itemsize, packed types rounded up */
uint64_t gpushm_array_offset(const struct gpushm_array *a); /* bytes from the buffer's start */
int gpushm_array_read_only(const struct gpushm_array *a);
void *gpushm_array_device_ptr(
	const struct gpushm_array *a); /* of element [0, 0, ...]; as for buffers */
void *gpushm_array_host_ptr(const struct gpushm_array *a);
int gpushm_array_is_c_contiguous(
	const struct gpushm_array *a); /* NumPy's rule: axes of length 1 do not count */
int gpushm_array_is_f_contiguous(const struct gpushm_array *a);

/* ---- views: they share memory, and live on their own. Types narrower than a byte allow reshape
 * and ravel only (-ENOTSUP). ---- */

#define GPUSHM_SLICE_NONE INT64_MIN /* as start or stop: to the end, whichever the step's sign */

/* a[start:stop:step] along one axis, with Python's rules: negative positions count from the end,
 * positions beyond it are cut, step is not 0 (-EINVAL). */
int gpushm_array_slice(const struct gpushm_array *a, int axis, int64_t start, int64_t stop,
		       int64_t step, struct gpushm_array **ret);
/* a[index] along one axis, which goes. -ERANGE outside. */
int gpushm_array_index(const struct gpushm_array *a, int axis, int64_t index,
		       struct gpushm_array **ret);
/* order 'C' or 'F'; one dimension may be -1. -EINVAL where the sizes differ; -ENOTSUP where it
 * would need a copy (Numba: "reshape would require a copy"). */
int gpushm_array_reshape(const struct gpushm_array *a, char order, int ndim, const int64_t *shape,
			 struct gpushm_array **ret);
int gpushm_array_ravel(const struct gpushm_array *a, char order, struct gpushm_array **ret);
/* axes NULL reverses them; else a permutation of 0 to ndim - 1. */
int gpushm_array_transpose(const struct gpushm_array *a, const int *axes,
			   struct gpushm_array **ret);
/* Parts of `section` elements of a one-dimensional array, the last may be shorter, as Numba's
 * split(): how many there are, and the i-th. */
int64_t gpushm_array_split_count(const struct gpushm_array *a, int64_t section);
int gpushm_array_split(const struct gpushm_array *a, int64_t section, int64_t i,
		       struct gpushm_array **ret);
/* Another dtype over the same bytes, NumPy's rule: the last axis is rescaled and must be contiguous
 * if the item sizes differ. */
int gpushm_array_view(const struct gpushm_array *a, struct gpushm_dtype dtype,
		      struct gpushm_array **ret);
/* The same array once more: another reference. */
int gpushm_array_dup(const struct gpushm_array *a, struct gpushm_array **ret);

/* ---- copies ---- */

/* Between an array and host memory of the same shape and dtype. host_strides in bytes, NULL is C
 * order; any strides on either side. Where elements share memory, the last in C order wins; bytes
 * between elements are never written. Without _async: on return the copy is done. _async: queued on
 * `stream` (a CUstream; NULL is the legacy default stream); host memory must stay until the stream
 * has passed it. Such calls block only where the driver does, for pageable memory, and where short
 * rows or negative strides take a way through a buffer of the library's; on host pools the copy is
 * done on return. -EROFS for a copy into a read-only array, -EINVAL (host_strides), -ENOMEM,
 * -ENODEV, -EIO. */
int gpushm_copy_to_host(const struct gpushm_array *a, void *host, const int64_t *host_strides);
int gpushm_copy_from_host(struct gpushm_array *a, const void *host, const int64_t *host_strides);
int gpushm_copy_to_host_async(const struct gpushm_array *a, void *host, const int64_t *host_strides,
			      void *stream);
int gpushm_copy_from_host_async(struct gpushm_array *a, const void *host,
				const int64_t *host_strides, void *stream);

/* Bytes of a buffer, whatever arrays are in it; done on return. -ERANGE outside it. */
int gpushm_read(const struct gpushm_buffer *b, uint64_t offset, void *host, uint64_t bytes);
int gpushm_write(struct gpushm_buffer *b, uint64_t offset, const void *host, uint64_t bytes);

/* ---- DLPack (dmlc/dlpack v1.1) ---- */

/* The array as a DLManagedTensorVersioned * or, legacy, a DLManagedTensor *, of dlpack.h. Strides
 * are always filled, in elements; the device id is this process's; byte_offset is 0. The struct is
 * the caller's and counts as an array of the buffer until its deleter is called, from any thread. A
 * read-only array sets DLPACK_FLAG_BITMASK_READ_ONLY, and has no legacy form (-EROFS). -ENOTSUP: a
 * record, or strides that are no multiple of the item size. Waits for nothing. */
int gpushm_array_to_dlpack(const struct gpushm_array *a, void **ret_managed_tensor_versioned);
int gpushm_array_to_dlpack_legacy(const struct gpushm_array *a, void **ret_managed_tensor);

/* DLPack's device of the array: kDLCPU 1, kDLCUDA 2, kDLCUDAHost 3, and its id in this process. */
void gpushm_array_dlpack_device(const struct gpushm_array *a, int *ret_type, int *ret_id);

/* -------------------------------------------------------------- looking around */

struct gpushm_holder {
	uint64_t lease;
	pid_t pid;
	uid_t uid;
	enum gpushm_access access;
	int suspect;	   /* its socket has closed and its process lives on */
	uint64_t since_ns; /* CLOCK_REALTIME */
	char command[16];
};

struct gpushm_stat {
	uint64_t id;
	char name[GPUSHM_MAX_NAME +
		  33]; /* "" for an unlinked one; "~1001/x" needs more than the name */
	char pool[64];
	enum gpushm_kind kind; /* 0: one that this library does not know */
	enum gpushm_state state;
	uint64_t bytes, allocated_bytes;
	uid_t uid;
	gid_t gid;
	mode_t mode;
	int transient, dirty;
	uint64_t created_ns,
		published_ns; /* CLOCK_REALTIME; published_ns is 0 while it is being filled */
	uint32_t arrays;
	uint64_t digest;
	uint32_t readers, writers, suspects;
	struct gpushm_holder *holders; /* where asked for */
	size_t n_holders;
	struct gpushm_attr *attrs; /* gpushm_stat() only */
	size_t n_attrs;
	pid_t dirty_pid; /* where dirty: the process that died while it held it for writing */
	uid_t dirty_uid;
	uint64_t dirty_ns; /* CLOCK_REALTIME */
	char dirty_command[16];
};
#define GPUSHM_HOLDERS \
	(1u << 0) /* flag of stat and list: tell who holds each; to its owner and admins */

/* One buffer; timeout_ms as in gpushm_open. *ret is freed with gpushm_stat_free(). Asks the daemon.
 */
int gpushm_stat(struct gpushm *c, const char *name, uint64_t timeout_ms, uint32_t flags,
		struct gpushm_stat **ret);
/* All buffers that this user may see whose names start with prefix (NULL: all); *ret is an array.
 * Asks the daemon, once for some 500 buffers; what is created meanwhile may be there or not. */
int gpushm_list(struct gpushm *c, const char *prefix, uint32_t flags, struct gpushm_stat **ret,
		size_t *ret_n);
struct gpushm_stat *gpushm_stat_free(struct gpushm_stat *stats, size_t n);

struct gpushm_pool {
	char name[64];
	enum gpushm_kind kind;
	unsigned char device_uuid[16];
	char device_name[64], pci_id[16];
	int device;    /* this process's CUDA ordinal, -1 if it can't see it or there is none */
	int numa_node; /* -1: none */
	uint64_t bytes, used_bytes, pending_bytes, suspect_bytes, max_buffer_bytes, granularity;
	uint32_t buffers, pending;
	int failed, is_default, allowed;
	char why[256]; /* of a failed one */
};
int gpushm_pools(struct gpushm *c, struct gpushm_pool **ret, size_t *ret_n); /* free() it */

/* Gives back to driver or kernel what was freed and waits in a pool for reuse, or, for NULL, in
 * every pool that this user may create in; on return it has been. Asks the daemon, which waits for
 * the driver. Errors: -ENOENT, -EACCES, -ENODEV (a driver call does not return: gpushm_error()
 * names the pools that will give theirs back when it does; the others have). */
int gpushm_flush(struct gpushm *c, const char *pool);

/* Has the daemon's program, or the one that an update has put in its place, take over in the same
 * process; returns when the successor answers. Published buffers, leases and charges stay; what is
 * being filled is lost, as at a crash. Administrators only. Errors: -EACCES; -ENOEXEC where the
 * program can't take over: the daemon goes on as it was; -ECONNRESET where none is there. */
int gpushm_restart(struct gpushm *c);

struct gpushm_usage {
	uid_t uid;
	uint64_t bytes, bytes_max;
	uint32_t buffers, buffers_max, leases, leases_max, peers, peers_max;
};

struct gpushm_status {
	char software[64];
	unsigned char daemon[16];
	pid_t pid;
	uint64_t uptime_ms;
	uint32_t peers, buffers, leases, suspects, waiting;
	uint64_t requests, refused, violations;
	uint32_t fds, fds_max;
	struct gpushm_usage *usage; /* this user's; every user's for an admin */
	size_t n_usage;
	uint32_t pools_failed; /* gpushm_pools() tells which and why */
};
int gpushm_status(struct gpushm *c, struct gpushm_status **ret);
struct gpushm_status *gpushm_status_free(struct gpushm_status *s);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
