/* SPDX-License-Identifier: MIT
 *
 * The defaults of gpushmd.conf, and the reason for each. gpushmd.conf(5) repeats the values.
 *
 * Some defaults depend on who runs the daemon. Root or the user gpushm runs it for all users of the
 * machine, who do not know each other. Any other user runs it for himself.
 *
 * The limits of each uid protect all users from one user's bug. They do not share memory out
 * fairly; that is the administrator's decision:
 *  - bytes: no limit. A GPU's memory often belongs to one user; the pool's size limits all users.
 *  - pool share: half of each pool for a service, so that one CREATE of any user can't take all of
 *    it; all of it for a daemon of one's own.
 *  - buffers: 16,384. Each buffer holds one to four fds of the daemon; gpushmd.service allows
 *    524,288 fds, enough for ten such users. A model in pieces has some hundreds of buffers.
 *  - leases: 65,536, four times the buffers, for several workers that attach to all of them. A
 *    lease costs the daemon about 100 bytes and no fd. A process that closes its connections but
 *    keeps leases costs one fd, its pidfd.
 *  - connections: 1,024. Each holds an fd, and all of one process a pidfd. A process needs one
 *    connection, and one more for each thread that waits for a name.
 *  - share: half. Of what the daemon has a fixed number of, a user leaves as much to others as it
 *    holds. So no number of connections of one user stops another one, and a user who is alone has
 *    more than 200,000 fds of the service's 524,288.
 *
 * A driver call takes microseconds, or a quarter of a second at the start; a call that clears or
 * pins memory takes a second for some GiB. 30 s are longer than nearly all calls, and shorter than
 * a supervisor's patience.
 *
 * The socket of a service is open to all users, too: the device nodes of the driver are, by default
 * (NVreg_DeviceFileMode=0666), and a user who can open them can allocate a GPU's memory without the
 * daemon. But a mempool, whose users can read each other's memory, is open to the daemon's own
 * group only.
 *
 * Pools of GPU memory may take all of it: they allocate as buffers are created and reserve nothing,
 * and an allocation fails cleanly if other programs hold the memory. Host pools take half of the
 * memory, because the kernel kills processes when it runs out.
 */
#include "daemon/config/config.h"

#include "proto/socket_path.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SERVICE_USER "gpushm"

static bool runs_as_service(void)
{
	char buf[4096];
	struct passwd user, *found = NULL;

	if (geteuid() == 0)
		return true;
	return getpwnam_r(SERVICE_USER, &user, buf, sizeof(buf), &found) == 0 && found &&
	       found->pw_uid == geteuid();
}

void config_default_daemon(struct config *ret)
{
	/* Everybody may connect: the daemon checks the uid of each request. */
	*ret = (struct config){ .socket_mode = 0666,
				.socket_gid = (gid_t)-1,
				.admin_gid = (gid_t)-1,
				.driver_timeout = 30,
				.yield_timeout = 2,
				.busy_poll = 50 };
}

void config_default_limits(struct limits_config *ret)
{
	*ret = (struct limits_config){
		.bytes = UINT64_MAX,
		.buffers = 16384,
		.leases = 65536,
		.peers = 1024,
		.share = 50,
		.pool_share = runs_as_service() ? 50 : 100,
	};
}

void pool_config_default(enum pool_kind kind, struct pool_config *ret)
{
	*ret = (struct pool_config){
		.kind = kind,
		.numa_node = -1,
		.size.percent = kind_of(kind)->on_gpu ? 100 : 50,
		.share = -1,
		.pending_max_age = 10,
	};
}

char *config_default_socket(void)
{
	char path[SOCKET_PATH_SIZE];

	if (runs_as_service())
		return strdup(SOCKET_SYSTEM);
	socket_path_of_user(path);
	return strdup(path);
}

int config_default_groups(struct config *c)
{
	uint32_t *ids;

	if (!runs_as_service())
		return 0;
	ids = malloc(sizeof(*ids));
	if (!ids)
		return -ENOMEM;
	ids[0] = getegid();
	c->mempool_groups = (struct id_list){ ids, 1 };
	return 0;
}

void config_restrict_mempool(const struct config *c, struct pool_config *pool)
{
	if (!kind_opens_pool(pool->kind) || c->mempool_groups.n == 0 || pool->allow_users.n > 0 ||
	    pool->allow_groups.n > 0)
		return;
	pool->allow_groups = c->mempool_groups;
	pool->restricted = true;
}

const struct pool_config *config_pool(const struct config *c, const char *name)
{
	for (size_t i = 0; i < c->n_pools; i++)
		if (strcmp(c->pools[i].name, name) == 0)
			return &c->pools[i];
	return NULL;
}

void config_default_pool(const struct config *c, char ret[POOL_NAME_MAX + 1])
{
	const struct pool_config *pool = config_pool(c, "gpu0");

	if (!pool)
		pool = config_pool(c, "host");
	if (!pool && c->n_pools > 0)
		pool = &c->pools[0];
	strcpy(ret, pool ? pool->name : "");
}

struct config *config_free(struct config *c)
{
	if (!c)
		return NULL;
	for (size_t i = 0; i < c->n_pools; i++) {
		free(c->pools[i].allow_users.ids);
		if (c->pools[i].allow_groups.ids != c->mempool_groups.ids)
			free(c->pools[i].allow_groups.ids);
	}
	for (size_t i = 0; i < c->n_files; i++)
		free(c->files[i]);
	free(c->files);
	free(c->mempool_groups.ids);
	free(c->origins);
	free(c->user_limits);
	free(c->pools);
	free(c->socket_path);
	free(c);
	return NULL;
}
