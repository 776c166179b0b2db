/* SPDX-License-Identifier: MIT
 *
 * A file without a name (O_TMPFILE) vanishes by itself if this process dies. rename(2) needs a name
 * to replace another file, so it gets one just before. Where the file system has no such files, a
 * hidden one with a random name is made, which a killed process leaves behind.
 */
#include "client/models/save_file.h"

#include "client/models/fail.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define MODE 0666    /* less the umask */
#define LINKS_MAX 40 /* as the kernel's */

static int fail(const struct save_file *f, const char *what)
{
	return load_fail(errno, "%s: %s%s", f->path, what, strerror(errno));
}

/* ---- names ---- */

/* The folder of a path; free() it. */
static char *folder_of(const char *path)
{
	_cleanup_(free_ptr) char *copy = strdup(path);

	return copy ? strdup(dirname(copy)) : NULL;
}

/* What a link leads to; free() it. */
static char *join_link(const char *link, const char *to)
{
	_cleanup_(free_ptr) char *folder = folder_of(link);
	char *path;

	if (to[0] == '/')
		return strdup(to);
	return !folder || asprintf(&path, "%s/%s", folder, to) < 0 ? NULL : path;
}

/* Where the file of a path will be that has none: links that lead nowhere yet are followed. free()
 * it. NULL: out of memory. */
static char *new_target(const char *path)
{
	char to[PATH_MAX], *at = strdup(path);
	ssize_t n;

	for (int i = 0; at && i < LINKS_MAX && (n = readlink(at, to, sizeof(to) - 1)) > 0; i++) {
		char *link = at;

		to[n] = '\0';
		at = join_link(link, to);
		free(link);
	}
	return at;
}

/* A name beside the target that no file has. NULL: out of memory. */
static char *make_name(const struct save_file *f)
{
	_cleanup_(free_ptr) char *folder = folder_of(f->target);
	const char *slash = strrchr(f->target, '/'), *base = slash ? slash + 1 : f->target;
	uint64_t number = 0;
	char *name;

	if (!folder || getrandom(&number, sizeof(number), 0) != sizeof(number))
		return NULL;
	/* A file's name has 255 bytes at most. */
	return asprintf(&name, "%s/.%.200s.%016" PRIx64, folder, base, number) < 0 ? NULL : name;
}

/* ---- opening ---- */

static int open_named(struct save_file *f, mode_t mode)
{
	f->temporary = make_name(f);
	if (!f->temporary)
		return load_no_memory();
	f->fd = open(f->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	if (f->fd >= 0)
		return 0;
	free_ptr(&f->temporary);
	return fail(f, "");
}

static int open_temporary(struct save_file *f, mode_t mode)
{
	_cleanup_(free_ptr) char *folder = folder_of(f->target);

	if (!folder)
		return load_no_memory();
	f->fd = open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, mode);
	if (f->fd >= 0)
		return 0;
	/* A kernel or file system without such files says one of these. */
	if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)
		return fail(f, "");
	return open_named(f, mode);
}

/* Both where this user may give files away, or the group alone; else they are this user's. */
static void keep_owner(const struct save_file *f, const struct stat *was)
{
	int r = fchown(f->fd, was->st_uid, was->st_gid);

	if (r < 0)
		r = fchown(f->fd, (uid_t)-1, was->st_gid);
	(void)r;
}

/* As fs.protected_regular of the kernel: where everybody may make files, in /tmp, a stranger may
 * have made this one to get what others save. */
static bool is_strangers(const struct save_file *f, const struct stat *was)
{
	_cleanup_(free_ptr) char *folder = folder_of(f->target);
	struct stat st;

	if (was->st_uid == geteuid())
		return false;
	return !folder || stat(folder, &st) < 0 ||
	       (st.st_mode & (S_ISVTX | S_IWOTH)) == (S_ISVTX | S_IWOTH);
}

/* In the place of another file, whose mode stays. */
static int open_in_place_of(struct save_file *f, const struct stat *was)
{
	int r = open_temporary(f, was->st_mode & 0700);

	if (r < 0)
		return r;
	keep_owner(f, was);
	if (fchmod(f->fd, was->st_mode & 0777) == 0)
		return 0;
	r = fail(f, "");
	save_file_close(f);
	return r;
}

/* ---- pipes ---- */

static int fail_stopped(const struct save_file *f)
{
	return load_fail(ECANCELED, "%s: writing was stopped", f->path);
}

/* A named pipe is opened when it has a reader. Later writes return where they would wait. */
static int open_pipe(struct save_file *f)
{
	while ((f->fd = open(f->path, O_WRONLY | O_CLOEXEC | O_NONBLOCK)) < 0 && errno == ENXIO) {
		poll(NULL, 0, LOAD_LOOK_AGAIN_MS);
		if (f->stop.asked(f->stop.of))
			return fail_stopped(f);
	}
	return f->fd < 0 ? fail(f, "") : 0;
}

static int open_stream(struct save_file *f, mode_t mode)
{
	f->stream = true;
	if (S_ISFIFO(mode) && f->stop.asked)
		return open_pipe(f);
	f->fd = open(f->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	return f->fd < 0 ? fail(f, "") : 0;
}

/* A pipe is opened once more: other processes have standard output, too, and their writes are to
 * wait. Where that is not possible, writes wait, and nothing stops them. */
static int open_standard(struct save_file *f)
{
	struct stat st;

	f->path = "standard output";
	f->stream = true;
	if (f->stop.asked && fstat(STDOUT_FILENO, &st) == 0 && S_ISFIFO(st.st_mode))
		f->fd = open("/proc/self/fd/1", O_WRONLY | O_CLOEXEC | O_NONBLOCK);
	f->standard = f->fd < 0;
	if (f->standard)
		f->fd = STDOUT_FILENO;
	return 0;
}

/* ---- opening what there is ---- */

int save_file_open(struct save_file *f, const char *path, struct load_stop stop)
{
	struct stat st;
	bool exists;
	int r;

	*f = (struct save_file){ .path = path, .fd = -1, .stop = stop };
	if (strcmp(path, "-") == 0)
		return open_standard(f);
	exists = stat(path, &st) == 0;
	if (exists && S_ISDIR(st.st_mode))
		return load_fail(EISDIR, "%s is a folder", path);
	if (exists && !S_ISREG(st.st_mode))
		return open_stream(f, st.st_mode);
	if (!exists && (errno != ENOENT || !path[0]))
		return fail(f, "");
	/* Its rename(2) would fail, when all is written. */
	if (!exists && path[strlen(path) - 1] == '/')
		return load_fail(EISDIR, "%s: a file's name does not end with '/'", path);
	/* A link stays, and what it leads to is replaced. */
	f->target = exists ? realpath(path, NULL) : new_target(path);
	if (!f->target)
		return fail(f, "");
	r = exists && !is_strangers(f, &st) ? open_in_place_of(f, &st) : open_temporary(f, MODE);
	if (r < 0)
		free_ptr(&f->target);
	return r;
}

/* ---- writing ---- */

int save_file_reserve(struct save_file *f, uint64_t bytes)
{
	struct statfs fs;
	void *map;

	if (f->stream || fstatfs(f->fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC)
		return 0;
	if (ftruncate(f->fd, (off_t)bytes) < 0)
		return fail(f, "");
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
	if (map == MAP_FAILED)
		return 0;
	f->map = map;
	f->bytes = bytes;
	return 0;
}

/* Space is taken first: a store to a mapping of a file that finds none ends the process (SIGBUS).
 * False: the bytes are not written. */
static bool copy_to_map(struct save_file *f, const void *bytes, size_t n, uint64_t offset)
{
	size_t before = offset % (size_t)getpagesize();

	if (!f->map || madvise(f->map + offset - before, before + n, MADV_POPULATE_WRITE) < 0)
		return false;
	memcpy(f->map + offset, bytes, n);
	return true;
}

int save_file_write(struct save_file *f, const void *bytes, size_t n, uint64_t offset)
{
	if (copy_to_map(f, bytes, n, offset))
		return 0;
	for (size_t done = 0; done < n;) {
		const char *from = (const char *)bytes + done;
		ssize_t r = f->stream ? write(f->fd, from, n - done)
				      : pwrite(f->fd, from, n - done, (off_t)(offset + done));

		if (r >= 0)
			done += (size_t)r;
		else if (errno == EAGAIN && f->stream) {
			if (!load_await(f->fd, POLLOUT, f->stop))
				return fail_stopped(f);
		} else if (errno != EINTR)
			return fail(f, "");
	}
	return 0;
}

/* ---- ending ---- */

/* Gives a file without a name one. /proc is how a process without privileges does that:
 * open(2), "O_TMPFILE". */
static int link_temporary(struct save_file *f)
{
	char self[64];

	if (f->temporary)
		return 0;
	f->temporary = make_name(f);
	if (!f->temporary)
		return load_no_memory();
	snprintf(self, sizeof(self), "/proc/self/fd/%d", f->fd);
	if (linkat(AT_FDCWD, self, AT_FDCWD, f->temporary, AT_SYMLINK_FOLLOW) == 0)
		return 0;
	free_ptr(&f->temporary);
	return fail(f, "the new file gets no name: ");
}

/* A name is on disk when its folder is. Some file systems refuse that and need no help. */
static void sync_folder(const struct save_file *f)
{
	_cleanup_(free_ptr) char *folder = folder_of(f->target);
	_cleanup_(close_fd) int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (fd >= 0)
		fsync(fd);
}

static void unmap(struct save_file *f)
{
	if (f->map)
		munmap(f->map, f->bytes);
	f->map = NULL;
}

int save_file_sync(struct save_file *f)
{
	if (f->stream)
		return 0;
	unmap(f);
	return fsync(f->fd) < 0 ? fail(f, "") : 0;
}

int save_file_commit(struct save_file *f)
{
	int r = f->stream ? 0 : link_temporary(f);

	if (r < 0 || f->stream)
		return r;
	if (rename(f->temporary, f->target) < 0)
		return fail(f, "");
	free_ptr(&f->temporary);
	sync_folder(f);
	return 0;
}

void save_file_close(struct save_file *f)
{
	unmap(f);
	if (f->temporary)
		unlink(f->temporary);
	if (!f->standard)
		close_fd(&f->fd);
	free_ptr(&f->temporary);
	free_ptr(&f->target);
}
