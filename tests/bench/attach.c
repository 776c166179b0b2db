/* SPDX-License-Identifier: MIT
 *
 * Attaching: gpushm_open() and gpushm_close() of a buffer that no other process has open, against
 * the round trips with the fd, and the calls that map and unmap the memory.
 */
#include "client/gpushm_query.h"
#include "tests/bench/bench.h"
#include "tests/lib/result.h"

#include "proto/base/own.h"
#include "tests/bench/gpu.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MIB (1ull << 20)

struct attach {
	struct bench *b;
	uint64_t bytes;
	const char *name, *few; /* buffers; few: the one with one array */
	char last[32];		/* an array */
};

static void ours(void *arg)
{
	struct attach *a = arg;
	struct gpushm_buffer *buffer = NULL;

	bench_ok(gpushm_open(a->b->c, a->name, GPUSHM_READ, 0, NULL, &buffer), a->name);
	bench_ok(gpushm_close(buffer), a->name);
}

static void floor_host(void *arg)
{
	struct attach *a = arg;
	int fd = floor_trip(a->b->floor.socket, &a->b->open, 0, NULL);
	void *memory = mmap(NULL, a->bytes, PROT_READ, MAP_SHARED, fd, 0);

	close(fd);
	if (memory == MAP_FAILED || munmap(memory, a->bytes) < 0)
		ck_abort_msg("mmap: %s", strerror(errno));
}

static void floor_vmm(void *arg)
{
	struct attach *a = arg;
	int fd = floor_trip(a->b->floor.socket, &a->b->open, 0, NULL);
	uint64_t ptr = gpu_map(fd, a->bytes, false);

	close(fd);
	gpu_unmap(ptr, a->bytes);
}

/* The reply has the pointer's record; the client frees its import before the CLOSE. */
static void floor_mempool(void *arg)
{
	struct attach *a = arg;
	struct trip open = { a->b->open.request, a->b->open.reply + RECORD_BYTES, FLOOR_RECORD };
	unsigned char record[RECORD_BYTES];

	floor_trip(a->b->floor.socket, &open, 0, record);
	gpu_release_pointer(gpu_import_pointer(record));
	floor_trip(a->b->floor.socket, &a->b->close, 0, NULL);
}

static const struct way {
	enum gpushm_kind kind;
	void (*floor)(void *arg);
	enum floor_op hold;
	double at_most;
	const char *is;
} ways[] = {
	{ GPUSHM_HOST, floor_host, FLOOR_HOLD_HOST, 1.2, "round trip with fd + mmap; munmap" },
	{ GPUSHM_VMM, floor_vmm, FLOOR_HOLD_VMM, 1.15,
	  "round trip with fd + import, reserve, map, access; unmap" },
	{ GPUSHM_MEMPOOL, floor_mempool, FLOOR_HOLD_MEMPOOL, 1.3,
	  "two round trips + import pointer; free, sync" },
};

static bool fits(const struct bench *b, enum gpushm_kind kind, uint64_t bytes)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	size_t n = 0;

	bench_ok(gpushm_pools(b->c, &pools, &n), "POOLS");
	for (size_t i = 0; i < n; i++)
		if (strcmp(pools[i]->name, kind_word(kind)) == 0)
			return bytes <= pools[i]->max_buffer_bytes && bytes <= pools[i]->bytes / 3;
	return false;
}

static void hold(struct bench *b, const struct way *w, uint64_t bytes)
{
	static bool imported;
	unsigned char record[RECORD_BYTES];
	int fd = floor_call(&b->floor, w->hold, bytes, record);

	if (w->kind == GPUSHM_MEMPOOL && !imported) {
		gpu_import_pool(fd);
		imported = true;
	}
	close(fd);
}

static void race_one(struct bench *b, const struct way *w, uint64_t bytes)
{
	struct attach a = { .b = b, .bytes = bytes, .name = "bench/attach" };
	const struct race race = { &a, ours, w->floor, NULL, NULL };
	struct row row = { .reach = REACH_RATIO, .at_most = w->at_most };

	snprintf(row.id, sizeof(row.id), "attach_%s_%s", kind_word(w->kind), size_id(bytes));
	snprintf(row.what, sizeof(row.what), "attach + close, %s, %s", kind_word(w->kind),
		 size_text(bytes));
	snprintf(row.floor_is, sizeof(row.floor_is), "%s", w->is);
	if (!options_want(&b->o, row.id) || !fits(b, w->kind, bytes))
		return;
	bench_publish(b->c, a.name, w->kind, bytes, 0);
	hold(b, w, bytes);
	race_run(&race, &b->o, &row);
	rows_add(&b->rows, &row);
	bench_ok(gpushm_unlink(b->c, a.name), a.name);
}

/* ---- many arrays ---- */

static void get_last(const struct attach *a, const char *name, const char *array_name)
{
	struct gpushm_buffer *buffer = NULL;
	struct gpushm_array *array = NULL;

	bench_ok(gpushm_open(a->b->c, name, GPUSHM_READ, 0, NULL, &buffer), name);
	bench_ok(gpushm_array_get(buffer, array_name, &array), array_name);
	gpushm_array_free(array);
	bench_ok(gpushm_close(buffer), name);
}

static void ours_many(void *arg)
{
	const struct attach *a = arg;

	get_last(a, a->name, a->last);
}

static void floor_one(void *arg)
{
	const struct attach *a = arg;

	get_last(a, a->few, "layers.0.weight");
}

static void race_arrays(struct bench *b, enum gpushm_kind kind, uint64_t bytes)
{
	struct attach a = { .b = b, .bytes = bytes, .name = "bench/many", .few = "bench/few" };
	const struct race race = { &a, ours_many, floor_one, NULL, NULL };
	struct row row = { .reach = REACH_RATIO, .at_most = 1.2 };

	snprintf(a.last, sizeof(a.last), "layers.%u.weight", b->o.arrays - 1);
	snprintf(row.id, sizeof(row.id), "arrays_%s_%s", kind_word(kind), size_id(bytes));
	snprintf(row.what, sizeof(row.what), "attach + close of %u arrays, %s, %s", b->o.arrays,
		 kind_word(kind), size_text(bytes));
	snprintf(row.floor_is, sizeof(row.floor_is), "gpushm's own, of one array");
	if (!options_want(&b->o, row.id) || !fits(b, kind, bytes))
		return;
	bench_publish(b->c, a.name, kind, bytes, b->o.arrays);
	bench_publish(b->c, a.few, kind, bytes, 1);
	race_run(&race, &b->o, &row);
	rows_add(&b->rows, &row);
	bench_ok(gpushm_unlink(b->c, a.name), a.name);
	bench_ok(gpushm_unlink(b->c, a.few), a.few);
}

void attach_run(struct bench *b)
{
	for (size_t i = 0; i < array_size(ways); i++) {
		bool small = ways[i].kind == GPUSHM_MEMPOOL;

		if (!bench_has(b, ways[i].kind))
			continue;
		if (small)
			race_one(b, &ways[i], 4096);
		for (size_t j = 0; j < b->o.n_sizes; j++)
			race_one(b, &ways[i], b->o.sizes[j]);
		for (size_t j = 0; j < b->o.n_sizes && !small; j++)
			race_arrays(b, ways[i].kind, b->o.sizes[j]);
	}
}
