/* SPDX-License-Identifier: MIT
 *
 * A producer and a reader of the stream "s" without the library: the test sends their requests and
 * writes their words. As actors they are processes that can die.
 */
#pragma once

#include "tests/lib/client.h"
#include "tests/lib/raw_stream.h"

#include <unistd.h>

static struct actor producer_process, reader_process;
static struct raw p, q; /* the producer's and the reader's connection */
static uint64_t producer, reader, p_session, q_session; /* leases and sessions */
static struct stream_head *head;

static inline void sides_start(const char *socket)
{
	actor_start(&producer_process, socket, getuid(), getgid());
	actor_start(&reader_process, socket, getuid(), getgid());
	p_session = raw_greet_as(&p, &producer_process);
	q_session = raw_greet_as(&q, &reader_process);
}

static inline void sides_make_stream(void)
{
	producer = raw_produce(&p, "s");
	reader = raw_open(&q, "s");
	head = raw_map_page(&p, producer, STREAM_PAGE_HEAD);
}

/* Closes its connection and kills its process. */
static inline void side_end(struct actor *a, struct raw *r)
{
	raw_close(r);
	if (a->pid)
		actor_kill(a);
}

static inline void producer_dies(void)
{
	side_end(&producer_process, &p);
}

static inline void reader_dies(void)
{
	side_end(&reader_process, &q);
}

static inline void sides_end(void)
{
	producer_dies();
	reader_dies();
	client_await(client_status().leases == 0);
	gpushm_unlink(c, "s");
}

/* The side connects to the next daemon, and takes its lease back; 0: it has closed it meanwhile. */
static inline void side_returns(struct raw *r, struct actor *a, uint64_t *session, uint64_t lease)
{
	uint64_t former = *session;

	raw_close(r);
	*session = raw_greet_as(r, a);
	ck_assert_int_eq(raw_call(r, REQUEST(RECLAIM, Reclaim, reclaim, SET(session, former),
					     .n_leases = lease != 0, .leases = &lease,
					     SET(last, true))),
			 0);
	ck_assert_uint_eq(r->reply->reclaimed->n_lost, 0);
}

static inline void producer_returns(void)
{
	side_returns(&p, &producer_process, &p_session, producer);
}

static inline void reader_returns(void)
{
	side_returns(&q, &reader_process, &q_session, reader);
}

static inline void both_return(void)
{
	producer_returns();
	reader_returns();
}
