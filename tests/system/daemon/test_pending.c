/* SPDX-License-Identifier: MIT
 *
 * What other programs on a GPU get of the memory that a pool has freed. The other program is a
 * second daemon on the same fake GPU.
 */
#include "tests/lib/client.h"
#include "tests/lib/fake.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define ONE "[pool gpu0]\nkind=vmm\n"
#define MEMPOOL "[pool m]\nkind=mempool\nmax-pool-share=100%\n"

static struct daemon second;
static struct gpushm *other; /* a client of `second` */
static char state[48];

/* A GPU of 1 GiB, which both daemons may use. */
static void setup(const char *config)
{
	snprintf(state, sizeof(state), "gpushm-test-pending-%d", getpid());
	setenv("FAKECUDA_STATE", state, 1);
	setenv("FAKECUDA_MEMORY", "1G", 1);
	client_setup_with(config);
	daemon_start(&second, ONE, NULL);
	ck_assert_int_eq(gpushm_connect(second.socket, &other), 0);
}

static void teardown(void)
{
	other = gpushm_disconnect(other);
	daemon_stop(&second);
	client_teardown();
	shm_unlink(state);
}

/* Whether another program can allocate that much now. */
static bool other_gets(uint64_t bytes)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "gpu0" };
	struct gpushm_buffer *b = NULL;
	int r = gpushm_create(other, "theirs", bytes, &o, &b);

	ck_assert_msg(r == 0 || r == -ENOSPC, "%s", gpushm_error());
	if (r == 0) {
		ck_assert_int_eq(gpushm_discard(b), 0);
		ck_assert_int_eq(gpushm_flush(other, NULL), 0);
	}
	return r == 0;
}

static void make_and_free(uint64_t bytes)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "gpu0" };
	struct gpushm_buffer *b = client_create("mine", bytes, &o);

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	client_close_and_unlink(b, "mine");
}

/* 192 MiB are less than a fifth of the GPU. */
START_TEST(another_program_gets_a_large_freed_buffers_memory_soon)
{
	if (!fake_is_here())
		return;
	setup(ONE "pending-max-age=3600\n");
	make_and_free(192 * MIB);
	client_await(other_gets(960 * MIB));
	teardown();
}
END_TEST

START_TEST(a_freed_buffer_ages_out_while_small_ones_are_made)
{
	if (!fake_is_here())
		return;
	setup(ONE "pending-max-age=1\n");
	make_and_free(48 * MIB);
	ck_assert(!other_gets(1000 * MIB));
	while (!other_gets(1000 * MIB))
		make_and_free(2 * MIB);
	teardown();
}
END_TEST

/* The driver gives nothing of an exported mempool back: it must be made anew. */
START_TEST(an_empty_mempool_gives_its_memory_to_other_programs)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "m" };
	struct gpushm *client = NULL;
	struct gpushm_buffer *b = NULL;

	if (!fake_is_here())
		return;
	setup(MEMPOOL "pending-max-age=1\n");
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(gpushm_connect(d.socket, &client), 0);
		ck_assert_msg(gpushm_create(client, "mine", 800 * MIB, &o, &b) == 0, "%s",
			      gpushm_error());
		ck_assert(!other_gets(900 * MIB));
		ck_assert_int_eq(gpushm_discard(b), 0);
		gpushm_disconnect(client);
		client_await(other_gets(900 * MIB));
	}
	ck_assert_uint_eq(daemon_log_count(&d, "went back to GPU 0"), 2);
	teardown();
}
END_TEST

START_TEST(a_flush_gives_back_an_empty_mempools_memory)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "m" };
	struct gpushm *client = NULL;
	struct gpushm_buffer *b = NULL;

	if (!fake_is_here())
		return;
	setup(MEMPOOL "pending-max-age=3600\n" ONE);
	ck_assert_int_eq(gpushm_connect(d.socket, &client), 0);
	ck_assert_int_eq(gpushm_create(client, "mine", 800 * MIB, &o, &b), 0);
	ck_assert_int_eq(gpushm_discard(b), 0);
	gpushm_disconnect(client);
	o.pool = "gpu0";
	ck_assert_int_eq(gpushm_create(c, "mine", 900 * MIB, &o, &b), -ENOSPC);
	ck_assert_msg(strstr(gpushm_error(), "(m: 800.0 MiB, "), "%s", gpushm_error());
	ck_assert_int_eq(gpushm_flush(c, NULL), 0);
	client_await(other_gets(900 * MIB));
	teardown();
}
END_TEST

START_TEST(a_mempool_that_a_client_has_is_kept)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "m" };
	struct gpushm_buffer *b = NULL;
	struct gpushm_pool **pools;
	struct timespec pause = { .tv_sec = 1 };
	size_t n;

	if (!fake_is_here())
		return;
	setup(MEMPOOL "pending-max-age=1\n");
	b = client_create("mine", 800 * MIB, &o);
	ck_assert_int_eq(gpushm_discard(b), 0);
	/* Time for the fault to show: the daemon looks each second. */
	for (int i = 0; i < 4; i++)
		nanosleep(&pause, NULL);
	ck_assert_uint_eq(daemon_log_count(&d, "went back to GPU 0"), 0);
	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	ck_assert_uint_eq(n, 1);
	gpushm_free(pools);
	b = client_create("mine", 800 * MIB, &o);
	ck_assert_int_eq(gpushm_discard(b), 0);
	teardown();
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("pending");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, another_program_gets_a_large_freed_buffers_memory_soon);
	tcase_add_test(t, a_freed_buffer_ages_out_while_small_ones_are_made);
	tcase_add_test(t, an_empty_mempool_gives_its_memory_to_other_programs);
	tcase_add_test(t, a_flush_gives_back_an_empty_mempools_memory);
	tcase_add_test(t, a_mempool_that_a_client_has_is_kept);
	return suite_run("pending", t, NULL);
}
