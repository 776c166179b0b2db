/* SPDX-License-Identifier: MIT
 *
 * DESCRIBE with wrong arrays, alone and in a batch of good ones; and what a reader could do with
 * the fds that it gets.
 */
#include "proto/base/own.h"
#include "tests/lib/counted.h"
#include "tests/lib/raw.h"
#include "tests/lib/result.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define BATCH 1000
#define BYTES_OF_BUFFER 4096

static struct raw r;

static void setup(void)
{
	counted_setup(CENSUS_CONFIG);
	raw_greet(&r, d.socket);
}

static void teardown(void)
{
	gpushm_unlink(c, "x");
	raw_close(&r);
	counted_teardown();
}

static void close_lease(uint64_t lease)
{
	ck_assert_int_eq(raw_call(&r, REQUEST(CLOSE, Close, close, SET(lease, lease))), 0);
}

static int describe(uint64_t lease, Gpushm__Proto__Array **arrays, size_t n)
{
	return raw_call(&r, REQUEST(DESCRIBE, Describe, describe, SET(lease, lease), .n_arrays = n,
				    .arrays = arrays));
}

static Gpushm__Proto__Dtype f32 = { PROTOBUF_C_MESSAGE_INIT(&gpushm__proto__dtype__descriptor),
				    .has_code = 1, .code = 2, .has_bits = 1, .bits = 32 };

#define DIMS(...)                                                                   \
	.n_shape = array_size(((uint64_t[]){ __VA_ARGS__ })), .shape = (uint64_t[]) \
	{                                                                           \
		__VA_ARGS__                                                         \
	}
#define STRIDES(...)                                                                  \
	.n_strides = array_size(((int64_t[]){ __VA_ARGS__ })), .strides = (int64_t[]) \
	{                                                                             \
		__VA_ARGS__                                                           \
	}
#define DTYPE(...) .dtype = &MESSAGE(Dtype, dtype, __VA_ARGS__)
#define ARRAY(...) &MESSAGE(Array, array, __VA_ARGS__)
#define BAD(...) BYTES(name, "bad"), ##__VA_ARGS__

struct wrong {
	Gpushm__Proto__Array *array;
	enum code code;
};

/* Good arrays and a wrong one in one batch: none is added. */
static void expect_none(uint64_t lease, const struct wrong *w, size_t number)
{
	Gpushm__Proto__Array good[4], *batch[5];
	uint64_t four[] = { 4 };
	char names[4][8];

	for (size_t i = 0; i < 4; i++) {
		snprintf(names[i], sizeof(names[i]), "good%zu", i);
		good[i] = MESSAGE(Array, array, BYTES(name, names[i]), .dtype = &f32, .n_shape = 1,
				  .shape = four);
		batch[i < 2 ? i : i + 1] = &good[i];
	}
	batch[2] = w->array;
	ck_assert_msg(describe(lease, batch, 5) == (int)w->code, "array %zu: %s %s, expected %s",
		      number, code_name(r.code), r.text, code_name(w->code));
	ck_assert_int_eq(describe(lease, NULL, 0), 0);
	ck_assert_uint_eq(r.reply->described->arrays, 0);
}

START_TEST(a_batch_with_an_invalid_array_is_refused_as_a_whole)
{
	static char long_name[257];
	uint64_t lease = raw_create(&r, "x", BYTES_OF_BUFFER), many[33];
	struct wrong all[] = {
		{ ARRAY(BAD()), CODE_DTYPE },
		{ ARRAY(BAD(DTYPE())), CODE_DTYPE },
		{ ARRAY(BAD(DTYPE(SET(code, 3), SET(bits, 64)))), CODE_DTYPE },
		{ ARRAY(BAD(DTYPE(SET(code, 2), SET(bits, 33)))), CODE_DTYPE },
		{ ARRAY(BAD(DTYPE(SET(code, 2)))), CODE_DTYPE },
		{ ARRAY(BAD(DTYPE(SET(code, 258), SET(bits, 32)))), CODE_DTYPE },
		{ ARRAY(BAD(DTYPE(SET(code, 2), SET(bits, 288)))), CODE_DTYPE },
		{ ARRAY(BAD(DTYPE(SET(code, 2), SET(bits, 32), SET(lanes, 0)))), CODE_DTYPE },
		{ ARRAY(BAD(DTYPE(SET(code, 2), SET(bits, 32), SET(lanes, 65537)))), CODE_DTYPE },
		{ ARRAY(BAD(DTYPE(SET(code, 255)))), CODE_DTYPE },
		{ ARRAY(BAD(DTYPE(SET(code, 2), SET(bits, 32), SET(itemsize, 4)))), CODE_DTYPE },
		{ ARRAY(BAD(.dtype = &f32, DIMS(1025))), CODE_LAYOUT },
		{ ARRAY(BAD(.dtype = &f32, DIMS(1024), SET(offset, 4))), CODE_LAYOUT },
		{ ARRAY(BAD(.dtype = &f32, DIMS(1), SET(offset, 4096))), CODE_LAYOUT },
		{ ARRAY(BAD(.dtype = &f32, DIMS(1), SET(offset, UINT64_MAX))), CODE_LAYOUT },
		{ ARRAY(BAD(.dtype = &f32, DIMS(1), SET(offset, UINT64_MAX - 3))), CODE_LAYOUT },
		{ ARRAY(BAD(.dtype = &f32, DIMS(1), SET(offset, 2))), CODE_LAYOUT },
		{ ARRAY(BAD(.dtype = &f32, DIMS(UINT64_MAX))), CODE_LAYOUT },
		{ ARRAY(BAD(.dtype = &f32, DIMS((uint64_t)1 << 62))), CODE_LAYOUT },
		{ ARRAY(BAD(.dtype = &f32, DIMS((uint64_t)1 << 32, (uint64_t)1 << 32))),
		  CODE_LAYOUT },
		{ ARRAY(BAD(.dtype = &f32, DIMS((uint64_t)1 << 63, 2))), CODE_LAYOUT },
		{ ARRAY(BAD(.dtype = &f32, DIMS(2, 2), STRIDES(8))), CODE_LAYOUT },
		{ ARRAY(BAD(.dtype = &f32, DIMS(2), STRIDES(-4))), CODE_LAYOUT },
		{ ARRAY(BAD(.dtype = &f32, DIMS(2), STRIDES(INT64_MIN))), CODE_LAYOUT },
		{ ARRAY(BAD(.dtype = &f32, DIMS(3), STRIDES(INT64_MAX))), CODE_LAYOUT },
		{ ARRAY(BAD(.dtype = &f32, DIMS(2), STRIDES(2))), CODE_LAYOUT },
		{ ARRAY(BAD(.dtype = &f32, .n_shape = 33, .shape = many)), CODE_LAYOUT },
		{ ARRAY(BYTES(name, "good1"), .dtype = &f32, DIMS(1)), CODE_EXISTS },
		{ ARRAY(BYTES(name, "a//b"), .dtype = &f32, DIMS(1)), CODE_NAME },
		{ ARRAY(BYTES(name, "\xff"), .dtype = &f32, DIMS(1)), CODE_NAME },
		{ ARRAY(BYTES(name, long_name), .dtype = &f32, DIMS(1)), CODE_NAME },
	};

	memset(long_name, 'n', 256);
	for (size_t i = 0; i < array_size(many); i++)
		many[i] = 1;
	/* The initialiser has only the name's first byte. */
	all[array_size(all) - 1].array->name.len = 256;
	for (size_t i = 0; i < array_size(all); i++)
		expect_none(lease, &all[i], i);
	/* The names of refused arrays are free again. */
	ck_assert_int_eq(describe(lease,
				  (Gpushm__Proto__Array *[]){
					  ARRAY(BYTES(name, "good0"), .dtype = &f32, DIMS(1024)) },
				  1),
			 0);
	ck_assert_uint_eq(r.reply->described->arrays, 1);
	close_lease(lease);
}
END_TEST

START_TEST(a_buffer_whose_arrays_were_all_refused_has_no_table)
{
	uint64_t lease = raw_create(&r, "x", BYTES_OF_BUFFER);
	struct wrong wrong = { ARRAY(BAD(.dtype = &f32, DIMS(1025))), CODE_LAYOUT };

	expect_none(lease, &wrong, 0);
	raw_publish(&r, lease, GPUSHM__PROTO__STATE__STATE_SEALED);
	raw_open(&r, "x");
	ck_assert(!r.reply->attach->table_fd);
	close_lease(r.reply->attach->lease);
	close_lease(lease);
	ck_assert_int_eq(raw_call(&r, REQUEST(UNLINK, Unlink, unlink, BYTES(name, "x"))), 0);
}
END_TEST

/* Describes the arrays first to first + n, named by their number. */
static int describe_numbered(uint64_t lease, unsigned first, unsigned n)
{
	static Gpushm__Proto__Array arrays[BATCH], *list[BATCH];
	static char names[BATCH][8];

	for (unsigned i = 0; i < n; i++) {
		snprintf(names[i], sizeof(names[i]), "%u", first + i);
		arrays[i] = MESSAGE(Array, array, BYTES(name, names[i]), .dtype = &f32);
		list[i] = &arrays[i];
	}
	return describe(lease, list, n);
}

START_TEST(one_array_more_than_allowed_is_refused)
{
	uint64_t lease = raw_create(&r, "x", BYTES_OF_BUFFER);

	for (unsigned i = 0; i < ARRAYS_MAX; i += BATCH)
		ck_assert_int_eq(describe_numbered(lease, i,
						   ARRAYS_MAX - i < BATCH ? ARRAYS_MAX - i : BATCH),
				 0);
	ck_assert_uint_eq(r.reply->described->arrays, ARRAYS_MAX);
	ck_assert_int_eq(describe_numbered(lease, ARRAYS_MAX, 1), CODE_LIMIT);
	raw_publish(&r, lease, GPUSHM__PROTO__STATE__STATE_SEALED);
	close_lease(lease);
	lease = raw_open(&r, "x");
	ck_assert_uint_eq(r.frame.n_fds, 2);
	close_lease(lease);
}
END_TEST

static void check_sealed(int fd, int seals)
{
	void *map;

	ck_assert_int_eq(fcntl(fd, F_GET_SEALS) & seals, seals);
	ck_assert_int_lt(write(fd, "x", 1), 0);
	ck_assert_int_lt(ftruncate(fd, 0), 0);
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_eq(map, MAP_FAILED);
	map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	ck_assert_int_lt(mprotect(map, 4096, PROT_READ | PROT_WRITE), 0);
	munmap(map, 4096);
}

START_TEST(a_reader_gets_sealed_and_read_only_fds)
{
	uint64_t lease = raw_create(&r, "x", BYTES_OF_BUFFER);
	struct stat st;

	ck_assert_int_eq(describe_numbered(lease, 0, 10), 0);
	raw_publish(&r, lease, GPUSHM__PROTO__STATE__STATE_SEALED);
	close_lease(lease);
	lease = raw_open(&r, "x");
	ck_assert_uint_eq(r.frame.n_fds, 2);
	check_sealed(r.frame.fds[0], F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW);
	check_sealed(r.frame.fds[1], F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(fstat(r.frame.fds[i], &st), 0);
		ck_assert_int_eq(st.st_mode & 07777, 0400);
	}
	close_lease(lease);
}
END_TEST

START_TEST(a_sealed_buffer_refuses_writes_through_an_old_fd)
{
	_cleanup_(close_fd) int fd = -1;
	uint64_t lease = raw_create(&r, "x", BYTES_OF_BUFFER);

	fd = take_fd(&r.frame.fds[0]);
	ck_assert_int_eq(pwrite(fd, "x", 1, 0), 1);
	raw_publish(&r, lease, GPUSHM__PROTO__STATE__STATE_SEALED);
	ck_assert_int_lt(pwrite(fd, "y", 1, 0), 0);
	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	close_lease(lease);
}
END_TEST

static int publish(uint64_t lease, Gpushm__Proto__State state)
{
	return raw_call(&r,
			REQUEST(PUBLISH, Publish, publish, SET(lease, lease), SET(state, state)));
}

/* Later writers could not map it, and would not know why. */
START_TEST(write_sealed_memory_is_refused_as_a_shared_buffer)
{
	static const int seals[] = { F_SEAL_WRITE, F_SEAL_FUTURE_WRITE };

	for (size_t i = 0; i < array_size(seals); i++) {
		_cleanup_(close_fd) int fd = -1;
		uint64_t lease = raw_create(&r, "x", BYTES_OF_BUFFER);

		fd = take_fd(&r.frame.fds[0]);
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals[i]), 0);
		ck_assert_int_eq(publish(lease, GPUSHM__PROTO__STATE__STATE_SHARED), CODE_STATE);
		ck_assert_ptr_nonnull(strstr(r.text, "publish it sealed"));
		/* It is still being filled, and can be published for reading. */
		ck_assert_int_eq(publish(lease, GPUSHM__PROTO__STATE__STATE_SEALED), 0);
		close_lease(lease);
		ck_assert_int_eq(raw_call(&r, REQUEST(UNLINK, Unlink, unlink, BYTES(name, "x"))),
				 0);
	}
}
END_TEST

/* On every pool of the machine; raw_receive() itself compares the count with the fds. */
START_TEST(an_attach_brings_the_fds_that_it_counts)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	Gpushm__Proto__Array *array = ARRAY(BYTES(name, ""), .dtype = &f32);
	uint64_t made, opened;
	size_t n = 0;
	bool whole;

	daemon_start(&d, "", NULL);
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	for (size_t i = 0; i < n; i++) {
		whole = pools[i]->kind == GPUSHM_MEMPOOL;
		raw_greet(&r, d.socket);
		ck_assert_int_eq(raw_call(&r, REQUEST(CREATE, Create, create, BYTES(name, "x"),
						      BYTES(pool, pools[i]->name),
						      SET(size_bytes, 100))),
				 0);
		ck_assert_uint_eq(r.frame.n_fds, 1);
		ck_assert_int_eq(r.reply->attach->pool_fd, whole);
		made = r.reply->attach->lease;
		ck_assert_int_eq(describe(made, &array, 1), 0);
		raw_publish(&r, made, GPUSHM__PROTO__STATE__STATE_SHARED);
		opened = raw_open(&r, "x");
		/* The pool's fd comes only once a connection. */
		ck_assert_uint_eq(r.frame.n_fds, whole ? 1 : 2);
		ck_assert(r.reply->attach->table_fd);
		close_lease(opened);
		close_lease(made);
		ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
		raw_close(&r);
	}
	c = gpushm_disconnect(c);
	daemon_stop(&d);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("layout"), *u = tcase_create("every pool");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_batch_with_an_invalid_array_is_refused_as_a_whole);
	tcase_add_test(t, a_buffer_whose_arrays_were_all_refused_has_no_table);
	tcase_add_test(t, one_array_more_than_allowed_is_refused);
	tcase_add_test(t, a_reader_gets_sealed_and_read_only_fds);
	tcase_add_test(t, a_sealed_buffer_refuses_writes_through_an_old_fd);
	tcase_add_test(t, write_sealed_memory_is_refused_as_a_shared_buffer);
	tcase_set_timeout(u, 120);
	tcase_add_test(u, an_attach_brings_the_fds_that_it_counts);
	return suite_run("layout", t, u, NULL);
}
