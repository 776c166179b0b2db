/* SPDX-License-Identifier: MIT
 *
 * A segment of a program or library that is not writable has nothing of its own: its pages are
 * those of the file. So MADV_DONTNEED on it only removes the mapping of the pages (madvise(2)).
 * Writable segments must be left alone, also their part that becomes read-only after relocation
 * (RELRO): what was written to them would be lost.
 */
#include "daemon/keeper/resident.h"

#include <link.h>
#include <malloc.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

static int give_back_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		uintptr_t begin = (info->dlpi_addr + h->p_vaddr) & ~(page - 1);
		uintptr_t end = (info->dlpi_addr + h->p_vaddr + h->p_filesz) & ~(page - 1);

		if (h->p_type == PT_LOAD && !(h->p_flags & PF_W) && begin < end)
			madvise((void *)begin, end - begin, MADV_DONTNEED);
	}
	return 0;
}

void resident_give_back(void)
{
	malloc_trim(0);
	dl_iterate_phdr(give_back_object, NULL);
}
