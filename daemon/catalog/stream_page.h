/* SPDX-License-Identifier: MIT
 *
 * A page of a stream's words (proto/stream.h): a memfd that the daemon has mapped, of which each
 * process gets an fd to write or only to read. Processes may keep a page that the stream does not
 * need any more: then it stays charged until nobody has it.
 */
#pragma once

#include "daemon/catalog/account.h"

#include <stddef.h>

#define STREAM_PAGE_NOT_KEPT UINT32_MAX

struct stream_page {
	struct list link; /* retired_pages::all, once its stream does not need it */
	void *map;	  /* all of it, writable; NULL once it is retired */
	size_t bytes;
	int fd, fd_read_only; /* lent */
	int fd_original;      /* memfd_create()'s, which systemd may keep and nobody gets; or -1 */
	uint32_t fd_index;    /* in the name of its kept fd; STREAM_PAGE_NOT_KEPT: it has none */
	struct charge bytes_charge, fds_charge, kept_charge;
};

/* Pages that processes may have still. */
struct retired_pages {
	struct list all;
	uint32_t n;
	uint64_t bytes;
};

/* A page of zeros, charged to that user. All its memory is there, so that nobody who uses it gets
 * SIGBUS. 0, or -errno with *f filled in. */
int stream_page_new(struct accounts *a, uid_t uid, size_t bytes, struct stream_page **ret,
		    struct fault *f);

/* A page that an earlier daemon has made. The function owns the fd. 0; -EBADF: it is not such a
 * page; -errno. */
int stream_page_adopt(struct accounts *a, uid_t uid, size_t bytes, int fd,
		      struct stream_page **ret);

/* systemd has the original, or nobody needs it. */
void stream_page_drop_original(struct stream_page *p);

/* NULL is allowed. Returns NULL. */
struct stream_page *stream_page_free(struct stream_page *p);

/* The stream does not need the page any more: frees it, now or when no process has it. NULL is
 * allowed. Returns NULL. */
struct stream_page *stream_page_retire(struct stream_page *p, struct retired_pages *retired);

/* Frees those of the first n pages that no process has any more; the others go to the end. */
void retired_pages_look(struct retired_pages *retired, unsigned n);
void retired_pages_done(struct retired_pages *retired);
