/* SPDX-License-Identifier: MIT
 *
 * Peers. One request is read at each turn of the loop, and one more after what needs no answer, so
 * that a peer that floods delays others by two requests at most. A client reads an answer before it
 * asks again: then the socket's send buffer is empty, and larger than any answer (checked at the
 * start), so that an answer is sent or the peer is gone; nothing queues, and unread fds are bounded
 * (the kernel refuses to send with ETOOMANYREFS once RLIMIT_NOFILE fds are unread, whoever left
 * them so). Whether it has read, the kernel is asked where it matters: after some answers with fds,
 * and after some bytes of others; each time would cost a tenth of a small request. Requests are
 * read without room for fds: the kernel closes what is sent.
 */
#include "daemon/ipc/peer.h"

#include "daemon/ipc/request.h"
#include "daemon/util/log.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/wire.h"

#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define UNREAD_MAX 4096u	     /* bytes of answers that nobody may have read yet */
#define UNREAD_FDS (UNREAD_MAX / 4u) /* what an answer with fds counts as, at least */

static void on_poll_closed(uv_handle_t *handle)
{
	struct peer *p = handle->data;
	void (*on_closed)(void *) = p->on_closed;
	void *arg = p->arg;

	close_fd(&p->socket);
	free(p);
	on_closed(arg);
}

void peer_close(struct peer *p)
{
	if (p->closing)
		return;
	p->closing = true;
	list_drop(&p->link);
	log_write(LOG_DEBUG,
		  &(struct log_about){ .pid = p->session.process->pid,
				       .uid = p->session.process->uid },
		  "connection closed");
	session_done(&p->session);
	/* The other end is told at once; the fd lives on until libuv has let go of it. */
	shutdown(p->socket, SHUT_RDWR);
	uv_close((uv_handle_t *)&p->poll, on_poll_closed);
}

static void violation(struct peer *p, const char *what)
{
	const struct process *process = p->session.process;
	struct log_about about = { .message_id = LOG_ID_VIOLATION };

	if (process) {
		about.pid = process->pid;
		about.uid = process->uid;
	}
	p->session.service->violations++;
	if (ratelimit_pass(&p->session.service->throttle, about.uid, clock_monotonic_ns()))
		log_write(LOG_WARNING, &about, "connection of process %d (%s) closed: %s",
			  about.pid, process ? process->command : "?", what);
	peer_close(p);
}

/* The lease that the answer carries ends if it can't be told: nobody knows of it. */
static void deliver(struct peer *p, struct reply *a)
{
	struct service *service = p->session.service;
	int r = reply_send(a, p->socket);

	if (r < 0 && a->lease)
		catalog_close(&service->catalog, a->lease);
	if (r == -ETOOMANYREFS || r == -EMSGSIZE) {
		struct fault f;

		fault(&f, r == -EMSGSIZE ? CODE_NO_MEMORY : CODE_NO_FDS,
		      "the answer can't be sent: %s", strerror(-r));
		reply_fault(a, &f);
		r = reply_send(a, p->socket);
	} else if (r == 0) {
		p->session.pools_lent |= a->pool_bit;
	}
	p->unread += a->n_fds > 0 && a->sent < UNREAD_FDS ? UNREAD_FDS : a->sent;
	if (r < 0 && r != -EPIPE && r != -ECONNRESET)
		violation(p, strerror(-r));
	else if (r < 0)
		peer_close(p);
}

static void on_answer(struct session *s, struct reply *a)
{
	struct peer *p = container_of(s, struct peer, session);

	deliver(p, a);
}

/* A peer that is not welcome: whatever it asks, it is told why, and that is all. */
static void refuse(struct peer *p)
{
	struct reply a = { 0 };

	reply_fault(&a, p->session.refusal);
	reply_send(&a, p->socket);
	peer_close(p);
}

/* Nothing is sent that may have been left unread. */
static bool has_read(struct peer *p)
{
	int unread = 0;

	if (p->unread < UNREAD_MAX)
		return true;
	p->unread = 0;
	return ioctl(p->socket, SIOCOUTQ, &unread) == 0 && unread == 0;
}

/* True: it needed no answer. */
static bool serve(struct peer *p, const struct frame *frame)
{
	struct reply a;
	struct fault f;
	int r;

	if (p->session.refusal) {
		refuse(p);
		return false;
	}
	if (session_busy(&p->session) || !has_read(p)) {
		violation(p, "it sent a request before it had read the last answer");
		return false;
	}
	reply_init(&a);
	r = request_handle(&p->session, frame->data, frame->len, &a, &f);
	if (r == 0 && !a.silent)
		deliver(p, &a);
	else if (r < 0 && r != -EINPROGRESS)
		violation(p, f.text);
	return r == 0 && a.silent;
}

static bool serve_next(struct peer *p, int status)
{
	static struct frame frame;
	int r = wire_recv_bytes(p->socket, &frame, MSG_DONTWAIT);

	if (r == -EAGAIN && status == 0)
		return false;
	if (r == 0)
		return serve(p, &frame);
	if (r == -EPROTO)
		violation(p, "a datagram of more than 65536 bytes");
	else
		peer_close(p);
	return false;
}

/* While a request is under way, too: a peer that hangs up then calls it off. Who has closed a
 * buffer without waiting for an answer mostly asks next: a turn of the loop is spared. */
static void on_event(uv_poll_t *handle, int status, int events)
{
	struct peer *p = handle->data;
	struct service *service = p->session.service;

	if (serve_next(p, status))
		serve_next(p, 0);
	busy_poll_in_burst(&service->awake, service->config->busy_poll * 1000ull);
}

/* What is sent from now on fails at once, and the queue keeps what was sent before
 * (unix_shutdown(), unix_dgram_recvmsg() of net/unix/af_unix.c): nothing falls in between. */
void peer_hear_out(struct peer *p)
{
	static struct frame frame;

	shutdown(p->socket, SHUT_RD);
	while (!p->closing && wire_recv_bytes(p->socket, &frame, MSG_DONTWAIT) == 0)
		request_handle_quiet(&p->session, frame.data, frame.len);
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
	     const struct fault *refusal, void (*on_closed)(void *arg), void *arg)
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
	p->on_closed = on_closed;
	p->arg = arg;
	p->poll.data = p;
	p->session.on_answer = on_answer;
	session_init(&p->session, service, process);
	list_insert(peers, &p->link);
	log_write(LOG_DEBUG, &(struct log_about){ .pid = process->pid, .uid = process->uid },
		  "connection of %s", process->command);
	r = uv_poll_start(&p->poll, UV_READABLE | UV_DISCONNECT, on_event);
	if (r < 0)
		peer_close(p);
	return 0;
}
