/* SPDX-License-Identifier: MIT
 *
 * Buffers of host pools that are opened copy-on-write: a process writes to its mapping, and neither
 * the buffer, nor other opens, nor the daemon's books change.
 */
#include "client/gpushm.h"
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define BYTES (1 << 16)

static int open_private(struct gpushm *conn, enum gpushm_access access, struct gpushm_buffer **ret)
{
	struct gpushm_open_options o = { .struct_size = sizeof(o), .flags = GPUSHM_COPY_ON_WRITE };

	return gpushm_open(conn, "x", access, 0, &o, ret);
}

static struct gpushm_buffer *opened(void)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(open_private(c, GPUSHM_READ, &b) == 0, "%s", gpushm_error());
	return b;
}

/* A buffer of 'a', which only its owner may read, and nobody may write. */
static void make(const char *pool, enum gpushm_state state, mode_t mode)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool, .mode = mode };
	struct gpushm_buffer *b = client_create("x", BYTES, &o);
	char bytes[BYTES];

	memset(bytes, 'a', sizeof(bytes));
	ck_assert_msg(gpushm_write(b, 0, bytes, sizeof(bytes)) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_publish(b, state), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
}

static char *memory(const struct gpushm_buffer *b)
{
	return gpushm_buffer_host_ptr(b);
}

static struct gpushm_stat stat_of_it(void)
{
	struct gpushm_stat *st = NULL, copy;

	ck_assert_msg(gpushm_stat(c, "x", 0, 0, &st) == 0, "%s", gpushm_error());
	copy = *st;
	gpushm_free(st);
	return copy;
}

/* ---- roles ---- */

/* socket: opens it, writes to all of it, prints ok, and waits to be killed. */
static int writer_role(char **args)
{
	struct gpushm_buffer *b = NULL;
	struct gpushm *conn = NULL;
	char line[8];

	if (gpushm_connect(args[0], &conn) < 0 || open_private(conn, GPUSHM_READ, &b) < 0) {
		fprintf(stderr, "%s\n", gpushm_error());
		return 1;
	}
	memset(memory(b), 'z', BYTES);
	puts("ok");
	fflush(stdout);
	return fgets(line, sizeof(line), stdin) ? 0 : 1;
}

static const struct role roles[] = { { "writer", writer_role } };

/* ---- tests ---- */

static void write_privately(enum gpushm_state state)
{
	struct gpushm_buffer *first, *second, *reader = NULL;

	make("host", state, 0400);
	first = opened();
	second = opened();
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &reader), 0);
	ck_assert_int_eq(gpushm_buffer_access(first), GPUSHM_WRITE);
	ck_assert_int_eq(gpushm_buffer_copy_on_write(first), 1);
	ck_assert_int_eq(gpushm_buffer_copy_on_write(reader), 0);
	ck_assert_uint_eq(stat_of_it().writers, 0);
	memory(first)[0] = 'b';
	ck_assert_int_eq(gpushm_write(second, BYTES - 1, "c", 1), 0);
	ck_assert_int_eq(memory(first)[0], 'b');
	ck_assert_int_eq(memory(first)[BYTES - 1], 'a');
	ck_assert_int_eq(memory(second)[0], 'a');
	ck_assert_int_eq(memory(second)[BYTES - 1], 'c');
	for (int i = 0; i < BYTES; i++)
		ck_assert_int_eq(memory(reader)[i], 'a');
	ck_assert_int_eq(gpushm_close(first), 0);
	first = opened();
	ck_assert_int_eq(memory(first)[0], 'a');
	ck_assert_int_eq(gpushm_close(first), 0);
	ck_assert_int_eq(gpushm_close(reader), 0);
	client_close_and_unlink(second, "x");
}

START_TEST(a_private_write_is_seen_by_nobody_else)
{
	write_privately(GPUSHM_SEALED);
	write_privately(GPUSHM_SHARED);
}
END_TEST

START_TEST(only_a_written_page_is_a_snapshot)
{
	struct gpushm_buffer *b, *writer = NULL;

	make("host", GPUSHM_SHARED, 0600);
	b = opened();
	memory(b)[0] = 'b';
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_WRITE, 0, NULL, &writer), 0);
	memset(memory(writer), 'w', BYTES);
	ck_assert_int_eq(memory(b)[0], 'b');
	ck_assert_int_eq(memory(b)[1], 'a'); /* of the page that was copied */
	ck_assert_int_eq(memory(b)[BYTES - 1], 'w');
	ck_assert_int_eq(gpushm_close(writer), 0);
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(the_death_of_a_private_writer_leaves_a_clean_buffer)
{
	struct role_process p;
	struct gpushm_buffer *b = NULL;
	char line[8];

	make("host", GPUSHM_SHARED, 0600);
	role_start(&p, "writer", (const char *[]){ d.socket, NULL });
	role_read_line(&p, line, sizeof(line));
	ck_assert_int_eq(kill(p.pid, SIGKILL), 0);
	ck_assert(WIFSIGNALED(role_wait(&p)));
	client_await(stat_of_it().readers == 0);
	ck_assert_int_eq(stat_of_it().dirty, 0);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), 0);
	ck_assert_int_eq(memory(b)[0], 'a');
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(copy_on_write_of_gpu_memory_is_refused)
{
	static const char *const names[] = { "gpu0", "gpu0-mempool", "pinned" };
	struct gpushm_buffer *b = NULL;
	struct gpushm_pool **pools;
	size_t n;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	gpushm_free(pools);
	if (n < array_size(names)) {
		printf("skipped: needs a driver\n");
		return;
	}
	for (size_t i = 0; i < array_size(names); i++) {
		make(names[i], GPUSHM_SHARED, 0600);
		ck_assert_int_eq(open_private(c, GPUSHM_READ, &b), -ENOTSUP);
		ck_assert_ptr_nonnull(strstr(gpushm_error(), "\"x\""));
		ck_assert_ptr_nonnull(strstr(gpushm_error(), "copy what is to be changed"));
		ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	}
}
END_TEST

START_TEST(a_flag_that_makes_no_sense_is_refused)
{
	struct gpushm_open_options o = { .struct_size = sizeof(o), .flags = GPUSHM_COPY_ON_WRITE };
	struct gpushm_buffer *b = NULL;

	make("host", GPUSHM_SHARED, 0600);
	ck_assert_int_eq(open_private(c, GPUSHM_WRITE, &b), -EINVAL);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "GPUSHM_READ"));
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *t = tcase_create("copy_on_write");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, client_setup, client_teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_private_write_is_seen_by_nobody_else);
	tcase_add_test(t, only_a_written_page_is_a_snapshot);
	tcase_add_test(t, the_death_of_a_private_writer_leaves_a_clean_buffer);
	tcase_add_test(t, copy_on_write_of_gpu_memory_is_refused);
	tcase_add_test(t, a_flag_that_makes_no_sense_is_refused);
	return suite_run("copy_on_write", t, NULL);
}
