/* SPDX-License-Identifier: MIT
 *
 * One list of all address ranges of this process that the driver knows. It decides whether a GPU
 * may access given bytes, and owns nothing: the code that makes a range inserts and drops it.
 */
#include "tests/fakecuda/fake_range.h"

#include <string.h>

static struct list ranges = { &ranges, &ranges };

void range_insert(struct range *r)
{
	list_insert(&ranges, &r->link);
}

void range_drop(struct range *r)
{
	list_drop(&r->link);
}

struct range *range_overlap(uintptr_t address, size_t size)
{
	struct range *r;

	list_foreach (r, &ranges, link)
		if (address < r->start + r->size && r->start < address + size)
			return r;
	return NULL;
}

struct range *range_find(uintptr_t address)
{
	return range_overlap(address, 1);
}

unsigned long range_count(enum range_kind kind)
{
	unsigned long n = 0;
	struct range *r;

	list_foreach (r, &ranges, link)
		n += r->kind == kind;
	return n;
}

void range_set_access(const void *pool, const unsigned char access[GPUS_MAX])
{
	struct range *r;

	list_foreach (r, &ranges, link)
		if (r->pool == pool)
			memcpy(r->access, access, sizeof(r->access));
}

bool range_allows(uintptr_t address, size_t size, unsigned int gpu, bool write)
{
	unsigned char needed =
		write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;

	for (;;) {
		struct range *r = range_find(address);
		size_t run;

		if (!r || (r->access[gpu] & needed) != needed)
			return false;
		run = r->start + r->size - address;
		if (run >= size)
			return true;
		if (r->kind != RANGE_MAPPING)
			return false;
		address += run;
		size -= run;
	}
}

unsigned char *range_at(uintptr_t address, size_t *ret_run)
{
	struct range *r = range_find(address);

	*ret_run = r->start + r->size - address;
	return r->alias + (address - r->start);
}
