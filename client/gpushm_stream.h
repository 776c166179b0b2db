/* SPDX-License-Identifier: MIT
 *
 * Streams: frames from one process to others, in the order of the GPUs. gpushm-streams(7) has the
 * picture. Errors, ownership, threads and fork are as gpushm.h says.
 *
 * A stream is a shared buffer of equal slots. Its producer takes a slot, fills it and publishes it
 * as a frame; up to 64 readers take frames and release them. No call for a frame asks the daemon,
 * and none makes a system call unless somebody sleeps.
 *
 *	producer:
 *	gpushm_stream_create(c, "cam/0", &spec, NULL, &s);
 *	gpushm_frame_begin(s, cuda_stream, 1000, &f);
 *	gpushm_frame_array(f, "rgb", &a);
 *	fill<<<..., cuda_stream>>>(gpushm_array_device_ptr(a));
 *	gpushm_frame_publish(f, cuda_stream, &pts, sizeof(pts));
 *
 *	reader:
 *	gpushm_stream_open(c, "cam/0", GPUSHM_LATEST, 1, 5000, NULL, &s);
 *	gpushm_frame_next(s, cuda_stream, 1000, &f);
 *	gpushm_frame_array(f, "rgb", &a);
 *	infer<<<..., cuda_stream>>>(gpushm_array_device_ptr(a));
 *	gpushm_frame_release(f, cuda_stream);
 *
 * Order. A function that takes a `cuda_stream` orders the frame's memory behind and before what is
 * queued on that CUstream, and does not wait on the host for any GPU: the reader's kernel above
 * begins when the producer's has ended. NULL is the legacy default stream of the thread's context,
 * or of the stream's GPU. With GPUSHM_ON_HOST the calling thread takes the stream's part: begin and
 * next return when the CPU may use the memory, publish and release wait for the work that this
 * process has queued on the GPUs. Streams in a host pool take GPUSHM_ON_HOST and NULL, which mean
 * the same there.
 *
 * Threads. One thread at a time may call begin() and publish() of a producer, or next() of a
 * reader. Any thread may release a frame.
 *
 * Spinning. A wait looks all the time for 5 us, and then sleeps; waking takes 10 to 100 us more.
 * With spin_us of the spec or the options, up to 1,000,000, it looks for as long as that, once for
 * each frame or slot: less delay for more of a processor. If frames come at a steady pace, next()
 * first sleeps until one is almost due. gpushm-streams(7) says how much to take.
 *
 * Blocking. begin() asks the daemon, once, when a reader has joined since the last call. If the
 * daemon is not there, or another thread waits for a name on the same connection, begin() waits for
 * that no longer than its timeout, or 3 ms. A daemon that is there and stopped (SIGSTOP), or dies
 * of the request, is waited for as by any other function that asks it. Frames flow also while there
 * is no daemon; but no reader can join then, and what a reader that dies holds stays in the way
 * until the next daemon finds its death. A process that waits for a frame or slot longer than
 * $GPUSHM_RECONNECT_MS while there is no daemon, in one call or in several, gets -ECONNRESET; the
 * next call waits again.
 */
#ifndef GPUSHM_STREAM_H
#define GPUSHM_STREAM_H

#include <gpushm_array.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct gpushm_stream; /* a stream as this process has it: as its producer, or as one reader */
struct gpushm_frame;  /* a slot that the producer fills, or a frame that a reader holds */

#define GPUSHM_ON_HOST ((void *)UINTPTR_MAX) /* as a cuda_stream: the calling thread */
#define GPUSHM_META_MAX 64		     /* bytes of the user's own with each frame */

/* How a reader follows a stream. */
enum gpushm_follow {
	GPUSHM_EVERY = 1,  /* each frame; the producer waits for this reader when no slot is left */
	GPUSHM_LATEST = 2, /* the newest frame; the producer never waits for this reader, if it has
			      2 slots and one more for each frame that such readers hold */
	GPUSHM_SHARE = 3   /* each frame goes to one of all readers that follow in this way */
};

/* What happens to the frames that a `share` reader held when it died. */
enum gpushm_delivery {
	GPUSHM_AT_LEAST_ONCE = 1, /* another one gets them, also if they were almost done */
	GPUSHM_AT_MOST_ONCE = 2	  /* they are counted as lost */
};

/* ----------------------------------------------------------- the producer's */

/* What a stream is. All but arrays may be 0, which is the default. */
struct gpushm_stream_spec {
	size_t struct_size;			/* sizeof(struct gpushm_stream_spec) */
	const struct gpushm_array_spec *arrays; /* of one frame; the offsets are not used */
	size_t n_arrays;
	uint32_t slots;		       /* 2 to 4,096; 0: 8 */
	uint32_t readers;	       /* at most; 1 to 64; 0: 8 */
	uint32_t flags;		       /* GPUSHM_ADOPT, ... */
	enum gpushm_delivery delivery; /* 0: GPUSHM_AT_LEAST_ONCE */
	/* How long a reader may hold up the producer until the producer drops it; 0: 10,000 ms;
	 * GPUSHM_WAIT_FOREVER: no limit. */
	uint64_t limit_ms;
	uint64_t spin_us; /* how long a wait of the producer spins; at most 1,000,000 */
};
/* Continue the stream of that name if there is one with these arrays and slots whose producer died;
 * its readers stay, and the sequence goes on. Else create it. */
#define GPUSHM_ADOPT (1u << 9)
/* Frames wait for `share` readers also while there is no such reader. */
#define GPUSHM_KEEP_QUEUE (1u << 10)
/* The stream keeps its name when its producer closes it, and when its last process has gone. */
#define GPUSHM_KEEP_STREAM (1u << 11)

/* Creates a stream and publishes its name. The memory comes from the pool in `options`, whose mode,
 * gid, attrs and wait_ms count, too; it must not be a mempool's, which has no read-only
 * mapping. With GPUSHM_ADOPT it also waits until a producer that still lives has died; all waits
 * together take wait_ms at most. Asks the daemon several times.
 *
 * Errors: those of gpushm_create(); -EEXIST also where GPUSHM_ADOPT finds another kind of buffer,
 * other arrays, or a stream that has ended; -EBUSY: GPUSHM_ADOPT, and the stream's producer lives
 * still; -ENOTSUP: a mempool, elements narrower than a byte, or a GPU whose driver has no 64-bit
 * stream memory operations; -EINVAL (spec). */
int gpushm_stream_create(struct gpushm *c, const char *name, const struct gpushm_stream_spec *spec,
			 const struct gpushm_create_options *options, struct gpushm_stream **ret);

/* Takes a slot to fill. If readers hold all slots, waits until one is free: at most timeout_ms, and
 * at most until the spec's limit_ms is over: then it drops the reader that is in the way, and goes
 * on. A slot that a reader's GPU is still to release is taken at once, and cuda_stream waits for
 * it. One frame at a time is being filled. Asks the daemon only to drop a reader and when one has
 * joined.
 *
 * Errors: -EAGAIN (timeout 0) and -ETIMEDOUT: no slot is free; gpushm_error() names the reader that
 * is in the way; or a reader has joined, and the daemon does not answer; -EALREADY: a frame is
 * being filled; -EBADF: not the producer; -ENOTSUP (a CUDA stream for host memory); -EINVAL: a CUDA
 * stream of another GPU than the memory is mapped for; -EIO (driver); -ECONNRESET (a reader has
 * joined, or the wait was long, and the daemon does not come back). */
int gpushm_frame_begin(struct gpushm_stream *s, void *cuda_stream, uint64_t timeout_ms,
		       struct gpushm_frame **ret);

/* Publishes the frame when the work is done that was queued on cuda_stream, and returns at once.
 * meta: n bytes of the user's own, at most 64; readers get a copy. Frees f, also after an error but
 * -EINVAL (n, or a CUDA stream of another GPU). */
int gpushm_frame_publish(struct gpushm_frame *f, void *cuda_stream, const void *meta, size_t n);

/* Gives the slot back without a frame; of a reader's frame as gpushm_frame_release(). Waits for the
 * work that this process has queued on the GPU. NULL is allowed. Returns NULL. */
struct gpushm_frame *gpushm_frame_cancel(struct gpushm_frame *f);

/* ------------------------------------------------------------- the reader's */

/* Options of gpushm_stream_open(). NULL means the defaults. */
struct gpushm_follow_options {
	size_t struct_size; /* sizeof(struct gpushm_follow_options) */
	uint32_t flags;	    /* GPUSHM_REFUSE_DIRTY, GPUSHM_SET_DEVICE */
	int device;	    /* as in struct gpushm_open_options */
	uint64_t spin_us;   /* how long a wait of the reader spins; at most 1,000,000 */
};

/* Joins a stream. timeout_ms: how long to wait until the name is published. max_held: how many
 * frames this reader may hold at a time; 0 is 1; less than the stream's slots. The memory is mapped
 * for reading. `every` begins with the first frame that is published after this call, `latest` with
 * the newest that there is. Asks the daemon.
 *
 * Errors: those of gpushm_open(); -ENOTSUP: the buffer is no stream, or as for
 * gpushm_stream_create(); -EUSERS: the stream has as many readers as it may have; -EINVAL
 * (max_held). */
int gpushm_stream_open(struct gpushm *c, const char *name, enum gpushm_follow follow,
		       uint32_t max_held, uint64_t timeout_ms,
		       const struct gpushm_follow_options *options, struct gpushm_stream **ret);

/* Takes the next frame: `every` and `share` the first that is not taken, `latest` the newest if it
 * was not taken before. Waits until there is one. The memory may be used on cuda_stream at once;
 * with GPUSHM_ON_HOST also the producer's GPU is waited for.
 *
 * Errors: -EAGAIN (timeout 0), -ETIMEDOUT; -EPIPE: the producer has closed the stream, and there is
 * no more frame; -EOWNERDEAD: the producer died, there is no more frame, and another producer may
 * come (call again to wait for it); -ESTALE: this reader was dropped, because it held up the
 * producer; close the stream and open it again; -ENOBUFS: max_held frames are held; -EBADF: not a
 * reader; -ENOTSUP, -EINVAL, -EIO, -ECONNRESET as above. */
int gpushm_frame_next(struct gpushm_stream *s, void *cuda_stream, uint64_t timeout_ms,
		      struct gpushm_frame **ret);

/* Releases the frame when the work is done that was queued on cuda_stream, and returns at once.
 * Arrays of the frame must not be used by work that is queued later. Frees f. NULL is allowed. An
 * error means that the frame may have been overwritten while it was used: -EPIPE and -ESTALE as
 * gpushm_frame_ok() says; it is released all the same. So it is after -EINVAL, a CUDA stream of
 * another GPU, whose work this waits for. */
int gpushm_frame_release(struct gpushm_frame *f, void *cuda_stream);

/* Whether what was read of the frame so far is what its producer published: ask after the work on
 * it has ended. 0; -EPIPE: the producer died before its GPU had finished the frame; -ESTALE: this
 * reader was dropped and the slot may have been filled anew. No system call. */
int gpushm_frame_ok(const struct gpushm_frame *f);

/* ----------------------------------------------------------------- a frame */

/* An array of the frame: of the spec's shape, without the dimension of the slots. Free it with
 * gpushm_array_free() before the frame is published or released. -ENOENT. */
int gpushm_frame_array(struct gpushm_frame *f, const char *name, struct gpushm_array **ret);

/* From 1; the number that the frame gets or has. */
uint64_t gpushm_frame_seq(const struct gpushm_frame *f);
/* CLOCK_MONOTONIC in ns at the publication; 0 before it. */
uint64_t gpushm_frame_time(const struct gpushm_frame *f);
/* The user's bytes; *ret_n of them. Belongs to the frame. */
const void *gpushm_frame_meta(const struct gpushm_frame *f, size_t *ret_n);
/* Frames that this reader did not get between the frame before and this one. */
uint64_t gpushm_frame_skipped(const struct gpushm_frame *f);
/* The index of its slot. */
uint32_t gpushm_frame_slot(const struct gpushm_frame *f);

/* ---------------------------------------------------------------- a stream */

/* Leaves the stream. A producer's readers get the frames that are published, and then -EPIPE. A
 * frame that is being filled is dropped, and frames that are held are released; a `share` reader's
 * go to another one. Waits for the work that this process has queued on the GPU. NULL is allowed.
 * Returns NULL. */
struct gpushm_stream *gpushm_stream_close(struct gpushm_stream *s);

/* Leaves the stream as gpushm_stream_close() does, but keeps its memory mapped, for a program in
 * which arrays or DLPack tensors of frames still exist. Both functions free the frames that this
 * process holds or fills. What is left to do with the stream is gpushm_stream_close(), when those
 * are freed; other functions return -EBADF. Asks the daemon. 0, also the second time; -ECONNRESET:
 * no daemon was there in time, and until the next one hears of it, by this function or the close, a
 * reader may hold up the producer. */
int gpushm_stream_leave(struct gpushm_stream *s);

/* An fd for poll(): readable when gpushm_frame_next() would not wait for a publication (or
 * gpushm_frame_begin() for a slot), or would return an error. Call them with timeout 0 until
 * -EAGAIN before you poll again. The first call starts a thread of the library's, so that
 * publishing costs nothing more for readers that do not poll. Belongs to the stream. -ENOMEM,
 * -EMFILE. */
int gpushm_stream_fd(struct gpushm_stream *s);

/* The buffer behind the stream, for its getters. Its arrays have the slots as their first
 * dimension. Belongs to the stream: do not close it. */
struct gpushm_buffer *gpushm_stream_buffer(struct gpushm_stream *s);
uint32_t gpushm_stream_slots(const struct gpushm_stream *s);

/* The state of the producer. */
enum gpushm_stream_state {
	GPUSHM_STREAM_RUNNING = 1,
	GPUSHM_STREAM_ENDED = 2,   /* it has closed the stream */
	GPUSHM_STREAM_ORPHANED = 3 /* it died */
};

struct gpushm_stream_stats {
	size_t struct_size; /* sizeof(struct gpushm_stream_stats); the caller's */
	enum gpushm_stream_state state;
	uint64_t newest;  /* the last frame that was published; 0: none */
	uint32_t readers; /* that have joined */
	uint64_t stalls,
		stalled_ns; /* how often the producer waited for readers, and how long in all */
	/* Of this reader; 0 for a producer. */
	uint64_t taken, skipped,
		lag; /* lag: frames that were published after the last one it took */
	uint32_t held;
};
/* Reads memory alone. 0 or -errno. */
int gpushm_stream_stats(const struct gpushm_stream *s, struct gpushm_stream_stats *ret);

/* -------------------------------------------------------------- CUDA graphs */

/* A frame's place in a captured CUDA graph: the nodes that acquire and release a frame. */
struct gpushm_graph_frame;

/* Call it while `capturing`, a CUstream, captures a graph: adds a node that waits for the frame, as
 * gpushm_frame_begin() or gpushm_frame_next() do. where: NULL, or device memory of 8 bytes that
 * gets the address of the frame's slot (with an array's offset: gpushm_graph_offset()) before the
 * nodes that follow run. -EINVAL: the CUstream does not capture, or is another GPU's; -ENOTSUP: the
 * buffer is in a host pool, or the driver is too old. */
int gpushm_graph_acquire(struct gpushm_stream *s, void *capturing, void *where,
			 struct gpushm_graph_frame **ret);
/* Adds the node that publishes or releases the frame. -EINVAL as above. */
int gpushm_graph_release(struct gpushm_graph_frame *g, void *capturing);
/* Bytes from the slot's address to the start of the array. -ENOENT. */
int gpushm_graph_offset(const struct gpushm_stream *s, const char *array, uint64_t *ret);
/* Call it before each launch of `graph_exec`, a CUgraphExec of the captured graph: takes the next
 * frame (or slot), and gives its values to the nodes. The CUgraph that was captured must still
 * exist. Launch the graph, and then call gpushm_frame_publish() or gpushm_frame_release() with the
 * CUstream of the launch, which queue nothing more. Errors as for gpushm_frame_begin() and
 * gpushm_frame_next(); -EINVAL: the graph has no gpushm_graph_release(). */
int gpushm_graph_next(struct gpushm_graph_frame *g, void *graph_exec, uint64_t timeout_ms,
		      struct gpushm_frame **ret);
/* After the graph was destroyed. NULL is allowed. Returns NULL. */
struct gpushm_graph_frame *gpushm_graph_free(struct gpushm_graph_frame *g);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
