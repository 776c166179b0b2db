/* SPDX-License-Identifier: MIT
 *
 * The driver's library, found at run time: daemon and library each have a table of the calls that
 * they may make, and neither is linked with it.
 */
#ifndef GPUSHM_PROTO_BASE_LIBCUDA_H
#define GPUSHM_PROTO_BASE_LIBCUDA_H

#include <stddef.h>

struct libcuda_symbol {
	const char *name; /* with the version that cuda.h maps the plain name to: dlsym() sees no
			     macros */
	size_t offset;	  /* of its pointer in the table */
};

/* Opens it for good and fills the table in. Returns its handle; NULL with `why` filled in: there is
 * no driver, or one that lacks a symbol, and then the table is of no use. */
void *libcuda_load(const struct libcuda_symbol *symbols, size_t n, void *table, char *why,
		   size_t size);

#endif
