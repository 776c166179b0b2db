/* SPDX-License-Identifier: MIT
 *
 * Starts: the time until the daemon is ready, and, if it restores many buffers, until its first
 * reply to an OPEN. The floor is a program of a few lines, which the same supervisor starts with
 * the same fds.
 */
#include "tests/bench/bench.h"

#include "proto/base/own.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define DAEMON "gpushmd"
#define BARE "tests/bench/bare_start"

static unsigned rounds(const struct bench *b)
{
	return b->o.quick ? 3 : 15;
}

/* ---- ready ---- */

static double start_once(const char *program, const char *config)
{
	struct supervisor k;
	double start, end;

	supervisor_init(&k, config);
	k.program = program;
	start = now_us();
	supervisor_start(&k);
	end = now_us();
	supervisor_end(&k, strcmp(program, DAEMON) == 0 ? SIGTERM : SIGKILL);
	supervisor_done(&k);
	return (end - start) / 1e3;
}

static void race_ready(struct bench *b, struct row *row, const char *config)
{
	_cleanup_(sample_done) struct sample ours = { 0 }, floor = { 0 };

	if (!options_want(&b->o, row->id))
		return;
	for (unsigned i = 0; i < rounds(b); i++) {
		sample_add(&ours, start_once(DAEMON, config));
		sample_add(&floor, start_once(BARE, config));
	}
	row->unit = "ms";
	row->ours = sample_figures(&ours);
	row->floor = sample_figures(&floor);
	rows_add(&b->rows, row);
}

static void ready_run(struct bench *b)
{
	struct row host = { .id = "start_host",
			    .what = "the daemon is ready, host pools",
			    .floor_is = "a program is ready",
			    .reach = REACH_VALUE,
			    .at_most = 20 };
	struct row gpu = { .id = "start_gpu",
			   .what = "the daemon is ready, vmm, mempool and host pools",
			   .floor_is = "a program that calls cuInit is ready",
			   .reach = REACH_DIFFERENCE,
			   .at_most = 30 };

	if (bench_has(b, GPUSHM_HOST))
		race_ready(b, &host, "[pool host]\nkind=host\n");
	if (!b->gpu)
		return;
	setenv("BARE_START_DRIVER", "1", 1);
	race_ready(b, &gpu,
		   "[pool vmm]\nkind=vmm\n[pool mempool]\nkind=mempool\n[pool host]\nkind=host\n");
	unsetenv("BARE_START_DRIVER");
}

/* ---- restart with buffers ---- */

static void fill(const struct supervisor *k, enum gpushm_kind kind, unsigned n)
{
	struct gpushm *c = NULL;
	char name[32];

	bench_ok(gpushm_connect(k->socket, &c), "connect");
	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "kept/%u", i);
		bench_publish(c, name, kind, kind == GPUSHM_HOST ? 4096 : 2u << 20, 0);
	}
	gpushm_disconnect(c);
}

static void attach_first(const struct supervisor *k)
{
	static struct raw r;

	raw_greet(&r, k->socket);
	raw_open(&r, "kept/0");
	raw_close(&r);
}

static void say_two(const struct supervisor *k, const struct trip *t)
{
	static struct raw r;
	static const unsigned char zeros[256];

	raw_connect(&r, k->socket);
	for (int i = 0; i < 2; i++)
		if (raw_send(&r, zeros, t->request) < 0 ||
		    wire_recv_bytes(r.socket, &r.frame, 0) < 0)
			ck_abort_msg("the bare program does not reply");
	raw_close(&r);
}

static double restart_once(struct bench *b, struct supervisor *k, const char *program)
{
	double start, end;

	k->program = program;
	start = now_us();
	supervisor_spawn(k);
	if (strcmp(program, DAEMON) == 0)
		attach_first(k);
	else
		say_two(k, &b->open);
	end = now_us();
	supervisor_await(k);
	supervisor_end(k, SIGKILL);
	return (end - start) / 1e3;
}

static void race_restart(struct bench *b, struct supervisor *k, struct row *row)
{
	_cleanup_(sample_done) struct sample ours = { 0 }, floor = { 0 };

	for (unsigned i = 0; i < rounds(b); i++) {
		sample_add(&ours, restart_once(b, k, DAEMON));
		sample_add(&floor, restart_once(b, k, BARE));
	}
	row->ours = sample_figures(&ours);
	row->floor = sample_figures(&floor);
}

static void restart_run(struct bench *b, enum gpushm_kind kind)
{
	struct row row = { .unit = "ms",
			   .floor_is = "a program that takes over as many fds answers",
			   .reach = REACH_DIFFERENCE,
			   .at_most = 30 };
	struct supervisor k;
	char config[128];

	snprintf(row.id, sizeof(row.id), "restart_%s", kind_word(kind));
	snprintf(row.what, sizeof(row.what), "restart with %u buffers: first OPEN answered, %s",
		 b->o.buffers, kind_word(kind));
	if (!bench_has(b, kind) || !options_want(&b->o, row.id))
		return;
	snprintf(config, sizeof(config), "[pool %s]\nkind=%s\n[limits]\nmax-buffers=unlimited\n",
		 kind_word(kind), kind_word(kind));
	supervisor_init(&k, config);
	supervisor_start(&k);
	fill(&k, kind, b->o.buffers);
	supervisor_end(&k, SIGKILL);
	race_restart(b, &k, &row);
	supervisor_done(&k);
	rows_add(&b->rows, &row);
}

void start_run(struct bench *b)
{
	ready_run(b);
	restart_run(b, GPUSHM_HOST);
	restart_run(b, GPUSHM_VMM);
}
