/* SPDX-License-Identifier: MIT
 *
 * A client that speaks by the generated code and plain sockets, not by the library under test. From
 * the product it uses only wire_recv(), to receive fds. Each wait has a deadline of one minute, so
 * that a test fails instead of hanging.
 */
#include "tests/lib/raw.h"

#include "proto/base/own.h"
#include "proto/limits.h"

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

int raw_deadline_ms = 60000;

/* Check's asserts also report success, which works only in the process of the test. These functions
 * are called in roles, too, where a failure can only be printed to stderr. */
#define must(condition, ...)                          \
	do {                                          \
		if (!(condition)) {                   \
			fprintf(stderr, __VA_ARGS__); \
			fputc('\n', stderr);          \
			ck_abort_msg(__VA_ARGS__);    \
		}                                     \
	} while (0)

#define FDS_SENT_MAX 253 /* SCM_MAX_FD */

void raw_connect(struct raw *r, const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	*r = (struct raw){ .socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) };
	must(r->socket >= 0, "socket: %s", strerror(errno));
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	must(connect(r->socket, (struct sockaddr *)&a, sizeof(a)) == 0, "connect: %s",
	     strerror(errno));
}

static void forget_reply(struct raw *r)
{
	if (r->reply)
		gpushm__proto__reply__free_unpacked(r->reply, NULL);
	r->reply = NULL;
	frame_close_fds(&r->frame);
}

void raw_close(struct raw *r)
{
	forget_reply(r);
	close_fd(&r->socket);
}

int raw_send_fds(struct raw *r, const void *data, size_t len, const int *fds, size_t n)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(FDS_SENT_MAX * sizeof(int))];
	} control = { .header = { CMSG_LEN(n * sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec iov = { (void *)data, len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	must(n <= FDS_SENT_MAX, "%zu fds are too many", n);
	if (n) {
		memcpy(CMSG_DATA(&control.header), fds, n * sizeof(int));
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(n * sizeof(int));
	}
	return sendmsg(r->socket, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int raw_send(struct raw *r, const void *data, size_t len)
{
	return raw_send_fds(r, data, len, NULL, 0);
}

size_t raw_pack(const Gpushm__Proto__Request *q, unsigned char frame[FRAME_MAX])
{
	must(gpushm__proto__request__get_packed_size(q) <= FRAME_MAX, "no frame has room for that");
	return gpushm__proto__request__pack(q, frame);
}

int raw_request(struct raw *r, const Gpushm__Proto__Request *q)
{
	unsigned char frame[FRAME_MAX];

	return raw_send(r, frame, raw_pack(q, frame));
}

static int receive(struct raw *r)
{
	struct pollfd p = { .fd = r->socket, .events = POLLIN };

	forget_reply(r);
	must(poll(&p, 1, raw_deadline_ms) == 1, "the daemon says nothing");
	return wire_recv(r->socket, &r->frame, 0);
}

static void check_attach_law(const struct raw *r)
{
	bool attach = r->reply->result_case == GPUSHM__PROTO__REPLY__RESULT_ATTACH;

	bool hello = r->reply->result_case == GPUSHM__PROTO__REPLY__RESULT_HELLO;
	bool page = r->reply->result_case == GPUSHM__PROTO__REPLY__RESULT_PAGE;
	size_t counted =
		attach ? r->reply->attach->fds : page || (hello && r->reply->hello->board_fd);

	must(r->frame.n_fds == counted, "a reply counts %zu fds and has %zu", counted,
	     r->frame.n_fds);
}

int raw_receive(struct raw *r)
{
	int e = receive(r);

	must(e == 0, "no reply: %s", strerror(-e));
	r->reply = gpushm__proto__reply__unpack(NULL, r->frame.len, r->frame.data);
	must(r->reply, "a reply that is none");
	check_attach_law(r);
	r->code = 0;
	r->text[0] = '\0';
	if (r->reply->result_case == GPUSHM__PROTO__REPLY__RESULT_ERROR) {
		r->code = (int)r->reply->error->code;
		snprintf(r->text, sizeof(r->text), "%.*s", (int)r->reply->error->message.len,
			 (const char *)r->reply->error->message.data);
		must(r->code && r->text[0], "an error without a code or a text");
	}
	return r->code;
}

int raw_call(struct raw *r, const Gpushm__Proto__Request *q)
{
	int e = raw_request(r, q);

	must(e == 0, "a request can't be sent: %s", strerror(-e));
	return raw_receive(r);
}

int raw_await_end(struct raw *r)
{
	int n = 0;

	while (receive(r) == 0)
		n++;
	return n;
}

void raw_greet(struct raw *r, const char *path)
{
	raw_connect(r, path);
	raw_call(r, REQUEST(HELLO, Hello, hello, SET(version_min, 1), SET(version_max, 1),
			    SET(arrays, ARRAYS_MAX)));
	must(r->code == 0, "HELLO: %s", r->text);
}

uint64_t raw_create(struct raw *r, const char *name, uint64_t bytes)
{
	int code = raw_call(r, REQUEST(CREATE, Create, create, BYTES(name, name),
				       SET(size_bytes, bytes)));

	must(code == 0, "CREATE: %s", r->text);
	return r->reply->attach->lease;
}

void raw_publish(struct raw *r, uint64_t lease, Gpushm__Proto__State state)
{
	int code = raw_call(r, REQUEST(PUBLISH, Publish, publish, SET(lease, lease),
				       SET(state, state)));

	must(code == 0, "PUBLISH: %s", r->text);
}

uint64_t raw_open(struct raw *r, const char *name)
{
	int code = raw_call(r, REQUEST(OPEN, Open, open, BYTES(name, name)));

	must(code == 0, "OPEN: %s", r->text);
	return r->reply->attach->lease;
}
