/* SPDX-License-Identifier: MIT
 *
 * All the pools of the daemon, the GPUs they are on and the threads that serve them.
 */
#ifndef GPUSHM_DAEMON_POOL_POOLS_H
#define GPUSHM_DAEMON_POOL_POOLS_H

#include "daemon/config/config.h"
#include "daemon/pool/pool.h"

struct pools {
	struct list all; /* pool::link, in the order of their ids */
	uv_loop_t *loop;
	const struct config *config; /* borrowed, until every pool has been made */
	struct devices devices;
	struct worker *worker; /* owned; serves what has no GPU */
	struct worker *prober; /* owned; looks for GPUs, which may take for ever */
	struct devices found;  /* by it */
	bool needs_devices;    /* a pool has its memory there */
	uv_timer_t patience;   /* with it */
	struct job probe;
	unsigned opening, open;
	uint32_t last_id;
	bool probed, made, closing;   /* the driver has answered; the pools have been made */
	void (*on_ready)(void *arg);  /* each pool is ready or has failed */
	void (*on_failed)(void *arg); /* set after pools_open(): a device is lost */
	void (*on_closed)(void *arg); /* each pool is gone */
	void *arg;
};

/* No pools yet. on_ready comes once, after pools_open(). 0 or -errno. */
int pools_init(struct pools *p, uv_loop_t *loop, const struct config *config,
	       void (*on_ready)(void *arg), void *arg);

/* Looks for GPUs where a pool needs one, which takes the driver 0.2 s on a thread of its own, then
 * makes the pools that the configuration asks for, or the default ones; those that were adopted are
 * gone on with. A driver that does not answer in driver-timeout is done without. */
void pools_open(struct pools *p);

/* A pool of an earlier daemon, before pools_open() has found the GPUs. pool_fd: a mempool's own,
 * taken over. 0 or -errno. */
int pools_adopt(struct pools *p, const struct pool_config *config, uint32_t id, uint64_t size,
		uint64_t granularity, const struct device *told, int pool_fd, struct pool **ret);

/* After every pool_adopt: makes a successor for each mempool that was inherited, so that who
 * creates in it waits for the driver, as with the other kinds. */
void pools_succeed(struct pools *p);

/* Closes inherited pools that have no block left; each is told of while it is still there. */
void pools_sweep(struct pools *p, void (*on_swept)(const struct pool *pool, void *arg), void *arg);

/* Now and then: whether a driver call takes too long. on_failed tells of a change. */
void pools_look(struct pools *p, uint32_t seconds);

/* Whether a thread is in the driver for longer than that now. */
bool pools_stuck(const struct pools *p, uint32_t seconds);

/* Closes every pool; blocks must be gone or about to go. on_closed comes once, later. */
void pools_close(struct pools *p, void (*on_closed)(void *arg));

/* Ends the threads, after on_closed. Blocks for as long as they have work; the loop must run once
 * more. */
void pools_done(struct pools *p);

/* Gives each pool what a reload may change. */
void pools_reload(struct pools *p, const struct config *fresh);

#endif
