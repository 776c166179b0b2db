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

#define SEGMENTS_MAX 64u

struct segments {
	struct {
		void *begin;
		size_t length;
	} at[SEGMENTS_MAX];
	size_t count;
};

static int add_segments(struct dl_phdr_info *info, size_t size, void *arg)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	struct segments *s = arg;

	for (size_t i = 0; i < info->dlpi_phnum && s->count < SEGMENTS_MAX; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		uintptr_t begin = (info->dlpi_addr + h->p_vaddr) & ~(page - 1);
		uintptr_t end = (info->dlpi_addr + h->p_vaddr + h->p_filesz) & ~(page - 1);

		if (h->p_type != PT_LOAD || (h->p_flags & PF_W) || begin >= end)
			continue;
		s->at[s->count].begin = (void *)begin;
		s->at[s->count++].length = end - begin;
	}
	return 0;
}

/* With a page that is used the kernel maps its neighbours, 64 KiB or what the page cache holds as
 * one folio. So as little as possible is called after the first madvise(). */
void resident_give_back(void)
{
	struct segments s = { 0 };

	malloc_trim(0);
	dl_iterate_phdr(add_segments, &s);
	for (size_t i = 0; i < s.count; i++)
		madvise(s.at[i].begin, s.at[i].length, MADV_DONTNEED);
}
