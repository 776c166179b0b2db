/* SPDX-License-Identifier: MIT
 *
 * Tables: the daemon's, which came as an fd, and the creator's own while a buffer is being filled.
 *
 * Mapping and unmapping a table costs more than the rest of an attach, and even more where other
 * threads of the process run (a GPU's driver has some), because all their CPUs must drop the
 * mapping from their TLBs. So a small table is copied, and a large one is read from its file as
 * long as few names are looked up in it. The contents of the file are not trusted, and are checked
 * as they are read. A file is mapped only if nobody can write to it, shrink it or grow it any more
 * (F_SEAL_*): truncating it would raise SIGBUS in a reader.
 *
 * The number of fds that are kept is limited, so that a process may have many buffers open.
 */
#include "client/lib/buffer/image.h"

#include "client/lib/base/endpoint.h"
#include "client/lib/base/error.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define IMAGE_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
#define COPY_MAX                                                                                 \
	32768u	       /* bytes: copying takes 3 us, mapping and unmapping 8 to 40 (tests/bench) \
			*/
#define LOOKUPS_MAX 8u /* cost less than a mapping */
#define KEPT_FDS_MAX 64u

static atomic_uint kept_fds; /* of this process's images */

void image_done(struct image *i)
{
	int saved = errno;

	if (i->fd >= 0)
		kept_fds--;
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
	struct stat st;
	int r = endpoint_check_file("the daemon's table", fd, server, bytes, IMAGE_SEALS, &st);

	return r < 0 ? r : map(fd, bytes, buffer_bytes, ret);
}

int image_open(int *fd, uint64_t bytes, uint64_t buffer_bytes, uid_t server, struct image *ret)
{
	struct image i = { .server = server, .fd = -1 };

	if (bytes <= COPY_MAX)
		return copy(*fd, bytes, buffer_bytes, ret);
	if (kept_fds++ >= KEPT_FDS_MAX) {
		kept_fds--;
		return check_and_map(*fd, bytes, buffer_bytes, server, ret);
	}
	if (table_view_init_fd(&i.view, *fd, bytes, buffer_bytes) < 0) {
		kept_fds--;
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

int image_lookup(struct image *i)
{
	return ++i->lookups > LOOKUPS_MAX ? image_load(i) : 0;
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
