/* SPDX-License-Identifier: MIT
 *
 * Peers. An event only queues the peer among the work of its user (daemon/catalog/turns.h). When it
 * is its turn, a peer reads one request, and one more after a request that needs no reply.
 *
 * A peer that is still queued when the loop has reported it some more times is parked: its socket
 * is not polled. When it has been served it goes to the end of the queue, until a turn finds
 * nothing to read. So a look for events costs the same, however many requests wait. (libuv looks
 * again at once, up to 48 times, while there are at least 1,024 events: uv__io_poll() in
 * linux-core.c.)
 *
 * A client must read a reply before it sends the next request. Then the socket's send buffer is
 * empty and larger than any reply, so a reply is either sent at once or the peer is gone: nothing
 * queues. A connection that has ended is charged to its user until its replies have been read or
 * its other end is closed, for so long the kernel holds them for it: see unread.h.
 *
 * Requests are read without space for fds, so the kernel closes any that a client sends.
 */
#include "daemon/ipc/peer.h"

#include "daemon/catalog/process.h"
#include "daemon/ipc/request.h"
#include "daemon/ipc/service.h"
#include "daemon/util/log.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/wire.h"

#include <string.h>
#include <sys/socket.h>

/* To start and stop polling a socket takes as long as so many reports of it. */
#define PASSED_MAX 4u

static void on_poll_closed(uv_handle_t *handle)
{
	struct peer *p = handle->data;

	p->on_closed(p, p->arg);
}

void peer_free(struct peer *p)
{
	list_drop(&p->link);
	work_drop(&p->work);
	unread_done(&p->unread);
	for (size_t i = 0; i < PEER_CHARGES; i++)
		discharge(&p->charges[i]);
	close_fd(&p->socket);
	free(p->unfinished.data);
	free(p);
}

void peer_close(struct peer *p)
{
	if (p->closing)
		return;
	p->closing = true;
	list_drop(&p->link);
	work_drop(&p->work);
	log_write(LOG_DEBUG,
		  &(struct log_about){ .pid = p->session.process->pid,
				       .uid = p->session.process->uid },
		  "connection closed");
	session_done(&p->session);
	/* The client notices at once; the fd stays open until libuv has closed its handle. */
	shutdown(p->socket, SHUT_RDWR);
	uv_close((uv_handle_t *)&p->poll, on_poll_closed);
}

static void tell_violation(const struct peer *p, const char *what)
{
	static const struct ratelimit_cause cause = {
		LOG_ID_VIOLATION, "connections closed for breaking the protocol"
	};
	const struct process *process = p->session.process;
	struct service *service = p->session.service;
	struct log_about about = { LOG_ID_VIOLATION, LOG_PROCESS(process) };

	if (!ratelimit_pass(&service->violation_lines, &cause, process->uid, clock_monotonic_ns()))
		return;
	log_write(LOG_WARNING, &about, "connection of process %d (%s) closed: %s", process->pid,
		  process->command, what);
	event_log_add(&service->catalog.events, .type = EVENT_DISCONNECTED, .who = process,
		      .text = what);
}

/* A peer that is closing has no process any more. */
static void violation(struct peer *p, const char *what)
{
	if (p->closing)
		return;
	p->session.service->violations++;
	tell_violation(p, what);
	peer_close(p);
}

/* -EDQUOT, -ENOMEM, -ETOOMANYREFS and -EMSGSIZE, with *f filled in: the reply can't be sent, but an
 * error can. */
static int try_to_send(struct peer *p, struct reply *reply, struct fault *f)
{
	struct accounts *accounts = &p->session.service->catalog.accounts;
	uid_t uid = p->session.process->uid;
	int r = reply->n_fds ? unread_charge(&p->unread, accounts, uid, reply->n_fds, f) : 0;

	if (r < 0)
		return r;
	r = reply_send(reply, p->socket);
	if (r == -ETOOMANYREFS || r == -EMSGSIZE)
		fault(f, r == -EMSGSIZE ? CODE_NO_MEMORY : CODE_NO_FDS,
		      "the answer can't be sent: %s", strerror(-r));
	return r;
}

/* ---- counting ---- */

static void tell_refusal(struct peer *p, const struct fault *f)
{
	struct session *s = &p->session;

	event_log_add(&s->service->catalog.events, .type = EVENT_REFUSED, .who = s->process,
		      .verb = request_verb(s->pending.verb), .code = f->code, .text = f->text);
}

static void count_reply(struct peer *p, const struct reply *reply)
{
	bool refused = reply->message.result_case == GPUSHM__PROTO__REPLY__RESULT_ERROR;

	service_replied(p->session.service, p->session.pending.verb,
			refused ? reply->fault.code : CODE_OK);
	if (refused)
		tell_refusal(p, &reply->fault);
}

/* The time of a request that was replied to in this turn. */
static void count_time(struct peer *p, uint64_t now)
{
	if (p->replied)
		verb_counts_took(&p->session.service->verbs[p->session.pending.verb],
				 now - p->since_ns);
	p->replied = false;
}

/* Of one that was replied to later. What a client waited for is not the daemon's time. */
static void count_late_time(struct peer *p)
{
	struct verb_counts *v = &p->session.service->verbs[p->session.pending.verb];
	uint64_t ns = clock_monotonic_ns() - p->since_ns;

	if (list_empty(&p->session.pending.waiter.link))
		verb_counts_took(v, ns);
	else
		verb_counts_waited(v, ns);
}

/* ---- replies ---- */

/* If the reply can't be sent, the lease that was made for it ends: the client does not know it. */
static void deliver(struct peer *p, struct reply *reply)
{
	struct service *service = p->session.service;
	struct fault f;
	int r = try_to_send(p, reply, &f);

	if (r < 0 && reply->lease)
		catalog_end_lease(&service->catalog, reply->lease);
	if (r == -EDQUOT || r == -ENOMEM || r == -ETOOMANYREFS || r == -EMSGSIZE) {
		reply_fault(reply, &f);
		r = reply_send(reply, p->socket);
	} else if (r == 0) {
		p->session.pools_lent |= reply->pool_bit;
		if (reply->pool_bit && p->session.process->pidfd)
			p->session.process->pidfd->park.has_pool = true;
	}
	count_reply(p, reply);
	unread_sent(&p->unread, reply->sent, reply->n_fds);
	if (r < 0 && r != -EPIPE && r != -ECONNRESET)
		violation(p, strerror(-r));
	else if (r < 0)
		peer_close(p);
}

static void on_reply(struct session *s, struct reply *reply)
{
	struct peer *p = container_of(s, struct peer, session);

	if (reply_hold(reply, s))
		return;
	count_late_time(p);
	deliver(p, reply);
}

/* The reply to the first request of a peer that is refused, whatever the request is. */
static void refuse(struct peer *p, const struct fault *why)
{
	struct reply reply = { 0 };

	service_replied(p->session.service, 0, why->code);
	tell_refusal(p, why);
	reply_fault(&reply, why);
	reply_send(&reply, p->socket);
	peer_close(p);
}

/* Whether the daemon knows the groups of the process; else *f says why not. */
static bool know_groups(struct peer *p, struct fault *f)
{
	struct process *process = p->session.process;
	struct service *service = p->session.service;
	struct process_rules rules;

	if (process->groups)
		return true;
	rules = service_rules(service);
	if (process_ask_groups(process, &service->groups, p->socket, &rules, f) < 0)
		return false;
	p->session.account->admin |= process->admin;
	return true;
}

/* What a turn found to read. Anything but a request ends the peer, or is nothing. */
enum found { FOUND_NOTHING, FOUND_REQUEST, FOUND_SILENT_REQUEST };

static enum found keep_unfinished(struct peer *p, const unsigned char *data, size_t len)
{
	struct service *service = p->session.service;

	if (!p->unfinished.data) {
		p->unfinished.data = malloc(len);
		if (!p->unfinished.data) {
			violation(p, "the daemon is out of memory");
			return FOUND_NOTHING;
		}
		memcpy(p->unfinished.data, data, len);
		p->unfinished.len = len;
	}
	turns_add(&service->turns, p->session.account, &p->work);
	return FOUND_REQUEST;
}

static enum found handle(struct peer *p, const unsigned char *data, size_t len)
{
	struct reply reply;
	struct fault f;
	int r;

	reply_init(&reply);
	r = request_handle(&p->session, data, len, &reply, &f);
	if (r == -ERESTART)
		return keep_unfinished(p, data, len);
	free_ptr(&p->unfinished.data);
	if (r == 0 && reply_hold(&reply, &p->session))
		r = -EINPROGRESS;
	p->replied = r == 0;
	if (r == 0 && reply.silent)
		count_reply(p, &reply);
	else if (r == 0)
		deliver(p, &reply);
	else if (r < 0 && r != -EINPROGRESS)
		violation(p, f.text);
	return r == 0 && reply.silent ? FOUND_SILENT_REQUEST : FOUND_REQUEST;
}

static enum found serve(struct peer *p, const struct frame *frame)
{
	struct fault f;

	if (p->session.refusal || !know_groups(p, &f)) {
		refuse(p, p->session.refusal ? p->session.refusal : &f);
		return FOUND_NOTHING;
	}
	if (session_busy(&p->session) || !unread_is_little(&p->unread)) {
		violation(p, "it sent a request before it had read the last answer");
		return FOUND_NOTHING;
	}
	p->since_ns = p->session.service->turns.now;
	return handle(p, frame->data, frame->len);
}

static enum found serve_next(struct peer *p)
{
	static struct frame frame;
	int r;

	if (p->unfinished.data)
		return handle(p, p->unfinished.data, p->unfinished.len);
	r = wire_recv_bytes(p->socket, &frame, MSG_DONTWAIT);
	if (r == -EAGAIN && !p->broken)
		return FOUND_NOTHING;
	if (r == 0)
		return serve(p, &frame);
	if (r == -EPROTO)
		violation(p, "a datagram of more than 65536 bytes");
	else
		peer_close(p);
	return FOUND_NOTHING;
}

/* ---- turns ---- */

static void on_event(uv_poll_t *handle, int status, int events);

static void start_polling(struct peer *p)
{
	p->parked = false;
	if (uv_poll_start(&p->poll, UV_READABLE | UV_DISCONNECT, on_event) < 0)
		peer_close(p);
}

static void park(struct peer *p)
{
	p->parked = true;
	uv_poll_stop(&p->poll);
}

/* Also called while a request is in flight: a hang-up then cancels it. A client that closes a
 * buffer without waiting for a reply mostly sends its next request at once; reading that in the
 * same turn saves one turn of the loop. */
static bool take_turn(struct work *w)
{
	struct peer *p = container_of(w, struct peer, work);
	struct service *service = p->session.service;
	enum found found = serve_next(p);

	p->passed = 0;
	if (found == FOUND_SILENT_REQUEST) {
		service->turns.now = clock_monotonic_ns();
		count_time(p, service->turns.now);
		found = serve_next(p);
	}
	count_time(p,
		   busy_poll_in_burst(&service->busy_poll, service->config->busy_poll * 1000ull));
	if (p->closing || !p->parked)
		return false;
	if (found == FOUND_NOTHING)
		start_polling(p);
	else
		turns_add(&service->turns, p->session.account, &p->work);
	return false;
}

/* After an error libuv does not poll the socket any more. */
static void on_event(uv_poll_t *handle, int status, int events)
{
	struct peer *p = handle->data;

	if (status < 0)
		p->broken = p->parked = true;
	else if (work_is_queued(&p->work) && ++p->passed == PASSED_MAX)
		park(p);
	turns_add(&p->session.service->turns, p->session.account, &p->work);
}

/* After the shutdown() the client's sends fail at once, and the queue keeps what it sent before
 * (unix_shutdown(), unix_dgram_recvmsg() of net/unix/af_unix.c), so no request is lost in between.
 */
void peer_drain(struct peer *p)
{
	static struct frame frame;

	shutdown(p->socket, SHUT_RD);
	while (!p->closing && wire_recv_bytes(p->socket, &frame, MSG_DONTWAIT) == 0)
		request_handle_quiet_close(&p->session, frame.data, frame.len);
}

static int keep_refusal(struct session *s, const struct fault *refusal)
{
	if (!refusal)
		return 0;
	s->refusal = malloc(sizeof(*refusal));
	if (!s->refusal)
		return -ENOMEM;
	*s->refusal = *refusal;
	return 0;
}

int peer_new(struct list *peers, struct service *service, int socket, struct process *process,
	     const struct charge charges[PEER_CHARGES], const struct fault *refusal,
	     void (*on_closed)(struct peer *p, void *arg), void *arg)
{
	struct peer *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	r = keep_refusal(&p->session, refusal);
	if (r == 0)
		r = uv_poll_init(service->reaper.loop, &p->poll, socket);
	if (r < 0) {
		free(p->session.refusal);
		free(p);
		return r;
	}
	p->socket = socket;
	unread_init(&p->unread, socket);
	memcpy(p->charges, charges, sizeof(p->charges));
	p->on_closed = on_closed;
	p->arg = arg;
	work_init(&p->work, take_turn);
	p->poll.data = p;
	p->session.on_reply = on_reply;
	session_init(&p->session, service, process, charges[PEER_CONNECTION].account);
	list_insert(peers, &p->link);
	log_write(LOG_DEBUG, &(struct log_about){ .pid = process->pid, .uid = process->uid },
		  "connection of %s", process->command);
	start_polling(p);
	return 0;
}
