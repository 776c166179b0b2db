/* SPDX-License-Identifier: MIT
 *
 * Wrong replies to CREATE and OPEN: numbers that contradict each other, memory of another size,
 * without seals or read-only, and invalid tables. The library must close the lease of a buffer that
 * it can not map, and leave nothing open or mapped.
 */
#include "client/gpushm_array.h"
#include "tests/lib/suite.h"
#include "tests/unit/lib/attach_fixture.h"

static struct gpushm_buffer *b;

static void setup_attach(void)
{
	setup();
	b = NULL;
}

static void no_buffer(void)
{
	attach.has_buffer = false;
}
static void no_lease(void)
{
	attach.has_lease = false;
}
static void size_zero(void)
{
	attach.size_bytes = 0;
}
static void allocated_too_little(void)
{
	attach.allocated_bytes = SIZE - 1;
}
static void allocated_beyond_int64(void)
{
	attach.allocated_bytes = (uint64_t)INT64_MAX + 1;
}
static void state_unknown(void)
{
	attach.state = (Gpushm__Proto__State)4;
}
static void state_absent(void)
{
	attach.has_state = false;
}
static void state_filling(void)
{
	attach.state = GPUSHM__PROTO__STATE__STATE_FILLING;
}
static void access_unknown(void)
{
	attach.access = (Gpushm__Proto__Access)3;
}
static void access_more_than_asked(void)
{
	attach.access = GPUSHM__PROTO__ACCESS__ACCESS_WRITE;
}
static void pool_fd_of_a_host_pool(void)
{
	attach.has_pool_fd = attach.pool_fd = true;
	attach.memory_fd = false;
}
static void table_of_no_bytes(void)
{
	attach.memory_fd = false;
	attach.has_table_fd = attach.table_fd = true;
}

static void (*const spoil[])(void) = {
	no_buffer,	   no_lease,
	size_zero,	   allocated_too_little,
	state_unknown,	   allocated_beyond_int64,
	state_absent,	   state_filling,
	access_unknown,	   access_more_than_asked,
	table_of_no_bytes, pool_fd_of_a_host_pool,
};

START_TEST(an_inconsistent_attach_is_refused)
{
	an_attach(GPUSHM_SHARED, GPUSHM_READ);
	spoil[_i]();
	canned_hello(server);
	reply_attach(memory_fd(ALLOCATED, MEMORY_SEALS), -1);
	connected();
	refuses_for_good(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &b), EPROTO, "makes no sense");
	ck_assert_ptr_null(b);
}
END_TEST

START_TEST(a_writable_attach_of_a_sealed_buffer_is_refused)
{
	an_attach(GPUSHM_SEALED, GPUSHM_WRITE);
	canned_hello(server);
	reply_attach(memory_fd(ALLOCATED, MEMORY_SEALS), -1);
	connected();
	refuses_for_good(gpushm_open(c, "a", GPUSHM_WRITE, 0, NULL, &b), EPROTO, "makes no sense");
}
END_TEST

START_TEST(a_created_buffer_of_another_size_is_refused)
{
	canned_hello(server);
	reply_to_create();
	connected();
	refuses_for_good(gpushm_create(c, "a", SIZE + 1, NULL, &b), EPROTO, "makes no sense");
}
END_TEST

static void reply_without_pools(void)
{
	Gpushm__Proto__PoolsReply none = GPUSHM__PROTO__POOLS_REPLY__INIT;
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;

	reply.result_case = GPUSHM__PROTO__REPLY__RESULT_POOLS;
	reply.pools = &none;
	canned_reply(server, &reply, NULL, 0);
}

START_TEST(a_pool_that_the_daemon_does_not_list_is_refused)
{
	an_attach(GPUSHM_SEALED, GPUSHM_READ);
	attach.pool = 9;
	canned_hello(server);
	reply_attach(memory_fd(ALLOCATED, MEMORY_SEALS), -1);
	reply_without_pools();
	canned_done(server);
	connected();
	ck_assert_int_eq(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &b), -ENODEV);
	says("upgrade");
	c = gpushm_disconnect(c);
	lease_was_ended();
}
END_TEST

/* ---- memory ---- */

static int short_memory(void)
{
	return memory_fd(ALLOCATED - 1, MEMORY_SEALS);
}
static int long_memory(void)
{
	return memory_fd(ALLOCATED + 1, MEMORY_SEALS);
}
static int memory_that_shrinks(void)
{
	return memory_fd(ALLOCATED, F_SEAL_SEAL | F_SEAL_GROW);
}
static int memory_that_grows(void)
{
	return memory_fd(ALLOCATED, F_SEAL_SEAL | F_SEAL_SHRINK);
}
static int memory_of_another_user(void)
{
	int fd = memory_fd(ALLOCATED, MEMORY_SEALS);

	if (fchown(fd, 65533, 65533) < 0) {
		/* Not root: a file that can't be sealed takes its place. */
		close(fd);
		return null_fd();
	}
	return fd;
}
static int read_only_memory(void)
{
	_cleanup_(close_fd) int fd = memory_fd(ALLOCATED, MEMORY_SEALS);

	return read_only(fd);
}
static int no_memory(void)
{
	return null_fd();
}
static int a_pipe(void)
{
	int fds[2];

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	close(fds[0]);
	return fds[1];
}

static const struct {
	int (*make)(void);
	const char *words;
} memories[] = {
	{ short_memory, "size" },
	{ long_memory, "size" },
	{ memory_that_shrinks, "sealed" },
	{ memory_that_grows, "sealed" },
	{ memory_of_another_user, "the memory that the daemon sent" },
	{ read_only_memory, "can't map" },
	{ no_memory, "size" },
	{ a_pipe, "size" },
};

START_TEST(wrong_or_unsealed_memory_is_refused_and_its_lease_ended)
{
	an_attach(GPUSHM_SHARED, GPUSHM_WRITE);
	canned_hello(server);
	reply_attach(memories[_i].make(), -1);
	canned_done(server);
	connected();
	ck_assert_int_eq(gpushm_open(c, "the/name", GPUSHM_WRITE, 0, NULL, &b), -EPROTO);
	says(memories[_i].words);
	says("\"the/name\"");
	ck_assert_ptr_null(b);
	c = gpushm_disconnect(c);
	lease_was_ended();
}
END_TEST

START_TEST(the_lease_of_a_created_buffer_ends_if_it_can_not_be_mapped)
{
	an_attach(GPUSHM_FILLING, GPUSHM_WRITE);
	canned_hello(server);
	reply_attach(short_memory(), -1);
	canned_error(server, 19, "an error of the undoing");
	connected();
	ck_assert_int_eq(gpushm_create(c, "a", SIZE, NULL, &b), -EPROTO);
	says("size");
	ck_assert_str_eq(gpushm_error_code(), "");
	c = gpushm_disconnect(c);
	lease_was_ended();
}
END_TEST

START_TEST(the_memory_of_a_reader_is_read_only)
{
	_cleanup_(close_fd) int memory = memory_fd(ALLOCATED, MEMORY_SEALS);

	canned_hello(server);
	reply_to_open(GPUSHM_SHARED, GPUSHM_READ, read_only(memory));
	canned_done(server);
	connected();
	ck_assert_int_eq(pwrite(memory, "hello", 5, 0), 5);
	ck_assert_msg(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &b) == 0, "%s", gpushm_error());
	ck_assert_mem_eq(gpushm_buffer_host_ptr(b), "hello", 5);
	/* The fd was read-only: the mapping can't be made writable. */
	ck_assert_int_eq(mprotect(gpushm_buffer_host_ptr(b), ALLOCATED, PROT_READ | PROT_WRITE),
			 -1);
	ck_assert_int_eq(gpushm_close(b), 0);
}
END_TEST

/* ---- tables ---- */

static int table_of_another_size(uint64_t *ret_bytes)
{
	uint64_t digest;
	int fd = table_fd(ret_bytes, &digest);

	*ret_bytes += 1;
	return fd;
}
static int table_of_zeroes(uint64_t *ret_bytes)
{
	*ret_bytes = 4096;
	return memory_fd(4096, MEMORY_SEALS | F_SEAL_WRITE);
}
static int large_table_of_zeroes(uint64_t *ret_bytes)
{
	*ret_bytes = 1u << 20;
	return memory_fd(1u << 20, MEMORY_SEALS | F_SEAL_WRITE);
}
static int no_table(uint64_t *ret_bytes)
{
	*ret_bytes = 4096;
	return null_fd();
}

static const struct {
	int (*make)(uint64_t *ret_bytes);
	const char *words;
} tables[] = {
	{ table_of_another_size, "makes no sense" },
	{ table_of_zeroes, "makes no sense" },
	{ large_table_of_zeroes, "makes no sense" },
	{ no_table, "makes no sense" },
};

START_TEST(an_invalid_table_is_refused_and_its_lease_ended)
{
	uint64_t n;
	int table = tables[_i].make(&n);

	an_attach(GPUSHM_SEALED, GPUSHM_READ);
	announce_table(n);
	canned_hello(server);
	reply_attach(memory_fd(ALLOCATED, MEMORY_SEALS), table);
	canned_done(server);
	connected();
	ck_assert_int_eq(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &b), -EPROTO);
	says(tables[_i].words);
	c = gpushm_disconnect(c);
	lease_was_ended();
}
END_TEST

START_TEST(a_buffer_without_a_table_has_no_arrays_or_attributes)
{
	struct gpushm_array *a = NULL;
	const void *value;
	size_t size;

	an_attach(GPUSHM_SEALED, GPUSHM_READ);
	canned_hello(server);
	reply_attach(memory_fd(ALLOCATED, MEMORY_SEALS), -1);
	canned_done(server);
	connected();
	ck_assert_msg(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &b) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(gpushm_buffer_arrays(b), 0);
	ck_assert_int_eq(gpushm_array_get(b, "a", &a), -ENOENT);
	ck_assert_int_eq(gpushm_buffer_attr(b, "a", &value, &size), -ENOENT);
	ck_assert_int_eq(gpushm_close(b), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("attach");

	tcase_add_checked_fixture(tc, setup_attach, teardown);
	tcase_add_loop_test(tc, an_inconsistent_attach_is_refused, 0, (int)array_size(spoil));
	tcase_add_test(tc, a_writable_attach_of_a_sealed_buffer_is_refused);
	tcase_add_test(tc, a_created_buffer_of_another_size_is_refused);
	tcase_add_test(tc, a_pool_that_the_daemon_does_not_list_is_refused);
	tcase_add_loop_test(tc, wrong_or_unsealed_memory_is_refused_and_its_lease_ended, 0,
			    (int)array_size(memories));
	tcase_add_test(tc, the_lease_of_a_created_buffer_ends_if_it_can_not_be_mapped);
	tcase_add_test(tc, the_memory_of_a_reader_is_read_only);
	tcase_add_loop_test(tc, an_invalid_table_is_refused_and_its_lease_ended, 0,
			    (int)array_size(tables));
	tcase_add_test(tc, a_buffer_without_a_table_has_no_arrays_or_attributes);
	return suite_run("attach", tc, NULL);
}
