/* SPDX-License-Identifier: MIT
 *
 * The doctor's look at the daemon: which socket is meant and who may use it, whether something
 * answers there, and what it says of itself.
 */
#include "client/ctl/doctor.h"
#include "client/ctl/entry.h"
#include "client/ctl/output.h"
#include "proto/base/own.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

/* The same places, in the same order, as gpushm_connect() looks at. */
static const char *which_socket(const struct doctor *d, char *buf, size_t size)
{
	const char *named = d->ctl->socket ? d->ctl->socket : getenv("GPUSHM_SOCKET");
	const char *runtime = getenv("XDG_RUNTIME_DIR");

	if (named && *named)
		return named;
	snprintf(buf, size, "/run/gpushm/gpushmd.sock");
	if (access(buf, F_OK) < 0 && errno == ENOENT && runtime) {
		snprintf(buf, size, "%s/gpushm/gpushmd.sock", runtime);
		if (access(buf, F_OK) < 0)
			snprintf(buf, size, "/run/gpushm/gpushmd.sock");
	}
	return buf;
}

/* connect(2) to a socket needs write permission on it, and search on the way to it. */
static bool look_at_socket(struct doctor *d, const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0) {
		doctor_say(d, FINDING_FAIL, "socket",
			   errno == ENOENT
				   ? "start the daemon: systemctl start gpushmd.socket, or "
				     "gpushmd --socket PATH; or name its socket: GPUSHM_SOCKET"
				   : NULL,
			   "%s: %s", path, strerror(errno));
		return false;
	}
	if (!S_ISSOCK(st.st_mode)) {
		doctor_say(d, FINDING_FAIL, "socket", NULL, "%s: not a socket", path);
		return false;
	}
	if (access(path, W_OK) < 0) {
		doctor_say(d, FINDING_FAIL, "socket",
			   "join its group, or change mode and group in [daemon] of gpushmd.conf",
			   "%s: %s (%s:%s, mode %04o)", path, strerror(errno),
			   entry_user(st.st_uid), entry_group(st.st_gid), st.st_mode & 07777);
		return false;
	}
	doctor_say(d, FINDING_OK, "socket", NULL, "%s (%s:%s, mode %04o)", path,
		   entry_user(st.st_uid), entry_group(st.st_gid), st.st_mode & 07777);
	return true;
}

static void look_at_status(struct doctor *d, const struct gpushm_status *s)
{
	char age[24];
	bool same = strstr(s->software, GPUSHM_VERSION) != NULL;

	doctor_say(d, same ? FINDING_OK : FINDING_WARN, "daemon",
		   same ? NULL : "restart the daemon after an update, or update this side",
		   "%s, pid %d, up %s; this is gpushmctl %s", s->software, s->pid,
		   output_age(s->uptime_ms * 1000000, age, sizeof(age)), GPUSHM_VERSION);
	if (s->fds_max && s->fds > s->fds_max - s->fds_max / 10)
		doctor_say(d, FINDING_WARN, "daemon", "raise LimitNOFILE= of gpushmd.service",
			   "%u of its %u file descriptors are open", s->fds, s->fds_max);
	if (s->suspects)
		doctor_say(d, FINDING_WARN, "daemon", "gpushmctl ls --holders shows them",
			   "%u processes whose socket has closed are not gone", s->suspects);
}

static void look_at_usage(struct doctor *d, const struct gpushm_usage *u)
{
	const struct {
		const char *name;
		uint64_t used, max;
	} rows[] = {
		{ "bytes", u->bytes, u->bytes_max },
		{ "buffers", u->buffers, u->buffers_max },
		{ "leases", u->leases, u->leases_max },
		{ "connections", u->peers, u->peers_max },
	};

	if (u->uid != geteuid())
		return;
	for (size_t i = 0; i < array_size(rows); i++)
		if (rows[i].used > rows[i].max - rows[i].max / 10)
			doctor_say(d, FINDING_WARN, "limits",
				   "free some, or raise [limits] in gpushmd.conf",
				   "you hold %" PRIu64 " of %" PRIu64 " %s", rows[i].used,
				   rows[i].max, rows[i].name);
}

bool doctor_daemon(struct doctor *d)
{
	struct gpushm_status *s = NULL;
	char buf[300];
	int r;

	if (!look_at_socket(d, which_socket(d, buf, sizeof(buf))))
		return false;
	r = gpushm_connect(d->ctl->socket, &d->ctl->connection);
	if (r == 0)
		r = gpushm_status(d->ctl->connection, &s);
	if (r < 0) {
		doctor_say(d, FINDING_FAIL, "daemon", NULL, "%s", gpushm_error());
		return false;
	}
	look_at_status(d, s);
	for (size_t i = 0; i < s->n_usage; i++)
		look_at_usage(d, &s->usage[i]);
	gpushm_status_free(s);
	return true;
}
