/* SPDX-License-Identifier: MIT
 *
 * Fails the n-th allocation. For tests that suites.mk links with --wrap for malloc, calloc,
 * realloc and reallocarray (those named *_memory.c): the linker sends calls from our archives
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

/* A test that defines it as nothing counts the allocations of all threads. */
#ifndef MEMORY_SCOPE
#define MEMORY_SCOPE __thread
#endif

/* Allocations of this thread until one fails; 0: none will. It is 0 again after the failure. */
static MEMORY_SCOPE unsigned long memory_left;
static MEMORY_SCOPE bool memory_armed;

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
	unsigned long n = __atomic_load_n(&memory_left, __ATOMIC_RELAXED);

	if (!__atomic_load_n(&memory_armed, __ATOMIC_RELAXED))
		return false;
	while (n > 0 && !__atomic_compare_exchange_n(&memory_left, &n, n - 1, false,
						     __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	if (n != 1)
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
