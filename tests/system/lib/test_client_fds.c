/* SPDX-License-Identifier: MIT
 *
 * A process that may open no more files: what is refused, and that it keeps what it has.
 */
#include "client/gpushm.h"
#include "client/gpushm_private.h"
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/suite.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static int fds[128];
static size_t n_fds;

/* Opens files until only `left` more can be opened. */
static void fill(size_t left)
{
	const struct rlimit small = { array_size(fds), array_size(fds) };

	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &small), 0);
	while ((fds[n_fds] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		n_fds++;
	while (left-- > 0)
		close_fd(&fds[--n_fds]);
}

static void empty(void)
{
	while (n_fds > 0)
		close_fd(&fds[--n_fds]);
}

static struct gpushm_buffer *open_it(const char *name)
{
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(gpushm_open(c, name, GPUSHM_READ, 0, NULL, &b) == 0, "%s", gpushm_error());
	return b;
}

static uint32_t readers_of(const char *name)
{
	struct gpushm_stat *st = NULL;
	uint32_t n;

	ck_assert_msg(gpushm_stat(c, name, 0, 0, &st) == 0, "%s", gpushm_error());
	n = st->readers;
	gpushm_free(st);
	return n;
}

static void setup(void)
{
	client_setup_with("[pool host]\nkind=host\nsize=64M\n");
}

START_TEST(a_client_without_fds_keeps_its_connection)
{
	const int64_t shape[] = { 10 };
	struct gpushm_array_spec spec = {
		.struct_size = sizeof(spec), .name = "x", .ndim = 1, .shape = shape
	};
	struct gpushm_buffer *a = NULL, *b = NULL, *filling = client_create("filling", 1, NULL);

	gpushm_dtype_parse("int8", &spec.dtype);
	ck_assert_int_eq(gpushm_create_arrays(c, "a", &spec, 1, NULL, &a), 0);
	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SEALED), 0);
	/* An attach brings two fds: the memory's and the table's. */
	for (size_t left = 0; left < 2; left++) {
		fill(left);
		ck_assert_int_eq(gpushm_open(c, "a", GPUSHM_READ, 0, NULL, &b), -EMFILE);
		ck_assert_ptr_nonnull(strstr(gpushm_error(), "ulimit -n"));
		ck_assert_uint_eq(readers_of("a"), 1);
		if (left == 0)
			ck_assert_int_eq(gpushm_create(c, "b", 1, NULL, &b), -EMFILE);
		ck_assert_int_eq(gpushm_wait(c, "b", 0), -ENOENT);
		empty();
	}
	b = open_it("a");
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_msg(gpushm_publish(filling, GPUSHM_SEALED) == 0, "%s", gpushm_error());
	client_close_and_unlink(filling, "filling");
	client_close_and_unlink(a, "a");
}
END_TEST

/* The pool's fd comes only with one reply. */
START_TEST(a_pool_fd_that_could_not_be_received_is_sent_again)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "host" };
	struct gpushm *own = NULL;
	struct gpushm_buffer *b = NULL, *kept;

	if (!dlopen("libcuda.so.1", RTLD_NOW)) {
		printf("skipped: needs a driver\n");
		return;
	}
	kept = client_create("kept", 1, &o);
	ck_assert_int_eq(gpushm_publish(kept, GPUSHM_SHARED), 0);
	o.pool = "gpu0-mempool";
	ck_assert_int_eq(gpushm_connect(d.socket, &own), 0);
	ck_assert_msg(gpushm_create(own, "x", 1, &o, &b) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	fill(0);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL,
				     &(struct gpushm_buffer *){ NULL }),
			 -EMFILE);
	empty();
	ck_assert_int_eq(gpushm_close(b), 0);
	gpushm_disconnect(own);
	b = open_it("x");
	ck_assert(!gpushm_buffer_lost(kept));
	client_close_and_unlink(kept, "kept");
	client_close_and_unlink(b, "x");
}
END_TEST

/* For the loader: written to, and never left open. */
START_TEST(an_fd_of_memory_is_closed_at_publication)
{
	const struct {
		const char *pool;
		uint64_t bytes;
		bool kept;
	} table[] = { { "host", 1 << 20, true },
		      { "host", (1 << 20) - 1, false },
		      { "pinned", 1 << 20, false } };

	for (size_t i = 0; i < array_size(table); i++) {
		struct gpushm_create_options o = { .struct_size = sizeof(o),
						   .pool = table[i].pool };
		struct gpushm_buffer *b = NULL;
		int fd, r = gpushm_create(c, "x", table[i].bytes, &o, &b);

		if (r == -ENODEV || r == -ENOENT)
			continue;
		ck_assert_msg(r == 0, "%s", gpushm_error());
		fd = gpushm_private_memory(b);
		ck_assert_int_eq(fd >= 0, table[i].kept);
		if (table[i].kept)
			ck_assert_int_eq(pwrite(fd, "here", 4, 4096), 4);
		if (table[i].kept)
			ck_assert_mem_eq((char *)gpushm_buffer_host_ptr(b) + 4096, "here", 4);
		ck_assert_msg(gpushm_publish(b, _i ? GPUSHM_SHARED : GPUSHM_SEALED) == 0, "%s",
			      gpushm_error());
		ck_assert_int_eq(gpushm_private_memory(b), -1);
		if (table[i].kept)
			ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
		client_close_and_unlink(b, "x");
	}
}
END_TEST

START_TEST(an_fd_of_discarded_memory_is_closed)
{
	struct gpushm_buffer *b =
		client_create("x", 1 << 20,
			      &(struct gpushm_create_options){
				      .struct_size = sizeof(struct gpushm_create_options),
				      .pool = "host" });
	int fd = gpushm_private_memory(b);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gpushm_discard(b), 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("client fds"), *pools = tcase_create("pools");

	tcase_add_checked_fixture(t, setup, client_teardown);
	tcase_add_loop_test(t, an_fd_of_memory_is_closed_at_publication, 0, 2);
	tcase_add_test(t, an_fd_of_discarded_memory_is_closed);
	tcase_add_test(t, a_client_without_fds_keeps_its_connection);
	tcase_add_checked_fixture(pools, client_setup, client_teardown);
	tcase_add_test(pools, a_pool_fd_that_could_not_be_received_is_sent_again);
	return suite_run("client fds", t, pools, NULL);
}
