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
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define ONE "[pool gpu0]\nkind=vmm\n"

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
	struct gpushm_options o = { .struct_size = sizeof(o), .pool = "gpu0" };
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
	struct gpushm_options o = { .struct_size = sizeof(o), .pool = "gpu0" };
	struct gpushm_buffer *b = client_create("mine", bytes, &o);

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	client_close_and_unlink(b, "mine");
}

/* 192 MiB are less than a fifth of the GPU. */
START_TEST(another_program_waits_for_a_large_buffer_that_was_freed)
{
	if (!fake_is_here())
		return;
	setup(ONE);
	make_and_free(192 * MIB);
	/* The pool's worker frees the large one before it makes the small one. */
	make_and_free(2 * MIB);
	ck_assert(other_gets(960 * MIB));
	teardown();
}
END_TEST

START_TEST(a_freed_buffer_stays_while_anybody_makes_small_ones)
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

int main(void)
{
	TCase *t = tcase_create("pending");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, another_program_waits_for_a_large_buffer_that_was_freed);
	tcase_add_test(t, a_freed_buffer_stays_while_anybody_makes_small_ones);
	return suite_run("pending", t, NULL);
}
