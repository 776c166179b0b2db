/* SPDX-License-Identifier: MIT
 *
 * Work on attached memory, against the same work on memory of the process's own: the cost of shared
 * memory while it is in use. It needs a GPU that runs kernels.
 */
#include "tests/bench/bench.h"

#include "proto/base/own.h"
#include "tests/bench/gpu.h"

#include <check.h>
#include <stdio.h>

#define SIZE (1ull << 30)

static uint64_t shared_at, plain_at;

static void ours(void *arg)
{
	gpu_sweep(shared_at, SIZE);
}

static void floor_plain(void *arg)
{
	gpu_sweep(plain_at, SIZE);
}

static void race_one(struct bench *b, enum gpushm_kind kind)
{
	const struct race race = { b, ours, floor_plain, NULL, NULL };
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = kind_word(kind) };
	struct row row = { .reach = REACH_RATIO, .at_most = 1.005 };
	struct gpushm_buffer *made = NULL, *buffer = NULL;

	snprintf(row.id, sizeof(row.id), "kernel_%s", kind_word(kind));
	snprintf(row.what, sizeof(row.what), "a kernel that reads and writes 1 GiB, %s",
		 kind_word(kind));
	snprintf(row.floor_is, sizeof(row.floor_is), "the same on memory of cuMemAlloc");
	if (!bench_has(b, kind) || !options_want(&b->o, row.id))
		return;
	bench_ok(gpushm_create(b->c, "bench/kernel", SIZE, &o, &made), "CREATE");
	bench_ok(gpushm_publish(made, GPUSHM_SHARED), "PUBLISH");
	bench_ok(gpushm_close(made), "CLOSE");
	bench_ok(gpushm_open(b->c, "bench/kernel", GPUSHM_WRITE, 0, NULL, &buffer), "OPEN");
	shared_at = (uintptr_t)gpushm_buffer_device_ptr(buffer);
	race_run(&race, &b->o, &row);
	rows_add(&b->rows, &row);
	bench_ok(gpushm_close(buffer), "CLOSE");
	bench_ok(gpushm_unlink(b->c, "bench/kernel"), "UNLINK");
}

void kernel_run(struct bench *b)
{
	if (!b->gpu || gpu_is_fake() || !options_want(&b->o, "kernel"))
		return;
	plain_at = gpu_alloc(SIZE);
	race_one(b, GPUSHM_VMM);
	race_one(b, GPUSHM_MEMPOOL);
	gpu_free(plain_at);
}
