/* SPDX-License-Identifier: MIT
 *
 * Output files. The bytes go to a temporary file in the same folder, which takes the name when all
 * of them are there: a reader of the old file is not disturbed, and an interrupted get leaves the
 * old file as it was. Only SIGKILL leaves the temporary file behind.
 */
#include "client/ctl/sink.h"

#include "client/ctl/ctl.h"
#include "proto/own.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static int failed(const struct sink *s)
{
	return ctl_error(CTL_FAILED, "%s: %s", s->file, strerror(errno));
}

static int open_temporary(struct sink *s)
{
	mode_t mask = umask(0);

	umask(mask);
	if (asprintf(&s->temporary, "%s.XXXXXX", s->file) < 0) {
		s->temporary = NULL;
		return ctl_error(CTL_FAILED, "out of memory");
	}
	s->fd = mkostemp(s->temporary, O_CLOEXEC);
	if (s->fd < 0) {
		int r = failed(s);

		free_ptr(&s->temporary);
		return r;
	}
	/* mkostemp() makes it 0600 whatever the umask. */
	return fchmod(s->fd, 0666 & ~mask) < 0 ? failed(s) : CTL_OK;
}

int sink_open(struct sink *s, const char *file)
{
	struct stat st;

	*s = (struct sink){ .file = file, .fd = -1 };
	if (!strcmp(file, "-")) {
		s->file = "standard output";
		s->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
		return s->fd < 0 ? failed(s) : CTL_OK;
	}
	if (stat(file, &st) < 0 || S_ISREG(st.st_mode))
		return open_temporary(s);
	s->fd = open(file, O_WRONLY | O_CLOEXEC);
	return s->fd < 0 ? failed(s) : CTL_OK;
}

int sink_commit(struct sink *s)
{
	int fd = take_fd(&s->fd);

	/* NFS and quotas may tell of a lost write only now. */
	if (close(fd) < 0)
		return failed(s);
	if (!s->temporary)
		return CTL_OK;
	if (rename(s->temporary, s->file) < 0)
		return failed(s);
	free_ptr(&s->temporary);
	return CTL_OK;
}

void sink_close(struct sink *s)
{
	if (!s->file)
		return;
	close_fd(&s->fd);
	if (s->temporary)
		unlink(s->temporary);
	free_ptr(&s->temporary);
}
