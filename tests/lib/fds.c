/* SPDX-License-Identifier: MIT
 *
 * Compares what this process has open before and after a test, as /proc/self/fd shows it. An fd is
 * compared by its number and by what readlink() returns ("socket:[4711]"). So a number that was
 * closed and opened again as another file is found, too: this is how a double close shows.
 *
 * It owns two lists of text and never an fd.
 */
#include "tests/lib/fds.h"

#include "proto/base/own.h"

#include <check.h>
#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FDS_MAX 4096

struct fds {
	char *what[FDS_MAX]; /* by fd; NULL: closed; owned */
};

static struct fds marked;

static void fds_forget(struct fds *fds)
{
	for (int fd = 0; fd < FDS_MAX; fd++) {
		free(fds->what[fd]);
		fds->what[fd] = NULL;
	}
}

/* Without CK_FORK, Check reopens its unlinked message file between a test and its teardown. */
static bool is_checks_own(const char *what)
{
	const char *name = strstr(what, "/check_");

	return name && strstr(name, " (deleted)");
}

static void fds_read(struct fds *ret)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir))) {
		char what[PATH_MAX] = "";
		int fd = atoi(entry->d_name);

		/* valgrind's own fds are above all fds of the program. */
		if (entry->d_name[0] == '.' || fd == dirfd(dir) || fd >= FDS_MAX)
			continue;
		if (readlinkat(dirfd(dir), entry->d_name, what, sizeof(what) - 1) > 0 &&
		    !is_checks_own(what))
			ret->what[fd] = strdup(what);
	}
	closedir(dir);
}

void fds_mark(void)
{
	fds_forget(&marked);
	fds_read(&marked);
}

int fds_leaked(void)
{
	struct fds now = { 0 };
	int n = 0;

	fds_read(&now);
	for (int fd = 0; fd < FDS_MAX; fd++) {
		const char *before = marked.what[fd] ? marked.what[fd] : "closed";
		const char *after = now.what[fd] ? now.what[fd] : "closed";

		if (strcmp(before, after) == 0)
			continue;
		fprintf(stderr, "fd %d: was %s, is %s\n", fd, before, after);
		n++;
	}
	fds_forget(&now);
	return n;
}

/* A real driver opens some thirty fds when it is first used and keeps them; some are pipes and
 * sockets, which can't be told from ours. The same tests count their fds over the fake driver,
 * which opens none. */
static int has_real_driver(void)
{
	return access("/dev/nvidiactl", F_OK) == 0;
}

void fds_check(void)
{
	int n = has_real_driver() ? 0 : fds_leaked();

	fds_forget(&marked);
	ck_assert_msg(n == 0, "%d fds differ from before the test (see above)", n);
}
