/* SPDX-License-Identifier: MIT
 *
 * The board as it comes from a daemon, lawful or not: what is mapped, and what is read of it.
 */
#include "client/gpushm.h"
#include "client/link/status_map.h"
#include "daemon/catalog/status_page.h"
#include "proto/base/own.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

static struct status_page b;
static struct notice_board *boards;

static void setup(void)
{
	fds_mark();
	ck_assert_int_eq(status_page_new(&b), 0);
}

static void teardown(void)
{
	notice_unmap(boards);
	boards = NULL;
	status_page_done(&b);
	fds_check();
}

static void refused(int fd, const char *words)
{
	ck_assert_int_eq(notice_map(fd, geteuid(), &boards), -EPROTO);
	ck_assert_msg(strstr(gpushm_error(), words), "%s", gpushm_error());
	ck_assert_ptr_null(boards);
}

START_TEST(something_else_is_mapped_as_a_board)
{
	_cleanup_(close_fd) int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	_cleanup_(close_fd) int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	refused(null, "size");
	refused(fd, "size");
	ck_assert_int_eq(ftruncate(fd, STATUS_PAGE_BYTES), 0);
	refused(fd, "not sealed");
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	refused(fd, "none");
	b.map->version++;
	refused(b.fd_read_only, "none");
	b.map->version--;
	ck_assert_int_eq(notice_map(b.fd_read_only, geteuid() + 1, &boards), -EPROTO);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "belongs to uid"));
	ck_assert_int_eq(notice_map(b.fd_read_only, geteuid(), &boards), 0);
}
END_TEST

START_TEST(a_board_is_mapped_with_each_reconnection)
{
	struct status_page next = STATUS_PAGE_CLOSED;
	struct notice_board *first;

	ck_assert_int_eq(notice_map(b.fd_read_only, geteuid(), &boards), 0);
	first = boards;
	ck_assert_int_eq(notice_map(b.fd_read_only, geteuid(), &boards), 0);
	ck_assert_ptr_eq(boards, first);
	/* Another one comes before it, and it stays: somebody may be looking at it. */
	ck_assert_int_eq(status_page_new(&next), 0);
	ck_assert_int_eq(notice_map(next.fd_read_only, geteuid(), &boards), 0);
	ck_assert_ptr_ne(boards, first);
	ck_assert_ptr_eq(boards->next, first);
	ck_assert_uint_eq(first->map->magic, STATUS_PAGE_MAGIC);
	status_page_done(&next);
}
END_TEST

START_TEST(a_slot_beyond_the_board_is_read)
{
	ck_assert_ptr_null(notice_slot(NULL, 0));
	ck_assert_int_eq(notice_map(b.fd_read_only, geteuid(), &boards), 0);
	ck_assert_ptr_null(notice_slot(boards, STATUS_PAGE_CELLS));
	ck_assert_ptr_null(notice_slot(boards, STATUS_PAGE_NONE));
	/* The last one is still on it. */
	ck_assert_uint_eq(status_page_read(notice_slot(boards, STATUS_PAGE_CELLS - 1), 7),
			  STATUS_PAGE_GONE);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("status map");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, something_else_is_mapped_as_a_board);
	tcase_add_test(t, a_board_is_mapped_with_each_reconnection);
	tcase_add_test(t, a_slot_beyond_the_board_is_read);
	return suite_run("status map", t, NULL);
}
