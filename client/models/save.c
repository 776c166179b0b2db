/* SPDX-License-Identifier: MIT
 *
 * gpushm_save(): a buffer's arrays as a safetensors file. Threads read blocks from the GPU and
 * write them where they belong in the file; to a stream one thread writes them in order, while the
 * next block is on its way. Arrays with strides are gathered by libgpushm, a part at a time.
 */
#include "client/gpushm_load.h"

#include "client/gpushm_load_private.h"
#include "client/models/copy/readback.h"
#include "client/models/fail.h"
#include "client/models/save_file.h"
#include "client/models/save_layout.h"
#include "client/models/web/url.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GATHER_BYTES (32u << 20) /* of an array with strides at once */

struct save {
	struct gpushm_buffer *buffer;
	struct gpushm_save_options options;
	struct save_layout layout;
	struct save_file *files; /* owned: of the shards, and of the index */
	size_t n_files;
	/* That are written now. */
	const struct save_shard *shard;
	struct save_file *file;
	struct transport transport;
	int device;
	unsigned threads;
	uint64_t done; /* bytes of tensors, before what is written now */
	uint64_t start_ns;
	atomic_bool canceled; /* progress said so */
};

/* ---- progress ---- */

static int report(struct save *s, uint64_t done)
{
	struct gpushm_load_progress p = { .struct_size = sizeof(p),
					  .done = s->done + done,
					  .total = s->layout.bytes,
					  .elapsed_ns = clock_monotonic_ns() - s->start_ns,
					  .file = s->file->path };

	if (s->options.progress && s->options.progress(s->options.user, &p) != 0)
		s->canceled = true;
	return s->canceled;
}

static int on_progress(void *user, const struct gpushm_load_progress *p)
{
	return report(user, p->done);
}

/* A wait of the calling thread. */
static bool is_stopped(const void *of)
{
	return report((struct save *)of, 0) != 0;
}

/* A wait of another thread: progress is called from the calling one. */
static bool is_canceled(const void *of)
{
	return ((const struct save *)of)->canceled;
}

static struct load_stop stop_by(const struct save *s, bool (*asked)(const void *of))
{
	return (struct load_stop){ s->options.progress ? asked : NULL, s };
}

/* ---- arrays without strides ---- */

static int write_part(void *state, const struct run *part, const void *bytes)
{
	struct save *s = state;

	return save_file_write(s->file, bytes, part->bytes, part->file_offset);
}

static int write_plan(struct save *s, const struct plan *plan)
{
	struct blocks blocks;
	struct readback back = { .buffer = s->buffer,
				 .transport = s->device >= 0 ? &s->transport : NULL,
				 .blocks = &blocks,
				 .threads = s->threads,
				 .file = s->file->path,
				 .progress = s->options.progress ? on_progress : NULL,
				 .progress_user = s,
				 .user = s,
				 .part = write_part };
	uint64_t elapsed_ns;
	int r = blocks_init(&blocks, plan);

	s->file->stop = stop_by(s, is_canceled);
	if (r == 0)
		r = readback_run(&back, &elapsed_ns);
	s->file->stop = stop_by(s, is_stopped);
	blocks_clear(&blocks);
	s->done += plan->bytes;
	return r;
}

/* ---- arrays with strides ---- */

static int gather(struct save *s, const struct saved *it)
{
	uint64_t offset = s->shard->n_header + it->begin;
	size_t piece = it->bytes < GATHER_BYTES ? (size_t)it->bytes : GATHER_BYTES;
	_cleanup_(free_ptr) char *memory = malloc(piece);
	int r = memory ? 0 : load_no_memory();

	for (uint64_t at = 0; r == 0 && at < it->bytes; at += piece) {
		size_t n = it->bytes - at < piece ? (size_t)(it->bytes - at) : piece;

		r = arrays_gather(it->array->array, at, memory, n);
		if (r == 0)
			r = save_file_write(s->file, memory, n, offset + at);
		s->done += n;
		if (r == 0 && report(s, 0) != 0)
			r = load_fail(ECANCELED, "canceled after %" PRIu64 " of %" PRIu64 " bytes",
				      s->done, s->layout.bytes);
	}
	return r;
}

/* ---- all of it ---- */

static struct run run_of(const struct save *s, const struct saved *it)
{
	return (struct run){ .file_offset = s->shard->n_header + it->begin,
			     .buffer_offset = it->array->begin,
			     .bytes = it->bytes };
}

/* In the order of the file, which a stream needs: what lies between two arrays with strides is one
 * plan. */
static int write_tensors(struct save *s, struct plan *plan)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i <= s->shard->n; i++) {
		const struct saved *it = i < s->shard->n ? &s->shard->items[i] : NULL;
		struct run run;

		if (it && (it->plain || it->bytes == 0)) {
			run = run_of(s, it);
			plan_add(plan, &run);
			continue;
		}
		if (plan->bytes > 0)
			r = write_plan(s, plan);
		plan->n = plan->bytes = 0;
		if (r == 0 && it)
			r = gather(s, it);
	}
	return r;
}

static int write_shard(struct save *s, const struct save_shard *shard, struct save_file *file)
{
	struct plan plan = { .runs = calloc(shard->n + 1, sizeof(*plan.runs)) };
	int r = plan.runs ? 0 : load_no_memory();

	s->shard = shard;
	s->file = file;
	if (r == 0)
		r = save_file_reserve(file, shard->n_header + shard->bytes);
	if (r == 0)
		r = save_file_write(file, shard->header, shard->n_header, 0);
	if (r == 0)
		r = write_tensors(s, &plan);
	free(plan.runs);
	return r < 0 ? r : save_file_sync(file);
}

/* The index comes last: it is what programs look for. */
static int write_all(struct save *s)
{
	struct save_file *index = &s->files[s->layout.n_shards];
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->layout.n_shards; i++)
		r = write_shard(s, &s->layout.shards[i], &s->files[i]);
	if (r == 0 && s->layout.index)
		r = save_file_write(index, s->layout.index, strlen(s->layout.index), 0);
	if (r == 0 && s->layout.index)
		r = save_file_sync(index);
	for (size_t i = 0; r == 0 && i < s->n_files; i++)
		r = save_file_commit(&s->files[i]);
	return r;
}

static int open_file(struct save *s, const char *path)
{
	int r;

	s->file = &s->files[s->n_files];
	r = save_file_open(s->file, path, stop_by(s, is_stopped));
	s->n_files += r == 0;
	return r;
}

static int open_files(struct save *s)
{
	int r = 0;

	s->files = calloc(s->layout.n_shards + 1, sizeof(*s->files));
	if (!s->files)
		return load_no_memory();
	for (size_t i = 0; r == 0 && i < s->layout.n_shards; i++)
		r = open_file(s, s->layout.shards[i].path);
	if (r == 0 && s->layout.index)
		r = open_file(s, s->layout.index_path);
	return r;
}

static void close_files(struct save *s)
{
	for (size_t i = 0; i < s->n_files; i++)
		save_file_close(&s->files[i]);
	free(s->files);
}

static int save_all(struct save *s)
{
	unsigned wanted =
		s->options.threads < RING_THREADS_MAX ? s->options.threads : RING_THREADS_MAX;
	int r;

	s->start_ns = clock_monotonic_ns();
	r = open_files(s);
	if (r == 0) {
		s->threads = s->files[0].stream ? 1 : wanted > 0 ? wanted : crew_threads();
		if (s->device >= 0 && s->layout.bytes > 0)
			r = transport_open(&s->transport, s->device);
		s->start_ns = clock_monotonic_ns();
	}
	if (r == 0)
		r = write_all(s);
	transport_close(&s->transport);
	close_files(s);
	return r;
}

/* ---- shards ---- */

static int check_shards(const char *path)
{
	struct stat st;

	if (!url_ends_with(url_last(path), ".safetensors"))
		return load_fail(EINVAL,
				 "%s: the names of several files are made from a name that ends "
				 "with .safetensors",
				 path);
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
		return load_fail(EINVAL, "%s: a stream can't be several files", path);
	return 0;
}

/* What a program that looks for the model would find instead of what is written. */
static int check_others(const struct save_layout *l, const char *path)
{
	_cleanup_(free_ptr) char *index = NULL;

	if (l->n_shards == 1 && load_format(&index, "%s.index.json", path) < 0)
		return -ENOMEM;
	if (access(index ? index : path, F_OK) < 0)
		return 0;
	return load_fail(EEXIST,
			 "%s exists, and programs may read it instead of what is saved: remove it "
			 "first",
			 index ? index : path);
}

static void fill_report(const struct save *s, struct gpushm_load_report *ret)
{
	struct gpushm_load_report report = { .bytes = s->layout.bytes,
					     .tensors = s->layout.names,
					     .elapsed_ns = clock_monotonic_ns() - s->start_ns };

	digest_of(s->buffer, report.content);
	load_write_report(ret, &report);
}

static int read_options(const struct gpushm_save_options *from, struct gpushm_save_options *ret)
{
	int r = load_read_struct("save options", from, ret, sizeof(*ret));

	return r < 0 ? r : load_check_report(ret->report);
}

static int save(struct save *s, const char *path)
{
	struct arrays arrays = { 0 };
	int r = arrays_list(s->buffer, &arrays);

	if (r == 0)
		r = save_layout_make(s->buffer, &arrays, s->options.metadata, path,
				     s->options.shard_bytes, &s->layout);
	if (r == 0 && s->options.shard_bytes > 0)
		r = check_others(&s->layout, path);
	if (r == 0) {
		s->device = arrays_device(&arrays, s->buffer);
		r = save_all(s);
	}
	if (r == 0)
		fill_report(s, s->options.report);
	save_layout_clear(&s->layout);
	arrays_clear(&arrays);
	return r;
}

int gpushm_save(struct gpushm_buffer *b, const char *path,
		const struct gpushm_save_options *options)
{
	struct save s = { .buffer = b };
	int r = read_options(options, &s.options);

	if (r < 0)
		return r;
	if (!b || !path)
		return load_fail(EINVAL, "the %s is NULL", b ? "path" : "buffer");
	r = s.options.shard_bytes > 0 ? check_shards(path) : 0;
	return r < 0 ? r : save(&s, path);
}
