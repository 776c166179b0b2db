/* SPDX-License-Identifier: MIT
 *
 * What is left of the host's memory, read from made-up /proc and /sys/fs/cgroup.
 */
#include "daemon/pool/pool_internal.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MIB (1ull << 20)

static char folder[] = "/tmp/gpushm-memory-XXXXXX";
static char proc[64], sys[64];

/* Writes a file under the folder, and makes the folders above it. */
static void put(const char *path, const char *text)
{
	char full[256];
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", folder, path);
	for (char *slash = full + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(full, 0700);
		*slash = '/';
	}
	f = fopen(full, "we");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

static void setup(void)
{
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(proc, sizeof(proc), "%s/proc", folder);
	snprintf(sys, sizeof(sys), "%s/sys", folder);
	put("proc/meminfo", "MemTotal: 2000 kB\nMemAvailable:    1048576 kB\n");
}

static void teardown(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", folder);
	ck_assert_int_eq(system(command), 0);
}

static uint64_t left(const char *whose)
{
	const char *said = "";
	uint64_t bytes = host_memory_free(proc, sys, &said);

	ck_assert_msg(strstr(said, whose), "%s", said);
	return bytes;
}

START_TEST(the_hosts_available_memory_is_the_limit)
{
	ck_assert_uint_eq(left("the host"), 1024 * MIB);
}
END_TEST

START_TEST(memory_of_unknown_size_sets_no_limit)
{
	put("proc/meminfo", "");
	ck_assert_uint_eq(left("the host"), UINT64_MAX);
}
END_TEST

static void write_v2(const char *group, const char *max, const char *current)
{
	char path[128];

	snprintf(path, sizeof(path), "sys%s/memory.max", group);
	put(path, max);
	snprintf(path, sizeof(path), "sys%s/memory.current", group);
	put(path, current);
	snprintf(path, sizeof(path), "sys%s/memory.stat", group);
	put(path, "anon 4096\nactive_file 8192\ninactive_file 1048576\n");
}

START_TEST(a_cgroup_v2_limit_applies_and_page_cache_counts_as_free)
{
	put("proc/self/cgroup", "0::/a.slice/b\n");
	write_v2("/a.slice/b", "104857600\n", "5242880\n");
	write_v2("/a.slice", "max\n", "5242880\n");
	/* 100 MiB, less 5 in use of which 1 is page cache. */
	ck_assert_uint_eq(left("control group"), 96 * MIB);
}
END_TEST

START_TEST(a_parent_cgroups_limit_applies)
{
	put("proc/self/cgroup", "0::/a.slice/b\n");
	write_v2("/a.slice/b", "104857600\n", "5242880\n");
	write_v2("/a.slice", "52428800\n", "11534336\n");
	ck_assert_uint_eq(left("control group"), 40 * MIB);
	write_v2("", "10485760\n", "31457280\n");
	ck_assert_uint_eq(left("control group"), 0);
}
END_TEST

START_TEST(a_cgroup_v1_limit_applies)
{
	put("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/x\n0::/\n");
	put("sys/memory/docker/x/memory.limit_in_bytes", "67108864\n");
	put("sys/memory/docker/x/memory.usage_in_bytes", "2097152\n");
	put("sys/memory/docker/x/memory.stat", "inactive_file 0\ntotal_inactive_file 1048576\n");
	put("sys/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("sys/memory/memory.usage_in_bytes", "2097152\n");
	ck_assert_uint_eq(left("control group"), 63 * MIB);
}
END_TEST

/* As in a container that has no cgroup namespace: only the root of its mount is there. */
START_TEST(the_roots_limit_applies_if_the_groups_folder_is_missing)
{
	put("proc/self/cgroup", "4:memory:/docker/x\n");
	put("sys/memory/memory.limit_in_bytes", "67108864\n");
	put("sys/memory/memory.usage_in_bytes", "0\n");
	ck_assert_uint_eq(left("control group"), 64 * MIB);
}
END_TEST

START_TEST(a_malformed_cgroup_line_is_ignored)
{
	put("proc/self/cgroup", "\n::\n4:memory\nmemory:/x\n4:memoryx:/x\n0:\n");
	put("sys/memory/x/memory.limit_in_bytes", "1\n");
	put("sys/memory/x/memory.usage_in_bytes", "0\n");
	put("sys/x/memory.max", "1\n");
	put("sys/x/memory.current", "0\n");
	ck_assert_uint_eq(left("the host"), 1024 * MIB);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("host_free");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, the_hosts_available_memory_is_the_limit);
	tcase_add_test(t, memory_of_unknown_size_sets_no_limit);
	tcase_add_test(t, a_cgroup_v2_limit_applies_and_page_cache_counts_as_free);
	tcase_add_test(t, a_parent_cgroups_limit_applies);
	tcase_add_test(t, a_cgroup_v1_limit_applies);
	tcase_add_test(t, the_roots_limit_applies_if_the_groups_folder_is_missing);
	tcase_add_test(t, a_malformed_cgroup_line_is_ignored);
	return suite_run("host_free", t, NULL);
}
