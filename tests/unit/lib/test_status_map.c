/* SPDX-License-Identifier: MIT
 *
 * The status page as a daemon sends it, correct or not: what is mapped, and what is read from it.
 */
#include "client/gpushm.h"
#include "client/lib/link/status_map.h"
#include "daemon/catalog/status_page.h"
#include "proto/base/own.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

static struct status_page b;
static struct status_map *pages;

static void setup(void)
{
	fds_mark();
	ck_assert_int_eq(status_page_new(&b), 0);
}

static void teardown(void)
{
	status_map_free(pages);
	pages = NULL;
	status_page_done(&b);
	fds_check();
}

static void refused(int fd, const char *words)
{
	ck_assert_int_eq(status_map_add(fd, geteuid(), &pages), -EPROTO);
	ck_assert_msg(strstr(gpushm_error(), words), "%s", gpushm_error());
	ck_assert_ptr_null(pages);
}

START_TEST(another_file_is_refused_as_a_status_page)
{
	_cleanup_(close_fd) int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	_cleanup_(close_fd) int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	refused(null, "size");
	refused(fd, "size");
	ck_assert_int_eq(ftruncate(fd, STATUS_PAGE_BYTES), 0);
	refused(fd, "not sealed");
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	refused(fd, "magic");
	b.map->version++;
	refused(b.fd_read_only, "magic");
	b.map->version--;
	ck_assert_int_eq(status_map_add(b.fd_read_only, geteuid() + 1, &pages), -EPROTO);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "belongs to uid"));
	ck_assert_int_eq(status_map_add(b.fd_read_only, geteuid(), &pages), 0);
}
END_TEST

START_TEST(a_status_page_is_mapped_once_over_reconnections)
{
	struct status_page next = STATUS_PAGE_CLOSED;
	struct status_map *first;

	ck_assert_int_eq(status_map_add(b.fd_read_only, geteuid(), &pages), 0);
	first = pages;
	ck_assert_int_eq(status_map_add(b.fd_read_only, geteuid(), &pages), 0);
	ck_assert_ptr_eq(pages, first);
	/* Another page comes first; this one stays, because a thread may be reading it. */
	ck_assert_int_eq(status_page_new(&next), 0);
	ck_assert_int_eq(status_map_add(next.fd_read_only, geteuid(), &pages), 0);
	ck_assert_ptr_ne(pages, first);
	ck_assert_ptr_eq(pages->next, first);
	ck_assert_uint_eq(first->page->magic, STATUS_PAGE_MAGIC);
	status_page_done(&next);
}
END_TEST

START_TEST(a_cell_beyond_the_page_is_null)
{
	ck_assert_ptr_null(status_map_cell(NULL, 0));
	ck_assert_int_eq(status_map_add(b.fd_read_only, geteuid(), &pages), 0);
	ck_assert_ptr_null(status_map_cell(pages, STATUS_PAGE_CELLS));
	ck_assert_ptr_null(status_map_cell(pages, STATUS_PAGE_NONE));
	/* The last cell is on the page. */
	ck_assert_uint_eq(status_page_read(status_map_cell(pages, STATUS_PAGE_CELLS - 1), 7),
			  STATUS_PAGE_GONE);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("status map");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, another_file_is_refused_as_a_status_page);
	tcase_add_test(t, a_status_page_is_mapped_once_over_reconnections);
	tcase_add_test(t, a_cell_beyond_the_page_is_null);
	return suite_run("status map", t, NULL);
}
