/* SPDX-License-Identifier: MIT
 *
 * All the pools of the daemon, the GPUs they are on and the threads that serve them.
 */
#pragma once

#include "daemon/config/config.h"
#include "daemon/pool/pool.h"

struct pools {
	struct list all; /* pool::link, in the order of their ids */
	uv_loop_t *loop;
	const struct config *config; /* borrowed until all pools are made */
	struct devices devices;
	struct worker *worker; /* owned; serves pools without a GPU */
	struct worker *prober; /* owned; looks for GPUs; a hanging driver may keep it */
	struct devices found;  /* by the prober */
	bool needs_devices;    /* the driver makes a pool's memory */
	uv_timer_t patience;   /* how long the daemon waits for the prober */
	struct job probe;
	unsigned opening, open;
	uint32_t last_id;
	uint32_t renewed;	      /* id of the pool that is being renewed; 0: none */
	bool probed, made, closing;   /* the prober is done; the pools have been made */
	void (*on_ready)(void *arg);  /* each pool is ready or has failed */
	void (*on_failed)(void *arg); /* set before pools_open(): a device is lost */
	void (*on_closed)(void *arg); /* each pool is gone */
	/* Set before pools_open(). on_opened: this pool is ready, and its first request comes next.
	 * on_renewed: so is this one, and the former one can be swept. */
	void (*on_opened)(const struct pool *pool, void *arg);
	void (*on_renewed)(const struct pool *pool, void *arg);
	void *arg;
};

/* Starts without pools. on_ready comes once, after pools_open(). 0 or -errno. */
int pools_init(struct pools *p, uv_loop_t *loop, const struct config *config,
	       void (*on_ready)(void *arg), void *arg);

/* Looks for GPUs if a pool needs one, which takes the driver 0.2 s on a thread of its own. Then
 * makes the pools of the configuration, or the default ones, and starts adopted ones. If the driver
 * does not respond within driver-timeout, the daemon goes on without GPUs. */
void pools_open(struct pools *p);

/* Makes a pool of an earlier daemon, before pools_open() has found the GPUs. pool_fd: a mempool's
 * own; the function owns it. 0 or -errno. */
int pools_adopt(struct pools *p, const struct pool_config *config, uint32_t id, uint64_t size,
		uint64_t granularity, const struct device *known, int pool_fd, struct pool **ret);

/* NULL if there is none. */
struct pool *pools_by_id(const struct pools *p, uint32_t id);

/* Call it after the last pools_adopt(). Makes a successor for each retired mempool, so that a
 * CREATE in it waits for the driver, as in pools of other kinds. */
void pools_replace_retired(struct pools *p);

/* Closes retired pools that have no block left; calls on_swept for each one before. */
void pools_sweep(struct pools *p, void (*on_swept)(const struct pool *pool, void *arg), void *arg);

/* Call it each second. The driver keeps all memory that an exported mempool ever had, as long as
 * its fd exists anywhere. So a mempool that had more than pool_pending_max(), has been empty for
 * pending-max-age and is not in `lent` (bits of pool::index: clients have its fd) is retired, once
 * a fresh one is ready in its place. */
void pools_renew(struct pools *p, uint64_t lent);

/* Call it periodically (each second): looks for driver calls that take too long, and calls
 * on_failed after a change. */
void pools_look(struct pools *p, uint32_t seconds);

/* Whether a thread has been in the driver for longer than that. */
bool pools_stuck(const struct pools *p, uint32_t seconds);

/* Closes every pool; blocks must be gone or about to go. on_closed comes once, later. */
void pools_close(struct pools *p, void (*on_closed)(void *arg));

/* Ends the threads, after on_closed. Blocks while they have work; the loop must run once more. */
void pools_done(struct pools *p);

/* Gives each pool what a reload may change. */
void pools_reload(struct pools *p, const struct config *fresh);

/* ---- pools_check.c ---- */

/* Reports sizes and a default pool that this machine does not have. May load the driver: 0.2 s. 0
 * or -EINVAL. */
int pools_check(const struct config *c, FILE *errors);
