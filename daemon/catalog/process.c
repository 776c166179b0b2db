/* SPDX-License-Identifier: MIT
 *
 * The daemon asks the kernel for credentials once, at accept, and for the groups at the first
 * request. SO_PEERCRED, SO_PEERGROUPS and the pidfd's process are fixed at connect(); a child that
 * inherited the socket shows its parent. No right depends on /proc: the command's name that is read
 * there is for people. A process without a pidfd can't be watched; the daemon refuses or trusts it,
 * as the configuration says. A user whom our user namespace does not map (proto/base/userns.h) is
 * nobody: refused, or, as the configuration says, served as one user together with all others of
 * that kind.
 */
#include "daemon/catalog/process.h"

#include "daemon/config/pool_config.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

static void read_command(struct process *p)
{
	char path[32];
	_cleanup_(close_fd) int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/comm", p->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, p->command, sizeof(p->command) - 1);
	p->command[n < 0 ? 0 : n] = '\0';
	p->command[strcspn(p->command, "\n")] = '\0';
}

static uint64_t new_session(void)
{
	uint64_t id = 0;

	/* It is no secret: a client that reconnects must also be the same process. */
	return getrandom(&id, sizeof(id), 0) == sizeof(id) && id ? id : clock_monotonic_ns();
}

static int refuse_unwatched(const struct process *p, int error, struct fault *f)
{
	if (error == -EMFILE || error == -ENFILE)
		return fault(f, CODE_NO_FDS, "no pidfd for process %d: %s", p->pid,
			     strerror(-error));
	if (p->pid <= 0)
		return fault(f, CODE_UNIDENTIFIED,
			     "your process is in a PID namespace that the daemon can't see: run "
			     "gpushmd there, share the host's (docker run --pid=host), or see "
			     "unwatched-clients in gpushmd.conf(5)");
	return fault(f, CODE_UNIDENTIFIED,
		     "process %d can't be watched: %s (unwatched-clients in gpushmd.conf(5))",
		     p->pid, strerror(-error));
}

static int identify(struct pidfds *pidfds, int socket, const struct process_rules *rules,
		    struct process *p, struct fault *f)
{
	_cleanup_(close_fd) int pidfd = -1;
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return fault(f, CODE_UNIDENTIFIED, "SO_PEERCRED: %s", strerror(errno));
	p->pid = cred.pid;
	p->uid = cred.uid;
	p->gid = cred.gid;
	p->unmapped = cred.uid == rules->unmapped_uid;
	if (p->unmapped && !rules->share_unmapped)
		return fault(
			f, CODE_UNIDENTIFIED,
			"the daemon's user namespace does not map your user, and shows it as "
			"%u like all others of that kind: map it there, run gpushmd outside of "
			"that namespace, or see unmapped-users in gpushmd.conf(5)",
			cred.uid);
	/* Before the pidfd may take the last descriptor. */
	p->start_time = p->pid > 0 ? pidfd_start_time(p->pid) : 0;
	pidfd = pidfd_of_peer(socket, cred.pid);
	if (pidfd < 0 && (!rules->trust_unwatched || pidfd == -EMFILE || pidfd == -ENFILE))
		return refuse_unwatched(p, pidfd, f);
	p->admin = !p->unmapped && (p->uid == 0 || p->uid == geteuid());
	if (p->start_time == 0) /* another PID namespace, or /proc hides it (hidepid=) */
		p->start_time = pidfd_number(pidfd);
	p->pidfd = pidfd < 0 ? NULL : pidfd_share(pidfds, &pidfd, p->uid, p->pid, p->start_time);
	if (!p->pidfd && !rules->trust_unwatched)
		return fault(f, CODE_NO_MEMORY, "the daemon is out of memory");
	if (p->pid > 0)
		read_command(p);
	p->session = new_session();
	if (p->pidfd && !p->pidfd->session)
		p->pidfd->session = p->session;
	return 0;
}

static void init_lists(struct process *p)
{
	list_init(&p->link);
	list_init(&p->pidfd_link);
	list_init(&p->leases);
	list_init(&p->readers);
}

int process_identify(struct pidfds *pidfds, int socket, const struct process_rules *rules,
		     struct process **ret, struct fault *f)
{
	struct process *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return fault(f, CODE_NO_MEMORY, "the daemon is out of memory");
	init_lists(p);
	p->socket = socket;
	r = identify(pidfds, socket, rules, p, f);
	if (r < 0) {
		process_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

int process_ask_groups(struct process *p, struct groups_table *t, int socket,
		       const struct process_rules *rules, struct fault *f)
{
	int r = p->groups ? 0
			  : groups_of_peer(t, socket, p->uid, p->gid, rules->unmapped_gid,
					   &p->groups, f);

	if (r == 0 && !p->unmapped && rules->admin_gid != (gid_t)-1)
		p->admin = p->admin || process_in_group(p, rules->admin_gid);
	return r;
}

/* Uses the pidfd that another connection has, the kept one, or a new one. */
static int watch_again(struct pidfds *pidfds, struct process *p, int *pidfd)
{
	_cleanup_(close_fd) int fd = -1;
	bool kept = *pidfd >= 0;

	p->pidfd = pidfd_find(pidfds, p->uid, p->pid, p->start_time);
	if (p->pidfd) {
		p->pidfd->users++;
		return 0;
	}
	fd = kept ? take_fd(pidfd) : pidfd_open_started(p->pid, p->start_time);
	if (fd < 0)
		return fd;
	if (kept && pidfd_has_gone(fd))
		return -ESRCH;
	p->pidfd = pidfd_share(pidfds, &fd, p->uid, p->pid, p->start_time);
	if (!p->pidfd)
		return -ENOMEM;
	p->pidfd->kept = kept;
	return 0;
}

int process_adopt(struct pidfds *pidfds, const struct process *told, int pidfd,
		  struct process **ret)
{
	_cleanup_(close_fd) int fd = pidfd;
	struct process *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	*p = *told;
	p->groups = NULL;
	p->socket = -1;
	init_lists(p);
	p->pidfd = NULL;
	r = watch_again(pidfds, p, &fd);
	if (r < 0)
		process_free(p);
	else
		*ret = p;
	return r;
}

bool process_needs_pidfd(const struct process *p)
{
	return p->pid == 0 && p->pidfd;
}

bool process_is_same(const struct process *a, const struct process *b)
{
	return a == b || (a->uid == b->uid && a->pid == b->pid && a->start_time != 0 &&
			  a->start_time == b->start_time);
}

bool process_has_left(const struct process *p)
{
	struct pollfd end = { .fd = p->socket, .events = POLLRDHUP };

	return p->socket < 0 || poll(&end, 1, 0) > 0;
}

struct process *process_free(struct process *p)
{
	if (!p)
		return NULL;
	list_drop(&p->link);
	list_drop(&p->pidfd_link);
	pidfd_release(p->pidfd);
	groups_release(p->groups);
	free(p);
	return NULL;
}

bool process_in_group(const struct process *p, gid_t gid)
{
	return p->groups && ids_have(p->groups->ids, p->groups->n, gid);
}
