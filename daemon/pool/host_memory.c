/* SPDX-License-Identifier: MIT
 *
 * A process that allocates more than a control group may use is killed, as all of that group may
 * be, instead of getting an error (measured: fallocate() of 256 MiB under a limit of 64 MiB ends
 * with SIGKILL). So the limits are read before, in both versions of control groups. A group is
 * limited by its parents, too.
 */
#include "daemon/pool/pool_internal.h"

#include "proto/base/own.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The files of a group, cgroups(7). In version 1 an unlimited group has a very large limit, in
 * version 2 the word "max". */
static const struct files {
	const char *controller; /* in /proc/self/cgroup, and a folder of `sys` */
	const char *limit, *used, *cache;
} versions[] = {
	{ "", "memory.max", "memory.current", "inactive_file" },
	{ "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file" },
};

static void close_file(FILE **f)
{
	if (*f)
		fclose(*f);
}

/* Reads the number after `key` at the start of a line; "": the first number. */
static bool read_number(const char *path, const char *key, uint64_t *ret)
{
	_cleanup_(close_file) FILE *f = fopen(path, "re");
	size_t len = strlen(key);
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, key, len) == 0 && sscanf(line + len, " %" SCNu64, ret) == 1)
			return true;
	return false;
}

static uint64_t subtract(uint64_t from, uint64_t what)
{
	return from > what ? from - what : 0;
}

/* What the group may still use; UINT64_MAX if it has no limit. */
static uint64_t free_of_group(const struct files *v, const char *folder)
{
	uint64_t limit = 0, used = 0, cache = 0;
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/%s", folder, v->limit);
	if (!read_number(path, "", &limit))
		return UINT64_MAX;
	snprintf(path, sizeof(path), "%s/%s", folder, v->used);
	if (!read_number(path, "", &used))
		return UINT64_MAX;
	snprintf(path, sizeof(path), "%s/memory.stat", folder);
	read_number(path, v->cache, &cache);
	return subtract(limit, subtract(used, cache));
}

/* Of the group and of all above it. */
static uint64_t free_of_groups(const struct files *v, const char *sys, const char *group)
{
	char folder[PATH_MAX];
	size_t base = (size_t)snprintf(folder, sizeof(folder), "%s%s%s", sys,
				       *v->controller ? "/" : "", v->controller);
	uint64_t least = UINT64_MAX, one;

	if (base + strlen(group) >= sizeof(folder))
		return least;
	strcpy(folder + base, group);
	for (;;) {
		char *slash = strrchr(folder + base, '/');

		one = free_of_group(v, folder);
		least = one < least ? one : least;
		if (!slash)
			return least;
		*slash = '\0';
	}
}

/* "0::/a/b" is a group of version 2, "4:cpu,memory:/a" one of version 1. Returns the group's path
 * if the line is of that version's memory controller. */
static const char *group_in(char *line, const struct files *v)
{
	char *controllers = strchr(line, ':'), *group, *word;

	line[strcspn(line, "\n")] = '\0';
	group = controllers ? strchr(++controllers, ':') : NULL;
	if (!group)
		return NULL;
	*group++ = '\0';
	if (!*v->controller)
		return *controllers ? NULL : group;
	while ((word = strsep(&controllers, ",")))
		if (strcmp(word, v->controller) == 0)
			return group;
	return NULL;
}

static uint64_t free_of_all_groups(const char *proc, const char *sys)
{
	_cleanup_(close_file) FILE *f = NULL;
	char path[PATH_MAX], line[PATH_MAX + 256], copy[sizeof(line)];
	uint64_t least = UINT64_MAX;

	snprintf(path, sizeof(path), "%s/self/cgroup", proc);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		for (size_t i = 0; i < array_size(versions); i++) {
			const char *group = group_in(strcpy(copy, line), &versions[i]);
			uint64_t one = group ? free_of_groups(&versions[i], sys, group) : least;

			least = one < least ? one : least;
		}
	}
	return least;
}

uint64_t host_memory_free(const char *proc, const char *sys, const char **ret_whose)
{
	uint64_t host = UINT64_MAX, groups = free_of_all_groups(proc, sys);
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/meminfo", proc);
	if (read_number(path, "MemAvailable:", &host))
		host = host <= UINT64_MAX / 1024 ? host * 1024 : UINT64_MAX;
	*ret_whose =
		groups < host ? "gpushmd's control group (MemoryMax= of its unit)" : "the host";
	return groups < host ? groups : host;
}
