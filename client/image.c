/* SPDX-License-Identifier: MIT
 *
 * Tables as memory: the daemon's, that came as an fd, and our own while a buffer is being filled.
 * Both are memfds that nobody can write to, shrink or grow any more (F_SEAL_*): so what was checked
 * stays true, and no reader takes a SIGBUS from a file cut short under it.
 *
 * An image owns its mapping and no fd. What is inside is checked when it is looked at, by
 * proto/table.c.
 */
#include "client/image.h"

#include "client/endpoint.h"
#include "client/error.h"
#include "proto/own.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define IMAGE_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

void image_done(struct image *i)
{
	int saved = errno;

	if (i->memory)
		munmap(i->memory, i->view.bytes);
	*i = (struct image){ 0 };
	errno = saved;
}

static int map(int fd, uint64_t bytes, uint64_t buffer_bytes, struct image *ret)
{
	_cleanup_(image_done) struct image i = { 0 };
	void *memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		return error_set(errno, "can't map the buffer's table: %m");
	i = (struct image){ .memory = memory, .view.bytes = bytes };
	if (table_view_init(&i.view, memory, bytes, buffer_bytes) < 0) {
		i.view.bytes = bytes;
		return error_set(EPROTO, "the daemon's table makes no sense");
	}
	*ret = i;
	i = (struct image){ 0 };
	return 0;
}

int image_map(int fd, uint64_t bytes, uint64_t buffer_bytes, uid_t server, struct image *ret)
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
	return map(fd, bytes, buffer_bytes, ret);
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
