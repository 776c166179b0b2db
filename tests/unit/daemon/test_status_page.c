/* SPDX-License-Identifier: MIT
 *
 * The status page, as seen by its writer and by a reader that has only the read-only fd.
 */
#include "daemon/catalog/status_page.h"
#include "proto/base/own.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static struct status_page b;
static struct status_page_layout *seen; /* what a client has mapped */

static void setup(void)
{
	fds_mark();
	ck_assert_int_eq(status_page_new(&b), 0);
	seen = mmap(NULL, STATUS_PAGE_BYTES, PROT_READ, MAP_SHARED, b.fd_read_only, 0);
	ck_assert_ptr_ne(seen, MAP_FAILED);
}

static void teardown(void)
{
	munmap(seen, STATUS_PAGE_BYTES);
	status_page_done(&b);
	fds_check();
}

static uint32_t word_of(uint32_t cell, uint64_t id)
{
	return status_page_read(&seen->cells[cell], id);
}

START_TEST(a_reader_can_not_change_the_status_page)
{
	int fd = b.fd_read_only;

	ck_assert_ptr_eq(mmap(NULL, STATUS_PAGE_BYTES, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	ck_assert_int_eq(mprotect(seen, STATUS_PAGE_BYTES, PROT_READ | PROT_WRITE), -1);
	ck_assert_int_eq(ftruncate(fd, 4096), -1);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	/* The writer can't shrink it either: no reader gets a SIGBUS. */
	ck_assert_int_eq(ftruncate(b.fd, 4096), -1);
}
END_TEST

START_TEST(a_word_reads_as_it_was_written)
{
	uint32_t cell = status_page_take(&b, 7), before = word_of(cell, 7), after;

	ck_assert_uint_eq(before & STATUS_PAGE_FLAGS, 0);
	status_page_write(&b, cell, STATUS_PAGE_SHARED | STATUS_PAGE_DIRTY);
	after = word_of(cell, 7);
	ck_assert_uint_eq(after & STATUS_PAGE_FLAGS, STATUS_PAGE_SHARED | STATUS_PAGE_DIRTY);
	ck_assert_uint_eq(after - STATUS_PAGE_CHANGE,
			  before | STATUS_PAGE_SHARED | STATUS_PAGE_DIRTY);
	status_page_write(&b, cell, STATUS_PAGE_SHARED | STATUS_PAGE_DIRTY);
	ck_assert_uint_ne(word_of(cell, 7), after);
	status_page_write(&b, STATUS_PAGE_NONE, STATUS_PAGE_DIRTY);
	status_page_give(&b, cell);
	ck_assert_uint_eq(word_of(cell, 7) & STATUS_PAGE_FLAGS, STATUS_PAGE_GONE);
}
END_TEST

START_TEST(a_word_of_a_reused_cell_reads_as_gone)
{
	uint32_t cell = status_page_take(&b, 7), ours = word_of(cell, 7), again;

	status_page_give(&b, cell);
	again = status_page_take(&b, 8);
	ck_assert_uint_eq(again, cell);
	ck_assert_uint_eq(word_of(cell, 7), STATUS_PAGE_GONE);
	ck_assert_uint_eq(word_of(cell, 8) & STATUS_PAGE_FLAGS, 0);
	ck_assert_uint_ne(word_of(cell, 8), ours);
	status_page_give(&b, again);
}
END_TEST

START_TEST(a_count_that_overflows_leaves_the_flags_alone)
{
	uint32_t cell = status_page_take(&b, 7);

	atomic_store(&b.map->cells[cell].word, ~0u);
	status_page_write(&b, cell, STATUS_PAGE_SEALED);
	ck_assert_uint_eq(word_of(cell, 7), STATUS_PAGE_SEALED);
	status_page_give(&b, cell);
}
END_TEST

START_TEST(each_of_many_buffers_has_a_cell_of_its_own)
{
	enum { N = 20000 };
	static uint32_t cells[N];

	for (uint32_t i = 0; i < N; i++) {
		cells[i] = status_page_take(&b, 1000 + i);
		ck_assert_uint_lt(cells[i], STATUS_PAGE_CELLS);
		status_page_write(&b, cells[i], i % 2 ? STATUS_PAGE_SEALED : STATUS_PAGE_SHARED);
	}
	ck_assert_uint_eq(status_page_used(&b), N);
	for (uint32_t i = 0; i < N; i++) {
		ck_assert_uint_eq(word_of(cells[i], 1000 + i) & STATUS_PAGE_FLAGS,
				  i % 2 ? STATUS_PAGE_SEALED : STATUS_PAGE_SHARED);
		status_page_give(&b, cells[i]);
	}
	/* No cell is lost: as many buffers again get them. */
	for (uint32_t i = 0; i < N; i++)
		cells[i] = status_page_take(&b, 1000 + N + i);
	ck_assert_uint_eq(status_page_used(&b), N);
	for (uint32_t i = 0; i < N; i++)
		status_page_give(&b, cells[i]);
}
END_TEST

START_TEST(a_full_page_gives_no_cell)
{
	uint32_t cell;

	atomic_store(&b.map->used, STATUS_PAGE_CELLS - 1);
	cell = status_page_take(&b, 7);
	ck_assert_uint_eq(cell, STATUS_PAGE_CELLS - 1);
	ck_assert_uint_eq(status_page_take(&b, 8), STATUS_PAGE_NONE);
	status_page_give(&b, cell);
	ck_assert_uint_eq(status_page_take(&b, 8), cell);
	status_page_give(&b, cell);
	status_page_give(&b, STATUS_PAGE_NONE);
}
END_TEST

/* ---- waiting ---- */

struct sleeper {
	const _Atomic uint32_t *word;
	uint32_t value;
	_Atomic int tid;
};

static void *sleep_on(void *arg)
{
	struct sleeper *s = arg;

	atomic_store(&s->tid, (int)syscall(SYS_gettid));
	while (atomic_load(s->word) == s->value)
		syscall(SYS_futex, s->word, FUTEX_WAIT, s->value, NULL, NULL, 0);
	return NULL;
}

static char state_of(int tid)
{
	char path[64], state = '?';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%*d (%*[^)]) %c", &state), 1);
	fclose(f);
	return state;
}

static void await_sleep(struct sleeper *s)
{
	while (atomic_load(&s->tid) == 0 || state_of(atomic_load(&s->tid)) != 'S')
		poll(NULL, 0, 1);
}

START_TEST(a_change_wakes_its_readers)
{
	uint32_t cell = status_page_take(&b, 7);
	struct sleeper all[3] = { { &seen->cells[cell].word, word_of(cell, 7), 0 },
				  { &seen->cells[cell].word, word_of(cell, 7), 0 },
				  { &seen->generation, seen->generation, 0 } };
	pthread_t threads[3];

	for (size_t i = 0; i < array_size(all); i++)
		pthread_create(&threads[i], NULL, sleep_on, &all[i]);
	for (size_t i = 0; i < array_size(all); i++)
		await_sleep(&all[i]);
	status_page_write(&b, cell, STATUS_PAGE_SEALED);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	status_page_begin(&b);
	pthread_join(threads[2], NULL);
	status_page_give(&b, cell);
}
END_TEST

/* ---- the next daemon ---- */

START_TEST(the_next_daemon_takes_over_the_status_page)
{
	struct status_page next = STATUS_PAGE_CLOSED;
	uint32_t first = status_page_take(&b, 7), second = status_page_take(&b, 8), word;
	int fd = fcntl(b.fd, F_DUPFD_CLOEXEC, 3);

	status_page_write(&b, second, STATUS_PAGE_SEALED);
	word = word_of(second, 8);
	ck_assert_int_eq(status_page_adopt(&fd, &next), 0);
	ck_assert_int_eq(fd, -1);
	ck_assert_uint_eq(status_page_used(&next), 2);
	ck_assert_uint_eq(status_page_id(&next, first), 7);
	ck_assert_uint_eq(status_page_id(&next, second), 8);
	ck_assert_uint_eq(word_of(second, 8), word);
	status_page_begin(&next);
	ck_assert_uint_eq(seen->generation, 1);
	/* A reader of the old mapping sees what the new daemon writes. */
	status_page_write(&next, second, STATUS_PAGE_DIRTY);
	ck_assert_uint_eq(word_of(second, 8) & STATUS_PAGE_FLAGS, STATUS_PAGE_DIRTY);
	/* A cell without a buffer is given again. */
	status_page_give(&next, first);
	ck_assert_uint_eq(status_page_take(&next, 9), first);
	status_page_done(&next);
}
END_TEST

START_TEST(a_file_that_is_no_status_page_is_refused)
{
	struct status_page other = STATUS_PAGE_CLOSED;
	int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_eq(status_page_adopt(&fd, &other), -EBADMSG);
	ck_assert_int_eq(ftruncate(fd, STATUS_PAGE_BYTES), 0);
	ck_assert_int_eq(status_page_adopt(&fd, &other), -EBADMSG);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW), 0);
	ck_assert_int_eq(status_page_adopt(&fd, &other), -EBADMSG);
	ck_assert_int_ge(fd, 0);
	close_fd(&fd);
	fd = fcntl(b.fd, F_DUPFD_CLOEXEC, 3);
	b.map->version++;
	ck_assert_int_eq(status_page_adopt(&fd, &other), -EPROTONOSUPPORT);
	b.map->version--;
	b.map->used = STATUS_PAGE_CELLS + 1;
	ck_assert_int_eq(status_page_adopt(&fd, &other), -EBADMSG);
	b.map->used = 0;
	close_fd(&fd);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("status_page");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_reader_can_not_change_the_status_page);
	tcase_add_test(t, a_word_reads_as_it_was_written);
	tcase_add_test(t, a_word_of_a_reused_cell_reads_as_gone);
	tcase_add_test(t, a_count_that_overflows_leaves_the_flags_alone);
	tcase_add_test(t, each_of_many_buffers_has_a_cell_of_its_own);
	tcase_add_test(t, a_full_page_gives_no_cell);
	tcase_add_test(t, a_change_wakes_its_readers);
	tcase_add_test(t, the_next_daemon_takes_over_the_status_page);
	tcase_add_test(t, a_file_that_is_no_status_page_is_refused);
	return suite_run("status_page", t, NULL);
}
