/* SPDX-License-Identifier: MIT
 *
 * Loads the driver's library at run time. The daemon and libgpushm each have a table of the calls
 * that they make; neither is linked with the driver.
 */
#pragma once

#include <stddef.h>

struct libcuda_symbol {
	const char
		*name; /* with the version that cuda.h's macros add, which dlsym() does not see */
	size_t offset; /* of its pointer in the table */
};

/* For a list CALLS(X) of X(member, symbol): the members of a struct cuda, with the types in cuda.h,
 * and their symbols. */
#define LIBCUDA_MEMBER(member, symbol) __typeof__(symbol) *member;
#define LIBCUDA_SYMBOL(member, symbol) { #symbol, offsetof(struct cuda, member) },

/* Opens the library and fills in the table. Returns its handle, which is never closed; or NULL, and
 * `why` says that there is no driver, or that it lacks a symbol. Then the table must not be used.
 */
void *libcuda_load(const struct libcuda_symbol *symbols, size_t n, void *table, char *why,
		   size_t size);
