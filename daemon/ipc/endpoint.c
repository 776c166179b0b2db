/* SPDX-License-Identifier: MIT
 *
 * The endpoint uses the socket that systemd passes, or makes one. Where fds are kept, the socket is
 * kept, too: so clients wait in its queue while no daemon runs. For a socket of its own the
 * daemon holds PATH.lock with flock() while it runs: only the holder of the lock may remove a stale
 * socket. It follows no symbolic link: it opens the lock with O_NOFOLLOW and unlinks nothing but a
 * socket, and bind() refuses any name that exists. The mode is set before bind(), on the socket's
 * inode, and the kernel gives it to the file, so the file never has another mode.
 */
#include "daemon/ipc/endpoint.h"

#include "daemon/util/log.h"
#include "proto/base/own.h"
#include "proto/socket_path.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define FD_NAME "gpushmd" /* FileDescriptorName= in gpushmd.socket */
#define LOCK_NAME "lock"  /* kept across an exec: the same open file holds the same lock */
#define LOCK_WAIT_MS 500u
#define LOCK_POLL_MS 10u

static int fail(const char *path, const char *what, int error)
{
	log_error_id(LOG_ID_CANT_START, "socket %s: %s: %s", path, what, strerror(error));
	return -error;
}

static bool has_option(int fd, int option, int value)
{
	int found = 0;
	socklen_t len = sizeof(found);

	return getsockopt(fd, SOL_SOCKET, option, &found, &len) == 0 && found == value;
}

static bool is_listening(int fd)
{
	return has_option(fd, SO_DOMAIN, AF_UNIX) && has_option(fd, SO_TYPE, SOCK_SEQPACKET) &&
	       has_option(fd, SO_ACCEPTCONN, 1);
}

/* 1 with the socket, 0 where none was handed over, or -errno. An earlier daemon may have died with
 * the lock kept and the socket not yet. */
static int take_activated(struct fdstore *store, bool has_lock, int *ret)
{
	_cleanup_(close_fd) int fd = fdstore_take(store, FD_NAME);

	if (fd < 0 && (store->received.n == 0 || has_lock))
		return 0;
	if (fd < 0 || !is_listening(fd)) {
		log_error_id(LOG_ID_CANT_START,
			     "%zu fds were handed over, and none is a listening sequential-packet "
			     "socket named \"" FD_NAME "\" (FileDescriptorName= in gpushmd.socket)",
			     store->received.n);
		return -EINVAL;
	}
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	*ret = take_fd(&fd);
	return 1;
}

/* A socket that a daemon made before an exec or its death stays at its path, where clients look for
 * it. To move it, the daemon has to be stopped. */
static int take_path_over(const struct config *config, struct endpoint *e)
{
	struct sockaddr_un a = { 0 };
	socklen_t len = sizeof(a) - 1;

	if (e->lock < 0)
		return 0;
	if (getsockname(e->socket, (struct sockaddr *)&a, &len) < 0)
		return -errno;
	e->path = strdup(a.sun_path);
	if (!e->path)
		return -ENOMEM;
	if (strcmp(e->path, config->socket_path) != 0)
		log_warning_id(
			LOG_ID_CONFIG,
			"the socket stays at %s: to have it at %s, stop gpushmd and start it",
			e->path, config->socket_path);
	return 0;
}

/* Makes the last folder of the path, such as /run/gpushm or $XDG_RUNTIME_DIR/gpushm; its parents
 * must exist. Users whom the socket's mode lets in must reach it, whatever the umask is. But in
 * /tmp, whose names anybody can take, the folder is its user's alone. */
static int make_folder(const char *path)
{
	bool in_tmp = socket_path_is_in_tmp(path);
	_cleanup_(free_ptr) char *folder = strdup(path);
	char *slash = folder ? strrchr(folder, '/') : NULL;
	mode_t old;
	int r;

	if (!slash || slash == folder)
		return 0;
	*slash = '\0';
	old = umask(in_tmp ? 077 : 022);
	r = mkdir(folder, 0777) < 0 && errno != EEXIST ? -errno : 0;
	umask(old);
	if (r < 0)
		return fail(path, "its folder can't be made; give another --socket", -r);
	return !in_tmp || socket_path_is_safe()
		       ? 0
		       : fail(path,
			      "its folder must be your own, with mode 0700; remove it, or "
			      "give another --socket, and clients GPUSHM_SOCKET",
			      EPERM);
}

/* A daemon whose keeper was killed holds its lock until the kernel has ended it, which takes some
 * 50 ms with a GPU. */
static int lock_soon(int fd)
{
	for (unsigned waited = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; waited += LOCK_POLL_MS) {
		if (errno != EWOULDBLOCK || waited >= LOCK_WAIT_MS)
			return -errno;
		poll(NULL, 0, LOCK_POLL_MS);
	}
	return 0;
}

static int take_lock(const char *path, int *ret)
{
	_cleanup_(free_ptr) char *name = NULL;
	_cleanup_(close_fd) int fd = -1;
	int r;

	if (asprintf(&name, "%s.lock", path) < 0)
		return -ENOMEM;
	fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return fail(name, "its lock can't be opened; give another --socket", errno);
	r = lock_soon(fd);
	if (r < 0)
		return fail(path,
			    "another gpushmd serves it; stop that one, or give another --socket",
			    r == -EWOULDBLOCK ? EADDRINUSE : -r);
	*ret = take_fd(&fd);
	return 0;
}

/* Whether a process listens there: systemd for another daemon, since its sockets have no lock. A
 * full queue refuses us with EAGAIN, a socket of another type with EPROTOTYPE. */
static bool has_listener(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	_cleanup_(close_fd) int fd =
		socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	strcpy(a.sun_path, path);
	return fd >= 0 && (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 || errno == EAGAIN ||
			   errno == EPROTOTYPE);
}

/* We hold the lock, so a socket without a listener belongs to a daemon that died. */
static int remove_stale(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : fail(path, "lstat", errno);
	if (!S_ISSOCK(st.st_mode))
		return fail(path, "something else than a socket is there; move it away", EINVAL);
	if (has_listener(path))
		return fail(
			path,
			"somebody listens there, such as systemd for gpushmd.socket; stop that, "
			"or give another --socket",
			EADDRINUSE);
	return unlink(path) < 0 ? fail(path, "its stale socket can't be removed", errno) : 0;
}

static int bind_at(const struct config *config, int *ret)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const char *path = config->socket_path;
	_cleanup_(close_fd) int fd = -1;

	strcpy(a.sun_path, path); /* endpoint_open() has looked at its length */
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return fail(path, "socket", errno);
	if (fchmod(fd, config->socket_mode) < 0)
		return fail(path, "fchmod", errno);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return fail(path, "bind", errno);
	if (config->socket_gid != (gid_t)-1 && lchown(path, (uid_t)-1, config->socket_gid) < 0)
		return fail(path, "its group can't be set", errno);
	if (listen(fd, SOMAXCONN) < 0)
		return fail(path, "listen", errno);
	*ret = take_fd(&fd);
	return 0;
}

/* Under the lock. */
static int make_socket(const struct config *config, struct endpoint *e)
{
	mode_t old;
	int r = remove_stale(config->socket_path);

	if (r < 0)
		return r;
	/* The file's mode is the inode's, less the umask. */
	old = umask(0);
	r = bind_at(config, &e->socket);
	umask(old);
	if (r < 0)
		return r;
	e->path = strdup(config->socket_path);
	return e->path ? 0 : -ENOMEM;
}

/* The lock first: a socket without a lock came from systemd. */
static int keep(struct fdstore *store, const struct endpoint *e)
{
	int r = fdstore_keep(store, LOCK_NAME, e->lock);

	return r < 0 ? r : fdstore_keep(store, FD_NAME, e->socket);
}

int endpoint_open(const struct config *config, struct fdstore *store, struct endpoint *ret)
{
	int r;

	*ret = (struct endpoint){ .socket = -1,
				  .lock = fdstore_take(store, LOCK_NAME),
				  .kept = store->systemd };
	r = take_activated(store, ret->lock >= 0, &ret->socket);
	if (r != 0)
		return r < 0 ? r : take_path_over(config, ret);
	if (strlen(config->socket_path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return fail(config->socket_path, "its path is longer than 107 bytes", ENAMETOOLONG);
	r = make_folder(config->socket_path);
	if (r == 0 && ret->lock < 0)
		r = take_lock(config->socket_path, &ret->lock);
	if (r == 0)
		r = make_socket(config, ret);
	if (r == 0)
		r = keep(store, ret);
	return r;
}

int endpoint_list(const struct endpoint *e, int socket, struct fd_list *m)
{
	int r = fd_list_add(m, FD_NAME, socket);

	return r < 0 || e->lock < 0 ? r : fd_list_add(m, LOCK_NAME, e->lock);
}

void endpoint_tell_clients(const struct endpoint *e)
{
	char own[SOCKET_PATH_SIZE], other[SOCKET_PATH_SIZE];
	const char *found = socket_path_of_clients(other);

	socket_path_of_user(own);
	if (e->path && strcmp(e->path, own) == 0 && strcmp(found, own) != 0)
		log_warning_id(LOG_ID_CONFIG,
			       "your programs connect to %s, since that is there; to this daemon "
			       "after: export GPUSHM_SOCKET=%s",
			       found, own);
}

void endpoint_close(struct endpoint *e)
{
	close_fd(&e->socket);
	/* The lock's file stays: a process that opened it before we removed it would hold a lock
	 * that nobody sees. */
	if (e->path && !e->kept)
		unlink(e->path);
	close_fd(&e->lock);
	free(take_ptr(e->path));
}
