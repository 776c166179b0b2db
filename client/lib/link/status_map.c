/* SPDX-License-Identifier: MIT
 *
 * A status page is mapped once a connection and stays mapped until the connection ends, because any
 * thread may be reading it. Before it is mapped it is checked against gpushm-protocol(7): its
 * owner, its size, and that nobody can truncate it, which would raise SIGBUS in its readers.
 */
#include "client/lib/link/status_map.h"

#include "client/lib/base/endpoint.h"
#include "client/lib/base/error.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define SLEEP_MS_MAX 1000000000u

static int map(int fd, const struct stat *st, struct status_map *m)
{
	void *memory = mmap(NULL, STATUS_PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		return error_set(errno, "can't map the daemon's status page: %m");
	m->page = memory;
	m->dev = st->st_dev;
	m->ino = st->st_ino;
	if (m->page->magic == STATUS_PAGE_MAGIC && m->page->version == STATUS_PAGE_VERSION)
		return 0;
	munmap(memory, STATUS_PAGE_BYTES);
	return error_set(EPROTO, "the daemon's status page has another magic number or version");
}

int status_map_add(int fd, uid_t server, struct status_map **pages)
{
	_cleanup_(free_ptr) struct status_map *m = NULL;
	struct stat st;
	int r = endpoint_check_file("the daemon's status page", fd, server, STATUS_PAGE_BYTES,
				    F_SEAL_SHRINK, &st);

	if (r < 0)
		return r;
	if (*pages && (*pages)->dev == st.st_dev && (*pages)->ino == st.st_ino)
		return 0;
	m = calloc(1, sizeof(*m));
	if (!m)
		return error_set(ENOMEM, "out of memory for a connection");
	r = map(fd, &st, m);
	if (r < 0)
		return r;
	m->next = *pages;
	*pages = take_ptr(m);
	return 0;
}

void status_map_free(struct status_map *pages)
{
	struct status_map *next;

	for (; pages; pages = next) {
		next = pages->next;
		munmap((void *)pages->page, STATUS_PAGE_BYTES);
		free(pages);
	}
}

void status_map_sleep(const struct status_page_cell *cell, uint32_t seen, uint64_t ms)
{
	uint64_t most = ms < SLEEP_MS_MAX ? ms : SLEEP_MS_MAX;
	struct timespec t = clock_timespec(most * 1000000u);

	syscall(SYS_futex, &cell->word, FUTEX_WAIT, seen, &t, NULL, 0);
}
