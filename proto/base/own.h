/* SPDX-License-Identifier: MIT
 *
 * Ownership. Every fd and every heap pointer has one owner at a time: it starts under _cleanup_,
 * and take_fd() or take_ptr() show where it gets another owner. Cleanup functions keep errno, so
 * that they may run between a failed call and the line that reports it.
 */
#pragma once

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(f) __attribute__((cleanup(f)))

/* Closes *fd unless it is negative, and sets it to -1. For _cleanup_(). */
static inline void close_fd(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}

/* Makes the caller the owner of the fd and sets *fd to -1. */
static inline int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

/* Frees *(void **)p and sets it to NULL. For _cleanup_() on any pointer to malloc'd memory. */
static inline void free_ptr(void *p)
{
	int saved = errno;

	free(*(void **)p);
	*(void **)p = NULL;
	errno = saved;
}

/* Makes the caller the owner of the pointer and sets the variable to NULL. */
#define take_ptr(p)                         \
	({                                  \
		__typeof__(p) taken_ = (p); \
		(p) = NULL;                 \
		taken_;                     \
	})

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define array_size(a) (sizeof(a) / sizeof((a)[0]))
