/* SPDX-License-Identifier: MIT
 *
 * The number and the names of the fds that a daemon's supervisor has: each fd once, as long as it
 * is needed, over any number of daemons; and a journal that does not grow with what is freed.
 */
#include "client/gpushm.h"
#include "proto/base/own.h"
#include "tests/lib/kept.h"
#include "tests/lib/result.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define POOLS_MAX 64

/* Makes one buffer on each pool, with the pool's name as its name and contents. */
static size_t make_on_each(struct gpushm_buffer **all)
{
	_cleanup_(free_result) struct gpushm_pool **pools = NULL;
	size_t n = 0, made = 0;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n), 0);
	for (size_t i = 0; i < n; i++) {
		struct gpushm_create_options o = { .struct_size = sizeof(o),
						   .pool = pools[i]->name };

		if (pools[i]->failed)
			continue;
		all[made] = client_create(pools[i]->name, sizeof(pools[i]->name), &o);
		ck_assert_int_eq(gpushm_write(all[made], 0, pools[i]->name, sizeof(pools[i]->name)),
				 0);
		ck_assert_int_eq(gpushm_publish(all[made++], GPUSHM_SEALED), 0);
	}
	return made;
}

static void check_and_close(struct gpushm_buffer **all, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const char *name = gpushm_buffer_name(all[i]);
		char text[64];

		ck_assert_msg(gpushm_wait(c, name, 0) == 0, "%s", gpushm_error());
		ck_assert_int_eq(gpushm_read(all[i], 0, text, sizeof(text)), 0);
		ck_assert_str_eq(text, name);
		client_close_and_unlink(all[i], text);
	}
}

/* A mempool that several daemons inherit remains one fd. */
START_TEST(each_fd_is_stored_only_once)
{
	struct gpushm_buffer *all[POOLS_MAX];
	size_t n = make_on_each(all);

	for (int i = 0; i < 3; i++)
		kept_crash();
	supervisor_count(&k, 'p');
	for (size_t i = 0; i < k.n_kept; i++)
		for (size_t j = 0; j < i; j++)
			ck_assert_str_ne(k.kept[i].name, k.kept[j].name);
	check_and_close(all, n);
}
END_TEST

/* A supervisor drops all fds of a name: here it has two of each pool, memory and table. */
START_TEST(dropping_a_duplicate_fd_keeps_the_one_that_is_used)
{
	struct gpushm_buffer *all[POOLS_MAX];
	size_t n = make_on_each(all), kept;

	supervisor_end(&k, SIGKILL);
	supervisor_count(&k, 'm');
	kept = k.n_kept;
	for (size_t i = 0; i < kept; i++) {
		/* The list may move when it grows. */
		struct kept one = k.kept[i];

		if (strchr("pmt", one.name[0]))
			supervisor_keep(&k, one.name, fcntl(one.fd, F_DUPFD_CLOEXEC, 0));
	}
	supervisor_start(&k);
	kept_crash();
	check_and_close(all, n);
}
END_TEST

static bool is_writable(const char *fd)
{
	char path[288], line[64];
	unsigned flags = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%s", k.pid, fd);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f) && sscanf(line, "flags: %o", &flags) != 1)
		;
	if (f)
		fclose(f);
	return (flags & O_ACCMODE) != O_RDONLY;
}

/* Counts the daemon's fds of host buffers, and those that are open for writing. */
static void count_memory(unsigned *ret_fds, unsigned *ret_writable)
{
	char path[64], target[64];
	struct dirent *e;
	DIR *dir;

	*ret_fds = *ret_writable = 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", k.pid);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	while ((e = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), e->d_name, target, sizeof(target) - 1);

		target[n < 0 ? 0 : n] = '\0';
		if (strncmp(target, "/memfd:gpushm:", strlen("/memfd:gpushm:")) != 0)
			continue;
		++*ret_fds;
		*ret_writable += is_writable(e->d_name);
	}
	closedir(dir);
}

/* Also across the daemon's death. */
START_TEST(only_a_shared_buffer_keeps_a_descriptor_for_writing)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "host" };
	struct gpushm_buffer *sealed = client_create("sealed", 10, &o);
	struct gpushm_buffer *shared = client_create("shared", 10, &o), *writer = NULL;
	unsigned fds, writable;

	ck_assert_int_eq(gpushm_publish(sealed, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_publish(shared, GPUSHM_SHARED), 0);
	for (int i = 0; i < 3; i++) {
		count_memory(&fds, &writable);
		ck_assert_uint_eq(fds, 3);
		ck_assert_uint_eq(writable, 1);
		ck_assert_uint_eq(supervisor_count(&k, 'm'), 2);
		kept_crash();
		ck_assert_msg(gpushm_open(c, "shared", GPUSHM_WRITE, 0, NULL, &writer) == 0, "%s",
			      gpushm_error());
		ck_assert_int_eq(gpushm_close(writer), 0);
	}
	client_close_and_unlink(sealed, "sealed");
	client_close_and_unlink(shared, "shared");
}
END_TEST

/* The error of a full pool must name its holders like this. */
static void expect_told(uint64_t bytes, const char *held)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "host" };
	struct gpushm_buffer *b = NULL;
	char text[64];

	snprintf(text, sizeof(text), "held in it by uid %u: %s", geteuid(), held);
	ck_assert_int_lt(gpushm_create(c, "more", bytes, &o, &b), 0);
	ck_assert_str_eq(gpushm_error_code(), "POOL_FULL");
	ck_assert_msg(strstr(gpushm_error(), text), "%s", gpushm_error());
}

START_TEST(the_sum_that_a_user_holds_of_a_pool_is_right)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "host" };
	struct gpushm_buffer *first, *second;
	FILE *f;

	supervisor_end(&k, SIGKILL);
	f = fopen(k.config, "we");
	ck_assert(f && fputs("[pool host]\nkind=host\nsize=1M\n", f) >= 0 && fclose(f) == 0);
	supervisor_start(&k);
	first = client_create("first", 512 << 10, &o);
	ck_assert_int_eq(gpushm_publish(first, GPUSHM_SEALED), 0);
	expect_told(768 << 10, "512.0 KiB");
	kept_crash();
	expect_told(768 << 10, "512.0 KiB");
	second = client_create("second", 256 << 10, &o);
	expect_told(512 << 10, "768.0 KiB");
	client_close_and_unlink(first, "first");
	expect_told(800 << 10, "256.0 KiB");
	ck_assert_int_eq(gpushm_discard(second), 0);
}
END_TEST

START_TEST(a_journal_of_mostly_obsolete_entries_is_rewritten)
{
	struct gpushm_buffer *b = client_create("x", 10, NULL), *r = NULL;

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	for (int i = 0; i < 9000; i++) {
		ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &r), 0);
		ck_assert_int_eq(gpushm_close(r), 0);
	}
	/* Once a second the daemon checks whether most of its journal is obsolete. */
	client_await(supervisor_generation(&k) > 1);
	/* The new journal is stored before the old one is dropped. */
	client_await(supervisor_count(&k, 'j') == 1);
	supervisor_end(&k, SIGKILL);
	supervisor_start(&k);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
}
END_TEST

START_TEST(two_thousand_buffers_survive_a_killed_daemon)
{
	enum { N = 2000 };
	static struct gpushm_buffer *all[N];
	char name[32];
	unsigned got;

	for (unsigned i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "many/%u", i);
		all[i] = client_create(name, 4, NULL);
		ck_assert_int_eq(gpushm_write(all[i], 0, &i, 4), 0);
		ck_assert_int_eq(gpushm_publish(all[i], GPUSHM_SHARED), 0);
	}
	supervisor_end(&k, SIGKILL);
	supervisor_start(&k);
	for (unsigned i = 0; i < N; i++) {
		struct gpushm_buffer *b = NULL;

		snprintf(name, sizeof(name), "many/%u", i);
		ck_assert_msg(gpushm_open(c, name, GPUSHM_READ, 0, NULL, &b) == 0, "%s",
			      gpushm_error());
		ck_assert_int_eq(gpushm_read(b, 0, &got, 4), 0);
		ck_assert_uint_eq(got, i);
		ck_assert_int_eq(gpushm_close(b), 0);
		ck_assert_int_eq(gpushm_close(all[i]), 0);
		ck_assert_int_eq(gpushm_unlink(c, name), 0);
	}
}
END_TEST

/* A close that waited for the daemon would take an hour. */
START_TEST(only_the_first_close_waits_for_a_daemon_that_has_gone)
{
	struct gpushm_buffer *first = client_create("first", 10, NULL);
	struct gpushm_buffer *second = client_create("second", 10, NULL);
	const char *had = getenv("GPUSHM_RECONNECT_MS");
	_cleanup_(free_ptr) char *before = had ? strdup(had) : NULL;

	ck_assert_int_eq(gpushm_publish(first, GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_publish(second, GPUSHM_SHARED), 0);
	supervisor_end(&k, SIGKILL);
	setenv("GPUSHM_RECONNECT_MS", "20", 1);
	ck_assert_int_eq(gpushm_close(first), 0);
	setenv("GPUSHM_RECONNECT_MS", "3600000", 1);
	ck_assert_int_eq(gpushm_close(second), 0);
	supervisor_start(&k);
	/* The daemon learns of both closes with the next request. */
	ck_assert_int_eq(gpushm_unlink(c, "first"), 0);
	ck_assert_int_eq(gpushm_unlink(c, "second"), 0);
	if (before)
		setenv("GPUSHM_RECONNECT_MS", before, 1);
	else
		unsetenv("GPUSHM_RECONNECT_MS");
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("fdstore");

	tcase_add_checked_fixture(t, kept_setup, kept_teardown);
	tcase_set_timeout(t, 120);
	if (!supervisor_skips("each_fd_is_stored_only_once"))
		tcase_add_test(t, each_fd_is_stored_only_once);
	if (!supervisor_skips("dropping_a_duplicate_fd_keeps_the_one_that_is_used"))
		tcase_add_test(t, dropping_a_duplicate_fd_keeps_the_one_that_is_used);
	tcase_add_test(t, only_a_shared_buffer_keeps_a_descriptor_for_writing);
	tcase_add_test(t, the_sum_that_a_user_holds_of_a_pool_is_right);
	if (!supervisor_skips("a_journal_of_mostly_obsolete_entries_is_rewritten"))
		tcase_add_test(t, a_journal_of_mostly_obsolete_entries_is_rewritten);
	tcase_add_test(t, two_thousand_buffers_survive_a_killed_daemon);
	tcase_add_test(t, only_the_first_close_waits_for_a_daemon_that_has_gone);
	return suite_run("fdstore", t, NULL);
}
