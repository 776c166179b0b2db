/* SPDX-License-Identifier: MIT
 *
 * Requests a second: many connections that always have one request in progress, and a server on one
 * core. The same threads send requests to gpushmd and to the floor, by turns. The server's CPU time
 * for a request is a row of its own: if the clients have too few cores, the rate measures them and
 * not the server.
 */
#include "tests/bench/bench.h"

#include "proto/base/own.h"

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define THREADS_MAX 8u
#define SLICES 10u

struct side {
	pid_t pid;
	int *sockets;
	size_t request;
	unsigned char frame[256];
	struct sample rate, cpu; /* a second; us for each request */
};

struct asker {
	pthread_t thread;
	const struct side *side;
	unsigned first, end; /* of its sockets */
	atomic_bool *stop;
	unsigned long done;
};

static void *ask(void *arg)
{
	struct asker *a = arg;
	unsigned char in[4096];

	while (!*a->stop) {
		for (unsigned i = a->first; i < a->end; i++)
			if (send(a->side->sockets[i], a->side->frame, a->side->request,
				 MSG_NOSIGNAL) < 0)
				abort();
		for (unsigned i = a->first; i < a->end; i++)
			if (recv(a->side->sockets[i], in, sizeof(in), 0) <= 0)
				abort();
		a->done += a->end - a->first;
	}
	return NULL;
}

static double cpu_us(pid_t pid)
{
	struct timespec t = { 0 };
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) < 0)
		ck_abort_msg("no clock of process %d", pid);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void slice(struct side *s, unsigned clients, unsigned threads, double seconds)
{
	struct asker askers[THREADS_MAX];
	atomic_bool stop = false;
	double start = now_us(), cpu = cpu_us(s->pid), n = 0;

	for (unsigned i = 0; i < threads; i++) {
		askers[i] = (struct asker){ .side = s,
					    .first = clients * i / threads,
					    .end = clients * (i + 1) / threads,
					    .stop = &stop };
		pthread_create(&askers[i].thread, NULL, ask, &askers[i]);
	}
	nanosleep(&(struct timespec){ (time_t)seconds, (long)((seconds - (int)seconds) * 1e9) },
		  NULL);
	stop = true;
	for (unsigned i = 0; i < threads; i++) {
		pthread_join(askers[i].thread, NULL);
		n += (double)askers[i].done;
	}
	sample_add(&s->rate, n * 1e6 / (now_us() - start));
	sample_add(&s->cpu, (cpu_us(s->pid) - cpu) / n);
}

/* One core for the servers, the others for the clients. Returns the number of client threads. */
static unsigned share_cores(const struct side *a, const struct side *b, cpu_set_t *all)
{
	cpu_set_t one, rest;
	int first = 0, n;

	sched_getaffinity(0, sizeof(*all), all);
	n = CPU_COUNT(all);
	while (!CPU_ISSET(first, all))
		first++;
	rest = *all;
	CPU_ZERO(&one);
	CPU_SET(first, &one);
	if (n > 1)
		CPU_CLR(first, &rest);
	sched_setaffinity(a->pid, sizeof(one), &one);
	sched_setaffinity(b->pid, sizeof(one), &one);
	sched_setaffinity(0, sizeof(rest), &rest);
	return n <= 2 ? 1 : n - 1 < (int)THREADS_MAX ? (unsigned)n - 1 : THREADS_MAX;
}

static void prepare_ours(struct side *s, const struct bench *b)
{
	const Gpushm__Proto__Request *q =
		REQUEST(STAT, Stat, stat, BYTES(name, "bench/weight"), SET(holders, 0));
	static struct raw r;
	unsigned char frame[FRAME_MAX];

	s->pid = b->supervisor.pid;
	s->sockets = calloc(b->o.clients, sizeof(*s->sockets));
	s->request = raw_pack(q, frame);
	ck_assert_uint_le(s->request, sizeof(s->frame));
	memcpy(s->frame, frame, s->request);
	for (unsigned i = 0; i < b->o.clients; i++) {
		raw_greet(&r, b->supervisor.socket);
		s->sockets[i] = take_fd(&r.socket);
		raw_close(&r);
	}
}

static void prepare_floor(struct side *s, const struct bench *b)
{
	const struct floor_request ask = { FLOOR_ECHO, 0, (uint16_t)b->stat.reply, 0 };

	s->pid = b->floor.process.pid;
	s->sockets = calloc(b->o.clients, sizeof(*s->sockets));
	s->request = b->stat.request;
	memcpy(s->frame, &ask, sizeof(ask));
	for (unsigned i = 0; i < b->o.clients; i++)
		s->sockets[i] = floor_connect(&b->floor);
}

static void side_done(struct side *s, const struct bench *b)
{
	for (unsigned i = 0; i < b->o.clients; i++)
		close_fd(&s->sockets[i]);
	free(s->sockets);
	sample_done(&s->rate);
	sample_done(&s->cpu);
}

static void tell(struct bench *b, struct side *ours, struct side *floor)
{
	struct row rate = { .id = "rate",
			    .floor_is = "the echo server, the same frames",
			    .unit = "1/s",
			    .reach = REACH_RATE,
			    .at_most = 0.8 };
	struct row cpu = { .id = "rate_cpu",
			   .floor_is = "the echo server, the same frames",
			   .unit = "us" };

	snprintf(rate.what, sizeof(rate.what), "requests (STAT), %u clients, one core",
		 b->o.clients);
	snprintf(cpu.what, sizeof(cpu.what), "the server's time for one of them");
	rate.ours = sample_figures(&ours->rate);
	rate.floor = sample_figures(&floor->rate);
	cpu.ours = sample_figures(&ours->cpu);
	cpu.floor = sample_figures(&floor->cpu);
	rows_add(&b->rows, &rate);
	rows_add(&b->rows, &cpu);
}

void rate_run(struct bench *b)
{
	struct side ours = { 0 }, floor = { 0 };
	double seconds = b->o.quick ? 0.02 : (double)b->o.seconds / SLICES;
	cpu_set_t all;
	unsigned threads;

	if (!options_want(&b->o, "rate"))
		return;
	prepare_ours(&ours, b);
	prepare_floor(&floor, b);
	threads = share_cores(&ours, &floor, &all);
	for (unsigned i = 0; i < SLICES; i++) {
		slice(&ours, b->o.clients, threads, seconds);
		slice(&floor, b->o.clients, threads, seconds);
	}
	sched_setaffinity(ours.pid, sizeof(all), &all);
	sched_setaffinity(floor.pid, sizeof(all), &all);
	sched_setaffinity(0, sizeof(all), &all);
	tell(b, &ours, &floor);
	side_done(&ours, b);
	side_done(&floor, b);
}
