/* SPDX-License-Identifier: MIT
 *
 * A process lets go of a buffer's memory and comes back, on every pool of the machine: the
 * addresses stay, nothing can use them meanwhile, and the daemon knows who is away.
 */
#include "client/gpushm_memory.h"
#include "client/gpushm_query.h"
#include "client/gpushm_stream.h"
#include "proto/base/own.h"
#include "proto/kind.h"
#include "tests/lib/client.h"
#include "tests/lib/fake.h"
#include "tests/lib/forked.h"
#include "tests/lib/kept.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MIB ((uint64_t)1 << 20)
#define BYTES (2 * MIB + 4096)
#define THREADS 4
#define ROUNDS 50

static struct gpushm_pool **pools;
static size_t n_pools;

static void find_pools(void)
{
	ck_assert_msg(gpushm_pools(c, &pools, &n_pools) == 0, "%s", gpushm_error());
}

static void setup(void)
{
	client_setup();
	find_pools();
}

static void teardown(void)
{
	pools = gpushm_free(pools);
	client_teardown();
}

static void setup_kept(void)
{
	kept_setup();
	find_pools();
}

static void teardown_kept(void)
{
	pools = gpushm_free(pools);
	kept_teardown();
}

static bool is_suspendable(const struct gpushm_pool *p)
{
	return !p->failed && !kind_opens_pool(p->kind);
}

static unsigned char pattern(uint64_t i)
{
	return (unsigned char)(i * 59 + (i >> 10) + 3);
}

static struct gpushm_buffer *make(const char *pool, enum gpushm_state state)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	int64_t n = BYTES;
	struct gpushm_array_spec spec = { .struct_size = sizeof(spec), .ndim = 1, .shape = &n };
	struct gpushm_buffer *b = NULL;
	_cleanup_(free_ptr) unsigned char *bytes = malloc(BYTES);

	for (uint64_t i = 0; i < BYTES; i++)
		bytes[i] = pattern(i);
	ck_assert_int_eq(gpushm_dtype_parse("uint8", &spec.dtype), 0);
	ck_assert_msg(gpushm_create_arrays(c, "~/b", &spec, 1, &o, &b) == 0, "%s: %s", pool,
		      gpushm_error());
	ck_assert_msg(gpushm_write(b, 0, bytes, BYTES) == 0, "%s", gpushm_error());
	if (state)
		ck_assert_msg(gpushm_publish(b, state) == 0, "%s", gpushm_error());
	return b;
}

static void bytes_are_there(const struct gpushm_buffer *b)
{
	_cleanup_(free_ptr) unsigned char *bytes = malloc(BYTES);
	uint64_t wrong = 0;

	ck_assert_msg(gpushm_read(b, 0, bytes, BYTES) == 0, "%s", gpushm_error());
	for (uint64_t i = 0; i < BYTES; i++)
		wrong += bytes[i] != pattern(i);
	ck_assert_uint_eq(wrong, 0);
}

static struct gpushm_buffer *open_it(enum gpushm_access access, uint32_t flags)
{
	struct gpushm_open_options o = { .struct_size = sizeof(o), .flags = flags };
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(gpushm_open(c, "~/b", access, 1000, &o, &b) == 0, "%s", gpushm_error());
	return b;
}

static void done(struct gpushm_buffer *b)
{
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "~/b"), 0);
}

static uint64_t away(void)
{
	struct gpushm_stat *st = NULL;
	uint64_t n, of_holders = 0;

	ck_assert_msg(gpushm_stat(c, "~/b", 0, GPUSHM_HOLDERS, &st) == 0, "%s", gpushm_error());
	n = st->away;
	for (size_t i = 0; i < st->n_holders; i++)
		of_holders += st->holders[i]->away;
	ck_assert_uint_eq(of_holders, n);
	gpushm_free(st);
	return n;
}

static void suspend(struct gpushm_buffer *b)
{
	ck_assert_msg(gpushm_suspend(b, 0) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_buffer_suspended(b), 1);
}

static void resume(struct gpushm_buffer *b)
{
	ck_assert_msg(gpushm_resume(b, 10000) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_buffer_suspended(b), 0);
}

#define ck_refuses(call, error, text)                                              \
	do {                                                                       \
		ck_assert_int_eq((call), -(error));                                \
		ck_assert_msg(strstr(gpushm_error(), text), "%s", gpushm_error()); \
	} while (0)

/* ---- one process ---- */

static void comes_back(const char *pool)
{
	struct gpushm_buffer *b = make(pool, GPUSHM_SEALED);
	void *device = gpushm_buffer_device_ptr(b), *host = gpushm_buffer_host_ptr(b);

	for (int i = 0; i < 3; i++) {
		suspend(b);
		ck_assert_uint_eq(away(), 1);
		suspend(b); /* a second one changes nothing */
		ck_assert_uint_eq(away(), 1);
		resume(b);
		resume(b);
		ck_assert_uint_eq(away(), 0);
		ck_assert_ptr_eq(gpushm_buffer_device_ptr(b), device);
		ck_assert_ptr_eq(gpushm_buffer_host_ptr(b), host);
		bytes_are_there(b);
	}
	done(b);
}

START_TEST(a_buffer_comes_back_at_its_addresses)
{
	for (size_t i = 0; i < n_pools; i++)
		if (is_suspendable(pools[i]))
			comes_back(pools[i]->name);
}
END_TEST

static void refuses_meanwhile(const char *pool)
{
	struct gpushm_buffer *b = make(pool, GPUSHM_SHARED);
	struct gpushm_array *a = NULL;
	unsigned char byte = 0;
	void *tensor;

	ck_assert_int_eq(gpushm_array_get(b, "", &a), 0);
	suspend(b);
	ck_assert_ptr_null(gpushm_buffer_host_ptr(b));
	ck_assert_ptr_null(gpushm_array_host_ptr(a));
	ck_assert_ptr_null(gpushm_array_device_ptr(a));
	ck_refuses(gpushm_read(b, 0, &byte, 1), EBUSY, "gpushm_resume()");
	ck_refuses(gpushm_write(b, 0, &byte, 1), EBUSY, "gpushm_resume()");
	ck_refuses(gpushm_array_to_dlpack(a, &tensor), EBUSY, "gpushm_resume()");
	ck_assert_uint_eq(gpushm_buffer_arrays(b), 1); /* what needs no memory works */
	resume(b);
	bytes_are_there(b);
	gpushm_array_free(a);
	done(b);
}

START_TEST(nothing_uses_the_memory_of_a_suspended_buffer)
{
	for (size_t i = 0; i < n_pools; i++)
		if (is_suspendable(pools[i]))
			refuses_meanwhile(pools[i]->name);
}
END_TEST

static int touch(void *at)
{
	return *(volatile unsigned char *)at == pattern(0);
}

START_TEST(a_touch_of_suspended_host_memory_ends_the_process)
{
	struct gpushm_buffer *b = make("host", GPUSHM_SEALED);
	void *at = gpushm_buffer_host_ptr(b);

	ck_assert_int_eq(forked(touch, at), 1);
	suspend(b);
	ck_assert_int_eq(forked(touch, at), -SIGSEGV);
	resume(b);
	ck_assert_int_eq(forked(touch, at), 1);
	done(b);
}
END_TEST

START_TEST(a_buffer_that_is_open_twice_stays_mapped_for_the_other)
{
	for (size_t i = 0; i < n_pools; i++) {
		struct gpushm_buffer *b, *other;

		if (!is_suspendable(pools[i]))
			continue;
		b = make(pools[i]->name, GPUSHM_SEALED);
		other = open_it(GPUSHM_READ, 0);
		suspend(b);
		bytes_are_there(other);
		suspend(other);
		ck_assert_uint_eq(away(), 2);
		resume(b);
		bytes_are_there(b);
		ck_refuses(gpushm_read(other, 0, &(char){ 0 }, 1), EBUSY, "suspended");
		ck_assert_int_eq(gpushm_close(b), 0);
		b = open_it(GPUSHM_READ, 0); /* the first use of addresses that were kept */
		bytes_are_there(b);
		ck_assert_int_eq(gpushm_close(other), 0);
		bytes_are_there(b);
		done(b);
	}
}
END_TEST

START_TEST(a_suspended_buffer_can_be_closed_and_unlinked)
{
	for (size_t i = 0; i < n_pools; i++) {
		struct gpushm_buffer *b;

		if (!is_suspendable(pools[i]))
			continue;
		b = make(pools[i]->name, GPUSHM_SHARED);
		suspend(b);
		ck_assert_int_eq(gpushm_unlink(c, "~/b"), 0);
		resume(b); /* its lease has kept it */
		bytes_are_there(b);
		suspend(b);
		ck_assert_int_eq(gpushm_close(b), 0);
	}
}
END_TEST

START_TEST(what_cannot_be_suspended_is_refused_and_goes_on)
{
	struct gpushm_buffer *b = make("host", 0), *copy;
	struct gpushm_stream *s = NULL;
	int64_t n = 4096;
	struct gpushm_array_spec frame = { .struct_size = sizeof(frame), .ndim = 1, .shape = &n };
	struct gpushm_stream_spec spec = { .struct_size = sizeof(spec),
					   .arrays = &frame,
					   .n_arrays = 1 };
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "host" };

	ck_refuses(gpushm_suspend(NULL, 0), EINVAL, "buffer");
	ck_refuses(gpushm_resume(NULL, 0), EINVAL, "buffer");
	ck_refuses(gpushm_suspend(b, 0), EBUSY, "publish it first");
	ck_refuses(gpushm_suspend(b, 1u << 31), EINVAL, "flag");
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	copy = open_it(GPUSHM_READ, GPUSHM_COPY_ON_WRITE);
	ck_refuses(gpushm_suspend(copy, 0), ENOTSUP, "copy-on-write");
	bytes_are_there(copy);
	ck_assert_int_eq(gpushm_close(copy), 0);
	done(b);

	ck_assert_int_eq(gpushm_dtype_parse("uint8", &frame.dtype), 0);
	ck_assert_msg(gpushm_stream_create(c, "~/s", &spec, &o, &s) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_open(c, "~/s", GPUSHM_READ, 1000, NULL, &b), 0);
	ck_refuses(gpushm_suspend(b, 0), ENOTSUP, "stream");
	ck_assert_int_eq(gpushm_buffer_suspended(b), 0);
	ck_assert_ptr_nonnull(gpushm_buffer_host_ptr(b));
	ck_assert_int_eq(gpushm_close(b), 0);
	gpushm_stream_close(s);
}
END_TEST

START_TEST(a_mempool_is_refused)
{
	for (size_t i = 0; i < n_pools; i++) {
		struct gpushm_buffer *b;

		if (pools[i]->failed || !kind_opens_pool(pools[i]->kind))
			continue;
		b = make(pools[i]->name, GPUSHM_SEALED);
		ck_refuses(gpushm_suspend(b, 0), ENOTSUP, "vmm");
		bytes_are_there(b);
		done(b);
	}
}
END_TEST

/* ---- threads ---- */

static void *suspend_and_resume(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		int r = gpushm_suspend(arg, 0);

		ck_assert_msg(r == 0 || r == -EBUSY, "%s", gpushm_error());
		ck_assert_msg(gpushm_resume(arg, 10000) == 0, "%s", gpushm_error());
	}
	return NULL;
}

static void *copy_out(void *arg)
{
	_cleanup_(free_ptr) unsigned char *bytes = malloc(BYTES);

	for (int i = 0; i < ROUNDS; i++) {
		int r = gpushm_read(arg, 0, bytes, BYTES);

		ck_assert_msg(r == 0 || r == -EBUSY, "%s", gpushm_error());
		if (r == 0)
			ck_assert_uint_eq(bytes[BYTES - 1], pattern(BYTES - 1));
	}
	return NULL;
}

START_TEST(threads_suspend_and_copy_at_the_same_time)
{
	struct gpushm_buffer *b = make("host", GPUSHM_SHARED), *other = open_it(GPUSHM_READ, 0);
	pthread_t threads[THREADS * 2];

	for (int i = 0; i < THREADS; i++) {
		pthread_create(&threads[2 * i], NULL, suspend_and_resume, i % 2 ? b : other);
		pthread_create(&threads[2 * i + 1], NULL, copy_out, i % 2 ? b : other);
	}
	for (int i = 0; i < THREADS * 2; i++)
		pthread_join(threads[i], NULL);
	bytes_are_there(b);
	bytes_are_there(other);
	ck_assert_uint_eq(away(), 0);
	ck_assert_int_eq(gpushm_close(other), 0);
	done(b);
}
END_TEST

/* ---- what fails ---- */

START_TEST(a_resume_without_a_free_fd_fails_and_can_be_repeated)
{
	struct gpushm_buffer *b = make("host", GPUSHM_SEALED);
	struct rlimit before, none;
	int next = dup(0);

	suspend(b);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = (rlim_t)next;
	close_fd(&next);
	while ((next = dup(0)) >= 0 && (rlim_t)next < none.rlim_cur)
		;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	ck_refuses(gpushm_resume(b, 1000), EMFILE, "file descriptors");
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	close_fd(&next);
	ck_assert_int_eq(gpushm_buffer_suspended(b), 1);
	resume(b);
	bytes_are_there(b);
	done(b);
}
END_TEST

/* The role's driver fails at the second cuMemMap. */
static int unlucky_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;
	unsigned char byte;
	int first;

	if (gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_open(conn, "~/b", GPUSHM_READ, 10000, NULL, &b) < 0 || gpushm_suspend(b, 0) < 0)
		return 1;
	first = gpushm_resume(b, 1000);
	printf("%d %d %s\n", first, gpushm_buffer_suspended(b), gpushm_error());
	if (getchar() == EOF || gpushm_resume(b, 1000) < 0 || gpushm_read(b, 7, &byte, 1) < 0 ||
	    byte != pattern(7) || gpushm_close(b) < 0)
		return fprintf(stderr, "%s\n", gpushm_error()), 1;
	gpushm_disconnect(conn);
	return 0;
}

START_TEST(a_resume_that_the_driver_refuses_leaves_the_buffer_away)
{
	const char *args[] = { d.socket, NULL };
	struct role_process p;
	struct gpushm_buffer *b;
	char line[256];

	for (size_t i = 0; i < n_pools; i++) {
		if (!is_suspendable(pools[i]) || !kind_of(pools[i]->kind)->by_driver)
			continue;
		if (!fake_is_here())
			return;
		b = make(pools[i]->name, GPUSHM_SEALED);
		setenv("FAKECUDA_FAIL", "2:cuMemMap", 1);
		role_start(&p, "unlucky", args);
		unsetenv("FAKECUDA_FAIL");
		role_read_line(&p, line, sizeof(line));
		ck_assert_msg(strstr(line, "cuMemMap") && strstr(line, " 1 "), "%s", line);
		ck_assert_uint_eq(away(), 1);
		role_write_line(&p, "again");
		role_finish(&p);
		done(b);
	}
}
END_TEST

/* socket: opens for writing, suspends, says so and waits for its end. */
static int away_role(char **args)
{
	struct gpushm *conn = NULL;
	struct gpushm_buffer *b = NULL;

	if (gpushm_connect(args[0], &conn) < 0 ||
	    gpushm_open(conn, "~/b", GPUSHM_WRITE, 10000, NULL, &b) < 0 || gpushm_suspend(b, 0) < 0)
		return 1;
	puts("away");
	return getchar() == EOF ? 0 : 1;
}

START_TEST(a_writer_that_dies_while_it_is_away_leaves_no_dirty_buffer)
{
	struct gpushm_buffer *b = make("host", GPUSHM_SHARED);
	const char *args[] = { d.socket, NULL };
	struct role_process p;
	char line[16];

	role_start(&p, "away", args);
	role_read_line(&p, line, sizeof(line));
	ck_assert_str_eq(line, "away");
	ck_assert_uint_eq(away(), 1);
	kill(p.pid, SIGKILL);
	role_wait(&p);
	client_await(away() == 0);
	ck_assert_int_eq(gpushm_buffer_dirty(b), 0);
	done(b);
}
END_TEST

/* ---- the daemon dies ---- */

START_TEST(the_next_daemon_knows_who_is_away)
{
	for (size_t i = 0; i < n_pools; i++) {
		struct gpushm_buffer *b;

		if (!is_suspendable(pools[i]))
			continue;
		b = make(pools[i]->name, GPUSHM_SEALED);
		suspend(b);
		kept_crash();
		ck_assert_uint_eq(away(), 1);
		resume(b);
		bytes_are_there(b);
		kept_crash();
		ck_assert_uint_eq(away(), 0);
		suspend(b);
		resume(b);
		bytes_are_there(b);
		done(b);
	}
}
END_TEST

int main(int argc, char **argv)
{
	static const struct role roles[] = { { "unlucky", unlucky_role }, { "away", away_role } };
	TCase *t = tcase_create("suspend"), *kept = tcase_create("restart");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_buffer_comes_back_at_its_addresses);
	tcase_add_test(t, nothing_uses_the_memory_of_a_suspended_buffer);
	tcase_add_test(t, a_touch_of_suspended_host_memory_ends_the_process);
	tcase_add_test(t, a_buffer_that_is_open_twice_stays_mapped_for_the_other);
	tcase_add_test(t, a_suspended_buffer_can_be_closed_and_unlinked);
	tcase_add_test(t, what_cannot_be_suspended_is_refused_and_goes_on);
	tcase_add_test(t, a_mempool_is_refused);
	tcase_add_test(t, threads_suspend_and_copy_at_the_same_time);
	tcase_add_test(t, a_resume_without_a_free_fd_fails_and_can_be_repeated);
	tcase_add_test(t, a_resume_that_the_driver_refuses_leaves_the_buffer_away);
	tcase_add_test(t, a_writer_that_dies_while_it_is_away_leaves_no_dirty_buffer);
	tcase_add_checked_fixture(kept, setup_kept, teardown_kept);
	tcase_set_timeout(kept, 120);
	tcase_add_test(kept, the_next_daemon_knows_who_is_away);
	return suite_run("suspend", t, kept, NULL);
}
