/* SPDX-License-Identifier: MIT
 *
 * Who pays for host memory: daemon, creator and reader in memory control groups of their own. Needs
 * root and a memory controller.
 */
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define BYTES (64 * MIB)
#define SMALL (40 * MIB) /* more than a process takes for itself, also with a sanitizer */
#define HOST "[pool host]\nkind=host\nsize=1G\n"

static char base[128]; /* the folder of this test's groups */
static const char *used_file, *limit_file;

static void path_of(const char *group, const char *file, char ret[256])
{
	snprintf(ret, 256, "%s/%s/%s", base, group, file);
}

static bool write_number(const char *group, const char *file, long long n)
{
	char path[256];
	FILE *f;
	bool good;

	path_of(group, file, path);
	f = fopen(path, "we");
	good = f && fprintf(f, "%lld\n", n) > 0;
	return f && fclose(f) == 0 && good;
}

static uint64_t used_by(const char *group)
{
	unsigned long long n = 0;
	char path[256];
	FILE *f;

	path_of(group, used_file, path);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%llu", &n), 1);
	fclose(f);
	return n;
}

static bool enter(const char *group, pid_t pid)
{
	return write_number(group, "cgroup.procs", pid);
}

/* ---- roles: each enters its group before it touches memory ---- */

/* folder-of-group socket written: creates "x", writes that many bytes of it, publishes it. */
static int creator_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;

	strcpy(base, args[0]);
	if (!enter("creator", getpid()) || gpushm_connect(args[1], &conn) < 0 ||
	    gpushm_create(conn, "x", BYTES, NULL, &b) < 0) {
		puts(gpushm_error());
		return 1;
	}
	memset(gpushm_buffer_host_ptr(b), 1, strtoul(args[2], NULL, 10));
	if (gpushm_publish(b, GPUSHM_SEALED) < 0 || gpushm_close(b) < 0)
		return 1;
	puts("ok");
	gpushm_disconnect(conn);
	return 0;
}

/* folder-of-group socket: opens "x", reads a byte of each page, stays until its input ends. */
static int reader_role(char **args)
{
	const volatile unsigned char *at;
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	unsigned sum = 0;
	char line[8];

	strcpy(base, args[0]);
	if (!enter("reader", getpid()) || gpushm_connect(args[1], &conn) < 0 ||
	    gpushm_open(conn, "x", GPUSHM_READ, 0, NULL, &b) < 0) {
		puts(gpushm_error());
		return 1;
	}
	at = gpushm_buffer_host_ptr(b);
	for (uint64_t i = 0; i < BYTES; i += 4096)
		sum += at[i];
	puts("ok");
	if (fgets(line, sizeof(line), stdin))
		return (int)sum | 1;
	gpushm_close(b);
	gpushm_disconnect(conn);
	return 0;
}

static const struct role roles[] = { { "creator", creator_role }, { "reader", reader_role } };

static void start_role(struct role_process *p, const char *role, const char *written)
{
	char line[512];

	role_start(p, role, (const char *[]){ base, d.socket, written, NULL });
	role_read_line(p, line, sizeof(line));
	ck_assert_str_eq(line, "ok");
}

/* ---- groups ---- */

static const char *const groups[] = { "daemon", "creator", "reader" };

static bool make_groups(bool v2)
{
	char path[256];
	bool good;

	snprintf(base, sizeof(base), "/sys/fs/cgroup/%sgpushm-test-%d", v2 ? "" : "memory/",
		 getpid());
	used_file = v2 ? "memory.current" : "memory.usage_in_bytes";
	limit_file = v2 ? "memory.max" : "memory.limit_in_bytes";
	if (mkdir(base, 0755) < 0)
		return false;
	if (v2) {
		FILE *f;

		path_of(".", "cgroup.subtree_control", path);
		f = fopen(path, "we");
		if (f && (fputs("+memory", f) < 0 || fclose(f) < 0))
			return false;
	}
	for (size_t i = 0; i < array_size(groups); i++) {
		snprintf(path, sizeof(path), "%s/%s", base, groups[i]);
		if (mkdir(path, 0755) < 0)
			return false;
	}
	path_of("daemon", used_file, path);
	good = access(path, R_OK) == 0;
	path_of("daemon", limit_file, path);
	return good && access(path, W_OK) == 0;
}

static void drop_groups(void)
{
	char path[256];

	for (size_t i = 0; i < array_size(groups); i++) {
		snprintf(path, sizeof(path), "%s/%s", base, groups[i]);
		rmdir(path);
	}
	rmdir(base);
}

static bool setup(const char *config)
{
	bool good = make_groups(false);

	if (!good) {
		drop_groups();
		good = make_groups(true);
	}
	if (!good) {
		drop_groups();
		printf("skipped: needs root and a memory controller of cgroups(7)\n");
		return false;
	}
	client_setup_with(config);
	ck_assert_msg(enter("daemon", d.pid), "%s", strerror(errno));
	return true;
}

static void teardown(void)
{
	client_teardown();
	drop_groups();
}

/* ---- who pays ---- */

static const struct {
	const char *config, *written, *payer;
} cases[] = {
	{ HOST, "67108864", "creator" },
	{ HOST, "0", "reader" },
	{ HOST "allocate=create\n", "67108864", "daemon" },
	{ HOST "allocate=create\n", "0", "daemon" },
};

START_TEST(the_control_group_that_touches_host_memory_first_pays)
{
	struct role_process creator, reader;

	if (!setup(cases[_i].config))
		return;
	start_role(&creator, "creator", cases[_i].written);
	role_finish(&creator);
	start_role(&reader, "reader", NULL);
	for (size_t i = 0; i < array_size(groups); i++) {
		uint64_t used = used_by(groups[i]);

		if (strcmp(groups[i], cases[_i].payer) == 0)
			ck_assert_uint_ge(used, BYTES);
		else
			ck_assert_msg(used < SMALL, "%s pays %llu", groups[i],
				      (unsigned long long)used);
	}
	role_finish(&reader);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	teardown();
}
END_TEST

START_TEST(a_create_beyond_the_daemons_memory_limit_is_refused)
{
	struct gpushm_buffer *b = NULL;

	if (!setup(HOST "allocate=create\n"))
		return;
	ck_assert(write_number("daemon", limit_file, (long long)(used_by("daemon") + 200 * MIB)));
	ck_assert_int_eq(gpushm_create(c, "x", 256 * MIB, NULL, &b), -ENOSPC);
	ck_assert_msg(strstr(gpushm_error(), "control group"), "%s", gpushm_error());
	ck_assert_msg(gpushm_create(c, "x", 64 * MIB, NULL, &b) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_discard(b), 0);
	teardown();
}
END_TEST

int main(int argc, char **argv)
{
	TCase *t = tcase_create("cgroup");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, the_control_group_that_touches_host_memory_first_pays, 0,
			    array_size(cases));
	tcase_add_test(t, a_create_beyond_the_daemons_memory_limit_is_refused);
	return suite_run("cgroup", t, NULL);
}
