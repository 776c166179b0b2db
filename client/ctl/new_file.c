/* SPDX-License-Identifier: MIT
 *
 * A file under construction, and how it gets its name.
 */
#include "client/ctl/new_file.h"

#include "client/ctl/ctl.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

int new_file_failed(const struct new_file *f)
{
	return ctl_error(CTL_FAILED, "%s: %s", f->file, strerror(errno));
}

static int open_temporary(struct new_file *f, mode_t mode)
{
	if (asprintf(&f->temporary, "%s.XXXXXX", f->target) < 0) {
		f->temporary = NULL;
		return ctl_error(CTL_FAILED, "out of memory");
	}
	f->fd = mkostemp(f->temporary, O_CLOEXEC);
	if (f->fd < 0) {
		int r = new_file_failed(f);

		free_ptr(&f->temporary);
		return r;
	}
	/* mkostemp() makes it 0600 whatever the umask is. */
	return fchmod(f->fd, mode) < 0 ? new_file_failed(f) : CTL_OK;
}

static mode_t default_mode(void)
{
	mode_t mask = umask(0);

	umask(mask);
	return 0666 & ~mask;
}

int new_file_open(struct new_file *f, const char *file)
{
	struct stat st;
	bool exists;

	if (!strcmp(file, "-")) {
		f->file = "standard output";
		f->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
		return f->fd < 0 ? new_file_failed(f) : CTL_OK;
	}
	f->file = file;
	exists = stat(file, &st) == 0;
	if (exists && !S_ISREG(st.st_mode)) {
		f->fd = open(file, O_WRONLY | O_CLOEXEC);
		return f->fd < 0 ? new_file_failed(f) : CTL_OK;
	}
	/* A link stays a link: /dev/stdout is one, and its folder is /dev. */
	f->target = exists ? realpath(file, NULL) : strdup(file);
	if (!f->target)
		return new_file_failed(f);
	return open_temporary(f, exists ? st.st_mode & 0777 : default_mode());
}

int new_file_commit(struct new_file *f)
{
	/* NFS and quotas may report a lost write only now. */
	if (close(take_fd(&f->fd)) < 0)
		return new_file_failed(f);
	if (!f->temporary)
		return CTL_OK;
	if (rename(f->temporary, f->target) < 0)
		return new_file_failed(f);
	free_ptr(&f->temporary);
	return CTL_OK;
}

void new_file_close(struct new_file *f)
{
	close_fd(&f->fd);
	if (f->temporary)
		unlink(f->temporary);
	free_ptr(&f->temporary);
	free_ptr(&f->target);
}
