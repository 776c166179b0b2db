/* SPDX-License-Identifier: MIT
 *
 * Copies a plan's runs into a buffer. A thread takes one block at a time and reads it into a slot
 * of pinned memory, in pieces that stay in the processor's cache while they are hashed. The last
 * one that fills a slot queues its copies to the GPU. Host memory is read into where it is.
 */
#include "client/models/copy/engine.h"

#include "client/gpushm_private.h"
#include "client/models/copy/blocks.h"
#include "client/models/copy/preparer.h"
#include "client/models/copy/readback.h"
#include "client/models/crew.h"
#include "client/models/fail.h"
#include "client/models/files/file.h"
#include "client/models/locks.h"
#include "client/models/nixl/nixl_file.h"
#include "client/models/web/remote.h"
#include "proto/base/huge_pages.h"
#include "proto/base/own.h"

#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS_COLD 16u	 /* they wait for a disk most of the time */
#define THREADS_REMOTE 12u	 /* and these for servers */
#define SPAN_BLOCKS 32u		 /* of a server's file, for one request */
#define WRITE_MIN (64u << 10)	 /* to a file of memory; less is stored where it is mapped */
#define GAP_BYTES (256u << 10)	 /* that are read and dropped rather than asked around */
#define PIECE_BYTES (512u << 10) /* a quarter of a core's second-level cache, or half of it */
#define ATTEMPTS 3u		 /* to read a block that differs from its digest */

struct engine {
	uint32_t flags; /* GPUSHM_LOAD_... */
	unsigned threads;
	gpushm_load_progress_fn *progress;
	void *progress_user;
	const struct engine_check *check; /* NULL: nothing is known of the files' contents */
	struct preparer preparer;
};

int engine_new(struct gpushm *c, const struct gpushm_create_options *options,
	       const struct gpushm_load_options *load, struct engine **ret)
{
	struct engine *e = calloc(1, sizeof(*e));
	int r;

	if (!e)
		return gpushm_private_fail(ENOMEM, "out of memory for a load");
	if (load) {
		e->flags = load->flags;
		e->threads = load->threads < RING_THREADS_MAX ? load->threads : RING_THREADS_MAX;
		e->progress = load->progress;
		e->progress_user = load->user;
	}
	r = preparer_init(&e->preparer, c, options);
	if (r < 0) {
		engine_free(e);
		return r;
	}
	if (options)
		preparer_start(&e->preparer);
	*ret = e;
	return 0;
}

struct engine *engine_free(struct engine *e)
{
	if (!e)
		return NULL;
	preparer_clear(&e->preparer);
	free(e);
	return NULL;
}

/* ---- the threads ---- */

/* A load under way. */
struct job {
	struct engine *e;
	struct blocks blocks;
	struct digest digest;
	struct load_files *files;
	struct source *sources; /* owned; one for each file */
	size_t n_sources;
	bool has_stream, has_remote, is_cold; /* one of its files is */
	unsigned threads;
	char *host;		 /* the buffer's memory, if the processor writes it; else NULL */
	int memory;		 /* the same as a file, to write to; -1: it can't be */
	struct huge_pages fresh; /* of that memory */
	pthread_mutex_t writing; /* held by the thread that does */
	uint64_t device; /* its address for the GPU; 0: there is no buffer, or it is host memory */
};

struct worker {
	struct job *job;
	struct crew *crew;
	const struct block_hash_code *code;
	struct block_hash *hash; /* owned */
	struct ring *ring;	 /* if it copies to a GPU; the transport's */
	struct slot *slot;	 /* of the ring, where its block is or will be */
	char *room;		 /* owned; SLOT_BYTES, for what is not read into a slot */
	bool first_ended;	 /* the block goes on with what is not of the first file: */
	uint64_t first_hash;	 /* of the bytes before that */

	struct remote_reader *reader; /* owned; if there are files of servers */
	uint64_t beyond;	      /* bytes of the worker's span after this block */
	uint32_t expected_file;	      /* what was announced to the reader last */
	uint64_t expected_from, expected_end;
};

/* ---- files of servers ---- */

/* Announces what of this file the worker will read from there on, small gaps included, so that one
 * request brings it. */
static void expect(struct worker *w, struct cursor at)
{
	const struct load_file *f = w->job->sources[at.run->file].file;
	uint64_t from = at.run->file_offset + at.skip;
	uint32_t file = at.run->file;
	struct run part;

	if (!w->reader || !f->remote || f->nixl || f->stream ||
	    (file == w->expected_file && from >= w->expected_from && from < w->expected_end))
		return;
	w->expected_file = file;
	w->expected_from = w->expected_end = from;
	for (at.left += w->beyond; cursor_next(&at, &part);) {
		if (part.file != file || part.file_offset < w->expected_end ||
		    part.file_offset - w->expected_end > GAP_BYTES)
			break;
		w->expected_end = part.file_offset + part.bytes;
	}
	remote_expect(w->reader, f->remote, from, w->expected_end - from);
}

static int read_piece(struct worker *w, struct load_file *f, char *to, size_t n, uint64_t offset)
{
	const struct load_stop stop = crew_stop(w->crew);

	if (f->nixl)
		return nixl_file_read(f->nixl, to, n, offset, stop);
	if (!f->remote || f->stream)
		return load_file_read(f, to, n, offset);
	return remote_read(w->reader, f->remote, to, n, offset, stop);
}

/* ---- blocks ---- */

/* Writes to the buffer's memory as a file. */
static int write_file(const struct job *job, const char *from, uint64_t n, uint64_t offset)
{
	for (uint64_t done = 0; done < n;) {
		ssize_t r = pwrite(job->memory, from + done, n - done, (off_t)(offset + done));

		if (r < 0 && errno == EINTR)
			continue;
		/* RLIMIT_FSIZE counts for memory, too, unless it is stored to. */
		if (r < 0 && errno == EFBIG) {
			memcpy(job->host + offset + done, from + done, n - done);
			return 0;
		}
		if (r <= 0)
			return load_fail(r < 0 ? errno : EIO, "writing to the buffer's memory: %s",
					 r < 0 ? strerror(errno) : "nothing was written");
		done += (uint64_t)r;
	}
	return 0;
}

/* Stores to the buffer's memory where it is mapped. False: it was not, since there are no pages for
 * it; a store would end the process (SIGBUS). */
static bool store(const struct job *job, const char *from, uint64_t n, uint64_t offset)
{
	uint64_t before = offset % (uint64_t)getpagesize();

	if (madvise(job->host + offset - before, before + n, MADV_POPULATE_WRITE) < 0)
		return false;
	memcpy(job->host + offset, from, n);
	return true;
}

/* A write is faster than a store, since the kernel clears no pages for it, but it lets one thread
 * at a time write to a file. Meanwhile the others store. */
static int write_memory(const struct worker *w, const char *from, uint64_t n, uint64_t offset)
{
	struct job *job = w->job;
	int r;

	if (!lock_try(&job->writing, LOCK_WRITING)) {
		if (store(job, from, n, offset))
			return 0;
		lock_take(&job->writing, LOCK_WRITING);
	}
	r = write_file(job, from, n, offset);
	lock_drop(&job->writing);
	return r;
}

/* Reads through the page cache, or from a server, into `to`; or with `memory`, in pieces through
 * the start of `to`, to that offset of the buffer's memory. */
static int read_cached(struct worker *w, const struct run *part, char *to, bool memory)
{
	struct source *s = &w->job->sources[part->file];
	uint64_t most = s->file->nixl ? NIXL_SLOT_BYTES : PIECE_BYTES;
	int r = 0;

	for (uint64_t done = 0; r == 0 && done < part->bytes && !crew_stopped(w->crew);) {
		size_t piece = (size_t)(part->bytes - done < most ? part->bytes - done : most);
		char *at = memory ? to : to + done;

		r = read_piece(w, s->file, at, piece, part->file_offset + done);
		if (r == 0)
			w->code->add(w->hash, at, piece);
		if (r == 0 && memory)
			r = write_memory(w, at, piece, part->buffer_offset + done);
		done += piece;
	}
	return r;
}

static void note_end_of_first(struct worker *w, const struct run *part)
{
	if (part->file == 0 || w->first_ended)
		return;
	w->first_ended = true;
	w->first_hash = w->code->end(w->hash);
}

/* Reads and hashes what lies side by side in a file. `to`: where the bytes go if they are read
 * through the page cache; room: memory for a direct read; *ret: where they are. */
static int read_part(struct worker *w, const struct run *part, char *room, char *to, char **ret)
{
	struct source *s = &w->job->sources[part->file];
	int r;

	note_end_of_first(w, part);
	if (!source_wants_direct(s, part->file_offset, part->bytes)) {
		*ret = to;
		return read_cached(w, part, to, false);
	}
	r = source_read_direct(s, room, part->bytes, part->file_offset, ret);
	if (r == 0)
		w->code->add(w->hash, *ret, part->bytes);
	return r;
}

/* The same, to that place. */
static int read_to(struct worker *w, const struct run *part, char *to)
{
	char *from;
	int r = read_part(w, part, w->room, to, &from);

	if (r == 0 && from != to)
		memcpy(to, from, part->bytes);
	return r;
}

/* A large part of host memory that has no huge pages is written as a file. */
static int load_to_memory(struct worker *w, const struct run *part)
{
	struct source *s = &w->job->sources[part->file];
	char *from;
	int r;

	note_end_of_first(w, part);
	if (!source_wants_direct(s, part->file_offset, part->bytes))
		return read_cached(w, part, w->room, true);
	r = source_read_direct(s, w->room, part->bytes, part->file_offset, &from);
	if (r < 0)
		return r;
	w->code->add(w->hash, from, part->bytes);
	return write_memory(w, from, part->bytes, part->buffer_offset);
}

/* Host memory is read into where it is; a direct read goes through memory that is aligned. */
static int load_to_host(struct worker *w, struct cursor at)
{
	struct run part;
	int r = 0;

	while (r == 0 && !crew_stopped(w->crew) && at.left > 0) {
		expect(w, at);
		cursor_next(&at, &part);
		if (w->job->memory >= 0 && part.bytes >= WRITE_MIN &&
		    !huge_pages_make(&w->job->fresh, w->job->host + part.buffer_offset, part.bytes))
			r = load_to_memory(w, &part);
		else
			r = read_to(w, &part, w->job->host + part.buffer_offset);
	}
	return r;
}

/* Queues the copies of the next `bytes` bytes of the plan, which lie at `from`. */
static int copy_parts(struct worker *w, struct cursor at, uint64_t bytes, const char *from)
{
	struct run part;
	int r = 0;

	for (at.left = bytes; r == 0 && cursor_next_in_buffer(&at, &part); from += part.bytes)
		r = gpu_copy_to_device(w->ring->queue, w->job->device + part.buffer_offset, from,
				       part.bytes);
	return r;
}

/* Through a slot of one block, where direct reads may leave gaps, and from there to the GPU, unless
 * the job has no buffer. */
static int load_through(struct worker *w, struct cursor at, char *slot)
{
	struct cursor first = at;
	struct run part;
	char *from;
	int r = 0;

	for (; r == 0 && !crew_stopped(w->crew) && at.left > 0; first = at) {
		expect(w, at);
		cursor_next_in_file(&at, &part);
		r = read_part(w, &part, slot, slot, &from);
		if (r == 0 && w->job->device)
			r = copy_parts(w, first, part.bytes, from);
		slot = from + part.bytes;
	}
	return r;
}

/* To its place in a slot of several, from where the group is copied. */
static int load_to_slot(struct worker *w, struct cursor at, char *to)
{
	struct run part;
	int r = 0;

	while (r == 0 && !crew_stopped(w->crew) && cursor_next_in_file(&at, &part)) {
		r = read_to(w, &part, to);
		to += part.bytes;
	}
	return r;
}

static int load_block(struct worker *w, uint64_t block)
{
	struct cursor at = blocks_cursor(&w->job->blocks, block);

	if (w->job->host)
		return load_to_host(w, at);
	if (!w->slot)
		return load_through(w, at, w->room);
	if (w->ring->blocks == 1)
		return load_through(w, at, w->slot->memory);
	return load_to_slot(w, at, w->slot->memory + block % w->ring->blocks * (size_t)BLOCK_BYTES);
}

/* Queues what the slot's group needs beyond the copies that were queued while it was read. */
static int copy_group(struct worker *w, uint64_t first, uint64_t blocks)
{
	struct cursor at = blocks_cursor(&w->job->blocks, first);
	uint64_t left = w->job->blocks.plan->bytes - first * BLOCK_BYTES;
	int r = 0;

	if (w->ring->blocks > 1)
		r = copy_parts(w, at, left < blocks * BLOCK_BYTES ? left : blocks * BLOCK_BYTES,
			       w->slot->memory);
	return r < 0 ? r : ring_mark(w->ring, w->slot);
}

/* ---- digests that are known ---- */

static bool is_known(const struct engine_check *check, uint64_t block)
{
	return check && block < check->n;
}

static bool is_right(const struct worker *w, uint64_t block, uint64_t hash)
{
	const struct engine_check *check = w->job->e->check;

	return !is_known(check, block) ||
	       htole64(w->first_ended ? w->first_hash : hash) == check->blocks[block];
}

static int wrong_block(const struct worker *w, uint64_t block)
{
	const struct engine_check *check = w->job->e->check;
	const struct load_file *f = w->job->sources[0].file;
	uint64_t begin = block * BLOCK_BYTES;
	uint64_t left = check->bytes - begin;

	return load_fail(EBADMSG,
			 "%s: block %" PRIu64 " differs from its digest, however often it is read: "
			 "bytes %" PRIu64 " to %" PRIu64 " of the file",
			 f->path, block, f->data + begin,
			 f->data + begin + (left < BLOCK_BYTES ? left : BLOCK_BYTES) - 1);
}

/* Loads a block until it has its digest. Until then wrong bytes may be in the buffer, which is not
 * published yet; copies of them that are still queued come before those of the right ones. */
static int load_right(struct worker *w, uint64_t block, uint64_t *ret_hash)
{
	for (unsigned i = 0; i < ATTEMPTS; i++) {
		int r;

		w->code->begin(w->hash);
		w->first_ended = false;
		r = load_block(w, block);
		if (r < 0 || crew_stopped(w->crew))
			return r;
		*ret_hash = w->code->end(w->hash);
		if (is_right(w, block, *ret_hash))
			return 0;
		/* From another server, if there is one, in a request of its own. */
		w->expected_end = 0;
		if (w->reader && w->job->sources[0].file->remote)
			remote_blame(w->reader, w->job->sources[0].file->remote);
	}
	return wrong_block(w, block);
}

/* A copy to a GPU that is on its way is waited for. */
static int tell_block(struct worker *w, uint64_t block)
{
	const struct engine_check *check = w->job->e->check;
	int r = 0;

	if (!is_known(check, block) || !check->block)
		return 0;
	if (w->ring)
		r = ring_wait(w->ring, w->slot);
	if (r == 0)
		check->block(check->user, block);
	return r;
}

/* A block is where it belongs: in host memory, or in the slot. */
static int end_block(struct worker *w, uint64_t block)
{
	uint64_t first = block, blocks = 1;
	bool last;
	int r = 0;

	if (w->ring) {
		first -= block % w->ring->blocks;
		blocks = w->job->blocks.n - first;
		blocks = blocks < w->ring->blocks ? blocks : w->ring->blocks;
	}
	last = w->ring && ring_filled(w->ring, w->slot, (unsigned)blocks);
	if (last)
		r = copy_group(w, first, blocks);
	if (r == 0)
		r = tell_block(w, block);
	if (r == 0 && last)
		ring_give(w->ring, w->slot);
	return r;
}

static int worker_open(struct worker *w, struct job *job, struct crew *crew)
{
	int r;

	*w = (struct worker){ .job = job, .crew = crew, .code = digest_code() };
	w->hash = w->code->new ();
	w->room = aligned_alloc(4096, SLOT_BYTES);
	if (!w->hash || !w->room)
		return gpushm_private_fail(ENOMEM, "out of memory for a thread of the load");
	r = job->has_remote ? remote_reader_new(&w->reader) : 0;
	if (r == 0 && job->device)
		r = transport_enter(&job->e->preparer.transport, &w->ring);
	return r;
}

/* Waits for its copies, also after an error. */
static int worker_close(struct worker *w)
{
	int r = w->ring ? transport_leave(w->ring) : 0;

	if (w->reader)
		remote_reader_free(w->reader);
	w->code->free(w->hash);
	free(w->room);
	return r;
}

/* span: how many blocks, from this one on, this worker will load. */
static int load_numbered(struct worker *w, uint64_t block, uint64_t span)
{
	struct job *job = w->job;
	struct cursor at = blocks_cursor(&job->blocks, block);
	const char *path = job->sources[at.run->file].file->path;
	uint64_t left = job->blocks.plan->bytes - block * BLOCK_BYTES, hash = 0;
	int r;

	w->beyond = (left < span * BLOCK_BYTES ? left : span * BLOCK_BYTES) - at.left;
	r = w->ring ? ring_join(w->ring, block / w->ring->blocks, &w->slot) : 0;
	if (r == 0 && !crew_stopped(w->crew))
		r = load_right(w, block, &hash);
	if (r == 0 && !crew_stopped(w->crew))
		r = end_block(w, block);
	if (r == 0 && !crew_stopped(w->crew)) {
		digest_set(&job->digest, block, hash);
		crew_done(w->crew, at.left, path);
	}
	return r;
}

static int worker_loop(struct worker *w)
{
	uint64_t block, n = 0;
	int r = 0;

	/* Blocks one after the other are a span, which one request brings. After a stop the slot of
	 * a block that is not whole is not given back, so that no further block may take one. */
	for (; r == 0 && !crew_stopped(w->crew); n--, block++) {
		if (n == 0)
			n = crew_take(w->crew, w->reader ? SPAN_BLOCKS : 1, &block);
		if (n == 0)
			break;
		r = load_numbered(w, block, n);
	}
	return r;
}

/* Where there is a stream there is one worker. */
static int read_stream(struct worker *w)
{
	struct load_files *files = w->job->files;
	int r;

	load_files_set_stop(files, crew_stop(w->crew));
	r = worker_loop(w);
	load_files_set_stop(files, files->stop);
	return r;
}

static int worker_run(struct crew *crew, unsigned thread, void *user)
{
	struct gpushm_private_error why;
	struct job *job = user;
	struct worker w;
	int closed, r = worker_open(&w, job, crew);

	if (r == 0)
		r = job->has_stream ? read_stream(&w) : worker_loop(&w);
	if (r < 0)
		crew_fail(crew, r);
	if (w.ring && crew_stopped(crew))
		ring_stop(w.ring); /* for others, who may wait for this thread's slot */
	if (r < 0)
		gpushm_private_keep(&why);
	closed = worker_close(&w);
	if (r < 0)
		gpushm_private_put_back(&why);
	return r < 0 ? r : closed;
}

/* ---- the job ---- */

void engine_expect(struct engine *e, uint64_t bytes)
{
	unsigned threads = e->threads > 0 ? e->threads : crew_threads();

	preparer_tell(&e->preparer, blocks_threads(bytes / BLOCK_BYTES + 1, threads));
}

static unsigned count_threads(const struct engine *e, const struct job *job)
{
	unsigned threads = crew_threads();

	if (job->has_stream)
		return 1;
	if (e->threads > 0)
		return blocks_threads(job->blocks.n, e->threads);
	if (job->has_remote && threads < THREADS_REMOTE)
		threads = THREADS_REMOTE;
	return blocks_threads(job->blocks.n, job->is_cold ? THREADS_COLD : threads);
}

static void open_source(struct job *job, struct load_file *file)
{
	struct source *s = &job->sources[job->n_sources++];

	source_open(s, file, job->e->flags);
	job->has_stream |= file->stream;
	job->has_remote |= file->remote != NULL;
	job->is_cold |= source_is_cold(s);
}

static int job_open(struct job *job, struct engine *e, struct load_files *files,
		    const struct plan *plan)
{
	int r;

	*job = (struct job){ .e = e, .files = files, .memory = -1 };
	pthread_mutex_init(&job->writing, NULL);
	r = blocks_init(&job->blocks, plan);
	if (r == 0)
		r = digest_init(&job->digest, job->blocks.n);
	if (r < 0)
		return r;
	job->sources = calloc(files->n + 1, sizeof(*job->sources));
	if (!job->sources)
		return gpushm_private_fail(ENOMEM, "out of memory for %zu files", files->n);
	for (size_t i = 0; i < files->n; i++)
		open_source(job, &files->files[i]);
	job->threads = count_threads(e, job);
	return 0;
}

static void job_close(struct job *job)
{
	for (size_t i = 0; i < job->n_sources; i++)
		source_close(&job->sources[i]);
	free(job->sources);
	digest_clear(&job->digest);
	blocks_clear(&job->blocks);
	pthread_mutex_destroy(&job->writing);
}

static int job_run(struct job *job, struct engine_result *ret)
{
	struct engine *e = job->e;
	const struct transport *t = &e->preparer.transport;
	struct crew_work work = {
		.threads = job->threads,
		.blocks = job->blocks.n,
		.bytes = job->blocks.plan->bytes,
		.run = worker_run,
		.user = job,
		.cpus = job->device && t->has_cpus ? &t->cpus : NULL,
		.progress = e->progress,
		.progress_user = e->progress_user,
	};
	uint64_t elapsed_ns;
	int r = crew_run(&work, &elapsed_ns);

	if (r < 0)
		return r;
	ret->elapsed_ns = elapsed_ns;
	ret->direct = false;
	for (size_t i = 0; i < job->n_sources; i++)
		ret->direct |= job->sources[i].was_direct;
	digest_format(&job->digest, ret->content);
	return 0;
}

static void drop_cache(const struct job *job)
{
	for (size_t i = 0; i < job->n_sources; i++)
		if (job->sources[i].file->fd >= 0 && !job->sources[i].file->stream)
			posix_fadvise(job->sources[i].file->fd, 0, 0, POSIX_FADV_DONTNEED);
}

/* ---- what the loader calls ---- */

/* Only files in the page cache are fast enough for it to matter. A thread that reads a server's
 * file takes many blocks after each other, and one with digests tells of each block that it is
 * there. */
static unsigned blocks_of_slot(const struct job *job)
{
	return job->has_stream || job->has_remote || job->is_cold || job->e->check
		       ? 1
		       : RING_BLOCKS_MAX;
}

static int set_buffer(struct job *job, struct gpushm_buffer *b)
{
	int r;

	job->host = gpushm_buffer_host_ptr(b);
	job->memory = gpushm_private_memory(b);
	if (job->memory >= 0)
		huge_pages_init(&job->fresh, job->host, gpushm_buffer_bytes(b), job->memory);
	if (job->host)
		return 0;
	r = preparer_transport(&job->e->preparer, b, job->threads);
	if (r == 0)
		r = transport_cut(&job->e->preparer.transport, job->threads, blocks_of_slot(job));
	if (r < 0)
		return r;
	job->device = (uintptr_t)gpushm_buffer_device_ptr(b);
	return 0;
}

void engine_set_check(struct engine *e, const struct engine_check *check)
{
	e->check = check;
}

/* Reads the buffer back, and compares each block with what was read from the files. */
static int verify(struct job *job, struct gpushm_buffer *b)
{
	struct engine *e = job->e;
	struct readback back = { .buffer = b,
				 .transport = job->host ? NULL : &e->preparer.transport,
				 .blocks = &job->blocks,
				 .threads = job->threads,
				 .progress = e->progress,
				 .progress_user = e->progress_user };
	struct digest digest = { 0 };
	uint64_t elapsed_ns, differs;
	int r = readback_digest(&back, &digest, &elapsed_ns);

	if (r == 0 && digest_differs(&digest, &job->digest, &differs))
		r = gpushm_private_fail(
			EBADMSG,
			"the buffer differs from the files at offset %" PRIu64
			" or in the %u bytes after it: the memory or the bus is faulty",
			blocks_cursor(&job->blocks, differs).run->buffer_offset +
				blocks_cursor(&job->blocks, differs).skip,
			BLOCK_BYTES);
	digest_clear(&digest);
	return r;
}

static int load(struct job *job, struct gpushm_buffer *b, struct engine_result *ret)
{
	struct engine *e = job->e;
	int r = set_buffer(job, b);

	if (r == 0)
		r = job_run(job, ret);
	if (r == 0 && (e->flags & GPUSHM_LOAD_VERIFY))
		r = verify(job, b);
	if (r == 0 && (e->flags & GPUSHM_LOAD_DROP_CACHE))
		drop_cache(job);
	return r;
}

int engine_load(struct engine *e, struct load_files *files, const struct plan *plan,
		struct gpushm_buffer *b, struct engine_result *ret)
{
	struct job job;
	int r;

	preparer_await(&e->preparer);
	r = job_open(&job, e, files, plan);
	if (r == 0)
		r = load(&job, b, ret);
	job_close(&job);
	return r;
}

int engine_digest(struct engine *e, struct load_files *files, const struct plan *plan,
		  struct engine_result *ret)
{
	struct job job;
	int r = job_open(&job, e, files, plan);

	if (r == 0)
		r = job_run(&job, ret);
	job_close(&job);
	return r;
}
