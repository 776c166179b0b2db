/* SPDX-License-Identifier: MIT
 *
 * Structs that begin with their size, `size_t struct_size`, and grow at their end from version to
 * version. Who fills one in says with it how large his header has it. What he does not have is 0;
 * what we do not know must be 0, so that nothing that he asks for is left out in silence.
 */
#pragma once

#include <stddef.h>
#include <string.h>

#define SIZED_MIN (2 * sizeof(size_t)) /* a smaller one is a struct that was not filled in */
#define SIZED_MAX 4096u		       /* and a larger one a mistake */

/* What is wrong with a struct that a caller filled, which has `known` bytes here; NULL: nothing. */
static inline const char *sized_check(const void *from, size_t known)
{
	size_t size = *(const size_t *)from;
	const unsigned char *bytes = from;

	if (size < SIZED_MIN)
		return "struct_size is not set";
	for (size_t i = known; i < size && size <= SIZED_MAX; i++)
		if (bytes[i])
			size = SIZED_MAX + 1;
	return size > SIZED_MAX ? "made for a newer libgpushm than this one" : NULL;
}

/* The same, and copies it to ret, which is `known` bytes. NULL for from: all is 0. */
static inline const char *sized_read(const void *from, void *ret, size_t known)
{
	const char *wrong = from ? sized_check(from, known) : NULL;

	memset(ret, 0, known);
	if (from && !wrong)
		memcpy(ret, from, *(const size_t *)from < known ? *(const size_t *)from : known);
	return wrong;
}

/* Fills in a caller's struct; his struct_size stays. */
static inline const char *sized_write(void *ret, const void *from, size_t known)
{
	size_t size = *(const size_t *)ret;

	if (size < SIZED_MIN || size > SIZED_MAX)
		return "struct_size is not set";
	memset(ret, 0, size);
	memcpy(ret, from, size < known ? size : known);
	*(size_t *)ret = size;
	return NULL;
}

/* The i-th of an array of them: all have the size of the first. */
static inline const void *sized_at(const void *array, size_t i)
{
	return (const unsigned char *)array + i * *(const size_t *)array;
}

static inline const char *sized_check_all(const void *array, size_t n, size_t known)
{
	const char *wrong = NULL;

	for (size_t i = 0; i < n && !wrong; i++) {
		const size_t *it = sized_at(array, i);

		wrong = *it != *(const size_t *)array ? "their struct_size is not the same"
						      : sized_check(it, known);
	}
	return wrong;
}
