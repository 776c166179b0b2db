/* SPDX-License-Identifier: MIT
 *
 * Fails the n-th allocation. For tests that the Makefile links with --wrap for malloc, calloc,
 * realloc and reallocarray (its MEMORY_TESTS, *_memory.c): the linker sends calls from our archives
 * here first.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_reallocarray(void *p, size_t n, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);

/* Allocations of this thread until one fails; 0: none will. It is 0 again after the failure. */
static __thread unsigned long memory_left;
static __thread bool memory_armed;

/* Only allocations of the expression in here can fail: Check itself allocates, too. */
#define WITHOUT_MEMORY(call)                  \
	({                                    \
		memory_armed = true;          \
		__typeof__(call) r_ = (call); \
		memory_armed = false;         \
		r_;                           \
	})

static bool memory_fails(void)
{
	if (!memory_armed || memory_left == 0 || --memory_left > 0)
		return false;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t size)
{
	return memory_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return memory_fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return memory_fails() ? NULL : __real_realloc(p, size);
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	return memory_fails() ? NULL : __real_reallocarray(p, n, size);
}
