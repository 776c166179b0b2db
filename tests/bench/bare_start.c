/* SPDX-License-Identifier: MIT
 *
 * The least that a daemon's start costs: a program that takes over the fds that it is started with,
 * so that no child gets them; starts the driver if its argument says so; reports that it is ready;
 * and replies to each datagram with a datagram.
 */
#include "proto/base/own.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define FIRST 3 /* SD_LISTEN_FDS_START: the listening socket */

static void take_over(void)
{
	const char *text = getenv("LISTEN_FDS");
	int n = text ? atoi(text) : 0;

	for (int i = 0; i < n; i++)
		fcntl(FIRST + i, F_SETFD, FD_CLOEXEC);
	/* The daemon that listened here before made the socket non-blocking. */
	fcntl(FIRST, F_SETFL, 0);
}

static int start_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	int (*init)(unsigned) = library ? dlsym(library, "cuInit") : NULL;

	return init ? init(0) : 1;
}

static void say_ready(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", getenv("NOTIFY_SOCKET"));
	sendto(fd, "READY=1", 7, 0, (struct sockaddr *)&a, sizeof(a));
	close(fd);
}

int main(void)
{
	static char frame[65536];

	take_over();
	if (getenv("BARE_START_DRIVER") && start_driver() != 0)
		return 1;
	say_ready();
	for (;;) {
		_cleanup_(close_fd) int fd = accept4(FIRST, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			return 1;
		while (recv(fd, frame, sizeof(frame), 0) > 0)
			send(fd, frame, 200, MSG_NOSIGNAL);
	}
}
