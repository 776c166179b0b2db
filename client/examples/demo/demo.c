/* SPDX-License-Identifier: MIT
 *
 * make demo: a daemon of our own, a model and samples in it, and eight classify processes that
 * attach to them, all at once, and read the held-out digits of tests/data, a part each. It checks
 * what it shows: that the eight hold one allocation, that their answers are those of one process
 * that computes alone, that the memory is given back. The last line is "demo: ok" only then. What
 * was started is stopped and what was made is removed, also after a failure and after Ctrl-C.
 *
 *	demo DAEMON WORKER DATA-FOLDER
 */
#include "client/examples/demo/crew.h"
#include "client/examples/demo/server.h"
#include "client/examples/demo/store.h"
#include "client/examples/demo/wait.h"

#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELD_OUT 1000 /* the first sample that the model was not trained on */
#define FREE_MS 20000

struct demo {
	struct server *server;
	struct gpushm *c;
	struct gpushm_pool pool;
	struct fdstore store;
	struct crew crew;
};

static const char *const kind_names[] = { "", "host", "pinned", "vmm", "mempool" };

static int complain(int r, const char *what)
{
	if (r != -EINTR)
		warnx("%s: %s", what, gpushm_error());
	return r;
}

/* A GPU's memory rather than the host's, and read-only mappings rather than a mempool, which has
 * none. 0: not for this. */
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
	struct gpushm_pool *pools = NULL;
	size_t n = 0;
	int best = 0, r = gpushm_pools(d->c, &pools, &n);

	if (r < 0)
		return complain(r, "pools");
	for (size_t i = 0; i < n; i++) {
		int this = rank(&pools[i]);

		if (this > best) {
			best = this;
			d->pool = pools[i];
		}
	}
	free(pools);
	if (best == 0) {
		warnx("no pool can be used");
		return -ENODEV;
	}
	printf("pool %s: kind %s, on %s\n", d->pool.name, kind_names[d->pool.kind],
	       d->pool.device_name[0] ? d->pool.device_name : "the host");
	if (d->pool.kind == GPUSHM_HOST)
		printf("(no GPU is used; gpushmctl doctor says why)\n");
	return 0;
}

static int used_bytes(struct demo *d, uint64_t *ret)
{
	struct gpushm_pool *pools = NULL;
	size_t n = 0;
	int r = gpushm_pools(d->c, &pools, &n);

	if (r < 0)
		return complain(r, "pools");
	for (size_t i = 0; i < n; i++)
		if (strcmp(pools[i].name, d->pool.name) == 0)
			*ret = pools[i].used_bytes;
	free(pools);
	return 0;
}

/* One line about a buffer, which all workers must hold at this moment. */
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
	for (int i = 0; i < CREW_SIZE; i++)
		if (name == store_names[0] && d->crew.workers[i]->buffer != stat->id)
			holders = 0;
	gpushm_stat_free(stat, 1);

	if (holders != CREW_SIZE) {
		warnx("%s: the %d workers don't hold it together", name, CREW_SIZE);
		return -EILSEQ;
	}
	return 0;
}

/* Between attach and go: one allocation a buffer, eight holders each, and in all no more of the
 * pool in use than the buffers have. */
static int check_sharing(struct demo *d)
{
	uint64_t bytes[STORE_BUFFERS] = { 0 }, allocated = 0, used = 0, read = 0;
	int r = 0;

	for (int i = 0; i < STORE_BUFFERS; i++) {
		r = check_buffer(d, store_names[i], &bytes[i], &allocated);
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
	       read, CREW_SIZE * read, CREW_SIZE);
	printf("the pool has %" PRIu64 " bytes in use for all three, in steps of %" PRIu64 "\n\n",
	       used, d->pool.granularity);
	return 0;
}

static int check_answers(struct demo *d, long right)
{
	long alone = store_count_right(&d->store, HELD_OUT);
	int r = store_check_answers(&d->store, d->c, HELD_OUT);

	if (r < 0)
		return r;
	if (alone != right) {
		warnx("the workers have %ld right, a process alone has %ld", right, alone);
		return -EILSEQ;
	}
	printf("all %ld answers are those of one process that computes alone\n",
	       (long)d->store.samples - HELD_OUT);
	return 0;
}

/* The daemon frees on a thread of its own, so the figure may lag behind the reply. */
static int give_back(struct demo *d)
{
	int64_t deadline = wait_deadline(FREE_MS);
	uint64_t used = UINT64_MAX;
	int r = store_unlink(d->c);

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
	int r = store_load(&d->store, argv[3]);

	if (r < 0)
		return r;
	r = server_start(argv[1], &d->server);
	if (r < 0)
		return r;
	r = gpushm_connect(d->server->socket, &d->c);
	if (r < 0)
		return complain(r, d->server->socket);
	r = choose_pool(d);
	if (r < 0)
		return r;
	r = store_put(&d->store, d->c, d->pool.name);
	if (r < 0)
		return r;

	r = crew_start(&d->crew, argv[2], d->server->socket, HELD_OUT,
		       (long)d->store.samples - HELD_OUT);
	if (r < 0)
		return r;
	r = crew_attach(&d->crew);
	if (r < 0)
		return r;
	r = check_sharing(d);
	if (r < 0)
		return r;
	r = crew_work(&d->crew);
	if (r < 0)
		return r;
	r = check_answers(d, crew_print(&d->crew));
	if (r < 0)
		return r;
	return give_back(d);
}

/* In the order in which one depends on the other. r is how it went so far. */
static int clean_up(struct demo *d, int r)
{
	crew_clear(&d->crew);
	d->c = gpushm_disconnect(d->c);
	if (d->server && server_stop(d->server) < 0)
		r = -EIO;
	if (d->server && r < 0 && r != -EINTR)
		server_show_log(d->server);
	d->server = server_free(d->server);
	store_clear(&d->store);
	return r;
}

int main(int argc, char **argv)
{
	struct demo d = { 0 };
	int r = 0;

	if (argc != 4)
		errx(2, "usage: demo DAEMON WORKER DATA-FOLDER");
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* Else the driver keeps what it makes of the kernel in ~/.nv. */
	setenv("CUDA_CACHE_DISABLE", "1", 1);
	wait_for_signals();

	r = clean_up(&d, run(&d, argv));
	if (r == -EINTR)
		warnx("interrupted; what was started is stopped");
	if (r < 0)
		return 1;
	printf("demo: ok\n");
	return 0;
}
