/* SPDX-License-Identifier: MIT
 *
 * The defaults of gpushmd.conf, and why they are what they are. gpushmd.conf(5) repeats the values.
 *
 * Limits for each uid. They are there so that one user's bug can't take the daemon from all others,
 * not to share memory out fairly, which is the administrator's to decide:
 *  - bytes: none. A GPU's memory is mostly one user's; a pool's size bounds all of them together.
 *  - tables: 256 MiB. They are the daemon's own memory, not a pool's. The names, shapes and dtypes
 * of 5,000 arrays take 0.7 MB; the largest table there can be takes 32 MiB.
 *  - buffers: 16,384. Each holds one to three fds of the daemon; with the 524,288 fds that
 *    gpushmd.service allows, ten such users fit. A model in pieces has some hundreds.
 *  - leases: 65,536, four times the buffers: what several workers hold that attach to all of them.
 *    A lease costs the daemon some 100 bytes and no fd; a connection that its process has closed
 *    while it keeps leases of it costs one, its pidfd, so that leases bound those, too.
 *  - connections: 1,024. Each holds two fds (socket and pidfd); a process needs one, and one more
 *    for each thread that waits for a name.
 *
 * A driver call takes microseconds, or a quarter of a second at the start; one that clears or pins
 * memory a second for some GiB. 30 s are above nearly all, and below what a supervisor waits.
 *
 * Pools of GPU memory may take all of it, since nothing is set aside: memory is allocated as
 * buffers are made, and what other programs hold makes an allocation fail cleanly. Host memory is
 * different, as the kernel kills processes where it runs out: half of it.
 */
#include "daemon/config/config_default.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SERVICE_USER "gpushm"
#define SERVICE_SOCKET "/run/gpushm/gpushmd.sock"

void config_default_daemon(struct config *ret)
{
	/* Who may connect is everybody: what a user may do is decided for each request, by uid. */
	*ret = (struct config){ .socket_mode = 0666,
				.socket_gid = (gid_t)-1,
				.admin_gid = (gid_t)-1,
				.driver_timeout = 30,
				.busy_poll = 50 };
}

void config_default_limits(struct limits_config *ret)
{
	*ret = (struct limits_config){
		.bytes = UINT64_MAX,
		.tables = 256u << 20,
		.buffers = 16384,
		.leases = 65536,
		.peers = 1024,
	};
}

void pool_config_default(enum pool_kind kind, struct pool_config *ret)
{
	/* 10 and 0.2 are Numba's, for NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT and _RATIO. */
	*ret = (struct pool_config){
		.kind = kind,
		.numa_node = -1,
		.size.percent = kind == POOL_VMM || kind == POOL_MEMPOOL ? 100 : 50,
		.pending_max_count = 10,
		.pending_max_ratio = 0.2,
	};
}

static bool runs_as_service(void)
{
	char buf[4096];
	struct passwd user, *found = NULL;

	if (geteuid() == 0)
		return true;
	return getpwnam_r(SERVICE_USER, &user, buf, sizeof(buf), &found) == 0 && found &&
	       found->pw_uid == geteuid();
}

char *config_default_socket(void)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char *path = NULL;
	int r;

	if (runs_as_service())
		return strdup(SERVICE_SOCKET);
	/* The XDG Base Directory Specification: a relative path is to be ignored. Where there is
	 * none, this is where pam_systemd(8) would have put it; listening there fails if it was not
	 * made. */
	if (runtime && runtime[0] == '/')
		r = asprintf(&path, "%s/gpushm/gpushmd.sock", runtime);
	else
		r = asprintf(&path, "/run/user/%u/gpushm/gpushmd.sock", (unsigned)geteuid());
	return r < 0 ? NULL : path;
}

void config_default_pool(const struct config *c, char ret[POOL_NAME_MAX + 1])
{
	static const char *const preferred[] = { "gpu0", "host" };

	ret[0] = '\0';
	if (c->n_pools == 0)
		return;
	strcpy(ret, c->pools[0].name);
	for (size_t p = 0; p < 2; p++) {
		for (size_t i = 0; i < c->n_pools; i++) {
			if (strcmp(c->pools[i].name, preferred[p]) != 0)
				continue;
			strcpy(ret, preferred[p]);
			return;
		}
	}
}
