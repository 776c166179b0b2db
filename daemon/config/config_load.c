/* SPDX-License-Identifier: MIT
 *
 * Finds gpushmd.conf and its drop-ins and reads each. All files are read even if the first one is
 * wrong, so that one run shows every fault.
 *
 * Nothing stays open and nothing is locked: if an editor replaces a file meanwhile, the daemon
 * reads either the old or the new one.
 */
#include "daemon/config/config_reader.h"
#include "proto/base/own.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define FILE_MAX (1u << 20) /* bytes; every value of 64 pools and 4,096 users takes half of it */

#define DEFAULT_PATH GPUSHM_SYSCONFDIR "/gpushm/gpushmd.conf"

/* Opens a file that can be read to its end: a FIFO or a terminal would hang the daemon at SIGHUP.
 * /dev/null (mem(4): device 1, 3) is an empty file. */
static int open_file(const char *path, int *ret)
{
	_cleanup_(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (!S_ISREG(st.st_mode) && !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)))
		return -EINVAL;
	*ret = take_fd(&fd);
	return 0;
}

/* Reads all of a file, with space for a NUL after it. 0, -EFBIG, -ENOMEM, -errno. */
static int read_file(const char *path, char **ret, size_t *ret_len)
{
	_cleanup_(close_fd) int fd = -1;
	_cleanup_(free_ptr) char *text = malloc(FILE_MAX + 1);
	size_t len = 0;
	int e = text ? open_file(path, &fd) : -ENOMEM;

	if (e < 0)
		return e;
	for (;;) {
		ssize_t n = read(fd, text + len, FILE_MAX + 1 - len);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			break;
		if (n > 0)
			len += (size_t)n;
		if (len > FILE_MAX)
			return -EFBIG;
	}
	*ret = take_ptr(text);
	*ret_len = len;
	return 0;
}

/* Reads one file. If it can't be read, a diagnostic says so and the errno is returned; the caller
 * still reads the other files. */
static int load_file(struct config_reader *r, const char *path)
{
	_cleanup_(free_ptr) char *text = NULL;
	size_t len = 0;
	int e = read_file(path, &text, &len);

	if (e == 0)
		return config_reader_text(r, path, text, len);
	if (e == -ENOMEM)
		return e;
	r->diagnostics.file = path;
	if (e == -EFBIG)
		diagnostics_add(&r->diagnostics, 0, "the file is too large; allowed: %u bytes",
				FILE_MAX);
	else if (e == -EINVAL)
		diagnostics_add(&r->diagnostics, 0, "this is no file; allowed: a regular file");
	else
		diagnostics_add(&r->diagnostics, 0,
				"can't be read: %s; allowed: a file that uid %u "
				"may read",
				strerror(-e), (unsigned)geteuid());
	return e;
}

static int is_dropin(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name);

	return entry->d_name[0] != '.' && len > strlen(".conf") &&
	       strcmp(entry->d_name + len - strlen(".conf"), ".conf") == 0;
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* Reads each drop-in; *result keeps the first error. Only -ENOMEM stops it. */
static int load_names(struct config_reader *r, const char *folder, struct dirent **names, int n,
		      int *result)
{
	for (int i = 0; i < n; i++) {
		_cleanup_(free_ptr) char *path = NULL;
		int e = asprintf(&path, "%s/%s", folder, names[i]->d_name);

		if (e < 0)
			return -ENOMEM;
		e = load_file(r, path);
		if (e == -ENOMEM)
			return e;
		if (*result == 0)
			*result = e;
	}
	return 0;
}

/* Reads PATH.d/ *.conf in the order of their names; the folder may be missing. */
static int load_dropins(struct config_reader *r, const char *path, int *result)
{
	_cleanup_(free_ptr) char *folder = NULL;
	struct dirent **names = NULL;
	int n, e;

	if (asprintf(&folder, "%s.d", path) < 0)
		return -ENOMEM;
	n = scandir(folder, &names, is_dropin, compare_names);
	if (n < 0 && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (n < 0) {
		e = -errno;
		r->diagnostics.file = folder;
		diagnostics_add(&r->diagnostics, 0, "can't be read: %s; allowed: a folder of files",
				strerror(-e));
		return e;
	}
	e = load_names(r, folder, names, n, result);
	for (int i = 0; i < n; i++)
		free(names[i]);
	free(names);
	return e;
}

static int load_all(struct config_reader *r, const char *path)
{
	int result = 0, e = 0;

	if (path || access(DEFAULT_PATH, F_OK) == 0 || errno != ENOENT)
		result = load_file(r, path ? path : DEFAULT_PATH);
	if (result != -ENOMEM)
		e = load_dropins(r, path ? path : DEFAULT_PATH, &result);
	return result < 0 ? result : e;
}

int config_load(const char *path, FILE *errors, struct config **ret)
{
	_cleanup_(config_reader_done) struct config_reader r = { 0 };
	struct config *c;
	int e = config_reader_init(&r, errors), checked;

	if (e < 0)
		return e;
	e = load_all(&r, path);
	if (e == -ENOMEM)
		return e;
	checked = config_reader_finish(&r, &c);
	if (checked < 0)
		return e < 0 ? e : checked;
	*ret = c;
	return 0;
}
