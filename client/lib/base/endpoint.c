/* SPDX-License-Identifier: MIT
 *
 * Finds the daemon's socket, connects to it, and checks the files that come from there. Any process
 * may listen on a path that it can write to, and mapping a file means trusting its sender: so the
 * server's uid must be root's, our own or that of the daemon's user. This is the user "gpushm", or
 * the owner of /run/gpushm: root alone makes folders in /run, and a container that has this folder
 * of its host has no user of that name. The kernel's SO_PEERCRED names the process that called
 * listen(). With socket activation that is systemd, as root, while the daemon and its memfds belong
 * to the daemon's user. A uid that our user namespace does not map
 * (proto/base/userns.h) may be anybody's, even if our own is shown by the same number: it is
 * trusted only if GPUSHM_UNMAPPED_DAEMON says so.
 *
 * The caller owns the socket.
 */
#include "client/lib/base/endpoint.h"

#include "client/lib/base/error.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/base/userns.h"
#include "proto/socket_path.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define DAEMON_USER "gpushm"
#define DAEMON_PROGRAM "gpushmd"
#define TRUSTED                                                              \
	"root, user \"" DAEMON_USER "\", the owner of " SOCKET_SYSTEM_FOLDER \
	" and the caller himself"

/* The uid is looked up once: each attach asks, and has no time to read /etc/passwd or to ask a
 * server. */
static bool is_named_so(uid_t uid)
{
	static _Atomic int64_t known = -1;
	struct passwd entry, *found = NULL;
	char text[4096];

	if (known < 0 && getpwnam_r(DAEMON_USER, &entry, text, sizeof(text), &found) == 0 && found)
		known = found->pw_uid;
	return known == uid;
}

static bool only_owner_writes(const char *folder, struct stat *ret)
{
	return lstat(folder, ret) == 0 && S_ISDIR(ret->st_mode) &&
	       !(ret->st_mode & (S_IWGRP | S_IWOTH));
}

static bool owns_system_folder(uid_t uid)
{
	struct stat parent, folder;

	return only_owner_writes("/run", &parent) && parent.st_uid == 0 &&
	       only_owner_writes(SOCKET_SYSTEM_FOLDER, &folder) && folder.st_uid == uid;
}

static bool is_daemon_user(uid_t uid)
{
	static _Atomic int64_t owner = -1; /* the last one that was found */

	if (owner == uid || is_named_so(uid))
		return true;
	if (!owns_system_folder(uid))
		return false;
	owner = uid;
	return true;
}

static bool is_owner(uid_t server, uid_t owner)
{
	return owner == server || (server == 0 && is_daemon_user(owner));
}

int endpoint_check_file(const char *what, int fd, uid_t server, uint64_t bytes, int seals,
			struct stat *ret)
{
	int found = fcntl(fd, F_GET_SEALS);

	if (fstat(fd, ret) < 0)
		return error_set(EPROTO, "%s can't be examined: %m", what);
	if (!S_ISREG(ret->st_mode) || ret->st_size < 0 || (uint64_t)ret->st_size != bytes)
		return error_set(EPROTO, "%s has not the size of %" PRIu64 " bytes", what, bytes);
	if (!is_owner(server, ret->st_uid))
		return error_set(EPROTO,
				 "%s belongs to uid %u, who is not trusted: " TRUSTED " are", what,
				 ret->st_uid);
	if (found < 0 || (found & seals) != seals)
		return error_set(EPROTO, "%s is not sealed", what);
	return 0;
}

static int choose_path(const char *path, struct sockaddr_un *ret)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char own[SOCKET_PATH_SIZE];
	int n;

	if (!path)
		path = secure_getenv("GPUSHM_SOCKET");
	if (!path || !*path)
		path = socket_path_of_clients(own);
	n = snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	/* A path that was cut would be another socket. */
	if (n < 0 || (size_t)n >= sizeof(a.sun_path))
		return error_set(ENAMETOOLONG,
				 "the path of a socket has at most %zu bytes, this one %d",
				 sizeof(a.sun_path) - 1, n);
	*ret = a;
	return 0;
}

static const char *advice(int number)
{
	switch (number) {
	case ENOENT:
		return "no daemon there: start gpushmd, or set GPUSHM_SOCKET";
	case ECONNREFUSED:
		return "no daemon listens there any more: start gpushmd";
	case EAGAIN:
		return "nobody accepts: is gpushmd stopped? See systemctl status gpushmd";
	case EACCES:
		return "the socket's mode or group does not let this user in";
	case EPROTOTYPE:
		return "that socket is not gpushmd's";
	default:
		return "is gpushmd well?";
	}
}

/* 0, or -EINVAL for a word that means nothing. */
static int read_unmapped(bool *ret_trust)
{
	const char *word = secure_getenv("GPUSHM_UNMAPPED_DAEMON");

	*ret_trust = word && strcmp(word, "trust") == 0;
	if (!word || !*word || *ret_trust || strcmp(word, "refuse") == 0)
		return 0;
	return error_set(EINVAL, "GPUSHM_UNMAPPED_DAEMON=%s: allowed: refuse or trust", word);
}

static int check_unmapped(const char *path, uid_t uid)
{
	bool trust;
	int r = read_unmapped(&trust);

	if (r < 0 || trust)
		return r;
	return error_set(
		EPERM,
		"%s is served by a user whom this user namespace does not map: shown as uid "
		"%u, it may be anybody; map that user, or set GPUSHM_UNMAPPED_DAEMON=trust if "
		"only the daemon can put a socket there (gpushm(7))",
		path, uid);
}

static int check_server(int fd, const char *path, uid_t *ret)
{
	struct ucred server;
	socklen_t size = sizeof(server);
	uid_t unmapped = userns_unmapped_uid();

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &size) < 0)
		return error_set(errno, "can't tell who listens on %s: %m", path);
	*ret = server.uid;
	if (server.uid == unmapped)
		return check_unmapped(path, server.uid);
	if (server.uid != 0 && server.uid != geteuid() && !is_daemon_user(server.uid))
		return error_set(EPERM,
				 "%s is served by uid %u, who is not trusted: " TRUSTED " are",
				 path, server.uid);
	return 0;
}

/* SO_SNDTIMEO: how long connect() waits while the listener's queue is full, and send() while the
 * socket's buffer is. SO_RCVTIMEO: how long recvmsg() waits (socket(7)). */
static void limit_wait(int fd, int option, uint64_t ms)
{
	struct timeval t = { .tv_sec = (time_t)(ms / 1000u),
			     .tv_usec = (suseconds_t)(ms % 1000u) * 1000 };

	setsockopt(fd, SOL_SOCKET, option, &t, sizeof(t));
}

static int connect_in_time(int fd, const struct sockaddr_un *a, uint64_t wait_ms)
{
	uint64_t deadline = clock_deadline(wait_ms);
	int r;

	do {
		uint64_t left = clock_left_ms(deadline);

		limit_wait(fd, SO_SNDTIMEO, left > 0 ? left : 1);
		r = connect(fd, (const struct sockaddr *)a, sizeof(*a));
	} while (r < 0 && errno == EINTR);
	if (r < 0)
		return error_set(errno == EAGAIN ? ECONNREFUSED : errno,
				 "can't connect to %s: %m (%s)", a->sun_path, advice(errno));
	limit_wait(fd, SO_SNDTIMEO, ENDPOINT_BLOCK_MS);
	limit_wait(fd, SO_RCVTIMEO, ENDPOINT_BLOCK_MS);
	return 0;
}

int endpoint_connect(const char *path, uint64_t wait_ms, int *ret_fd, uid_t *ret_server)
{
	_cleanup_(close_fd) int fd = -1;
	struct sockaddr_un a;
	int r = choose_path(path, &a);

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return error_set(errno, "can't make a socket: %m");
	r = connect_in_time(fd, &a, wait_ms);
	if (r < 0)
		return r;
	r = check_server(fd, a.sun_path, ret_server);
	if (r < 0)
		return r;
	*ret_fd = take_fd(&fd);
	return 0;
}

/* ---- the process that listens ---- */

/* "4711 (gpushmd) S ...", proc_pid_stat(5). The name may have any characters. */
static bool read_state(pid_t pid, char *ret_state, bool *ret_named)
{
	char path[32], text[128];
	const char *end;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	end = strrchr(text, ')');
	if (!end || end[1] != ' ' || end[2] == '\0')
		return false;
	*ret_state = end[2];
	*ret_named = strstr(text, "(" DAEMON_PROGRAM) != NULL;
	return true;
}

/* Whether there is such a process, and it is the daemon's. */
static bool is_daemon(pid_t pid, bool sure, char *ret_state)
{
	bool named;

	return pid > 0 && read_state(pid, ret_state, &named) && (named || sure);
}

static const char *explain(char state)
{
	switch (state) {
	case 'T':
		return "is stopped (state T): kill -CONT lets it go on";
	case 't':
		return "is stopped by a debugger (state t)";
	case 'D':
		return "is in a system call that does not return (state D): see dmesg";
	case 'Z':
	case 'X':
		return "has ended";
	default:
		return "runs, and is busy or waits for something: see systemctl status gpushmd";
	}
}

/* SO_PEERCRED names the process that called listen(): that may be systemd, or an earlier daemon. So
 * the daemon says its own pid. That is one of the daemon's PID namespace, and here it may be
 * another process's: it is the daemon's if SO_PEERCRED has the same, or if the process has the
 * program's name. Where it is not, the listener may be the daemon. SO_PEERCRED has pid 0 if the
 * listener is outside of our namespace. */
void endpoint_describe_daemon(int socket, pid_t told, char *ret, size_t size)
{
	struct ucred listener = { 0 };
	socklen_t length = sizeof(listener);
	char state;

	getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &listener, &length);
	if (listener.pid > 0 && is_daemon(told, told == listener.pid, &state))
		snprintf(ret, size, "its process %d %s", (int)told, explain(state));
	else if (listener.pid > 0 && is_daemon(listener.pid, false, &state))
		snprintf(ret, size, "its process %d %s", (int)listener.pid, explain(state));
	else if (told > 0 && told != listener.pid)
		snprintf(ret, size,
			 "its process has the number %d in another PID namespace: look at it there",
			 (int)told);
	else
		snprintf(ret, size, "its process can't be seen: see systemctl status gpushmd");
}
