/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl publish NAME`: publishes a buffer that `put --hold` or `create --hold` filled. Only
 * the process that created a buffer can publish it, so this command asks that process. Several
 * buffers are published one after the other: a new version of a model in many buffers takes minutes
 * to load and is published in a moment.
 *
 * The holder listens at a SOCK_SEQPACKET socket in Linux's abstract namespace (unix(7)): it leaves
 * no file behind, however its process ends. Its name is a prefix of daemon, user and buffer, by
 * which it is found, and a random number, so that no other user can take the name first. It has no
 * permissions, so each side asks the kernel for the other's user: the same one, or root. A request
 * is one datagram, the state as a byte (0: the holder's own choice); so is the reply, an exit code
 * plus one and a text.
 */
#include "client/ctl/ctl.h"

#include "proto/base/fnv.h"
#include "proto/base/own.h"
#include "proto/words.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#define REPLY_MAX 1024
#define HOLD_NAME_MAX 96u /* of a struct sockaddr_un's 108 bytes */

struct options {
	bool shared, sealed;
};

/* The part of a socket's name that a client can compute: "gpushmctl/UID/HASH/". */
static int hold_prefix(struct ctl *ctl, const char *name, char *ret, size_t size)
{
	_cleanup_(free_result) struct gpushm_status *s = NULL;
	uint64_t h = FNV1A_BASIS;
	char owner[16];
	int r = gpushm_status(ctl->connection, &s);

	if (r < 0)
		return ctl_refused(r);
	h = fnv1a(h, s->daemon, sizeof(s->daemon));
	/* "~/x" and "~1001/x" are one name. */
	snprintf(owner, sizeof(owner), "~%u", geteuid());
	if (!strncmp(name, "~/", 2)) {
		h = fnv1a(h, owner, strlen(owner));
		name++;
	}
	h = fnv1a(h, name, strlen(name));
	snprintf(ret, size, "gpushmctl/%u/%016lx/", geteuid(), (unsigned long)h);
	return CTL_OK;
}

static socklen_t set_address(struct sockaddr_un *a, const char *name, size_t len)
{
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(a->sun_path + 1, name, len);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

static bool is_same_user(int socket)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 &&
	       (cred.uid == geteuid() || cred.uid == 0);
}

static void send_reply(int client, int code, const char *text)
{
	char buf[REPLY_MAX];
	int n = snprintf(buf, sizeof(buf), "%c%s", (char)(code + 1), text);

	/* The client may be gone; that changes nothing here. */
	send(client, buf, n < REPLY_MAX ? (size_t)n : REPLY_MAX - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Serves one client. True: the buffer is published. */
static bool serve(int listener, struct gpushm_buffer *b, enum gpushm_state state)
{
	_cleanup_(close_fd) int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	struct timeval timeout = { .tv_sec = 5 };
	unsigned char asked;
	int r;

	if (client < 0 || !is_same_user(client))
		return false;
	setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	if (recv(client, &asked, 1, 0) != 1 || asked > GPUSHM_SHARED)
		return false;
	if (gpushm_buffer_notice(b) & GPUSHM_NOTICE_UNLINKED) {
		send_reply(client, CTL_NOT_FOUND, "its name was unlinked before it was published");
		return false;
	}
	r = gpushm_publish(b, asked ? asked : state);
	send_reply(client, ctl_exit_code(r),
		   r < 0 ? gpushm_error() : state_word(asked ? asked : state));
	return r == 0;
}

/* No other process can take a name of 128 random bits first. */
static int listen_for(struct ctl *ctl, const char *name, int *ret)
{
	_cleanup_(close_fd) int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	char address[HOLD_NAME_MAX];
	uint64_t random[2];
	struct sockaddr_un a;
	socklen_t len;
	int r = hold_prefix(ctl, name, address, sizeof(address));

	if (r)
		return r;
	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return ctl_error(CTL_FAILED, "getrandom: %s", strerror(errno));
	snprintf(address + strlen(address), sizeof(address) - strlen(address), "%016lx%016lx",
		 (unsigned long)random[0], (unsigned long)random[1]);
	len = set_address(&a, address, strlen(address));
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
	output_line(stdout, "holding %s %d", name, getpid());
	output_flush();
	ctl_error(CTL_OK,
		  "%s stays unpublished here until `gpushmctl publish %s`; if this command ends "
		  "before, its contents are gone",
		  name, name);
}

/* mask: of signals, while this waits. */
static int serve_all(struct ctl *ctl, struct gpushm_buffer *b, enum gpushm_state state,
		     int listener, const sigset_t *mask)
{
	struct pollfd fds[] = { { .fd = listener, .events = POLLIN },
				{ .fd = gpushm_fd(ctl->connection), .events = POLLIN } };

	for (;;) {
		if (ppoll(fds, array_size(fds), NULL, mask) < 0) {
			if (errno != EINTR)
				return ctl_error(CTL_FAILED, "poll: %s", strerror(errno));
			if (ctl_interrupted())
				return ctl_error(CTL_FAILED,
						 "%s: interrupted before it was published: its "
						 "contents are gone",
						 gpushm_buffer_name(b));
			continue;
		}
		if (fds[1].revents)
			return ctl_error(CTL_NO_DAEMON,
					 "the daemon has gone; buffers that were not "
					 "published yet are freed");
		if (fds[0].revents && serve(listener, b, state))
			return CTL_OK;
	}
}

int publish_when_asked(struct ctl *ctl, struct gpushm_buffer *b, enum gpushm_state state)
{
	_cleanup_(close_fd) int listener = -1;
	sigset_t all, before;
	int r = listen_for(ctl, gpushm_buffer_name(b), &listener);

	if (r)
		return r;
	/* A signal is let in only while this waits, so that none is missed. */
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	ctl_catch_signals();
	say_holding(ctl, gpushm_buffer_name(b));
	r = serve_all(ctl, b, state, listener, &before);
	ctl_release_signals();
	sigprocmask(SIG_SETMASK, &before, NULL);
	return r;
}

static int take_reply(int fd, const struct ctl *ctl, const char *name)
{
	char buf[REPLY_MAX];
	ssize_t n = recv(fd, buf, sizeof(buf) - 1, 0);
	struct json j;
	int code;

	if (n < 1)
		return ctl_error(CTL_FAILED, "%s: the process that holds it ended without a reply",
				 name);
	buf[n] = '\0';
	code = buf[0] - 1;
	if (code == CTL_NOT_FOUND)
		return code;
	if (code)
		return ctl_error(CTL_FAILED, "%s", buf + 1);
	if (ctl_json(ctl, &j)) {
		json_open(&j, NULL, '{');
		json_string(&j, "name", name);
		json_string(&j, "state", buf + 1);
		json_close(&j, '}');
	} else if (!ctl->quiet) {
		output_line(stdout, "%s: %s", name, buf + 1);
	}
	return CTL_OK;
}

/* Connects to a socket of that name. -1: it is another user's, or has gone. Without blocking, for a
 * stranger may keep its backlog full. */
static int connect_to(const char *name, size_t name_len)
{
	_cleanup_(close_fd) int fd =
		socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un a;
	socklen_t len;

	if (fd < 0 || name_len >= sizeof(a.sun_path))
		return -1;
	len = set_address(&a, name, name_len);
	if (connect(fd, (struct sockaddr *)&a, len) < 0 || !is_same_user(fd) ||
	    fcntl(fd, F_SETFL, 0) < 0)
		return -1;
	return take_fd(&fd);
}

/* Sends the request to one of the sockets of that prefix. An exit code; CTL_NOT_FOUND if none of
 * them can publish the buffer. */
static int ask_socket(struct ctl *ctl, const char *name, const char *address, size_t len,
		      unsigned state)
{
	_cleanup_(close_fd) int fd = connect_to(address, len);
	unsigned char asked = (unsigned char)state;

	if (fd < 0 || send(fd, &asked, 1, MSG_NOSIGNAL) != 1)
		return CTL_NOT_FOUND;
	return take_reply(fd, ctl, name);
}

static void close_list(FILE **f)
{
	if (*f)
		fclose(*f);
}

/* Asks the process that holds the buffer: the kernel lists the sockets of this network namespace,
 * and an abstract one starts with '@'. A stranger's socket may have the same prefix, and a buffer
 * of the same name may have been unlinked, so all of them are tried. An exit code; CTL_NOT_FOUND
 * without a message if no process listens. */
static int ask(struct ctl *ctl, const char *name, unsigned state)
{
	_cleanup_(close_list) FILE *list = fopen("/proc/net/unix", "re");
	_cleanup_(free_ptr) char *line = NULL;
	char prefix[HOLD_NAME_MAX];
	int r = hold_prefix(ctl, name, prefix, sizeof(prefix)), found = CTL_NOT_FOUND;
	size_t size = 0;

	if (r)
		return r;
	if (!list)
		return ctl_error(CTL_FAILED, "/proc/net/unix: %s", strerror(errno));
	while (found == CTL_NOT_FOUND && getline(&line, &size, list) > 0) {
		const char *at = strchr(line, '@');

		if (at && !strncmp(at + 1, prefix, strlen(prefix)))
			found = ask_socket(ctl, name, at + 1, strcspn(at + 1, "\n"), state);
	}
	return found;
}

/* No process listens for this buffer: prints why. */
static int explain(struct ctl *ctl, const char *name)
{
	_cleanup_(free_result) struct gpushm_stat *s = NULL;
	int r = gpushm_stat(ctl->connection, name, 0, 0, &s);
	enum gpushm_state state;

	if (r < 0 && r != -EAGAIN)
		return ctl_refused(r);
	state = s ? s->state : GPUSHM_FILLING;
	if (state != GPUSHM_FILLING)
		return ctl_error(CTL_FAILED, "%s: it is already published (%s)", name,
				 state_word(state));
	return ctl_error(CTL_FAILED,
			 "%s: it is being filled by another program, and only that program can "
			 "publish it (gpushm_publish); for the shell, make it with gpushmctl put "
			 "--hold or gpushmctl create --hold",
			 name);
}

static int publish(struct ctl *ctl, const void *options, const char *name)
{
	const struct options *o = options;
	int r = ask(ctl, name, o->shared ? GPUSHM_SHARED : o->sealed ? GPUSHM_SEALED : 0);

	return r == CTL_NOT_FOUND ? explain(ctl, name) : r;
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	int r;

	if (o->shared && o->sealed)
		return ctl_error(CTL_USAGE, "--shared and --sealed: choose one");
	if (ctl->json && n > 1)
		return ctl_error(CTL_USAGE, "--json prints one document: give one NAME");
	r = ctl_connect(ctl);
	return r ? r : ctl_each(ctl, o, n, words, publish);
}

const struct command command_publish = {
	.name = "publish",
	.synopsis = "[--sealed | --shared] NAME...",
	.about = "publish buffers that put --hold or create --hold filled",
	.more = "Only the process that created a buffer can publish it. This command asks the\n"
		"`gpushmctl put --hold` or `gpushmctl create --hold` that is waiting; that one\n"
		"publishes the buffer and ends.",
	OPTIONS(options, FLAG(options, sealed, "sealed", 0, "for reading only"),
		FLAG(options, shared, "shared", 0, "for reading and writing")),
	.words = { 1, SIZE_MAX },
	.connects_itself = true,
	.run = run,
};
