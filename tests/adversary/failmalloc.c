/* SPDX-License-Identifier: MIT
 *
 * Fails the n-th allocation of a gpushmd that suites.mk links with --wrap. It sees what the
 * daemon's own code allocates, but not what libuv and libsystemd allocate for themselves (without
 * memory libuv ends the process, which is right for a broken daemon). The test chooses the
 * allocation through a file that both map: tests/adversary/failmalloc.h.
 */
#include "tests/adversary/failmalloc.h"

#include "proto/base/own.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_reallocarray(void *p, size_t n, size_t size);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
char *__wrap_strdup(const char *s);

static struct failmalloc none, *shared = &none;

__attribute__((constructor)) static void map_shared(void)
{
	const char *path = getenv(FAILMALLOC_ENV);
	_cleanup_(close_fd) int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *at = fd < 0 ? MAP_FAILED
			  : mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at != MAP_FAILED)
		shared = at;
}

static bool fails(void)
{
	/* The counter goes down to 0, and then no allocation fails. */
	if (atomic_load(&shared->left) <= 0 || atomic_fetch_sub(&shared->left, 1) != 1)
		return false;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return fails() ? NULL : __real_realloc(p, size);
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	return fails() ? NULL : __real_reallocarray(p, n, size);
}

char *__wrap_strdup(const char *s)
{
	return fails() ? NULL : __real_strdup(s);
}
