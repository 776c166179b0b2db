/* SPDX-License-Identifier: MIT
 *
 * The copies of a block are queued before the block that came before it is worked on.
 */
#include "client/models/copy/readback.h"

#include "client/gpushm_private.h"

#include <stdlib.h>

struct reader {
	const struct readback *r;
	struct crew *crew;
	void *state;
	const char *host; /* the memory; NULL: it is a GPU's, at */
	uint64_t device;
	struct ring *ring; /* the transport's, with slots of one block */
};

/* Queues the copies of a block to a slot, whose group is its number. There is one: as many threads
 * as the ring was cut for have two each. */
static int fetch(struct reader *w, uint64_t block, struct slot **ret)
{
	struct cursor at = blocks_cursor(w->r->blocks, block);
	struct run part;
	char *to;
	int r = ring_join(w->ring, block, ret);

	if (r < 0)
		return r;
	for (to = (*ret)->memory; r == 0 && cursor_next_in_buffer(&at, &part); to += part.bytes)
		r = gpu_copy_to_host(w->ring->queue, to, w->device + part.buffer_offset,
				     part.bytes);
	return r < 0 ? r : ring_mark(w->ring, *ret);
}

static int end_block(struct reader *w, uint64_t block)
{
	int r = w->r->block ? w->r->block(w->state, block) : 0;

	if (r == 0)
		crew_done(w->crew, blocks_cursor(w->r->blocks, block).left, w->r->file);
	return r;
}

/* Works on a block that was fetched, once it is there. */
static int take(struct reader *w, struct slot *s)
{
	const char *bytes;
	struct cursor at;
	struct run part;
	int r;

	if (!s)
		return 0;
	bytes = s->memory;
	at = blocks_cursor(w->r->blocks, s->group);
	r = ring_wait(w->ring, s);
	for (; r == 0 && cursor_next_in_file(&at, &part); bytes += part.bytes)
		r = w->r->part(w->state, &part, bytes);
	if (r == 0)
		r = end_block(w, s->group);
	ring_give(w->ring, s);
	return r;
}

static int read_device(struct reader *w)
{
	struct slot *now, *next = NULL;
	uint64_t block;
	int r = 0;

	while (r == 0 && crew_next(w->crew, &block)) {
		now = next;
		r = fetch(w, block, &next);
		if (r == 0)
			r = take(w, now);
	}
	return r == 0 && !crew_stopped(w->crew) ? take(w, next) : r;
}

static int read_host(struct reader *w)
{
	uint64_t block;
	int r = 0;

	while (r == 0 && crew_next(w->crew, &block)) {
		struct cursor at = blocks_cursor(w->r->blocks, block);
		struct run part;

		while (r == 0 && cursor_next(&at, &part))
			r = w->r->part(w->state, &part, w->host + part.buffer_offset);
		if (r == 0)
			r = end_block(w, block);
	}
	return r;
}

static int run_device(struct reader *w)
{
	struct transport *t = w->r->transport;
	struct gpushm_private_error why;
	int left, r = transport_enter(t, &w->ring);

	if (r < 0)
		return r;
	w->device = (uintptr_t)gpushm_buffer_device_ptr(w->r->buffer);
	r = read_device(w);
	gpushm_private_keep(&why);
	left = transport_leave(w->ring);
	if (r < 0)
		gpushm_private_put_back(&why);
	return r < 0 ? r : left;
}

static int reader_run(struct crew *crew, unsigned thread, void *user)
{
	const struct readback *back = user;
	struct reader w = { .r = back, .crew = crew, .state = back->user };
	int r = back->open ? back->open(back->user, &w.state) : 0;

	if (r == 0 && back->transport) {
		r = run_device(&w);
	} else if (r == 0) {
		w.host = gpushm_buffer_host_ptr(back->buffer);
		r = read_host(&w);
	}
	if (back->close)
		back->close(w.state);
	return r;
}

int readback_run(const struct readback *r, uint64_t *ret_elapsed_ns)
{
	struct transport *t = r->transport;
	struct crew_work work = {
		.threads = blocks_threads(r->blocks->n, r->threads),
		.blocks = r->blocks->n,
		.bytes = r->blocks->plan->bytes,
		.run = reader_run,
		.user = (void *)r,
		.cpus = t && t->has_cpus ? &t->cpus : NULL,
		.progress = r->progress,
		.progress_user = r->progress_user,
	};
	int result = t ? transport_reserve(t, work.threads) : 0;

	if (t && result == 0)
		result = transport_cut(t, work.threads, 1);

	*ret_elapsed_ns = 0;
	return result < 0 ? result : crew_run(&work, ret_elapsed_ns);
}

/* ---- a digest ---- */

struct hasher {
	struct digest *digest;
	const struct block_hash_code *code;
	struct block_hash *hash; /* owned */
};

static int hasher_open(void *user, void **ret)
{
	struct hasher *h = calloc(1, sizeof(*h));

	*ret = h;
	if (!h)
		return gpushm_private_fail(ENOMEM, "out of memory for a digest");
	h->digest = user;
	h->code = digest_code();
	h->hash = h->code->new ();
	if (!h->hash)
		return gpushm_private_fail(ENOMEM, "out of memory for a digest");
	h->code->begin(h->hash);
	return 0;
}

static void hasher_close(void *state)
{
	struct hasher *h = state;

	if (h)
		h->code->free(h->hash);
	free(h);
}

static int hasher_part(void *state, const struct run *part, const void *bytes)
{
	struct hasher *h = state;

	h->code->add(h->hash, bytes, part->bytes);
	return 0;
}

static int hasher_block(void *state, uint64_t block)
{
	struct hasher *h = state;

	digest_set(h->digest, block, h->code->end(h->hash));
	h->code->begin(h->hash);
	return 0;
}

int readback_digest(const struct readback *r, struct digest *ret, uint64_t *ret_elapsed_ns)
{
	struct readback back = *r;
	int result = digest_init(ret, r->blocks->n);

	if (result < 0)
		return result;
	back.user = ret;
	back.open = hasher_open;
	back.close = hasher_close;
	back.part = hasher_part;
	back.block = hasher_block;
	return readback_run(&back, ret_elapsed_ns);
}

int readback_digest_plan(const struct readback *r, const struct plan *plan, int device,
			 struct digest *ret, uint64_t *ret_elapsed_ns)
{
	struct transport transport = { 0 };
	struct readback back = *r;
	struct blocks blocks;
	int result = blocks_init(&blocks, plan);

	back.blocks = &blocks;
	back.threads = crew_threads();
	if (result == 0 && device >= 0) {
		back.transport = &transport;
		result = transport_open(&transport, device);
	}
	if (result == 0)
		result = readback_digest(&back, ret, ret_elapsed_ns);
	transport_close(&transport);
	blocks_clear(&blocks);
	return result;
}
