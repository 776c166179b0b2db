/* SPDX-License-Identifier: MIT
 *
 * Only a namespace that maps all numbers has no unmapped user: a map of the kernel can't name an id
 * that its parent namespace lacks (map_write(), kernel/user_namespace.c), so a full map is full in
 * all parents, too. In any other namespace a process of the real user 65534 and one of an unmapped
 * user look alike, even if the namespace maps 65534.
 */
#include "proto/base/userns.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define DEFAULT_OVERFLOW 65534u /* DEFAULT_OVERFLOWUID, linux/highuid.h */

/* Whether the map has all numbers. The last one, -1, is never an id. */
static bool maps_all(const char *path)
{
	FILE *f = fopen(path, "re");
	uint32_t inside, outside, count;
	uint64_t sum = 0;

	/* A kernel without user namespaces has no such file. */
	if (!f)
		return errno == ENOENT && access("/proc/self", F_OK) == 0;
	while (fscanf(f, "%" SCNu32 " %" SCNu32 " %" SCNu32, &inside, &outside, &count) == 3)
		sum += count;
	fclose(f);
	return sum == UINT32_MAX;
}

static uint32_t find(const char *map, const char *overflow)
{
	uint32_t id = DEFAULT_OVERFLOW;
	FILE *f;

	if (maps_all(map))
		return UINT32_MAX;
	f = fopen(overflow, "re");
	if (!f)
		return id;
	if (fscanf(f, "%" SCNu32, &id) != 1)
		id = DEFAULT_OVERFLOW;
	fclose(f);
	return id;
}

uid_t userns_unmapped_uid(void)
{
	return find("/proc/self/uid_map", "/proc/sys/kernel/overflowuid");
}

gid_t userns_unmapped_gid(void)
{
	return find("/proc/self/gid_map", "/proc/sys/kernel/overflowgid");
}

uid_t userns_uid_inside(uid_t outside)
{
	FILE *f = fopen("/proc/self/uid_map", "re");
	uint32_t inside, first, count;
	uid_t found = UINT32_MAX;

	if (!f)
		return outside;
	while (fscanf(f, "%" SCNu32 " %" SCNu32 " %" SCNu32, &inside, &first, &count) == 3)
		if (outside >= first && outside - first < count)
			found = inside + (outside - first);
	fclose(f);
	return found;
}
