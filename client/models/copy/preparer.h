/* SPDX-License-Identifier: MIT
 *
 * The transport of a load, and a thread that opens it ahead: the driver while headers are read and
 * checked, which takes longer, and the slots while the buffer is created. What fails there is tried
 * again when it is needed, and reported then.
 */
#pragma once

#include "client/models/copy/transport.h"
#include "gpushm_records.h"

#include <pthread.h>
#include <semaphore.h>

struct preparer {
	struct gpushm *c;
	char *pool; /* owned; NULL: the default pool */
	struct gpushm_pool *
		*pools; /* owned: the daemon's; NULL: it was not asked, or did not say */
	size_t n_pools;
	int device; /* that the caller wants to map for, or any */
	pthread_t thread;
	bool running; /* the thread was started and not joined */
	bool told;
	sem_t tell;	  /* posted once `threads` is known */
	unsigned threads; /* of the load; 0: it did not say */
	struct transport transport;
};

/* options: of the buffer that will be created; NULL is allowed. 0 or -ENOMEM with gpushm_error()
 * set. */
int preparer_init(struct preparer *p, struct gpushm *c,
		  const struct gpushm_create_options *options);
/* Ends the thread and closes the transport. Keeps gpushm_error(). */
void preparer_clear(struct preparer *p);

/* Starts the thread, unless the pool is one of host memory. Without it all is done by
 * preparer_transport(). */
void preparer_start(struct preparer *p);
/* The load will have so many threads. Only the first call counts. */
void preparer_tell(struct preparer *p, unsigned threads);
/* Waits for the thread. */
void preparer_await(struct preparer *p);

/* After preparer_await(): the transport has memory for so many threads, and copies to this buffer.
 * 0, or -ENODEV, -ENOMEM, -EIO with gpushm_error() set. */
int preparer_transport(struct preparer *p, const struct gpushm_buffer *b, unsigned threads);
