/* SPDX-License-Identifier: MIT
 *
 * A usable library is never closed: libcuda.so.1 starts threads of its own and can't be unloaded
 * safely.
 */
#include "proto/base/libcuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

void *libcuda_load(const struct libcuda_symbol *symbols, size_t n, void *table, char *why,
		   size_t size)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		snprintf(why, size, "no NVIDIA driver: %s", dlerror());
		return NULL;
	}
	for (size_t i = 0; i < n; i++) {
		void *address = dlsym(library, symbols[i].name);

		if (!address) {
			snprintf(why, size, "the NVIDIA driver is too old: " LIBRARY " has no %s",
				 symbols[i].name);
			dlclose(library);
			return NULL;
		}
		memcpy((char *)table + symbols[i].offset, &address, sizeof(address));
	}
	return library;
}
