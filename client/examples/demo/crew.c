/* SPDX-License-Identifier: MIT
 *
 * Owns the workers. All are started before any is waited for. They attach to the model one after
 * the other, when CUDA has started in all of them: so each time is that of an attach, and not of a
 * wait for the driver's locks. All are attached before any computes: in between the daemon can be
 * asked who holds what.
 */
#include "client/examples/demo/crew.h"

#include "client/examples/demo/wait.h"

#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define READY_MS 120000 /* eight processes start CUDA at once */
#define ATTACH_MS 20000
#define COMPUTE_MS 60000

int crew_start(struct crew *c, const char *program, const char *socket, long first, long count)
{
	for (long i = 0; i < CREW_SIZE; i++) {
		long from = count * i / CREW_SIZE, end = count * (i + 1) / CREW_SIZE;
		int r = worker_start(program, socket, first + from, end - from, &c->workers[i]);

		if (r < 0) {
			warnx("%s: %s", program, strerror(-r));
			return r;
		}
	}
	return 0;
}

/* Calls one of the waits for each worker, and says which failed. */
static int each_worker(struct crew *c, int (*wait)(struct worker *, int64_t), int64_t ms,
		       const char *what)
{
	int64_t deadline = wait_deadline(ms);

	for (int i = 0; i < CREW_SIZE; i++) {
		int r = wait(c->workers[i], deadline);

		if (r < 0) {
			if (r != -EINTR)
				warnx("worker %d didn't %s: %s", i, what,
				      r == -EPROTO ? "it ended, or said something else"
						   : strerror(-r));
			return r;
		}
	}
	return 0;
}

int crew_attach(struct crew *c)
{
	int r = each_worker(c, worker_ready, READY_MS, "get ready");

	return r < 0 ? r : each_worker(c, worker_attach, ATTACH_MS, "attach");
}

int crew_work(struct crew *c)
{
	for (int i = 0; i < CREW_SIZE; i++) {
		int r = worker_go(c->workers[i]);

		if (r < 0) {
			warnx("worker %d: %s", i, strerror(-r));
			return r;
		}
	}
	return each_worker(c, worker_done, COMPUTE_MS, "finish");
}

long crew_print(const struct crew *c)
{
	long right = 0, count = 0;

	printf("worker     samples      right  accuracy  first open     attach  computed on\n");
	for (int i = 0; i < CREW_SIZE; i++) {
		const struct worker *w = c->workers[i];

		printf("%6d  %4ld - %4ld  %3ld / %3ld   %6.2f %%  %7.2f ms  %6.0f us  %s\n", i,
		       w->first, w->first + w->count - 1, w->right, w->count,
		       100.0 * (double)w->right / (double)w->count, w->start_us / 1e3, w->attach_us,
		       w->where);
		right += w->right;
		count += w->count;
	}
	printf("   all               %3ld / %3ld   %6.2f %%\n\n", right, count,
	       100.0 * (double)right / (double)count);
	return right;
}

void crew_clear(struct crew *c)
{
	for (int i = 0; i < CREW_SIZE; i++)
		c->workers[i] = worker_free(c->workers[i]);
}
