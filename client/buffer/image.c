/* SPDX-License-Identifier: MIT
 *
 * Tables: the daemon's, that came as an fd, and our own while a buffer is being filled.
 *
 * To map and unmap a table costs more than the rest of an attach: the more where other threads of
 * the process run, as a GPU's driver has them, whose processors must all forget the mapping. So a
 * small table is copied, and a large one is read where it is, for as long as few names are looked
 * up in it. What is read may be anything at any time, for all that we know, and is checked as it is
 * read; what is mapped must be a memfd that nobody can write to, shrink or grow any more
 * (F_SEAL_*), so that no reader takes a SIGBUS from a file cut short under it.
 *
 * A kept fd is one of few, so that a process may have many buffers open.
 */
#include "client/buffer/image.h"

#include "client/base/endpoint.h"
#include "client/base/error.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define IMAGE_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
#define COPY_MAX 32768u /* bytes: 3 us, where to map and unmap is 8 to 40 (tests/bench) */
#define LOOKS_MAX 8u	/* that cost less than a mapping */
#define KEPT_MAX 64u

static atomic_uint kept; /* fds of this process's images */

void image_done(struct image *i)
{
	int saved = errno;

	if (i->fd >= 0)
		kept--;
	close_fd(&i->fd);
	if (i->mapped)
		munmap(i->memory, i->view.bytes);
	else
		free(i->memory);
	*i = IMAGE_NONE;
	errno = saved;
}

static int nonsense(void)
{
	return error_set(EPROTO, "the daemon's table makes no sense");
}

static int map(int fd, uint64_t bytes, uint64_t buffer_bytes, struct image *ret)
{
	struct image i = IMAGE_NONE;
	void *memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		return error_set(errno, "can't map the buffer's table: %m");
	if (table_view_init(&i.view, memory, bytes, buffer_bytes) < 0) {
		munmap(memory, bytes);
		return nonsense();
	}
	i.memory = memory;
	i.mapped = true;
	*ret = i;
	return 0;
}

static int check(int fd, uint64_t bytes, uid_t server)
{
	struct stat st;
	int seals;

	if (fstat(fd, &st) < 0)
		return error_set(errno, "can't look at the buffer's table: %m");
	seals = fcntl(fd, F_GET_SEALS);
	if (!S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t)st.st_size != bytes)
		return error_set(EPROTO, "the daemon's table has not the size that it told");
	if (!endpoint_owns(server, st.st_uid))
		return error_set(EPROTO, "the daemon's table belongs to uid %u", st.st_uid);
	if (seals < 0 || (seals & IMAGE_SEALS) != IMAGE_SEALS)
		return error_set(EPROTO, "the daemon's table is not sealed");
	return 0;
}

static int copy(int fd, uint64_t bytes, uint64_t buffer_bytes, struct image *ret)
{
	_cleanup_(image_done) struct image i = IMAGE_NONE;

	i.memory = malloc(bytes);
	if (!i.memory)
		return error_set(ENOMEM, "out of memory for the buffer's table");
	if (pread(fd, i.memory, bytes, 0) != (ssize_t)bytes ||
	    table_view_init(&i.view, i.memory, bytes, buffer_bytes) < 0)
		return nonsense();
	*ret = i;
	i = IMAGE_NONE;
	return 0;
}

static int check_and_map(int fd, uint64_t bytes, uint64_t buffer_bytes, uid_t server,
			 struct image *ret)
{
	int r = check(fd, bytes, server);

	return r < 0 ? r : map(fd, bytes, buffer_bytes, ret);
}

int image_open(int *fd, uint64_t bytes, uint64_t buffer_bytes, uid_t server, struct image *ret)
{
	struct image i = { .server = server, .fd = -1 };

	if (bytes <= COPY_MAX)
		return copy(*fd, bytes, buffer_bytes, ret);
	if (kept++ >= KEPT_MAX) {
		kept--;
		return check_and_map(*fd, bytes, buffer_bytes, server, ret);
	}
	if (table_view_init_fd(&i.view, *fd, bytes, buffer_bytes) < 0) {
		kept--;
		return nonsense();
	}
	i.fd = i.view.fd = take_fd(fd);
	*ret = i;
	return 0;
}

int image_load(struct image *i)
{
	struct image loaded;
	int r;

	if (i->memory || i->fd < 0)
		return 0;
	r = check_and_map(i->fd, i->view.bytes, i->view.buffer_bytes, i->server, &loaded);
	if (r < 0)
		return r;
	image_done(i);
	*i = loaded;
	return 0;
}

int image_look(struct image *i)
{
	return ++i->looks > LOOKS_MAX ? image_load(i) : 0;
}

int image_finish(struct table_builder *b, uint64_t buffer_bytes, struct image *ret,
		 uint64_t *ret_digest)
{
	_cleanup_(close_fd) int fd = -1;
	uint64_t bytes, digest;
	int r = table_builder_finish(b, &fd, &bytes, &digest);

	if (r == 0)
		r = map(fd, bytes, buffer_bytes, ret);
	else
		error_set(-r, "can't make the buffer's table: %s", strerror(-r));
	if (r == 0)
		*ret_digest = digest;
	return r;
}
