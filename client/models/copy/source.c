/* SPDX-License-Identifier: MIT
 *
 * Direct reads begin and end on multiples of what the file system wants; the bytes that were asked
 * for lie somewhere inside. Where anything about them is unusual (a short read, a refusal), the
 * rest is read through the page cache: that is always right, and its errors are load_file_read()'s.
 */
#include "client/models/copy/source.h"

#include "client/gpushm_load.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define ALIGN_DEFAULT 4096u
#define ALIGN_MAX 4096u
#define DIRECT_MIN 128u /* times the alignment: shorter reads go through the page cache */
#define PROBES 64u
#define SPARE_FDS 128u

/* A block has at most BLOCK_BYTES / (DIRECT_MIN * align) direct reads, each with up to 3 * align
 * bytes beyond: 3/128 of 4 MiB. */
_Static_assert(3u * (4u << 20) / DIRECT_MIN <= SOURCE_SLACK,
	       "a slot holds the direct reads of a block");

/* ---- the page cache ---- */

/* Maps the file, without access, if mincore() would tell this user the truth about it: to one who
 * neither owns the file nor may write to it, it says that all pages are cached. */
static char *map_for_mincore(const struct source *s, const char *path)
{
	struct stat st;
	char *at;

	if (s->file->size == 0 || fstat(s->file->fd, &st) < 0 ||
	    (st.st_uid != geteuid() && eaccess(path, W_OK) < 0))
		return NULL;
	at = mmap(NULL, s->file->size, PROT_NONE, MAP_SHARED, s->file->fd, 0);
	return at == MAP_FAILED ? NULL : at;
}

/* Whether the page at that offset is in the page cache. A kernel or file system that can't tell
 * says yes: reading through the cache is always right. Without a mapping the question makes the
 * kernel read that page, so that the answer may be yes the next time. */
static bool page_is_cached(const struct source *s, uint64_t offset)
{
	char byte;
	unsigned char page;
	struct iovec to = { .iov_base = &byte, .iov_len = 1 };

	if (s->mapped)
		return mincore(s->mapped + offset - offset % (uint64_t)sysconf(_SC_PAGESIZE), 1,
			       &page) < 0 ||
		       (page & 1);
	return preadv2(s->file->fd, &to, 1, (off_t)offset, RWF_NOWAIT) >= 0 || errno != EAGAIN;
}

static bool is_mostly_uncached(const struct source *s)
{
	uint64_t size = s->file->size;
	unsigned cached = 0;

	for (unsigned i = 0; i < PROBES; i++)
		cached += page_is_cached(s, size / PROBES * i);
	return size > 0 && cached < PROBES / 2;
}

bool source_is_cold(const struct source *s)
{
	return s->direct >= 0 && (s->cold || !s->ask);
}

/* ---- opening ---- */

/* The alignment that the file system wants, if the kernel says it (Linux 6.1); 0: it allows none.
 */
static size_t find_align(int fd)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) < 0 ||
	    !(st.stx_mask & STATX_DIOALIGN))
		return ALIGN_DEFAULT;
	if (st.stx_dio_offset_align == 0)
		return 0;
	return st.stx_dio_offset_align > st.stx_dio_mem_align ? st.stx_dio_offset_align
							      : st.stx_dio_mem_align;
}

/* A second descriptor of each file makes the load faster and no more: it is not one of the last of
 * this process, without which the driver, which needs some, fails with errors that do not say so.
 */
static int open_direct(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	struct rlimit limit;

	if (fd >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
	    (rlim_t)fd + SPARE_FDS >= limit.rlim_cur)
		close_fd(&fd);
	return fd;
}

void source_open(struct source *s, struct load_file *file, uint32_t flags)
{
	char self[64];

	*s = (struct source){ .file = file, .direct = -1, .ask = !(flags & GPUSHM_LOAD_DIRECT) };
	if (file->stream || file->remote || (flags & GPUSHM_LOAD_CACHED))
		return;
	s->align = find_align(file->fd);
	if (s->align == 0 || s->align > ALIGN_MAX || (s->align & (s->align - 1)) != 0)
		return;
	/* The same file, also if another one has its name by now. */
	snprintf(self, sizeof(self), "/proc/self/fd/%d", file->fd);
	s->direct = open_direct(self);
	if (s->direct < 0 || !s->ask)
		return;
	s->mapped = map_for_mincore(s, self);
	if (!s->mapped) /* a probe of one page starts no read-ahead of many then */
		posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
	s->cold = is_mostly_uncached(s);
	if (!s->mapped && !s->cold)
		posix_fadvise(file->fd, 0, 0, POSIX_FADV_NORMAL);
}

void source_close(struct source *s)
{
	close_fd(&s->direct);
	if (s->mapped)
		munmap(s->mapped, s->file->size);
	s->mapped = NULL;
}

/* ---- reading ---- */

bool source_wants_direct(struct source *s, uint64_t offset, size_t n)
{
	if (s->direct < 0 || s->refused || n < DIRECT_MIN * s->align)
		return false;
	return !s->ask || !page_is_cached(s, offset) || !page_is_cached(s, offset + n - 1);
}

/* Reads up to n bytes at an aligned offset; returns how many of them, less where the rest can't be
 * read in this way. */
static size_t read_aligned(struct source *s, char *to, size_t n, uint64_t offset)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = pread(s->direct, to + done, n - done, (off_t)(offset + done));

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0 && (errno == EINVAL || errno == EOPNOTSUPP || errno == EFAULT))
			s->refused = true;
		if (r <= 0)
			break;
		s->was_direct = true;
		done += (size_t)r;
		/* The end of the file, most likely. */
		if (done % s->align != 0)
			break;
	}
	return done;
}

int source_read_direct(struct source *s, char *room, size_t n, uint64_t offset, char **ret)
{
	uint64_t begin = offset & ~(uint64_t)(s->align - 1);
	size_t skip = (size_t)(offset - begin);
	size_t whole = (skip + n + s->align - 1) & ~(s->align - 1);
	size_t got;

	room += -(uintptr_t)room & (s->align - 1);
	got = read_aligned(s, room, whole, begin);
	got = got > skip ? got - skip : 0;
	*ret = room + skip;
	if (got >= n)
		return 0;
	return load_file_read(s->file, room + skip + got, n - got, offset + got);
}
