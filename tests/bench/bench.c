/* SPDX-License-Identifier: MIT
 *
 * Setting up, and functions that all families of rows use.
 */
#include "tests/bench/bench.h"

#include "client/gpushm_array.h"
#include "proto/base/own.h"
#include "tests/bench/gpu.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* A tiny pool has space for one buffer: a CREATE waits until all of its memory is free. */
static const char host_pools[] = "[pool host]\nkind=host\n"
				 "[pool tiny-host]\nkind=host\nsize=2M\n";
static const char gpu_pools[] = "[pool vmm]\nkind=vmm\n"
				"[pool mempool]\nkind=mempool\n"
				"[pool host]\nkind=host\n"
				"[pool tiny-host]\nkind=host\nsize=2M\n"
				"[pool tiny-vmm]\nkind=vmm\nsize=2M\n";
static const char limits[] = "[limits]\nmax-buffers=unlimited\nmax-leases=unlimited\n"
			     "max-connections=unlimited\n";

void bench_ok(int r, const char *what)
{
	if (r < 0)
		ck_abort_msg("%s: %s", what, gpushm_error());
}

bool bench_has(const struct bench *b, enum gpushm_kind kind)
{
	if (b->o.pool && strcmp(b->o.pool, kind_word(kind)) != 0)
		return false;
	return kind == GPUSHM_HOST || b->gpu;
}

void bench_call(struct raw *r, const Gpushm__Proto__Request *q)
{
	if (raw_call(r, q) != 0)
		ck_abort_msg("the daemon refuses: %s", r->text);
}

static int create(struct gpushm *c, const char *name, const struct gpushm_create_options *o,
		  uint64_t bytes, unsigned arrays, struct gpushm_buffer **ret)
{
	_cleanup_(free_ptr) struct gpushm_array_spec *specs = calloc(arrays + 1, sizeof(*specs));
	_cleanup_(free_ptr) char(*names)[32] = calloc(arrays + 1, sizeof(*names));
	const int64_t shape[] = { 8, 8 };
	int r = gpushm_create(c, name, bytes, o, ret);

	for (unsigned i = 0; i < arrays; i++) {
		snprintf(names[i], sizeof(names[i]), "layers.%u.weight", i);
		specs[i] =
			(struct gpushm_array_spec){ .struct_size = sizeof(struct gpushm_array_spec),
						    .name = names[i],
						    .ndim = 2,
						    .shape = shape,
						    .offset = 256ull * i };
		bench_ok(gpushm_dtype_parse("float32", &specs[i].dtype), "dtype");
	}
	return r < 0 || arrays == 0 ? r : gpushm_describe(*ret, specs, arrays);
}

void bench_publish(struct gpushm *c, const char *name, enum gpushm_kind kind, uint64_t bytes,
		   unsigned arrays)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = kind_word(kind) };
	struct gpushm_buffer *buffer = NULL;

	bench_ok(create(c, name, &o, bytes, arrays, &buffer), name);
	bench_ok(gpushm_publish(buffer, GPUSHM_SEALED), name);
	bench_ok(gpushm_close(buffer), name);
}

static size_t weigh(struct raw *r, const Gpushm__Proto__Request *q, struct trip *ret)
{
	unsigned char frame[FRAME_MAX];

	bench_call(r, q);
	ret->request = raw_pack(q, frame);
	ret->reply = r->frame.len;
	ret->request = ret->request < FLOOR_REQUEST_BYTES ? FLOOR_REQUEST_BYTES : ret->request;
	return ret->reply;
}

/* Sends each request once, with the fields that the library fills in. */
static void weigh_all(struct bench *b)
{
	const Gpushm__Proto__Access read = GPUSHM__PROTO__ACCESS__ACCESS_READ;
	struct raw *r = &b->raw;
	uint64_t lease;

	bench_publish(b->c, "bench/weight", GPUSHM_HOST, 4096, 0);
	weigh(r, REQUEST(STAT, Stat, stat, BYTES(name, "bench/weight"), SET(holders, 0)), &b->stat);
	weigh(r,
	      REQUEST(OPEN, Open, open, BYTES(name, "bench/weight"), SET(access, read),
		      SET(refuse_dirty, 0)),
	      &b->open);
	lease = r->reply->attach->lease;
	weigh(r, REQUEST(CLOSE, Close, close, SET(lease, lease)), &b->close);
	weigh(r,
	      REQUEST(CREATE, Create, create, BYTES(name, "bench/made.0"), BYTES(pool, "host"),
		      SET(size_bytes, 2u << 20), SET(mode, 0600)),
	      &b->create);
	lease = r->reply->attach->lease;
	bench_call(r, REQUEST(CLOSE, Close, close, SET(lease, lease)));
	b->open.op = FLOOR_LEND;
}

void bench_begin(struct bench *b)
{
	char config[1024];

	b->gpu = (!b->o.pool || strcmp(b->o.pool, "host") != 0) && gpu_open();
	snprintf(config, sizeof(config), "[daemon]\nbusy-poll=%u\n%s%s", b->o.busy_poll,
		 b->gpu ? gpu_pools : host_pools, limits);
	supervisor_init(&b->supervisor, config);
	supervisor_start(&b->supervisor);
	bench_ok(gpushm_connect(b->supervisor.socket, &b->c), "connect");
	raw_greet(&b->raw, b->supervisor.socket);
	floor_start(&b->floor, b->supervisor.folder, b->gpu);
	weigh_all(b);
}

void bench_end(struct bench *b)
{
	floor_stop(&b->floor);
	raw_close(&b->raw);
	gpushm_disconnect(b->c);
	supervisor_end(&b->supervisor, SIGTERM);
	supervisor_done(&b->supervisor);
	if (b->gpu)
		gpu_close();
}
