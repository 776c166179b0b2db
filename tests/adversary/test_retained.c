/* SPDX-License-Identifier: MIT
 *
 * A user closes buffers and keeps their memory. What a process still has open or mapped counts for
 * the owner and in the pool until the process lets go of it. Needs root, to become another user.
 */
#include "proto/base/own.h"
#include "tests/lib/actor.h"
#include "tests/lib/counted.h"
#include "tests/lib/raw.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { HOSTILE = 65521, MAX = 2, N = 20, ARRAYS = 250, NAME = 200, PIECES = 260 };

#define MIB (1ull << 20)
#define BYTES_EACH (8 * MIB)
#define CONFIG                                                                  \
	"[pool host]\nkind=host\nsize=64M\npending-max-age=0\n[limits 65521]\n" \
	"max-bytes=16M\n"

static struct actor hostile;
static struct raw r;
static int fds[N];
static void *maps[N];

static void setup(void)
{
	counted_setup(CONFIG);
	actor_start(&hostile, d.socket, HOSTILE, HOSTILE);
	r = (struct raw){ .socket = actor_connect(&hostile) };
	ck_assert_int_eq(raw_call(&r, REQUEST(HELLO, Hello, hello, SET(version_min, 1),
					      SET(version_max, 1))),
			 0);
	for (int i = 0; i < N; i++) {
		fds[i] = -1;
		maps[i] = NULL;
	}
}

static void teardown(void)
{
	raw_close(&r);
	actor_kill(&hostile);
	counted_teardown();
}

static void close_lease(uint64_t lease)
{
	ck_assert_int_eq(raw_call(&r, REQUEST(CLOSE, Close, close, SET(lease, lease))), 0);
}

static int create(void)
{
	return raw_call(&r, REQUEST(CREATE, Create, create, BYTES(name, "x"),
				    SET(size_bytes, BYTES_EACH)));
}

static int keep_fd(void)
{
	return fcntl(r.frame.fds[0], F_DUPFD_CLOEXEC, 0);
}

static void *map_fd(int prot)
{
	void *at = mmap(NULL, BYTES_EACH, prot, MAP_SHARED, r.frame.fds[0], 0);

	ck_assert_ptr_ne(at, MAP_FAILED);
	return at;
}

/* The buffer ends, and its creator keeps it in one of these ways. */
enum way { KEEP_FD, KEEP_MAP, KEEP_READER, KEEP_READER_MAP, WAYS };

static int create_and_keep(enum way way, int i)
{
	uint64_t lease;
	int code = create();

	if (code)
		return code;
	lease = r.reply->attach->lease;
	if (way == KEEP_FD)
		fds[i] = keep_fd();
	if (way == KEEP_MAP)
		maps[i] = map_fd(PROT_READ | PROT_WRITE);
	if (way >= KEEP_READER) {
		raw_publish(&r, lease, GPUSHM__PROTO__STATE__STATE_SEALED);
		close_lease(lease);
		lease = raw_open(&r, "x");
		if (way == KEEP_READER)
			fds[i] = keep_fd();
		else
			maps[i] = map_fd(PROT_READ);
		ck_assert_int_eq(raw_call(&r, REQUEST(UNLINK, Unlink, unlink, BYTES(name, "x"))),
				 0);
	}
	close_lease(lease);
	return 0;
}

static void let_go(int i)
{
	close_fd(&fds[i]);
	if (maps[i])
		munmap(maps[i], BYTES_EACH);
	maps[i] = NULL;
}

START_TEST(memory_that_is_kept_after_the_close_is_charged)
{
	int n = 0, code;

	while ((code = create_and_keep((enum way)_i, n)) == 0 && n < N - 1)
		n++;
	ck_assert_int_eq(code, CODE_LIMIT);
	ck_assert_int_eq(n, MAX);
	ck_assert_uint_eq(client_used_bytes(), MAX * BYTES_EACH);
	ck_assert_uint_eq(client_status().retained, MAX);
	ck_assert_uint_eq(client_status().retained_bytes, MAX * BYTES_EACH);
	let_go(0);
	ck_assert_int_eq(create_and_keep((enum way)_i, 0), 0);
	ck_assert_int_eq(create(), CODE_LIMIT);
	for (int i = 0; i < MAX; i++)
		let_go(i);
	client_await(client_used_bytes() == 0);
	ck_assert_uint_eq(client_status().retained, 0);
}
END_TEST

/* Describes some more arrays, with long names: of a table's memory most is text. */
static int describe(uint64_t lease, int piece)
{
	static Gpushm__Proto__Array all[ARRAYS], *pointers[ARRAYS];
	Gpushm__Proto__Dtype dtype = MESSAGE(Dtype, dtype, SET(code, 1), SET(bits, 8));
	static char names[ARRAYS][NAME + 1];

	for (int n = 0; n < ARRAYS; n++) {
		snprintf(names[n], sizeof(names[n]), "%0*d", NAME, piece * ARRAYS + n);
		all[n] = MESSAGE(Array, array, BYTES(name, names[n]), .dtype = &dtype);
		pointers[n] = &all[n];
	}
	return raw_call(&r, REQUEST(DESCRIBE, Describe, describe, SET(lease, lease),
				    .n_arrays = ARRAYS, .arrays = pointers));
}

/* Tables are the daemon's own memory; each of these has some 18 MiB. */
static int create_table_and_keep(int i)
{
	uint64_t lease = raw_create(&r, "x", 100), reader;
	int code = 0;

	for (int piece = 0; piece < PIECES && code == 0; piece++)
		code = describe(lease, piece);
	if (code == 0) {
		raw_publish(&r, lease, GPUSHM__PROTO__STATE__STATE_SEALED);
		reader = raw_open(&r, "x");
		fds[i] = fcntl(r.frame.fds[1], F_DUPFD_CLOEXEC, 0);
		ck_assert_int_eq(raw_call(&r, REQUEST(UNLINK, Unlink, unlink, BYTES(name, "x"))),
				 0);
		close_lease(reader);
	}
	close_lease(lease);
	return code;
}

START_TEST(a_table_that_is_kept_after_the_close_is_charged)
{
	int n = 0, code;

	while ((code = create_table_and_keep(n)) == 0 && n < N - 1)
		n++;
	ck_assert_int_eq(code, CODE_LIMIT);
	ck_assert_int_gt(n, 1);
	ck_assert_uint_eq(client_status().retained, n);
	ck_assert_uint_gt(client_status().retained_bytes, (uint64_t)n * PIECES * ARRAYS * NAME);
	client_await(client_used_bytes() == 0);
	for (int i = 0; i < n; i++)
		let_go(i);
	client_await(client_status().retained == 0);
}
END_TEST

/* A buffer that its clients have let go of is free at once: the next one finds its space. */
START_TEST(an_honest_cycle_finds_its_memory_at_once)
{
	struct gpushm_array_spec spec = { .struct_size = sizeof(spec),
					  .name = "a",
					  .dtype = { .code = 1, .bits = 8, .lanes = 1 } };
	struct gpushm_buffer *b, *reader = NULL;

	for (int i = 0; i < 200; i++) {
		b = client_create("x", 40 * MIB, NULL);
		ck_assert_int_eq(gpushm_describe(b, &spec, 1), 0);
		ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
		ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &reader), 0);
		ck_assert_int_eq(gpushm_close(b), 0);
		ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
		ck_assert_int_eq(gpushm_close(reader), 0);
		ck_assert_uint_eq(client_status().retained, 0);
	}
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("retained");

	if (!user_may_change())
		return 0;
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, memory_that_is_kept_after_the_close_is_charged, 0, WAYS);
	tcase_add_test(t, a_table_that_is_kept_after_the_close_is_charged);
	tcase_add_test(t, an_honest_cycle_finds_its_memory_at_once);
	return suite_run("retained", t, NULL);
}
