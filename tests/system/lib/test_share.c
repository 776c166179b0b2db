/* SPDX-License-Identifier: MIT
 *
 * The main use of gpushm, on every pool of the machine: one process fills a buffer, others attach
 * to the same memory, and each sees what the others wrote. The same program runs over host pools,
 * over the fake driver, and on a real GPU.
 */
#include "client/gpushm_query.h"
#include "proto/base/own.h"
#include "tests/lib/daemon.h"
#include "tests/lib/fds.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define READERS 8

static struct daemon d;
static struct gpushm *c;
static struct gpushm_pool **pools;
static size_t n_pools;

/* A driver opens fds when it is first used, and keeps them: this must happen before fds are
 * counted. */
static void warm_up(const char *pool)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(gpushm_create(c, "~/warm", 1, &o, &b) == 0, "%s", gpushm_error());
	ck_assert_int_ge(gpushm_close(b), 0);
}

static void setup(void)
{
	daemon_start(&d, "", NULL);
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_pools(c, &pools, &n_pools), 0);
	ck_assert_uint_ge(n_pools, 1);
	for (size_t i = 0; i < n_pools; i++)
		if (!pools[i]->failed)
			warm_up(pools[i]->name);
	fds_mark();
}

static void pools_are_empty(void)
{
	pools = gpushm_free(pools);
	ck_assert_int_eq(gpushm_pools(c, &pools, &n_pools), 0);
	for (size_t i = 0; i < n_pools; i++)
		ck_assert_msg(pools[i]->used_bytes == 0, "%s: %lu bytes are still used",
			      pools[i]->name, pools[i]->used_bytes);
}

static void teardown(void)
{
	pools_are_empty();
	fds_check();
	pools = gpushm_free(pools);
	c = gpushm_disconnect(c);
	daemon_stop(&d);
}

/* ---- roles ---- */

static unsigned char pattern(uint64_t i)
{
	return (unsigned char)(i * 131 + (i >> 8) * 17 + 5);
}

static int complain(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, gpushm_error());
	return 1;
}

/* socket name: opens, compares every byte, prints ok, and keeps it open until its input ends. */
static int read_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	struct gpushm_array *a = NULL;
	_cleanup_(free_ptr) unsigned char *copy = NULL;
	char word[8];
	uint64_t n;

	if (gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_open(conn, args[1], GPUSHM_READ, 10000, NULL, &b) < 0 ||
	    gpushm_array_get(b, "data", &a) < 0)
		return complain("open");
	n = gpushm_array_nbytes(a);
	copy = malloc(n);
	if (gpushm_copy_to_host(a, copy, NULL) < 0)
		return complain("copy");
	for (uint64_t i = 0; i < n; i++)
		if (copy[i] != pattern(i))
			return fprintf(stderr, "byte %lu differs\n", i), 1;
	puts("ok");
	if (fgets(word, sizeof(word), stdin))
		return 1;
	gpushm_array_free(a);
	if (gpushm_close(b) < 0)
		return complain("close");
	gpushm_disconnect(conn);
	return 0;
}

/* socket name: opens for writing and inverts every byte. */
static int write_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	_cleanup_(free_ptr) unsigned char *copy = NULL;
	uint64_t n;

	if (gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_open(conn, args[1], GPUSHM_WRITE, 10000, NULL, &b) < 0)
		return complain("open");
	n = gpushm_buffer_bytes(b);
	copy = malloc(n);
	if (gpushm_read(b, 0, copy, n) < 0)
		return complain("read");
	for (uint64_t i = 0; i < n; i++)
		copy[i] = (unsigned char)~copy[i];
	if (gpushm_write(b, 0, copy, n) < 0 || gpushm_close(b) < 0)
		return complain("write");
	gpushm_disconnect(conn);
	return 0;
}

static const struct role roles[] = { { "read", read_role }, { "write", write_role } };

/* ---- tests ---- */

static struct gpushm_buffer *make(const char *pool, const char *name, int64_t n)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_array_spec spec = {
		.struct_size = sizeof(spec), .name = "data", .ndim = 1, .shape = &n
	};
	struct gpushm_buffer *b = NULL;
	struct gpushm_array *a = NULL;
	_cleanup_(free_ptr) unsigned char *bytes = malloc((size_t)n);

	for (int64_t i = 0; i < n; i++)
		bytes[i] = pattern((uint64_t)i);
	ck_assert_int_eq(gpushm_dtype_parse("uint8", &spec.dtype), 0);
	ck_assert_msg(gpushm_create_arrays(c, name, &spec, 1, &o, &b) == 0, "%s: %s", pool,
		      gpushm_error());
	ck_assert_int_eq(gpushm_array_get(b, "data", &a), 0);
	ck_assert_msg(gpushm_copy_from_host(a, bytes, NULL) == 0, "%s: %s", pool, gpushm_error());
	gpushm_array_free(a);
	return b;
}

static void with_readers(const char *pool, int n_readers)
{
	struct gpushm_buffer *b = make(pool, "shared/frame", 3 * MIB + 77);
	const char *args[] = { d.socket, "shared/frame", NULL };
	struct role_process readers[READERS];
	struct gpushm_stat *st = NULL;
	char line[64];

	for (int i = 0; i < n_readers; i++)
		role_start(&readers[i], "read", args);
	ck_assert_msg(gpushm_publish(b, GPUSHM_SEALED) == 0, "%s", gpushm_error());
	for (int i = 0; i < n_readers; i++) {
		role_read_line(&readers[i], line, sizeof(line));
		ck_assert_str_eq(line, "ok");
	}
	ck_assert_int_eq(gpushm_stat(c, "shared/frame", 0, GPUSHM_HOLDERS, &st), 0);
	ck_assert_uint_eq(st->readers, n_readers + 1);
	ck_assert_uint_eq(st->n_holders, n_readers + 1);
	ck_assert_uint_eq(st->writers, 0);
	gpushm_free(st);
	for (int i = 0; i < n_readers; i++)
		role_finish(&readers[i]);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "shared/frame"), 0);
}

START_TEST(readers_see_the_bytes_that_were_written)
{
	for (size_t i = 0; i < n_pools; i++) {
		if (pools[i]->failed)
			continue;
		with_readers(pools[i]->name, 2);
		with_readers(pools[i]->name, READERS);
	}
}
END_TEST

static void write_back(const char *pool)
{
	const uint64_t n = MIB + 3;
	struct gpushm_buffer *b = make(pool, "~/back", (int64_t)n);
	const char *args[] = { d.socket, "~/back", NULL };
	struct role_process writer;
	_cleanup_(free_ptr) unsigned char *bytes = malloc(n);
	uint64_t wrong = 0;

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	role_start(&writer, "write", args);
	role_finish(&writer);
	ck_assert_int_eq(gpushm_read(b, 0, bytes, n), 0);
	for (uint64_t i = 0; i < n; i++)
		wrong += bytes[i] != (unsigned char)~pattern(i);
	ck_assert_msg(wrong == 0, "%s: %lu bytes differ", pool, wrong);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "~/back"), 0);
}

START_TEST(a_writers_bytes_reach_the_creator)
{
	for (size_t i = 0; i < n_pools; i++)
		if (!pools[i]->failed)
			write_back(pools[i]->name);
}
END_TEST

START_TEST(a_fresh_buffer_is_zero)
{
	static const unsigned char zero[4096];
	unsigned char got[4096];

	for (size_t i = 0; i < n_pools; i++) {
		struct gpushm_create_options o = { .struct_size = sizeof(o),
						   .pool = pools[i]->name };
		struct gpushm_buffer *b = NULL;

		if (pools[i]->failed)
			continue;
		ck_assert_msg(gpushm_create(c, "~/fresh", 4 * MIB, &o, &b) == 0, "%s",
			      gpushm_error());
		for (uint64_t at = 0; at < 4 * MIB; at += MIB - 4096) {
			ck_assert_int_eq(gpushm_read(b, at, got, sizeof(got)), 0);
			ck_assert_mem_eq(got, zero, sizeof(zero));
		}
		ck_assert_int_eq(gpushm_discard(b), 0);
	}
}
END_TEST

int main(int argc, char **argv)
{
	TCase *t = tcase_create("every pool");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 300);
	tcase_add_test(t, readers_see_the_bytes_that_were_written);
	tcase_add_test(t, a_writers_bytes_reach_the_creator);
	tcase_add_test(t, a_fresh_buffer_is_zero);
	return suite_run("share", t, NULL);
}
