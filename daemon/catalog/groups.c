/* SPDX-License-Identifier: MIT
 *
 * All sets of one user are in one chain of the table, and a new one is compared with each. That is
 * cheap: a user has one or two, unless it means harm. Then GROUPS_BYTES_MAX bounds the bytes that
 * are compared, and the user's connections bound the number of sets.
 *
 * The kernel sorts a process's groups (groups_sort(), kernel/groups.c), but by their ids in the
 * initial user namespace.
 */
#include "daemon/catalog/groups.h"

#include "proto/base/own.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int compare(const void *x, const void *y)
{
	gid_t a = *(const gid_t *)x, b = *(const gid_t *)y;

	return a < b ? -1 : a > b;
}

/* Sorts, and drops doubles and the group that stands for unmapped ones. */
static void tidy(struct groups *g, gid_t unmapped)
{
	size_t n = 0;

	for (size_t i = 1; i < g->n; i++) {
		if (g->ids[i - 1] <= g->ids[i])
			continue;
		qsort(g->ids, g->n, sizeof(*g->ids), compare);
		break;
	}
	for (size_t i = 0; i < g->n; i++)
		if (g->ids[i] != unmapped && (n == 0 || g->ids[i] != g->ids[n - 1]))
			g->ids[n++] = g->ids[i];
	g->n = n;
}

/* 0, -ENOMEM, or -errno of getsockopt(). SO_PEERGROUPS has only the supplementary groups, and
 * setgid() does not add the primary one to them (credentials(7)). */
static int ask_kernel(int socket, gid_t gid, gid_t unmapped, struct groups **ret)
{
	_cleanup_(free_ptr) struct groups *g = NULL;
	socklen_t len = 0;

	/* With an empty buffer the kernel returns ERANGE and the length that is needed
	 * (net/core/sock.c). */
	if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, NULL, &len) < 0 && errno != ERANGE)
		return -errno;
	g = malloc(sizeof(*g) + sizeof(gid) + len);
	if (!g)
		return -ENOMEM;
	*g = (struct groups){ .n = 1 + len / sizeof(gid) };
	if (len && getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, g->ids + 1, &len) < 0)
		return -errno;
	/* The primary one moves to its place, so that sorted groups stay sorted. */
	g->ids[0] = gid;
	for (size_t i = 1; i < g->n && g->ids[i] < gid; i++) {
		g->ids[i - 1] = g->ids[i];
		g->ids[i] = gid;
	}
	tidy(g, unmapped);
	*ret = take_ptr(g);
	return 0;
}

/* The same set of that user, or NULL, and the bytes of all its sets. */
static struct groups *find(const struct groups_table *t, uid_t uid, const struct groups *like,
			   size_t *ret_bytes)
{
	struct groups *it;

	*ret_bytes = 0;
	hashtable_foreach (it, &t->by_uid, hashtable_hash_u64(uid), link) {
		if (it->uid != uid)
			continue;
		*ret_bytes += it->n * sizeof(*it->ids);
		if (it->n == like->n && memcmp(it->ids, like->ids, it->n * sizeof(*it->ids)) == 0)
			return it;
	}
	return NULL;
}

int groups_of_peer(struct groups_table *t, int socket, uid_t uid, gid_t gid, gid_t unmapped,
		   struct groups **ret, struct fault *f)
{
	_cleanup_(free_ptr) struct groups *g = NULL;
	struct groups *same;
	size_t bytes;
	int r = ask_kernel(socket, gid, unmapped, &g);

	if (r < 0)
		return fault(f, r == -ENOMEM ? CODE_NO_MEMORY : CODE_UNIDENTIFIED,
			     "SO_PEERGROUPS: %s", strerror(-r));
	same = find(t, uid, g, &bytes);
	if (!same && bytes + g->n * sizeof(*g->ids) > GROUPS_BYTES_MAX)
		return fault(
			f, CODE_LIMIT,
			"uid %u: its processes have too many different sets of groups, more than "
			"%u MiB: connect fewer of them at a time, or give up groups that are not "
			"needed (setpriv --groups)",
			uid, GROUPS_BYTES_MAX >> 20);
	if (!same) {
		same = take_ptr(g);
		same->table = t;
		same->uid = uid;
		hashtable_insert(&t->by_uid, &same->link, hashtable_hash_u64(uid));
	}
	same->users++;
	*ret = same;
	return 0;
}

struct groups *groups_release(struct groups *g)
{
	if (!g || --g->users > 0)
		return NULL;
	hashtable_drop(&g->table->by_uid, &g->link);
	free(g);
	return NULL;
}
