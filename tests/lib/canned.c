/* SPDX-License-Identifier: MIT
 *
 * The server with prepared replies. The test's thread owns the list of replies until
 * canned_serve(), then the server's thread owns it, and the test's thread again after
 * canned_join(). The server's thread makes no Check assertion: it stops, and the test sees a closed
 * connection.
 *
 * It writes to the socket itself, because proto/wire.c refuses to send what a broken daemon would.
 */
#include "tests/lib/canned.h"

#include "proto/base/own.h"
#include "proto/wire.h"

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

struct reply {
	unsigned char *data; /* owned */
	size_t len;
	int fds[CANNED_FDS_MAX]; /* owned */
	size_t n_fds;
	canned_fn *respond; /* instead of data */
	bool hangs_up;	    /* likewise */
};

struct canned {
	char folder[64];
	struct sockaddr_un address;
	int listener;
	pthread_t thread;
	bool serving;
	struct reply replies[CANNED_MAX];
	size_t n, hang_ups;
	Gpushm__Proto__Request *requests[CANNED_MAX]; /* owned */
	size_t bytes[CANNED_MAX];
	size_t n_requests;
};

struct canned *canned_new(void)
{
	struct canned *s = calloc(1, sizeof(*s));

	ck_assert_ptr_nonnull(s);
	strcpy(s->folder, "/tmp/gpushm-canned-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(s->folder));
	s->address.sun_family = AF_UNIX;
	snprintf(s->address.sun_path, sizeof(s->address.sun_path), "%s/s", s->folder);
	s->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(s->listener, 0);
	ck_assert_int_eq(bind(s->listener, (struct sockaddr *)&s->address, sizeof(s->address)), 0);
	ck_assert_int_eq(listen(s->listener, 1), 0);
	return s;
}

const char *canned_path(const struct canned *s)
{
	return s->address.sun_path;
}

static struct reply *next_reply(struct canned *s)
{
	ck_assert(!s->serving);
	ck_assert_uint_lt(s->n, CANNED_MAX);
	return &s->replies[s->n++];
}

void canned_raw(struct canned *s, const void *data, size_t len, const int *fds, size_t n)
{
	struct reply *a = next_reply(s);

	ck_assert_uint_le(n, CANNED_FDS_MAX);
	a->data = malloc(len + 1);
	ck_assert_ptr_nonnull(a->data);
	memcpy(a->data, data, len);
	a->len = len;
	for (; a->n_fds < n; a->n_fds++) {
		a->fds[a->n_fds] = fcntl(fds[a->n_fds], F_DUPFD_CLOEXEC, 0);
		ck_assert_int_ge(a->fds[a->n_fds], 0);
	}
}

void canned_reply(struct canned *s, const Gpushm__Proto__Reply *reply, const int *fds, size_t n)
{
	static unsigned char data[FRAME_MAX];

	ck_assert_uint_le(gpushm__proto__reply__get_packed_size(reply), sizeof(data));
	canned_raw(s, data, gpushm__proto__reply__pack(reply, data), fds, n);
}

void canned_respond(struct canned *s, canned_fn *respond, size_t times)
{
	while (times-- > 0)
		next_reply(s)->respond = respond;
}

void canned_hang_up(struct canned *s)
{
	next_reply(s)->hangs_up = true;
	s->hang_ups++;
}

static ProtobufCBinaryData text(const char *t)
{
	return (ProtobufCBinaryData){ .len = strlen(t), .data = (uint8_t *)t };
}

void canned_hello(struct canned *s)
{
	Gpushm__Proto__Pool pool = GPUSHM__PROTO__POOL__INIT, *pools[] = { &pool };
	Gpushm__Proto__HelloReply hello = GPUSHM__PROTO__HELLO_REPLY__INIT;
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;

	pool.has_id = pool.has_name = pool.has_kind = true;
	pool.id = 1;
	pool.name = text("host");
	pool.kind = GPUSHM__PROTO__KIND__KIND_HOST;
	hello.has_version = hello.has_daemon = true;
	hello.version = 1;
	hello.daemon = text("a daemon's id, 16");
	hello.daemon.len = 16;
	hello.n_pools = 1;
	hello.pools = pools;
	reply.result_case = GPUSHM__PROTO__REPLY__RESULT_HELLO;
	reply.hello = &hello;
	canned_reply(s, &reply, NULL, 0);
}

void canned_done(struct canned *s)
{
	Gpushm__Proto__Done done = GPUSHM__PROTO__DONE__INIT;
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;

	reply.result_case = GPUSHM__PROTO__REPLY__RESULT_DONE;
	reply.done = &done;
	canned_reply(s, &reply, NULL, 0);
}

void canned_error(struct canned *s, int code, const char *why)
{
	Gpushm__Proto__Error error = GPUSHM__PROTO__ERROR__INIT;
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;

	error.has_code = error.has_message = true;
	error.code = (Gpushm__Proto__Code)code;
	error.message = text(why);
	reply.result_case = GPUSHM__PROTO__REPLY__RESULT_ERROR;
	reply.error = &error;
	canned_reply(s, &reply, NULL, 0);
}

/* ---- the server's thread ---- */

static bool send_reply(int peer, const struct reply *a)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(CANNED_FDS_MAX * sizeof(int))];
	} control = { .header = { .cmsg_len = CMSG_LEN(a->n_fds * sizeof(int)),
				  .cmsg_level = SOL_SOCKET,
				  .cmsg_type = SCM_RIGHTS } };
	struct iovec iov = { .iov_base = a->data, .iov_len = a->len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (a->n_fds > 0) {
		memcpy(CMSG_DATA(&control.header), a->fds, a->n_fds * sizeof(int));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(a->n_fds * sizeof(int));
	}
	return sendmsg(peer, &msg, MSG_NOSIGNAL) == (ssize_t)a->len;
}

static bool send_response(int peer, const struct reply *a, const Gpushm__Proto__Request *request)
{
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;
	_cleanup_(free_ptr) unsigned char *data = malloc(FRAME_MAX);
	struct reply made = { .data = data };

	a->respond(request, &reply);
	if (!data || gpushm__proto__reply__get_packed_size(&reply) > FRAME_MAX)
		return false;
	made.len = gpushm__proto__reply__pack(&reply, data);
	return send_reply(peer, &made);
}

static bool keep_request(struct canned *s, const struct frame *f)
{
	Gpushm__Proto__Request *r = gpushm__proto__request__unpack(NULL, f->len, f->data);

	if (!r || s->n_requests == CANNED_MAX)
		return false;
	s->bytes[s->n_requests] = f->len;
	s->requests[s->n_requests++] = r;
	return true;
}

/* After the last one a client that reconnects finds no server, as after the death of a daemon. */
static int accept_next(struct canned *s, size_t *hung_up)
{
	int peer = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);

	if (*hung_up == s->hang_ups)
		shutdown(s->listener, SHUT_RDWR);
	++*hung_up;
	return peer;
}

static bool answer(int peer, const struct reply *a, const Gpushm__Proto__Request *request)
{
	return a->respond ? send_response(peer, a, request) : send_reply(peer, a);
}

/* As the daemon, which replies to a quiet CLOSE in no case: its reply is left out. */
static bool is_quiet(const Gpushm__Proto__Request *r)
{
	return r->verb_case == GPUSHM__PROTO__REQUEST__VERB_CLOSE && r->close->quiet;
}

static void *serve(void *arg)
{
	_cleanup_(free_ptr) struct frame *f = malloc(sizeof(*f));
	_cleanup_(close_fd) int peer = -1;
	struct canned *s = arg;
	size_t hung_up = 0;

	peer = accept_next(s, &hung_up);
	for (size_t i = 0; f && peer >= 0; i++) {
		if (wire_recv_bytes(peer, f, 0) < 0 || !keep_request(s, f) || i >= s->n)
			break;
		if (s->replies[i].hangs_up) {
			close_fd(&peer);
			peer = accept_next(s, &hung_up);
		} else if (!is_quiet(s->requests[i]) &&
			   !answer(peer, &s->replies[i], s->requests[i])) {
			break;
		}
	}
	return NULL;
}

void canned_serve(struct canned *s)
{
	ck_assert(!s->serving);
	s->serving = pthread_create(&s->thread, NULL, serve, s) == 0;
	ck_assert(s->serving);
}

void canned_join(struct canned *s)
{
	/* A server without a client is still blocked in accept(). */
	if (s->serving) {
		shutdown(s->listener, SHUT_RDWR);
		pthread_join(s->thread, NULL);
	}
	s->serving = false;
}

/* ---- afterwards ---- */

size_t canned_requests(const struct canned *s)
{
	return s->n_requests;
}

const Gpushm__Proto__Request *canned_request(const struct canned *s, size_t i)
{
	ck_assert_uint_lt(i, s->n_requests);
	return s->requests[i];
}

size_t canned_request_bytes(const struct canned *s, size_t i)
{
	ck_assert_uint_lt(i, s->n_requests);
	return s->bytes[i];
}

static void reply_done(struct reply *a)
{
	free(a->data);
	for (size_t i = 0; i < a->n_fds; i++)
		close(a->fds[i]);
}

struct canned *canned_free(struct canned *s)
{
	canned_join(s);
	for (size_t i = 0; i < s->n; i++)
		reply_done(&s->replies[i]);
	for (size_t i = 0; i < s->n_requests; i++)
		gpushm__proto__request__free_unpacked(s->requests[i], NULL);
	close(s->listener);
	unlink(s->address.sun_path);
	rmdir(s->folder);
	free(s);
	return NULL;
}
