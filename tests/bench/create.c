/* SPDX-License-Identifier: MIT
 *
 * Creating: the daemon's time from a CREATE to its reply, by the protocol alone; and
 * gpushm_create(), which also maps the memory. Buffers are freed between the rounds, so that the
 * driver allocates each one anew; or they are not, and the daemon takes them from the pending list.
 */
#include "tests/bench/bench.h"

#include "proto/base/own.h"
#include "tests/bench/gpu.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct create {
	struct bench *b;
	const char *pool;
	uint64_t bytes;
	enum floor_op op;
	bool flush; /* before the next round */
	unsigned char frame[FRAME_MAX];
	size_t frame_len;
	struct gpushm_buffer *buffer;
	int fd;
};

#define NAME "bench/made"

static void pack(struct create *c)
{
	const Gpushm__Proto__Request *q =
		REQUEST(CREATE, Create, create, BYTES(name, NAME), BYTES(pool, c->pool),
			SET(size_bytes, c->bytes), SET(mode, 0600));

	c->frame_len = raw_pack(q, c->frame);
}

static void ours(void *arg)
{
	struct create *c = arg;
	struct raw *r = &c->b->raw;

	if (raw_send(r, c->frame, c->frame_len) < 0 || wire_recv(r->socket, &r->frame, 0) < 0)
		ck_abort_msg("CREATE: the daemon has gone");
}

static void flush(struct create *c)
{
	if (c->flush)
		bench_call(&c->b->raw, REQUEST(FLUSH, Flush, flush, BYTES(pool, c->pool)));
}

/* A buffer that was never published ends with its creator's lease. */
static void after_ours(void *arg)
{
	struct create *c = arg;
	struct raw *r = &c->b->raw;
	Gpushm__Proto__Reply *reply =
		gpushm__proto__reply__unpack(NULL, r->frame.len, r->frame.data);
	uint64_t lease;

	ck_assert(reply && reply->result_case == GPUSHM__PROTO__REPLY__RESULT_ATTACH);
	lease = reply->attach->lease;
	gpushm__proto__reply__free_unpacked(reply, NULL);
	bench_call(r, REQUEST(CLOSE, Close, close, SET(lease, lease)));
	flush(c);
}

static void floor_make(void *arg)
{
	struct create *c = arg;
	struct trip t = { c->b->create.request, c->b->create.reply, c->op };

	if (c->op == FLOOR_MAKE_MEMPOOL)
		t.reply += RECORD_BYTES;
	c->fd = floor_trip(c->b->floor.socket, &t, c->bytes, NULL);
}

static void after_floor(void *arg)
{
	struct create *c = arg;

	close_fd(&c->fd);
	floor_call(&c->b->floor, c->op == FLOOR_MAKE_MEMPOOL ? FLOOR_FREE : FLOOR_ECHO, 0, NULL);
}

/* ---- with the memory mapped ---- */

static void ours_mapped(void *arg)
{
	struct create *c = arg;
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = c->pool };

	c->buffer = NULL;
	bench_ok(gpushm_create(c->b->c, NAME, c->bytes, &o, &c->buffer), "CREATE");
}

static void after_ours_mapped(void *arg)
{
	struct create *c = arg;

	bench_ok(gpushm_close(c->buffer), "CLOSE");
	flush(c);
}

static void floor_host_mapped(void *arg)
{
	struct create *c = arg;
	void *memory;

	floor_make(c);
	memory = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
	/* The unmapping is timed, too: it is small beside the rest. */
	if (memory == MAP_FAILED || munmap(memory, c->bytes) < 0)
		ck_abort_msg("mmap: %s", strerror(errno));
}

static uint64_t mapped_at;

static void floor_vmm_mapped(void *arg)
{
	struct create *c = arg;

	floor_make(c);
	mapped_at = gpu_map(c->fd, c->bytes, true);
}

static void after_floor_vmm_mapped(void *arg)
{
	struct create *c = arg;

	gpu_unmap(mapped_at, c->bytes);
	after_floor(c);
}

/* ---- the rows ---- */

static const struct what {
	const char *id, *what, *floor_is;
	enum gpushm_kind kind;
	uint64_t bytes;
	enum floor_op op;
	double at_most; /* 0: only reported */
	bool pending;
} whats[] = {
	{ "create_host", "create, host, 2 MiB", "round trip with fd + memfd, size, seals",
	  GPUSHM_HOST, 2u << 20, FLOOR_MAKE_HOST, 0, false },
	{ "create_vmm", "create, vmm, 2 MiB", "round trip with fd + create, export", GPUSHM_VMM,
	  2u << 20, FLOOR_MAKE_VMM, 1.2, false },
	{ "create_vmm_pending", "create, vmm, 2 MiB, from the pending list",
	  "round trip with fd + create, export", GPUSHM_VMM, 2u << 20, FLOOR_MAKE_VMM, 0.5, true },
	{ "create_mempool", "create, mempool, 4 KiB", "round trip + allocate, sync, export pointer",
	  GPUSHM_MEMPOOL, 4096, FLOOR_MAKE_MEMPOOL, 1.3, false },
};

static void race_one(struct bench *b, const struct what *w, const struct race *race,
		     const char *suffix)
{
	struct create *c = race->arg;
	struct row row = { .reach = w->at_most > 0 ? REACH_RATIO : REACH_NOTHING,
			   .at_most = w->at_most };

	*c = (struct create){ .b = b,
			      .pool = kind_word(w->kind),
			      .bytes = w->bytes,
			      .op = w->op,
			      .flush = !w->pending,
			      .fd = -1 };
	snprintf(row.id, sizeof(row.id), "%s%s", w->id, suffix);
	snprintf(row.what, sizeof(row.what), "%s%s", w->what, *suffix ? ", and map it" : "");
	snprintf(row.floor_is, sizeof(row.floor_is), "%s%s", w->floor_is, *suffix ? ", map" : "");
	if (*suffix)
		row.reach = REACH_NOTHING;
	if (!bench_has(b, w->kind) || !options_want(&b->o, row.id))
		return;
	pack(c);
	race_run(race, &b->o, &row);
	rows_add(&b->rows, &row);
}

void create_run(struct bench *b)
{
	static struct create c;
	const struct race alone = { &c, ours, floor_make, after_ours, after_floor };
	const struct race host = { &c, ours_mapped, floor_host_mapped, after_ours_mapped,
				   after_floor };
	const struct race vmm = { &c, ours_mapped, floor_vmm_mapped, after_ours_mapped,
				  after_floor_vmm_mapped };
	unsigned char record[RECORD_BYTES];

	if (b->gpu)
		close(floor_call(&b->floor, FLOOR_HOLD_MEMPOOL, 4096, record));
	for (size_t i = 0; i < array_size(whats); i++) {
		race_one(b, &whats[i], &alone, "");
		if (whats[i].kind == GPUSHM_HOST)
			race_one(b, &whats[i], &host, "_mapped");
		if (whats[i].kind == GPUSHM_VMM)
			race_one(b, &whats[i], &vmm, "_mapped");
	}
}
