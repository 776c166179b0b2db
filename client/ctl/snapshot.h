/* SPDX-License-Identifier: MIT
 *
 * A snapshot: everything that a daemon says of itself at one time, and its text. This is the one
 * place that names the metrics; gpushm-exporter(8) describes them.
 */
#pragma once

#include "client/common/exposition.h"
#include "client/gpushm_metrics.h"
#include "client/gpushm_query.h"
#include "client/gpushm_stream.h"

#define SNAPSHOT_STREAMS_MAX 100u /* streams that are shown one by one: the oldest */

/* What is shown of each: series that the users of a machine make, so only if it is asked for. */
enum snapshot_by { SNAPSHOT_BY_OWNER = 1, SNAPSHOT_BY_STREAM = 2 };

struct snapshot {
	struct gpushm_status *status;	    /* owned; NULL: no daemon replied */
	struct gpushm_metrics *metrics;	    /* owned; NULL with the status */
	struct gpushm_pool_metrics **pools; /* owned; one for each name, of metrics */
	size_t n_pools;
	struct gpushm_stream_info **streams; /* owned; with SNAPSHOT_BY_STREAM */
	size_t n_streams;
};

/* Asks the daemon. by: enum snapshot_by. 0; -errno with gpushm_error(), and *ret is empty. */
int snapshot_read(struct gpushm *c, unsigned by, struct snapshot *ret);

/* Of an empty snapshot: that the daemon is down, and nothing else. by: enum snapshot_by; of owners
 * and streams those that the daemon tells this user about. */
void snapshot_write(const struct snapshot *s, struct exposition *e, unsigned by);

/* The snapshot is empty afterwards. */
void snapshot_done(struct snapshot *s);
