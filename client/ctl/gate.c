/* SPDX-License-Identifier: MIT
 *
 * The gate of a held buffer: a SOCK_SEQPACKET socket in Linux's abstract namespace (unix(7)), named
 * after the daemon, the user and the buffer. An abstract socket leaves no file behind, however its
 * process ends, and no other process can take the name while it lives. It has no permissions, so
 * each side asks the kernel who the other one is: the same user, or root. One datagram asks, the
 * state as a byte (0: as the holder was told); one answers, an exit code and what there is to say.
 */
#include "client/ctl/gate.h"

#include "client/ctl/entry.h"
#include "proto/base/own.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define ANSWER_MAX 1024

/* FNV-1a (Fowler, Noll, Vo), 64 bits: it only makes a short name of a long one. */
static uint64_t hash(uint64_t h, const void *bytes, size_t n)
{
	const unsigned char *p = bytes;

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3u;
	return h;
}

static int make_address(struct ctl *ctl, const char *name, struct sockaddr_un *ret,
			socklen_t *ret_len)
{
	struct gpushm_status *s = NULL;
	uint64_t h = 0xcbf29ce484222325u;
	char owner[16];
	int r = gpushm_status(ctl->connection, &s), n;

	if (r < 0)
		return ctl_refused(r);
	h = hash(h, s->daemon, sizeof(s->daemon));
	gpushm_status_free(s);
	/* "~/x" and "~1001/x" are one name. */
	snprintf(owner, sizeof(owner), "~%u", geteuid());
	if (!strncmp(name, "~/", 2)) {
		h = hash(h, owner, strlen(owner));
		name++;
	}
	h = hash(h, name, strlen(name));
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(ret->sun_path + 1, sizeof(ret->sun_path) - 1, "gpushmctl/%u/%016lx", geteuid(),
		     (unsigned long)h);
	*ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	return CTL_OK;
}

static bool is_friend(int socket)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 &&
	       (cred.uid == geteuid() || cred.uid == 0);
}

static void answer(int client, int code, const char *text)
{
	char buf[ANSWER_MAX];
	int n = snprintf(buf, sizeof(buf), "%c%s", (char)(code + 1), text);

	/* Whoever asked may have gone: it is published, or not, all the same. */
	send(client, buf, n < ANSWER_MAX ? (size_t)n : ANSWER_MAX - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* One who asks. True: the buffer is published. */
static bool serve(int gate, struct gpushm_buffer *b, enum gpushm_state state)
{
	_cleanup_(close_fd) int client = accept4(gate, NULL, NULL, SOCK_CLOEXEC);
	struct timeval patience = { .tv_sec = 5 };
	unsigned char asked;
	int r;

	if (client < 0 || !is_friend(client))
		return false;
	setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (recv(client, &asked, 1, 0) != 1 || asked > GPUSHM_SHARED)
		return false;
	r = gpushm_publish(b, asked ? asked : state);
	answer(client, ctl_exit_code(r),
	       r < 0 ? gpushm_error() : entry_state(asked ? asked : state));
	return r == 0;
}

static int listen_at(struct ctl *ctl, const char *name, int *ret)
{
	_cleanup_(close_fd) int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un a;
	socklen_t len;
	int r = make_address(ctl, name, &a, &len);

	if (r)
		return r;
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) < 0 || listen(fd, 8) < 0)
		return ctl_error(CTL_FAILED, "%s: can't listen for `gpushmctl publish`: %s", name,
				 strerror(errno));
	*ret = take_fd(&fd);
	return CTL_OK;
}

static void say_holding(const struct ctl *ctl, const char *name)
{
	if (ctl->quiet || ctl->json)
		return;
	printf("holding %s %d\n", name, getpid());
	fflush(stdout);
}

int gate_keep(struct ctl *ctl, struct gpushm_buffer *b, enum gpushm_state state)
{
	_cleanup_(close_fd) int gate = -1;
	int r = listen_at(ctl, gpushm_buffer_name(b), &gate);
	struct pollfd fds[] = { { .fd = gate, .events = POLLIN },
				{ .fd = gpushm_fd(ctl->connection), .events = POLLIN } };

	if (r)
		return r;
	say_holding(ctl, gpushm_buffer_name(b));
	for (;;) {
		if (poll(fds, array_size(fds), -1) < 0 && errno != EINTR)
			return ctl_error(CTL_FAILED, "poll: %s", strerror(errno));
		if (fds[1].revents)
			return ctl_error(CTL_NO_DAEMON, "the daemon has gone, and with it what was "
							"not published");
		if (fds[0].revents && serve(gate, b, state))
			return CTL_OK;
	}
}

static int take_answer(int fd, const struct ctl *ctl, const char *name)
{
	char buf[ANSWER_MAX];
	ssize_t n = recv(fd, buf, sizeof(buf) - 1, 0);
	struct json j;
	int code;

	if (n < 1)
		return ctl_error(CTL_FAILED, "%s: its holder ended without an answer", name);
	buf[n] = '\0';
	code = buf[0] - 1;
	if (code)
		return ctl_error(CTL_FAILED, "%s", buf + 1);
	if (ctl_json(ctl, &j)) {
		json_open(&j, NULL, '{');
		json_string(&j, "name", name);
		json_string(&j, "state", buf + 1);
		json_close(&j, '}');
	} else if (!ctl->quiet) {
		printf("%s: %s\n", name, buf + 1);
	}
	return CTL_OK;
}

int gate_ask(struct ctl *ctl, const char *name, unsigned state)
{
	_cleanup_(close_fd) int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	unsigned char asked = (unsigned char)state;
	struct sockaddr_un a;
	socklen_t len;
	int r = make_address(ctl, name, &a, &len);

	if (r)
		return r;
	if (fd < 0)
		return ctl_error(CTL_FAILED, "socket: %s", strerror(errno));
	if (connect(fd, (struct sockaddr *)&a, len) < 0)
		return errno == ECONNREFUSED
			       ? CTL_NOT_FOUND
			       : ctl_error(CTL_FAILED, "%s: %s", name, strerror(errno));
	if (!is_friend(fd))
		return ctl_error(CTL_FAILED, "%s: another user's process sits at its gate", name);
	if (send(fd, &asked, 1, MSG_NOSIGNAL) != 1)
		return ctl_error(CTL_FAILED, "%s: its holder does not listen: %s", name,
				 strerror(errno));
	return take_answer(fd, ctl, name);
}
