/* SPDX-License-Identifier: MIT
 *
 * The status page as a client has it: what a client may do there, and which cell belongs to which
 * buffer.
 */
#include "proto/base/own.h"
#include "proto/status_page.h"
#include "tests/lib/client.h"
#include "tests/lib/forked.h"
#include "tests/lib/raw.h"
#include "tests/lib/suite.h"
#include "tests/lib/user.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

#define STRANGER 65529

static uint32_t flags(const struct gpushm_buffer *b)
{
	return gpushm_buffer_notice(b) & STATUS_PAGE_FLAGS;
}

static struct gpushm_buffer *shared(const char *name)
{
	struct gpushm_buffer *b = client_create(name, 100, NULL);

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	return b;
}

START_TEST(each_of_a_thousand_buffers_has_its_status)
{
	enum { N = 1000 };
	static struct gpushm_buffer *all[N];
	char name[16];

	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "x%d", i);
		all[i] = shared(name);
	}
	for (int i = 0; i < N; i += 7) {
		snprintf(name, sizeof(name), "x%d", i);
		ck_assert_int_eq(gpushm_unlink(c, name), 0);
	}
	for (int i = 0; i < N; i++) {
		ck_assert_uint_eq(flags(all[i]),
				  GPUSHM_NOTICE_SHARED | (i % 7 ? 0 : GPUSHM_NOTICE_UNLINKED));
		snprintf(name, sizeof(name), "x%d", i);
		ck_assert_int_eq(gpushm_close(all[i]), 0);
		if (i % 7)
			ck_assert_int_eq(gpushm_unlink(c, name), 0);
	}
}
END_TEST

/* Sends HELLO with a request for the status page; its fd stays in the frame. */
static const struct status_page_layout *greet(struct raw *r)
{
	const struct status_page_layout *map;

	raw_connect(r, d.socket);
	ck_assert_int_eq(raw_call(r, REQUEST(HELLO, Hello, hello, SET(version_min, 1),
					     SET(version_max, 1), SET(board, 1))),
			 0);
	ck_assert(r->reply->hello->board_fd);
	map = mmap(NULL, STATUS_PAGE_BYTES, PROT_READ, MAP_SHARED, r->frame.fds[0], 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	ck_assert_uint_eq(map->magic, STATUS_PAGE_MAGIC);
	return map;
}

static int reopen_as_a_stranger(void *arg)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", *(int *)arg);
	if (!user_become(STRANGER, STRANGER))
		return 1;
	return open(path, O_RDWR) < 0 && errno == EACCES ? 0 : 2;
}

START_TEST(the_status_page_is_read_only_for_clients)
{
	struct raw r;
	struct status_page_layout *map = (struct status_page_layout *)greet(&r);
	int fd = r.frame.fds[0];

	ck_assert_int_eq(mprotect(map, STATUS_PAGE_BYTES, PROT_READ | PROT_WRITE), -1);
	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	ck_assert_int_eq(ftruncate(fd, 0), -1);
	if (user_may_change())
		ck_assert_int_eq(forked(reopen_as_a_stranger, &fd), 0);
	munmap(map, STATUS_PAGE_BYTES);
	raw_close(&r);
}
END_TEST

START_TEST(a_cell_stays_with_its_buffer_while_it_is_held)
{
	struct raw r;
	const struct status_page_layout *map = greet(&r);
	struct gpushm_buffer *b = shared("x"), *others[20];
	const struct status_page_cell *cell;
	char name[16];

	raw_open(&r, "x");
	cell = &map->cells[r.reply->attach->slot];
	ck_assert_uint_eq(cell->id, gpushm_buffer_id(b));
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	for (size_t i = 0; i < array_size(others); i++) {
		snprintf(name, sizeof(name), "y%zu", i);
		others[i] = shared(name);
		ck_assert_uint_eq(cell->word & STATUS_PAGE_FLAGS,
				  STATUS_PAGE_SHARED | STATUS_PAGE_UNLINKED);
	}
	ck_assert_int_eq(raw_call(&r, REQUEST(CLOSE, Close, close, SET(lease, 1))), /* no lease */
			 CODE_NO_LEASE);
	raw_close(&r);
	/* Its process lives, so its lease does: the lease above. */
	ck_assert_uint_eq(cell->word & STATUS_PAGE_FLAGS,
			  STATUS_PAGE_SHARED | STATUS_PAGE_UNLINKED);
	for (size_t i = 0; i < array_size(others); i++) {
		snprintf(name, sizeof(name), "y%zu", i);
		client_close_and_unlink(others[i], name);
	}
	munmap((void *)map, STATUS_PAGE_BYTES);
	daemon_crash(&d);
	gpushm_disconnect(c);
	daemon_restart(&d);
	ck_assert_int_eq(gpushm_connect(d.socket, &c), 0);
}
END_TEST

START_TEST(a_cell_is_reused_after_its_buffer_ends)
{
	struct raw r;
	const struct status_page_layout *map = greet(&r);
	uint64_t id;
	uint32_t cell;
	uint64_t lease = raw_create(&r, "x", 10);

	id = r.reply->attach->buffer;
	cell = r.reply->attach->slot;
	ck_assert_int_eq(raw_call(&r, REQUEST(CLOSE, Close, close, SET(lease, lease))), 0);
	ck_assert_uint_eq(status_page_read(&map->cells[cell], id) & STATUS_PAGE_FLAGS,
			  STATUS_PAGE_GONE);
	lease = raw_create(&r, "x", 10);
	ck_assert_uint_eq(r.reply->attach->slot, cell);
	ck_assert_uint_eq(status_page_read(&map->cells[cell], id), STATUS_PAGE_GONE);
	ck_assert_uint_eq(status_page_read(&map->cells[cell], r.reply->attach->buffer) &
				  STATUS_PAGE_FLAGS,
			  0);
	ck_assert_int_eq(raw_call(&r, REQUEST(CLOSE, Close, close, SET(lease, lease))), 0);
	ck_assert_uint_eq(map->used, cell + 1);
	munmap((void *)map, STATUS_PAGE_BYTES);
	raw_close(&r);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("status_cells");

	tcase_add_checked_fixture(t, client_setup, client_teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, each_of_a_thousand_buffers_has_its_status);
	tcase_add_test(t, the_status_page_is_read_only_for_clients);
	tcase_add_test(t, a_cell_stays_with_its_buffer_while_it_is_held);
	tcase_add_test(t, a_cell_is_reused_after_its_buffer_ends);
	return suite_run("status_cells", t, NULL);
}
