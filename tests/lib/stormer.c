/* SPDX-License-Identifier: MIT
 *
 * A client in a storm ends with a message on stderr as soon as a call returns a wrong result or a
 * byte is wrong. Only this client unlinks its names, and after its death its replacement does: so a
 * buffer that it published and did not unlink must exist, whatever happened to the daemon. A call
 * that takes a minute hangs, and SIGALRM ends the process. Between two steps the client rests for
 * some milliseconds, so that dozens of clients do not only test the processor.
 */
#include "tests/lib/stormer.h"

#include "client/gpushm_memory.h"
#include "client/gpushm_query.h"
#include "proto/base/own.h"

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEADLINE_S 60
#define BYTES_MAX 100000u
#define OWN_MAX 6
#define POOLS 16
#define REST_MS 30

struct own_buffer {
	char name[64];
	struct gpushm_buffer *b; /* NULL: closed */
	bool used, published, sealed, transient;
};

struct stormer {
	struct gpushm *c;
	unsigned id, n;
	uint64_t state;
	char *pools[POOLS];
	unsigned n_pools;
	struct own_buffer own[OWN_MAX];
};

/* splitmix64 */
uint64_t stormer_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static unsigned choose(struct stormer *s, unsigned n)
{
	return (unsigned)(stormer_random(&s->state) % n);
}

/* ---- contents ---- */

static uint64_t hash_of(const void *data, size_t n)
{
	const unsigned char *p = data;
	uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3u;
	return h;
}

static uint64_t bytes_of(const char *name)
{
	return 1 + hash_of(name, strlen(name)) % BYTES_MAX;
}

static void fill(const char *name, unsigned char *to, uint64_t n)
{
	uint64_t state = hash_of(name, strlen(name));

	for (uint64_t i = 0; i < n; i++)
		to[i] = (unsigned char)stormer_random(&state);
}

static int verify(struct gpushm_buffer *b, const char *name, char *why, size_t size)
{
	uint64_t n = bytes_of(name), sum;
	_cleanup_(free_ptr) unsigned char *want = malloc(n), *got = malloc(n);
	const void *value;
	size_t len;
	int r = gpushm_read(b, 0, got, n);

	fill(name, want, n);
	sum = hash_of(want, n);
	if (r < 0)
		snprintf(why, size, "read: %s", gpushm_error());
	else if (gpushm_buffer_bytes(b) != n)
		snprintf(why, size, "has %lu bytes, not %lu", gpushm_buffer_bytes(b), n);
	else if (gpushm_buffer_attr(b, "sum", &value, &len) < 0 || len != sizeof(sum) ||
		 memcmp(value, &sum, len) != 0)
		snprintf(why, size, "the checksum in its attribute is another");
	else if (memcmp(got, want, n) != 0)
		snprintf(why, size, "the contents are others");
	else
		return 0;
	return -EBADMSG;
}

static bool is_published(struct gpushm *c, const char *name)
{
	struct gpushm_stat *st = NULL;
	bool published = gpushm_stat(c, name, 0, 0, &st) == 0 && st->state != GPUSHM_FILLING;

	gpushm_free(st);
	return published;
}

/* Waits while another process restores it, but for nothing else. */
static int open_name(struct gpushm *c, const char *name, struct gpushm_buffer **ret)
{
	int r;

	while ((r = gpushm_open(c, name, GPUSHM_READ, 0, NULL, ret)) == -EAGAIN &&
	       is_published(c, name))
		poll(NULL, 0, 1);
	return r;
}

int stormer_verify_name(struct gpushm *c, const char *name, char *why, size_t size)
{
	struct gpushm_buffer *b = NULL;
	int r = open_name(c, name, &b), closed;

	if (r < 0) {
		snprintf(why, size, "open: %s", gpushm_error());
		return r;
	}
	r = verify(b, name, why, size);
	closed = gpushm_close(b);
	if (r == 0 && closed < 0) {
		snprintf(why, size, "close: %s", gpushm_error());
		return -EBADMSG;
	}
	return r;
}

unsigned stormer_suspects(struct gpushm *c)
{
	struct gpushm_status *st = NULL;
	unsigned n = gpushm_status(c, &st) == 0 ? st->suspects : UINT32_MAX;

	gpushm_free(st);
	return n;
}

/* ---- its own buffers ---- */

static void fail(const struct stormer *s, const char *what, const char *name, int r,
		 const char *why)
{
	fprintf(stderr, "stormer %u: %s of \"%s\": %d: %s\n", s->id, what, name, r, why);
	_exit(1);
}

static void must(const struct stormer *s, const char *what, const char *name, int r, int may)
{
	if (r < 0 && r != may)
		fail(s, what, name, r, gpushm_error());
}

static void forget(struct stormer *s, struct own_buffer *x)
{
	must(s, "close", x->name, gpushm_close(x->b), 0);
	*x = (struct own_buffer){ 0 };
}

static void create(struct stormer *s, struct own_buffer *x)
{
	uint64_t n = bytes_of(x->name), sum;
	_cleanup_(free_ptr) unsigned char *data = malloc(n);
	struct gpushm_attr attr = { sizeof(attr), "sum", &sum, sizeof(sum) };
	struct gpushm_create_options o = { .struct_size = sizeof(o),
					   .pool = s->pools[choose(s, s->n_pools)],
					   .flags = x->transient ? GPUSHM_TRANSIENT : 0,
					   .attrs = &attr,
					   .n_attrs = 1 };

	fill(x->name, data, n);
	sum = hash_of(data, n);
	/* This must work even right after the daemon's death, before its successor has its driver.
	 */
	must(s, "create", x->name, gpushm_create(s->c, x->name, n, &o, &x->b), 0);
	must(s, "write", x->name, gpushm_write(x->b, 0, data, n), 0);
}

static void make(struct stormer *s, struct own_buffer *x)
{
	x->used = true;
	x->transient = choose(s, 4) == 0;
	snprintf(x->name, sizeof(x->name), "storm/%u/%u", s->id, ++s->n);
	create(s, x);
}

/* An unpublished buffer is lost with the daemon; its name is then free for another one. */
static void publish(struct stormer *s, struct own_buffer *x)
{
	enum gpushm_state how = choose(s, 2) ? GPUSHM_SEALED : GPUSHM_SHARED;
	int r;

	while ((r = gpushm_publish(x->b, how)) == -ECONNRESET) {
		must(s, "close", x->name, gpushm_close(take_ptr(x->b)), 0);
		create(s, x);
	}
	must(s, "publish", x->name, r, 0);
	x->published = true;
	x->sealed = how == GPUSHM_SEALED;
}

/* The buffer exists, and it is not dirty: its writer is alive. */
static void inspect(struct stormer *s, struct own_buffer *x)
{
	struct gpushm_stat *st = NULL;
	char why[256];
	int r;

	if (x->transient && !x->b)
		return;
	r = stormer_verify_name(s->c, x->name, why, sizeof(why));
	if (r < 0)
		fail(s, "inspection", x->name, r, why);
	must(s, "stat", x->name, gpushm_stat(s->c, x->name, 0, 0, &st), 0);
	if (st->dirty && st->dirty_pid == getpid())
		fail(s, "stat", x->name, 0, "a living process is said to have died");
	gpushm_free(st);
}

static void check_own(struct stormer *s, struct own_buffer *x)
{
	char why[256];

	if (!x->b)
		return;
	if (gpushm_buffer_lost(x->b))
		fail(s, "lease", x->name, 0, "lost, though it was published");
	must(s, "resume", x->name, gpushm_resume(x->b, DEADLINE_S * 1000), 0);
	if (verify(x->b, x->name, why, sizeof(why)) < 0)
		fail(s, "check", x->name, 0, why);
}

/* Lets go of its memory, which may go then. Memory of a mempool can't. */
static void let_go(struct stormer *s, struct own_buffer *x)
{
	int r;

	if (!x->b)
		return;
	if (x->sealed && choose(s, 2)) {
		r = gpushm_make_twin(s->c, x->name, "host");
		/* EAGAIN: another process brings it back just now. */
		must(s, "twin", x->name, r == -ENOTSUP || r == -EAGAIN ? 0 : r, -EEXIST);
		must(s, "keep", x->name, gpushm_set_keep(s->c, x->name, 0, 0), -EBUSY);
	}
	r = gpushm_suspend(x->b, choose(s, 2) ? GPUSHM_IDLE : 0);
	must(s, "suspend", x->name, r, -ENOTSUP);
	r = gpushm_evict(s->c, x->name);
	must(s, "evict", x->name, r == -ENOTSUP ? 0 : r, -EBUSY);
	if (choose(s, 2))
		check_own(s, x);
}

static void use_own(struct stormer *s, struct own_buffer *x)
{
	switch (choose(s, 9)) {
	case 0:
		must(s, "close", x->name, gpushm_close(take_ptr(x->b)), 0);
		if (x->transient)
			forget(s, x);
		break;
	case 1:
		must(s, "unlink", x->name, gpushm_unlink(s->c, x->name), 0);
		forget(s, x);
		break;
	case 2:
	case 3:
		check_own(s, x);
		break;
	case 4:
	case 5:
		let_go(s, x);
		break;
	default:
		inspect(s, x);
	}
}

/* ---- buffers of other clients ---- */

static void write_again(struct stormer *s, const char *name)
{
	struct gpushm_buffer *b = NULL;
	uint64_t n = bytes_of(name);
	_cleanup_(free_ptr) unsigned char *data = malloc(n);
	int r = gpushm_open(s->c, name, GPUSHM_WRITE, 0, NULL, &b);

	must(s, "open to write", name, r, -ENOENT);
	if (r < 0)
		return;
	fill(name, data, n);
	must(s, "write", name, gpushm_write(b, 0, data, n), 0);
	must(s, "close", name, gpushm_close(b), 0);
}

static void visit(struct stormer *s)
{
	struct gpushm_stat **all = NULL, *x;
	char why[256];
	size_t n = 0;
	int r;

	must(s, "list", "", gpushm_list(s->c, "storm/", 0, &all, &n), 0);
	x = n ? all[choose(s, (unsigned)n)] : NULL;
	r = x ? stormer_verify_name(s->c, x->name, why, sizeof(why)) : 0;
	if (r < 0 && r != -ENOENT && r != -EAGAIN)
		fail(s, "visit", x->name, r, why);
	if (x && r == 0 && x->state == GPUSHM_SEALED && choose(s, 2)) {
		r = gpushm_evict(s->c, x->name);
		must(s, "evict", x->name, r == -EBUSY || r == -ENOTSUP ? 0 : r, -ENOENT);
	}
	if (x && r == 0 && x->state == GPUSHM_SHARED)
		write_again(s, x->name);
	gpushm_free(all);
}

/* Checks the buffers of the client that was killed: all that it had published exist. */
static void inherit(struct stormer *s, const char *former)
{
	struct gpushm_stat **all = NULL;
	char prefix[32], why[256];
	size_t n = 0;

	snprintf(prefix, sizeof(prefix), "storm/%s/", former);
	must(s, "list", prefix, gpushm_list(s->c, prefix, 0, &all, &n), 0);
	for (size_t i = 0; i < n; i++) {
		bool may_go = all[i]->transient || all[i]->state == GPUSHM_FILLING;
		int r = stormer_verify_name(s->c, all[i]->name, why, sizeof(why));

		if (r < 0 && !(may_go && (r == -ENOENT || r == -EAGAIN)))
			fail(s, "inheritance", all[i]->name, r, why);
		must(s, "unlink", all[i]->name, gpushm_unlink(s->c, all[i]->name),
		     may_go ? -ENOENT : 0);
	}
	gpushm_free(all);
}

/* ---- its life ---- */

static void step(struct stormer *s)
{
	struct own_buffer *x = &s->own[choose(s, OWN_MAX)];

	if (choose(s, 4) == 0)
		visit(s);
	else if (!x->used)
		make(s, x);
	else if (x->published)
		use_own(s, x);
	else if (choose(s, 5) > 0)
		publish(s, x);
	else
		forget(s, x);
}

static void finish(struct stormer *s)
{
	for (unsigned i = 0; i < OWN_MAX; i++) {
		if (s->own[i].published)
			inspect(s, &s->own[i]);
		must(s, "close", s->own[i].name, gpushm_close(s->own[i].b), 0);
	}
	gpushm_disconnect(s->c);
}

static bool stopped(struct stormer *s)
{
	struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&p, 1, (int)choose(s, REST_MS)) > 0;
}

int stormer_run(char **args)
{
	struct stormer s = { .id = (unsigned)strtoul(args[1], NULL, 10),
			     .state = strtoull(args[3], NULL, 10) };

	for (char *at = args[4], *pool; s.n_pools < POOLS && (pool = strsep(&at, ","));)
		s.pools[s.n_pools++] = pool;
	alarm(DEADLINE_S);
	/* Reconnecting works only after the first HELLO: until then it tries to connect. */
	while (gpushm_connect(args[0], &s.c) < 0)
		poll(NULL, 0, 10);
	if (strcmp(args[2], "0") != 0)
		inherit(&s, args[2]);
	while (!stopped(&s)) {
		alarm(DEADLINE_S);
		step(&s);
	}
	alarm(DEADLINE_S);
	finish(&s);
	return 0;
}
