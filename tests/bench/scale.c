/* SPDX-License-Identifier: MIT
 *
 * Attaching while the daemon has more and more buffers, or clients; and the daemon's memory for a
 * buffer. The limit of fds limits the number of host buffers; a mempool's buffers have no fds. Each
 * point of a curve has a daemon of its own that runs all the time, so that the largest and the
 * smallest are measured by turns. Buffers are opened at random, so that the processor's caches do
 * not hold a few of them.
 */
#include "tests/bench/bench.h"

#include "proto/base/own.h"
#include "tests/lib/census.h"
#include "tests/lib/daemon.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define POINTS_MAX 6
#define LEAST 10u      /* buffers */
#define WEIGHED 10000u /* buffers */
#define FDS_EACH 1u    /* of the daemon, for a sealed host buffer */
#define FDS_ELSE 256u

struct point {
	struct daemon d;
	struct gpushm *c;
	enum gpushm_kind kind;
	unsigned buffers, clients;
	int *sockets; /* of idle clients */
	uint32_t random;
};

struct curve {
	const char *id, *of;
	enum gpushm_kind kind;
	struct point points[POINTS_MAX];
	size_t n;
	struct point *now, *least;
	bool weighed;
};

static uint32_t next_random(struct point *p)
{
	p->random = p->random * 1664525u + 1013904223u;
	return p->random >> 8;
}

static void attach(struct point *p)
{
	struct gpushm_buffer *buffer = NULL;
	char name[32];

	snprintf(name, sizeof(name), "scale/%u", next_random(p) % p->buffers);
	bench_ok(gpushm_open(p->c, name, GPUSHM_READ, 0, NULL, &buffer), name);
	bench_ok(gpushm_close(buffer), name);
}

static void attach_now(void *arg)
{
	attach(((struct curve *)arg)->now);
}

static void attach_least(void *arg)
{
	attach(((struct curve *)arg)->least);
}

/* ---- a point ---- */

static void fill(struct point *p)
{
	char name[32];

	for (unsigned i = 0; i < p->buffers; i++) {
		snprintf(name, sizeof(name), "scale/%u", i);
		bench_publish(p->c, name, p->kind, 4096, 0);
	}
}

static void connect_clients(struct point *p)
{
	static struct raw r;

	p->sockets = calloc(p->clients, sizeof(*p->sockets));
	for (unsigned i = 0; i < p->clients; i++) {
		raw_greet(&r, p->d.socket);
		p->sockets[i] = take_fd(&r.socket);
		raw_close(&r);
	}
}

static void point_start(struct point *p, enum gpushm_kind kind, unsigned buffers, unsigned clients)
{
	char config[128];

	*p = (struct point){ .kind = kind, .buffers = buffers, .clients = clients, .random = 1 };
	snprintf(config, sizeof(config),
		 "[pool %s]\nkind=%s\n"
		 "[limits]\nmax-buffers=unlimited\nmax-connections=unlimited\n",
		 kind_word(kind), kind_word(kind));
	daemon_start(&p->d, config, NULL);
	bench_ok(gpushm_connect(p->d.socket, &p->c), "connect");
	connect_clients(p);
}

static void point_stop(struct point *p)
{
	for (unsigned i = 0; i < p->clients; i++)
		close_fd(&p->sockets[i]);
	free(p->sockets);
	gpushm_disconnect(p->c);
	daemon_stop(&p->d);
}

/* ---- curves ---- */

/* If two points have the least number, each is compared with the other daemon: the driver
 * imports from the pools of two daemons, alike but for the order in which this process met them,
 * in times that differ by up to a third. */
static void race_point(struct bench *b, struct curve *c, size_t i)
{
	const struct race race = { c, attach_now, attach_least, NULL, NULL };
	unsigned least = c->points[0].clients ? c->points[0].clients : c->points[0].buffers;
	unsigned most = c->points[i].clients ? c->points[i].clients : c->points[i].buffers;
	struct row row = { .reach = i + 1 == c->n ? REACH_RATIO : REACH_NOTHING,
			   .at_most = 1.2,
			   .x = most };

	snprintf(row.id, sizeof(row.id), "%s_%u", c->id, most);
	snprintf(row.what, sizeof(row.what), "attach + close with %u %s", most, c->of);
	snprintf(row.floor_is, sizeof(row.floor_is), "with %u", least);
	snprintf(row.series, sizeof(row.series), "%s", c->of);
	c->now = &c->points[i];
	c->least = &c->points[i > 1 && c->points[1].buffers == c->points[0].buffers &&
			      c->points[1].clients == c->points[0].clients];
	race_run(&race, &b->o, &row);
	rows_add(&b->rows, &row);
}

/* Pages of files, such as libraries, which other processes share. In KiB. */
static long rss_of_files(const struct daemon *d)
{
	char path[32], line[128];
	long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", d->pid);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f) && sscanf(line, "RssFile: %ld", &kib) != 1)
		;
	fclose(f);
	return kib;
}

static void weigh(struct bench *b, unsigned n, const struct daemon *d, long before)
{
	long after = census_rss(d);
	struct row files = { .id = "memory_files",
			     .what = "of it, pages of the program and its libraries",
			     .unit = "MiB" };
	struct row total = {
		.id = "memory_total", .unit = "MiB", .reach = REACH_VALUE, .at_most = 16
	};
	struct row each = {
		.id = "memory_each", .unit = "KiB", .reach = REACH_VALUE, .at_most = 1
	};

	snprintf(total.what, sizeof(total.what), "RSS of a daemon with %u host buffers", n);
	snprintf(each.what, sizeof(each.what), "and for each buffer beyond what it had before");
	total.ours = figures_of((double)after / 1024);
	each.ours = figures_of((double)(after - before) / n);
	files.ours = figures_of((double)rss_of_files(d) / 1024);
	rows_add(&b->rows, &total);
	rows_add(&b->rows, &files);
	rows_add(&b->rows, &each);
}

/* Raises the limit of fds to the number that the daemons need. Returns the new limit. */
static rlim_t raise_limit(rlim_t wanted)
{
	struct rlimit l;

	getrlimit(RLIMIT_NOFILE, &l);
	if (l.rlim_max < wanted)
		setrlimit(RLIMIT_NOFILE, &(struct rlimit){ l.rlim_cur, wanted });
	getrlimit(RLIMIT_NOFILE, &l);
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){ l.rlim_max, l.rlim_max });
	return l.rlim_max;
}

static void add_point(struct bench *b, struct curve *c, unsigned n)
{
	struct point *p = &c->points[c->n++];
	long before;

	point_start(p, c->kind, n, 0);
	before = census_rss(&p->d);
	fill(p);
	if (c->kind == GPUSHM_HOST && n >= (b->o.quick ? b->o.many : WEIGHED) * 9 / 10 &&
	    !c->weighed) {
		weigh(b, n, &p->d, before);
		c->weighed = true;
	}
}

/* Raising the hard limit of fds needs CAP_SYS_RESOURCE. Returns how many buffers, at most
 * wanted, the limit allows. */
static unsigned as_many_as_fds(unsigned wanted)
{
	rlim_t fds = raise_limit(wanted * FDS_EACH + FDS_ELSE);
	unsigned most = (unsigned)(fds - FDS_ELSE) / FDS_EACH;

	if (most >= wanted)
		return wanted;
	fprintf(stderr, "%llu fds are allowed: no more than %u host buffers are tried\n",
		(unsigned long long)fds, most);
	return most;
}

static void buffers_run(struct bench *b, struct curve *c)
{
	unsigned most = c->kind == GPUSHM_HOST ? as_many_as_fds(b->o.many) : b->o.many;

	/* Twice, to see the difference between two equal daemons. */
	add_point(b, c, LEAST);
	for (unsigned n = LEAST; n < most && c->n < POINTS_MAX - 1; n *= 10)
		add_point(b, c, n);
	add_point(b, c, most);
	for (size_t i = 1; i < c->n; i++)
		race_point(b, c, i);
	for (size_t i = 0; i < c->n; i++)
		point_stop(&c->points[i]);
}

static void clients_run(struct bench *b)
{
	static const unsigned clients[] = { 2, 10, 100, 1000 };
	static struct curve c = { .id = "clients", .of = "clients" };

	for (; c.n < array_size(clients) - b->o.quick; c.n++) {
		point_start(&c.points[c.n], GPUSHM_HOST, 10, clients[c.n]);
		fill(&c.points[c.n]);
	}
	for (size_t i = 1; i < c.n; i++)
		race_point(b, &c, i);
	for (size_t i = 0; i < c.n; i++)
		point_stop(&c.points[i]);
}

void scale_run(struct bench *b)
{
	static struct curve host = { .id = "buffers", .of = "buffers", .kind = GPUSHM_HOST };
	static struct curve mempool = { .id = "mempool_buffers",
					.of = "mempool buffers",
					.kind = GPUSHM_MEMPOOL };
	bool memory = options_want(&b->o, "memory");

	if (bench_has(b, host.kind) && (memory || options_want(&b->o, host.id)))
		buffers_run(b, &host);
	if (bench_has(b, mempool.kind) && options_want(&b->o, mempool.id))
		buffers_run(b, &mempool);
	if (bench_has(b, GPUSHM_HOST) && options_want(&b->o, "clients"))
		clients_run(b);
}
