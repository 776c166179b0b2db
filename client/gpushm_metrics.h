/* SPDX-License-Identifier: MIT
 *
 * What the daemon counts, for programs that watch it. gpushmctl metrics and gpushm-exporter(8) show
 * it as text. Errors, ownership and threads are as gpushm.h says.
 */
#ifndef GPUSHM_METRICS_H
#define GPUSHM_METRICS_H

#include <gpushm.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* How many requests had a result: "OK", or a word as gpushm_error_code() has it. */
struct gpushm_result {
	const char *code; /* static */
	uint64_t count;
};

/* The requests of one verb. */
struct gpushm_verb_metrics {
	char verb[32]; /* "open"; "unknown": connections that were refused */
	struct gpushm_result *results;
	size_t n_results;
	/* By the time from reading the request to its reply: as many as gpushm_metrics::bounds_ns
	 * and one more, for longer times. Without the requests that waited for a name or a change.
	 */
	uint64_t *buckets;
	uint64_t ns;		   /* the sum of these times */
	uint64_t waits, waited_ns; /* requests that waited, and the sum of their times */
};

/* The calls of one function of the driver. */
struct gpushm_driver_call {
	char call[48]; /* "cuMemCreate" */
	uint64_t count, failed, ns;
};

/* One pool. */
struct gpushm_pool_metrics {
	struct gpushm_pool pool;	  /* device is -1, and why is "" */
	uint32_t filling, sealed, shared; /* buffers, by state */
};

/* All streams together. What producers say of their frames and stalls is added up as it is. */
struct gpushm_stream_metrics {
	int known;			   /* 0: the daemon has no streams, and all below is 0 */
	uint32_t running, ended, orphaned; /* streams, by the state of their producer */
	uint32_t every, latest, share;	   /* readers that have joined, by how they follow */
	uint32_t waiting; /* producers that have waited for a reader for a second or longer */
	uint64_t frames;  /* that were published */
	uint64_t stalls, stalled_ns; /* how often producers waited for readers, and how long */
	uint64_t dropped;	     /* readers that held up their producer for too long */
	uint64_t redone, lost;	     /* frames of dead `share` readers that others got, or nobody */
	uint64_t reader_deaths, producer_deaths; /* processes that ended while they were that */
};

/* Since the daemon started, unless it says otherwise. */
struct gpushm_metrics {
	uint64_t started_ns; /* CLOCK_REALTIME */
	struct gpushm_verb_metrics *verbs;
	size_t n_verbs;
	uint64_t *bounds_ns; /* rising; a time belongs to the first bound that is not below it */
	size_t n_bounds;
	struct gpushm_driver_call *driver_calls;
	size_t n_driver_calls;
	/* Of the kinds that this library knows. After a restart two mempools may have one name: the
	 * one before it, which is failed, and the new one. */
	struct gpushm_pool_metrics *pools;
	size_t n_pools;
	uint32_t read_leases, write_leases;
	/* Processes that ended while they had buffers open: for reading, for writing, or not
	 * published. */
	uint64_t reader_deaths, writer_deaths, creator_deaths;
	/* Over restarts: daemons that took over from an earlier one, buffers that they found again,
	 * and buffers that they did not. */
	uint64_t restarts, restored, lost;
	struct gpushm_stream_metrics streams;
};
/* What the daemon counts beside gpushm_status(). Free *ret with gpushm_metrics_free(). Asks the
 * daemon; does not start the driver. */
int gpushm_metrics(struct gpushm *c, struct gpushm_metrics **ret);
/* NULL is allowed. Returns NULL. */
struct gpushm_metrics *gpushm_metrics_free(struct gpushm_metrics *m);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
