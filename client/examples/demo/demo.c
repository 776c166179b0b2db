/* SPDX-License-Identifier: MIT
 *
 * make demo: starts a daemon, puts a model and samples into it, and starts eight classify processes
 * that attach to them at the same time and read a part of the held-out digits of tests/data each.
 * It checks what it shows: the eight processes hold one allocation, their answers are those of one
 * process that computes alone, and the memory is given back. Only then the last line is "demo: ok".
 * It stops and removes all that it started and made, also after a failure and after Ctrl-C.
 *
 *	demo DAEMON WORKER DATA-FOLDER
 */
#include "client/examples/demo/data.h"
#include "client/examples/demo/server.h"
#include "client/examples/demo/wait.h"
#include "client/examples/demo/workers.h"
#include "client/gpushm_query.h"
#include "proto/words.h"

#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELD_OUT 1000 /* the first sample that the model was not trained on */
#define FREE_MS 20000

struct demo {
	struct server *server;
	struct gpushm *c;
	struct gpushm_pool pool;
	struct data data;
	struct worker workers[WORKERS];
	bool started;
};

static int complain(int r, const char *what)
{
	if (r != -EINTR)
		warnx("%s: %s", what, gpushm_error());
	return r;
}

/* Prefers a GPU's memory to the host's, and vmm, which has read-only mappings, to mempool. 0: the
 * pool cannot be used. */
static int rank(const struct gpushm_pool *p)
{
	static const int ranks[] = {
		[GPUSHM_VMM] = 3, [GPUSHM_MEMPOOL] = 2, [GPUSHM_HOST] = 1, [GPUSHM_PINNED] = 0
	};

	if (p->failed) {
		printf("pool %s is not available: %s\n", p->name, p->why);
		return 0;
	}
	if (!p->allowed)
		return 0;
	if (p->kind != GPUSHM_HOST && p->device < 0)
		return 0;
	return ranks[p->kind];
}

static int choose_pool(struct demo *d)
{
	struct gpushm_pool **pools = NULL;
	size_t n = 0;
	int best = 0, r = gpushm_pools(d->c, &pools, &n);

	if (r < 0)
		return complain(r, "pools");
	for (size_t i = 0; i < n; i++) {
		int this = rank(pools[i]);

		if (this > best) {
			best = this;
			d->pool = *pools[i];
		}
	}
	gpushm_free(pools);
	if (best == 0) {
		warnx("no pool can be used");
		return -ENODEV;
	}
	printf("pool %s: kind %s, on %s\n", d->pool.name, kind_word(d->pool.kind),
	       d->pool.device_name[0] ? d->pool.device_name : "the host");
	if (d->pool.kind == GPUSHM_HOST)
		printf("(no GPU is used; gpushmctl doctor says why)\n");
	return 0;
}

static int used_bytes(struct demo *d, uint64_t *ret)
{
	struct gpushm_pool **pools = NULL;
	size_t n = 0;
	int r = gpushm_pools(d->c, &pools, &n);

	if (r < 0)
		return complain(r, "pools");
	for (size_t i = 0; i < n; i++)
		if (strcmp(pools[i]->name, d->pool.name) == 0)
			*ret = pools[i]->used_bytes;
	gpushm_free(pools);
	return 0;
}

/* Prints a line about a buffer; all workers must hold it at this moment. */
static int check_buffer(struct demo *d, const char *name, uint64_t *bytes, uint64_t *allocated)
{
	struct gpushm_stat *stat = NULL;
	uint32_t holders = 0;
	int r = gpushm_stat(d->c, name, 0, 0, &stat);

	if (r < 0)
		return complain(r, name);
	printf("%-14s  buffer %" PRIu64 ", arrays: %u, bytes: %" PRIu64
	       ", readers: %u, writers: %u\n",
	       name, stat->id, stat->arrays, stat->bytes, stat->readers, stat->writers);
	*bytes += stat->bytes;
	*allocated += stat->allocated_bytes;
	holders = stat->readers + stat->writers;
	for (int i = 0; i < WORKERS; i++)
		if (name == data_names[0] && d->workers[i].buffer != stat->id)
			holders = 0;
	gpushm_free(stat);

	if (holders != WORKERS) {
		warnx("%s: not all of the %d workers hold it", name, WORKERS);
		return -EILSEQ;
	}
	return 0;
}

/* While all are attached: each buffer is one allocation with eight holders, and the pool has no
 * more bytes in use than the buffers have. */
static int check_sharing(struct demo *d)
{
	uint64_t bytes[DATA_BUFFERS] = { 0 }, allocated = 0, used = 0, read = 0;
	int r = 0;

	for (int i = 0; i < DATA_BUFFERS; i++) {
		r = check_buffer(d, data_names[i], &bytes[i], &allocated);
		if (r < 0)
			return r;
	}
	r = used_bytes(d, &used);
	if (r < 0)
		return r;
	if (used != allocated) {
		warnx("pool %s: %" PRIu64 " bytes are in use, and the buffers have %" PRIu64,
		      d->pool.name, used, allocated);
		return -EILSEQ;
	}

	read = bytes[0] + bytes[1];
	printf("model and samples: %" PRIu64 " bytes shared, against %" PRIu64
	       " that %d copies would have taken\n",
	       read, WORKERS * read, WORKERS);
	printf("the pool has %" PRIu64 " bytes in use for all three, in steps of %" PRIu64 "\n\n",
	       used, d->pool.granularity);
	return 0;
}

static int check_answers(struct demo *d, long right)
{
	long alone;
	int r = data_check_answers(&d->data, d->c, HELD_OUT, &alone);

	if (r < 0)
		return r;
	if (alone != right) {
		warnx("the workers have %ld right, a process alone has %ld", right, alone);
		return -EILSEQ;
	}
	printf("all %ld answers are those of one process that computes alone\n",
	       (long)d->data.samples - HELD_OUT);
	return 0;
}

/* The daemon frees memory on a thread of its own, so the number may come down after the reply. */
static int give_back(struct demo *d)
{
	int64_t deadline = wait_deadline(FREE_MS);
	uint64_t used = UINT64_MAX;
	int r = data_unlink(d->c);

	while (r == 0) {
		r = used_bytes(d, &used);
		if (r == 0 && used == 0)
			break;
		if (r == 0)
			r = wait_pause(5, deadline);
	}
	if (r == 0)
		printf("pool %s: all memory is given back\n", d->pool.name);
	if (r == -ETIMEDOUT)
		warnx("pool %s: %" PRIu64 " bytes are still in use", d->pool.name, used);
	return r;
}

static int run(struct demo *d, char **argv)
{
	int r = data_load(&d->data, argv[3]);

	if (r == 0)
		r = demo_server_start(argv[1], &d->server);
	if (r < 0)
		return r;
	r = gpushm_connect(d->server->socket, &d->c);
	if (r < 0)
		return complain(r, d->server->socket);
	r = choose_pool(d);
	if (r == 0)
		r = data_put(&d->data, d->c, d->pool.name);
	if (r < 0)
		return r;

	d->started = true;
	r = workers_start(d->workers, argv[2], d->server->socket, HELD_OUT,
			  (long)d->data.samples - HELD_OUT);
	if (r == 0)
		r = workers_attach(d->workers);
	if (r == 0)
		r = check_sharing(d);
	if (r == 0)
		r = workers_compute(d->workers);
	if (r == 0)
		r = check_answers(d, workers_print(d->workers));
	return r < 0 ? r : give_back(d);
}

/* Stops the parts in the order of their dependencies. r is the result so far. */
static int clean_up(struct demo *d, int r)
{
	if (d->started)
		workers_clear(d->workers);
	d->c = gpushm_disconnect(d->c);
	if (d->server && server_stop(d->server) < 0)
		r = -EIO;
	if (d->server && r < 0 && r != -EINTR)
		server_show_log(d->server);
	d->server = server_free(d->server);
	data_clear(&d->data);
	return r;
}

int main(int argc, char **argv)
{
	struct demo d = { 0 };
	int r = 0;

	if (argc != 4)
		errx(2, "usage: demo DAEMON WORKER DATA-FOLDER");
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* Without this the driver keeps the compiled kernel in ~/.nv. */
	setenv("CUDA_CACHE_DISABLE", "1", 1);
	wait_for_signals();

	r = clean_up(&d, run(&d, argv));
	if (r == -EINTR)
		warnx("interrupted; everything is stopped");
	if (r < 0)
		return 1;
	printf("demo: ok\n");
	return 0;
}
