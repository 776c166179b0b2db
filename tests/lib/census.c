/* SPDX-License-Identifier: MIT
 *
 * Counts what a daemon holds. Some things end by themselves (a process has died, a worker gives
 * back memory): the count is then repeated until it is right. After a minute of wrong counts the
 * test fails.
 */
#include "tests/lib/census.h"

#include "client/gpushm_query.h"
#include "daemon/util/ratelimit.h"

#include <check.h>
#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEADLINE_MS 60000

uint32_t census_files(pid_t pid, const char *prefix)
{
	char path[32], what[64];
	struct dirent *entry;
	uint32_t n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir))) {
		ssize_t len = readlinkat(dirfd(dir), entry->d_name, what, sizeof(what) - 1);

		what[len < 0 ? 0 : len] = '\0';
		n += len > 0 && strncmp(what, prefix, strlen(prefix)) == 0;
	}
	closedir(dir);
	return n;
}

static struct gpushm_status *status(struct gpushm *c)
{
	struct gpushm_status *st = NULL;

	ck_assert_msg(gpushm_status(c, &st) == 0, "STATUS: %s", gpushm_error());
	return st;
}

void census_take(const struct daemon *d, struct gpushm *c, struct census *ret)
{
	struct gpushm_status *st = status(c);

	*ret = (struct census){ st->peers,    st->buffers, st->leases,
				st->suspects, st->waiting, census_files(d->pid, "") };
	gpushm_free(st);
}

void census_await(const struct daemon *d, struct gpushm *c, const struct census *expected)
{
	struct census now;

	for (int waited = 0; waited < DEADLINE_MS; waited += 10) {
		census_take(d, c, &now);
		if (expected->fds == 0)
			now.fds = 0;
		if (memcmp(&now, expected, sizeof(now)) == 0)
			return;
		poll(NULL, 0, 10);
	}
	ck_abort_msg("peers %u, buffers %u, leases %u, suspects %u, waiting %u, fds %u; "
		     "expected %u, %u, %u, %u, %u, %u",
		     now.peers, now.buffers, now.leases, now.suspects, now.waiting, now.fds,
		     expected->peers, expected->buffers, expected->leases, expected->suspects,
		     expected->waiting, expected->fds);
}

unsigned census_violations(const struct daemon *d, struct gpushm *c)
{
	struct gpushm_status *st = status(c);
	unsigned n = (unsigned)st->violations;

	gpushm_free(st);
	ck_assert_uint_eq(daemon_log_count(d, " closed: "),
			  n < RATELIMIT_LINES ? n : RATELIMIT_LINES);
	return n;
}

static void read_pages(const struct daemon *d, long *ret_resident, long *ret_shared)
{
	char path[32];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", d->pid);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%*d %ld %ld", ret_resident, ret_shared), 2);
	fclose(f);
}

long census_rss(const struct daemon *d)
{
	long resident, shared;

	read_pages(d, &resident, &shared);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

long census_anonymous(const struct daemon *d)
{
	long resident, shared;

	read_pages(d, &resident, &shared);
	return (resident - shared) * (sysconf(_SC_PAGESIZE) / 1024);
}
