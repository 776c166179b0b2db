/* SPDX-License-Identifier: MIT
 *
 * Output files. The bytes go to a temporary file in the same folder, which takes the name and the
 * mode when all of them are there: a reader of the old file is not disturbed, and an interrupted
 * get leaves the old file as it was. Only SIGKILL leaves the temporary file behind.
 */
#include "client/ctl/sink.h"

#include "client/ctl/ctl.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static int failed(const struct sink *s)
{
	return ctl_error(CTL_FAILED, "%s: %s", s->file, strerror(errno));
}

static int open_temporary(struct sink *s, mode_t mode)
{
	if (asprintf(&s->temporary, "%s.XXXXXX", s->target) < 0) {
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
	return fchmod(s->fd, mode) < 0 ? failed(s) : CTL_OK;
}

static mode_t usual_mode(void)
{
	mode_t mask = umask(0);

	umask(mask);
	return 0666 & ~mask;
}

int sink_open(struct sink *s, const char *file)
{
	struct stat st;
	bool there;

	*s = (struct sink){ .file = file, .fd = -1 };
	if (!strcmp(file, "-")) {
		s->file = "standard output";
		s->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
		return s->fd < 0 ? failed(s) : CTL_OK;
	}
	there = stat(file, &st) == 0;
	if (there && !S_ISREG(st.st_mode)) {
		s->fd = open(file, O_WRONLY | O_CLOEXEC);
		return s->fd < 0 ? failed(s) : CTL_OK;
	}
	/* A link stays a link: /dev/stdout is one, and its place is in /dev. */
	s->target = there ? realpath(file, NULL) : strdup(file);
	if (!s->target)
		return failed(s);
	return open_temporary(s, there ? st.st_mode & 0777 : usual_mode());
}

int sink_commit(struct sink *s)
{
	int fd = take_fd(&s->fd);

	/* NFS and quotas may tell of a lost write only now. */
	if (close(fd) < 0)
		return failed(s);
	if (!s->temporary)
		return CTL_OK;
	if (rename(s->temporary, s->target) < 0)
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
	free_ptr(&s->target);
}
