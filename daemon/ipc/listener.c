/* SPDX-License-Identifier: MIT
 *
 * The listener accepts connections. libuv's own accept loop can spin for ever at EMFILE. This one
 * keeps a reserve fd: at EMFILE it closes that fd, accepts the client and sends it the reason. If
 * that does not help, it stops polling the socket until a peer closes, or for 100 ms; connected
 * peers are served meanwhile. Here, and only here, the daemon asks the kernel which process is at
 * the other end. A user above the limit of connections gets the reason on a few more connections
 * in the reply to HELLO, and on others at once.
 */
#include "daemon/ipc/listener.h"

#include "daemon/ipc/peer.h"
#include "daemon/ipc/reply.h"
#include "daemon/ipc/service.h"
#include "daemon/util/log.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/wire.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#define ACCEPT_NS 200000u /* between two looks for events; requests get as much */
#define RETRY_MS 100u	  /* after accept() failed */
#define WARN_MS 60000u	  /* between two lines about it */
#define PEER_FDS_MAX 2u	  /* of a connection: its socket, and its process's pidfd */
#define REFUSED_MAX 8u	  /* connections above a user's limit that wait for HELLO */

static void on_readable(uv_poll_t *handle, int status, int events);

static void resume(struct listener *l)
{
	if (!l->paused)
		return;
	l->paused = false;
	uv_timer_stop(&l->retry);
	uv_poll_start(&l->poll, UV_READABLE, on_readable);
}

static void on_retry(uv_timer_t *timer)
{
	resume(timer->data);
}

static void on_peer_closed(struct peer *p, void *arg)
{
	struct listener *l = arg;

	lingering_add(&l->lingering, p);
}

static void on_peer_freed(void *arg)
{
	resume(arg);
}

static void warn(struct listener *l, int error)
{
	uint64_t now = uv_now(l->poll.loop);

	if (l->warned_ms && now - l->warned_ms < WARN_MS)
		return;
	l->warned_ms = now ? now : 1;
	log_write(LOG_WARNING, &(struct log_about){ .message_id = LOG_ID_FDS },
		  "new connections are refused or wait: %s; raise LimitNOFILE, or lower "
		  "max-connections and max-buffers",
		  strerror(error));
}

static void pause_accepting(struct listener *l, int error)
{
	warn(l, error);
	l->paused = true;
	uv_poll_stop(&l->poll);
	uv_timer_start(&l->retry, on_retry, RETRY_MS, 0);
}

static void discharge_peer(struct charge charges[PEER_CHARGES])
{
	for (size_t i = 0; i < PEER_CHARGES; i++)
		discharge(&charges[i]);
}

/* The connection, its socket, and the process's pidfd if this is its first connection. refused: how
 * many connections may be above the user's limit; one may be above its share of fds. */
static int charge_peer(struct accounts *a, const struct process *p, unsigned refused,
		       struct charge charges[PEER_CHARGES], struct fault *f)
{
	unsigned fds = refused ? PEER_FDS_MAX : 0;
	int r = charge(a, p->uid, ACCOUNT_PEERS, 1, refused, &charges[PEER_CONNECTION], f);

	if (r < 0)
		return r;
	charges[PEER_CONNECTION].account->admin |= p->admin;
	r = charge(a, p->uid, ACCOUNT_FDS, 1, fds, &charges[PEER_FD], f);
	if (r == 0 && p->pidfd && !p->pidfd->charge.account)
		r = charge(a, p->uid, ACCOUNT_FDS, 1, fds, &p->pidfd->charge, f);
	if (r < 0)
		discharge_peer(charges);
	return r;
}

/* The process may turn out to be an administrator's, for whom there is a reserve. */
static void look_for_admin(struct listener *l, struct process *p, int socket)
{
	struct service *s = l->service;
	struct process_rules rules = service_rules(s);
	struct fault ignored;

	if (!p->admin && rules.admin_gid != (gid_t)-1)
		process_ask_groups(p, &s->groups, socket, &rules, &ignored);
}

/* Charges the connection to its user. Above a limit it sets *ret_refused and returns 0, as long as
 * there are at most REFUSED_MAX such connections. */
static int charge_or_refuse(struct listener *l, struct process *p, int socket,
			    struct charge charges[PEER_CHARGES], struct fault *refusal,
			    bool *ret_refused)
{
	struct accounts *accounts = &l->service->catalog.accounts;
	struct fault again;

	if (charge_peer(accounts, p, 0, charges, refusal) == 0)
		return 0;
	lingering_free_one(&l->lingering, p->uid);
	look_for_admin(l, p, socket);
	if (charge_peer(accounts, p, 0, charges, refusal) == 0)
		return 0;
	*ret_refused = true;
	return charge_peer(accounts, p, REFUSED_MAX, charges, &again);
}

/* Sends the reason on a connection that is charged to nobody and closed at once. A close with
 * unread data becomes an ECONNRESET that overtakes the reply: so the client can't send any more
 * after the shutdown(), and what it sent before is read. */
static void send_reason(int socket, const struct fault *why)
{
	static struct frame frame;
	struct reply reply = { 0 };

	shutdown(socket, SHUT_RD);
	while (wire_recv_bytes(socket, &frame, MSG_DONTWAIT) == 0)
		continue;
	reply_fault(&reply, why);
	reply_send(&reply, socket);
}

/* Logs the price of unwatched-clients=trust, once for each user who is connected. */
static void note_unwatched(const struct process *p, struct account *account)
{
	if (p->pidfd || account->unwatched)
		return;
	account->unwatched = true;
	log_write(
		LOG_WARNING, &(struct log_about){ LOG_ID_UNWATCHED, LOG_PROCESS(p) },
		"a process of uid %u can't be watched and is trusted (unwatched-clients=trust): if "
		"it is killed, its GPU work may still run when its memory is handed on",
		p->uid);
}

static void serve_client(struct listener *l, int *socket)
{
	struct process_rules rules = service_rules(l->service);
	struct charge charges[PEER_CHARGES] = { 0 };
	struct process *p = NULL;
	struct fault refusal;
	bool refused = false;

	if (process_identify(&l->service->reaper.pidfds, *socket, &rules, &p, &refusal) < 0) {
		send_reason(*socket, &refusal);
		return;
	}
	if (charge_or_refuse(l, p, *socket, charges, &refusal, &refused) < 0) {
		send_reason(*socket, &refusal);
		process_free(p);
		return;
	}
	note_unwatched(p, charges[PEER_CONNECTION].account);
	if (peer_new(&l->peers, l->service, *socket, p, charges, refused ? &refusal : NULL,
		     on_peer_closed, l) < 0) {
		discharge_peer(charges);
		process_free(p);
	} else {
		take_fd(socket);
	}
}

/* The reserve may be missing: a worker thread was quicker, or the limit was lowered. */
static void keep_reserve(struct listener *l)
{
	if (l->reserve < 0)
		l->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Uses the reserve fd to accept a client and to send it the reason. Returns false if nothing was
 * done, so that the caller must pause. */
static bool accept_to_refuse(struct listener *l)
{
	_cleanup_(close_fd) int fd = -1;
	struct fault why;

	if (l->reserve < 0)
		return false;
	close_fd(&l->reserve);
	fd = accept4(l->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0) {
		fault(&why, CODE_NO_FDS,
		      "the daemon has no file descriptors left: close connections and buffers, "
		      "or raise its LimitNOFILE");
		send_reason(fd, &why);
	}
	close_fd(&fd);
	keep_reserve(l);
	return fd >= 0 || l->reserve >= 0;
}

static bool is_shortage(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

static void on_readable(uv_poll_t *handle, int status, int events)
{
	struct listener *l = handle->data;

	uint64_t start = clock_monotonic_ns(), now = start;

	for (; now - start < ACCEPT_NS; now = clock_monotonic_ns()) {
		_cleanup_(close_fd) int fd =
			accept4(l->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		int error = errno;

		if (fd >= 0)
			keep_reserve(l);
		if (fd >= 0)
			serve_client(l, &fd);
		else if ((error == EMFILE || error == ENFILE) && accept_to_refuse(l))
			warn(l, error);
		else if (is_shortage(error))
			pause_accepting(l, error);
		else if (error == ECONNABORTED || error == EINTR)
			continue;
		if (fd < 0)
			return;
	}
}

int listener_init(struct listener *l, struct service *service, int socket)
{
	int r;

	*l = (struct listener){ .service = service, .socket = socket };
	l->reserve = -1;
	keep_reserve(l);
	list_init(&l->peers);
	r = uv_poll_init(service->reaper.loop, &l->poll, socket);
	if (r < 0)
		return r;
	uv_timer_init(service->reaper.loop, &l->retry);
	lingering_init(&l->lingering, service->reaper.loop, &service->turns, on_peer_freed, l);
	l->poll.data = l;
	l->retry.data = l;
	return uv_poll_start(&l->poll, UV_READABLE, on_readable);
}

void listener_drain(struct listener *l)
{
	struct list drained;
	struct peer *p;

	/* Draining a peer may close any other peer of the list. */
	list_init(&drained);
	list_drain (p, &l->peers, link) {
		list_insert(&drained, &p->link);
		peer_drain(p);
	}
	list_move(&drained, &l->peers);
}

static void on_closed(uv_handle_t *handle)
{
	struct listener *l = handle->data;

	close_fd(&l->socket);
	close_fd(&l->reserve);
}

static uint64_t pools_lent(const struct list *peers)
{
	const struct peer *p;
	uint64_t lent = 0;

	list_foreach (p, peers, link)
		lent |= p->session.pools_lent;
	return lent;
}

uint64_t listener_pools_lent(const struct listener *l)
{
	return pools_lent(&l->peers) | pools_lent(&l->lingering.unread);
}

void listener_done(struct listener *l)
{
	struct peer *p;

	list_foreach (p, &l->peers, link)
		peer_close(p);
	lingering_done(&l->lingering);
	uv_close((uv_handle_t *)&l->retry, NULL);
	uv_close((uv_handle_t *)&l->poll, on_closed);
}
