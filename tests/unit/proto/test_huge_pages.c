/* SPDX-License-Identifier: MIT
 *
 * Huge pages of a memfd: what is there stays, and where there can be none the memory is as before.
 * A kernel that has none shows that alone.
 */
#include "proto/base/huge_pages.h"
#include "proto/base/own.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define BYTES (4 * HUGE_PAGE + 4096)

static int fd = -1;
static char *room, *memory;
static struct huge_pages pages;

static void map_at(char *at)
{
	memory = mmap(at, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	ck_assert_ptr_eq(memory, at);
	huge_pages_init(&pages, memory, BYTES, fd);
}

static void set_up(void)
{
	fd = memfd_create("memory", MFD_CLOEXEC);
	ck_assert(fd >= 0 && ftruncate(fd, BYTES) == 0);
	room = mmap(NULL, BYTES + 2 * HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(room, MAP_FAILED);
	room += -(uintptr_t)room % HUGE_PAGE;
	map_at(room);
}

static void tear_down(void)
{
	munmap(memory, BYTES);
	close_fd(&fd);
}

static uint64_t allocated(void)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* Whether this machine has huge pages. */
static bool has_pages(void)
{
	bool has = huge_pages_make(&pages, memory, HUGE_PAGE);

	ck_assert(has || pages.off);
	return has && !pages.off;
}

START_TEST(pages_are_there_that_hold_the_bytes)
{
	if (!has_pages())
		return;
	ck_assert_uint_eq(allocated(), HUGE_PAGE);
	if (huge_pages_make(&pages, memory + HUGE_PAGE / 2 * 3, HUGE_PAGE))
		ck_assert_uint_eq(allocated(), 3 * HUGE_PAGE);
	ck_assert(!huge_pages_make(&pages, memory + 3 * HUGE_PAGE, HUGE_PAGE - 1));
	ck_assert_uint_le(allocated(), 3 * HUGE_PAGE);
}
END_TEST

START_TEST(what_was_written_before_stays)
{
	memory[3] = 1;
	memory[HUGE_PAGE - 1] = 2;
	memory[HUGE_PAGE] = 3;
	huge_pages_make(&pages, memory, 2 * HUGE_PAGE);
	ck_assert(memory[3] == 1 && memory[HUGE_PAGE - 1] == 2 && memory[HUGE_PAGE] == 3);
	ck_assert(memory[0] == 0 && memory[2 * HUGE_PAGE - 1] == 0);
}
END_TEST

START_TEST(the_end_of_the_memory_has_small_pages)
{
	ck_assert(!huge_pages_make(&pages, memory + 3 * HUGE_PAGE + 1, HUGE_PAGE));
	ck_assert_uint_eq(allocated(), 0);
	ck_assert(!pages.off);
}
END_TEST

START_TEST(memory_that_has_its_pages_keeps_them)
{
	ck_assert_int_eq(fallocate(fd, 0, 0, BYTES), 0);
	huge_pages_init(&pages, memory, BYTES, fd);
	ck_assert(!huge_pages_make(&pages, memory, HUGE_PAGE));
}
END_TEST

START_TEST(another_address_has_none)
{
	munmap(memory, BYTES);
	map_at(room + 4096);
	ck_assert(!huge_pages_make(&pages, memory, HUGE_PAGE));
	ck_assert_uint_eq(allocated(), 0);
}
END_TEST

START_TEST(it_does_not_try_again_where_it_failed)
{
	ck_assert_int_eq(mprotect(memory, BYTES, PROT_READ), 0);
	ck_assert(!huge_pages_make(&pages, memory, HUGE_PAGE));
	ck_assert_int_eq(mprotect(memory, BYTES, PROT_READ | PROT_WRITE), 0);
	ck_assert(!huge_pages_make(&pages, memory, HUGE_PAGE));
	ck_assert_uint_eq(allocated(), 0);
}
END_TEST

/* As if another thread were in it: the kernel keeps a page that somebody else refers to. */
START_TEST(a_page_that_is_in_use_is_left_out)
{
	struct iovec part = { .iov_len = 4096 };
	int ends[2];

	if (!has_pages())
		return;
	tear_down();
	set_up();
	ck_assert_int_eq(pipe(ends), 0);
	part.iov_base = memory;
	memory[0] = 1;
	ck_assert_int_eq(vmsplice(ends[1], &part, 1, 0), 4096);
	ck_assert(!huge_pages_make(&pages, memory, HUGE_PAGE));
	close(ends[0]);
	close(ends[1]);
	ck_assert(!pages.off);
	ck_assert(huge_pages_make(&pages, memory + HUGE_PAGE, HUGE_PAGE));
	ck_assert(huge_pages_make(&pages, memory, HUGE_PAGE));
	ck_assert(memory[0] == 1);
}
END_TEST

/* The edges of their parts are in the middle of pages. */
static void *write_parts(void *arg)
{
	for (size_t at = HUGE_PAGE / 2 + (size_t)(uintptr_t)arg; at < 3 * HUGE_PAGE;
	     at += 2 * HUGE_PAGE) {
		huge_pages_make(&pages, memory + at, HUGE_PAGE);
		memset(memory + at, 3, HUGE_PAGE);
	}
	return NULL;
}

START_TEST(threads_that_meet_in_a_page_lose_nothing)
{
	size_t wrong = 0;

	for (int i = 0; i < 20; i++) {
		pthread_t other;

		ck_assert_int_eq(pthread_create(&other, NULL, write_parts, (void *)HUGE_PAGE), 0);
		write_parts(NULL);
		pthread_join(other, NULL);
		for (size_t at = HUGE_PAGE / 2; at < HUGE_PAGE / 2 * 7; at++)
			wrong += memory[at] != 3;
		ck_assert_uint_eq(wrong, 0);
		tear_down();
		set_up();
	}
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("huge_pages");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, pages_are_there_that_hold_the_bytes);
	tcase_add_test(t, what_was_written_before_stays);
	tcase_add_test(t, the_end_of_the_memory_has_small_pages);
	tcase_add_test(t, memory_that_has_its_pages_keeps_them);
	tcase_add_test(t, another_address_has_none);
	tcase_add_test(t, it_does_not_try_again_where_it_failed);
	tcase_add_test(t, a_page_that_is_in_use_is_left_out);
	tcase_add_test(t, threads_that_meet_in_a_page_lose_nothing);
	return suite_run("huge_pages", t, NULL);
}
