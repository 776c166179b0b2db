/* SPDX-License-Identifier: MIT
 *
 * Coming back to a daemon that died and was started again, or that another program has taken over
 * from. Only a daemon that said at HELLO that it is kept is waited for; any other is tried at once,
 * for across a planned restart its socket stays open, and else it is closed. Only the same one is
 * taken (its id outlives its process and its program); then the leases that this process still has
 * are reclaimed, and the request that was under way is sent again. The socket keeps its fd number,
 * for whoever polls it.
 *
 * A lease that the daemon does not know any more leaves its buffer as it is, mapped and usable:
 * only its close has nothing to tell.
 */
#include "client/link/reconnect.h"

#include "client/base/endpoint.h"
#include "client/base/error.h"
#include "client/link/hello.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>

#define WAIT_MS_DEFAULT 10000u
#define ANSWER_MS_MIN 1000u
#define BACKOFF_MS_MAX 250u
#define BATCH 4096u /* leases in one RECLAIM: 10 bytes each at most */
_Static_assert(BATCH * 10 + 64 < FRAME_MAX, "a batch fits a frame");

uint64_t reconnect_ms(void)
{
	const char *text = getenv("GPUSHM_RECONNECT_MS");
	unsigned long long ms = text ? strtoull(text, NULL, 10) : WAIT_MS_DEFAULT;

	return ms > INT_MAX ? INT_MAX : ms;
}

uint64_t reconnect_answer_ms(void)
{
	uint64_t ms = reconnect_ms();

	return ms > ANSWER_MS_MIN ? ms : ANSWER_MS_MIN;
}

bool reconnect_may_help(int r)
{
	return r == -ENOENT || r == -ECONNREFUSED;
}

/* 1, 2, 4, ... 250 ms between the tries. */
static int connect_again(struct gpushm *c, uint64_t deadline, int *ret_fd)
{
	unsigned pause = 1;
	uid_t server;
	int r;

	while (reconnect_may_help(
		       r = endpoint_connect(c->path, reconnect_answer_ms(), ret_fd, &server)) &&
	       clock_monotonic_ms() < deadline) {
		poll(NULL, 0, (int)pause);
		pause = pause * 2 > BACKOFF_MS_MAX ? BACKOFF_MS_MAX : pause * 2;
	}
	return r;
}

/* ---- RECLAIM ---- */

static struct held *find(const struct gpushm *c, uint64_t lease)
{
	struct held *it;

	list_foreach (it, &c->held, link)
		if (it->lease == lease)
			return it;
	return NULL;
}

static int reclaim_batch(struct gpushm *c, uint64_t session, uint64_t *leases, size_t n, bool last)
{
	Gpushm__Proto__Reclaim reclaim = GPUSHM__PROTO__RECLAIM__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;
	Gpushm__Proto__Reply *reply;
	int r;

	reclaim.has_session = reclaim.has_last = true;
	reclaim.session = session;
	reclaim.last = last;
	reclaim.leases = leases;
	reclaim.n_leases = n;
	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_RECLAIM;
	request.reclaim = &reclaim;
	r = connection_exchange(c, &request, GPUSHM__PROTO__REPLY__RESULT_RECLAIMED, &reply);
	if (r < 0)
		return r;
	for (size_t i = 0; i < reply->reclaimed->n_lost; i++) {
		struct held *it = find(c, reply->reclaimed->lost[i]);

		if (it)
			it->lost = true;
	}
	return 0;
}

static int reclaim(struct gpushm *c, uint64_t session)
{
	uint64_t leases[BATCH];
	struct held *it;
	size_t n = 0;

	list_foreach (it, &c->held, link) {
		if (it->lost)
			continue;
		leases[n++] = it->lease;
		if (n == BATCH) {
			int r = reclaim_batch(c, session, leases, n, false);

			if (r < 0)
				return r;
			n = 0;
		}
	}
	return reclaim_batch(c, session, leases, n, true);
}

/* ---- the whole ---- */

/* The old session is this connection's until all of its leases are reclaimed: should the daemon die
 * in between, they are asked for by the same one again. */
static int hello_again(struct gpushm *c)
{
	unsigned char before[DAEMON_ID_BYTES];
	uint64_t session = c->session, fresh;
	int r;

	memcpy(before, c->daemon, sizeof(before));
	r = connect_hello(c);
	if (r < 0)
		return r;
	fresh = c->session;
	c->session = session;
	if (memcmp(before, c->daemon, sizeof(before)) != 0) {
		/* Nothing of ours will ever be there: no later call need try. */
		c->over = c->broken = true;
		return error_set(ECONNRESET,
				 "another daemon serves %s now, and it knows nothing of what this "
				 "process has open: connect again",
				 c->path ? c->path : "the socket");
	}
	r = reclaim(c, session);
	if (r == 0)
		c->session = fresh;
	return r;
}

static int try_once(struct gpushm *c, uint64_t deadline)
{
	_cleanup_(close_fd) int fd = -1;
	int r = connect_again(c, deadline, &fd);

	if (r < 0) {
		c->broken = true;
		c->over = !c->kept;
		return error_set(ECONNREFUSED,
				 c->kept ? "the daemon has gone and does not come back: %s"
					 : "the daemon has gone (%s): connect again",
				 strerror(-r));
	}
	c->broken = false;
	/* Whoever polls the fd keeps its number. */
	if (dup3(fd, c->socket, O_CLOEXEC) < 0)
		r = error_set(errno, "the new socket can't take the old one's place: %m");
	if (r == 0)
		r = hello_again(c);
	if (r < 0)
		c->broken = true;
	return r;
}

bool reconnect_was_in_vain(const struct gpushm *c)
{
	return c->in_vain_ms && clock_monotonic_ms() - c->in_vain_ms < reconnect_ms();
}

/* A daemon that dies, or restarts, while it is being greeted is greeted again. */
int reconnect(struct gpushm *c)
{
	uint64_t deadline = clock_monotonic_ms() + (c->kept ? reconnect_ms() : 0);
	int r = error_set(ECONNRESET, "the connection to the daemon has ended: connect again");

	for (int greeted = 0; r == -ECONNRESET && !c->over; greeted++) {
		if (greeted >= GREETED_MAX && clock_monotonic_ms() >= deadline)
			break;
		r = try_once(c, deadline);
	}
	c->in_vain_ms = r < 0 ? clock_monotonic_ms() : 0;
	return r == -ECONNREFUSED ? -ECONNRESET : r;
}
