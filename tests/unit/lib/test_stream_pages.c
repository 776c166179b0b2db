/* SPDX-License-Identifier: MIT
 *
 * PAGE and JOIN with a server that sends wrong pages: nothing is mapped that does not fit, and no
 * fd is left.
 */
#include "client/lib/stream/pages.h"
#include "tests/lib/suite.h"
#include "tests/unit/lib/buffer_fixture.h"

#define SLOTS 4u
#define READERS 2u
#define SLOT_BYTES 256u /* the buffer has SIZE bytes: 3 slots of them */

static struct order_page page;
static uint64_t generation;

static void begin(void)
{
	setup_buffer();
	page = (struct order_page){ 0 };
	canned_hello(server);
	reply_to_create();
}

static void end(void)
{
	pages_unmap(&page);
	b = (gpushm_close(b), NULL);
	teardown_buffer();
}

static void make_buffer(void)
{
	created(NULL);
}

/* What a daemon sends. */
static void fill(uint32_t number, void *memory)
{
	struct stream_head *h = memory;
	struct stream_group_page *g = memory;
	struct stream_reader_page *r = memory;

	if (number == STREAM_PAGE_HEAD) {
		h->magic = STREAM_HEAD_MAGIC;
		h->version = STREAM_VERSION;
		h->slots = SLOTS;
		h->order_size = stream_order_size(SLOTS);
		h->readers = READERS;
		h->slot_bytes = SLOT_BYTES / 2;
	} else if (number == STREAM_PAGE_GROUP) {
		*g = (struct stream_group_page){ .magic = STREAM_GROUP_MAGIC,
						 .version = STREAM_VERSION,
						 .slots = SLOTS };
	} else {
		*r = (struct stream_reader_page){ .magic = STREAM_READER_MAGIC,
						  .version = STREAM_VERSION,
						  .slots = SLOTS };
	}
}

static uint64_t bytes_of(uint32_t number)
{
	return number == STREAM_PAGE_HEAD    ? stream_head_bytes(SLOTS, READERS)
	       : number == STREAM_PAGE_GROUP ? stream_group_bytes(SLOTS)
					     : stream_reader_bytes(SLOTS);
}

static uint64_t want_bytes(uint32_t number)
{
	return number == STREAM_PAGE_HEAD ? 0 : bytes_of(number);
}

/* Replies with the page `number`, whose memory `change` has changed. */
struct wrong {
	const char *says;
	int number; /* errno */
	uint32_t page;
	void (*change)(void *memory);
	uint64_t more_bytes;   /* than the file has, in the reply */
	uint32_t another_page; /* in the reply */
	int seals;	       /* -1: none */
	int fds;	       /* 0: one */
	int64_t more_pages;    /* of memory in the file, and in the reply */
};

static void send_page(const struct wrong *w)
{
	Gpushm__Proto__PageReply m = GPUSHM__PROTO__PAGE_REPLY__INIT;
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;
	uint64_t size = bytes_of(w->page) + (uint64_t)w->more_pages * 4096;
	int fd = memory_fd(size, w->seals < 0 ? 0 : F_SEAL_SHRINK | F_SEAL_GROW);
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	fill(w->page, memory);
	if (w->change)
		w->change(memory);
	munmap(memory, size);
	m.has_page = m.has_bytes = m.has_generation = m.has_writable = true;
	m.page = w->page + w->another_page;
	m.bytes = size + w->more_bytes;
	m.generation = 7;
	m.writable = true;
	reply.result_case = GPUSHM__PROTO__REPLY__RESULT_PAGE;
	reply.page = &m;
	canned_reply(server, &reply, (int[]){ fd, fd }, w->fds < 0 ? 0 : 1 + (size_t)w->fds);
	close(fd);
}

static const uint32_t right_pages[] = { STREAM_PAGE_HEAD, STREAM_PAGE_GROUP, 9 };

static void wiped(void *memory)
{
	memset(memory, 0, sizeof(struct stream_group_page));
}

START_TEST(a_right_page_is_mapped)
{
	send_page(&(struct wrong){ .page = right_pages[_i] });
	canned_done(server);
	make_buffer();
	ck_assert_msg(pages_map(b, right_pages[_i], want_bytes(right_pages[_i]), 0, &page,
				&generation) == 0,
		      "%s", gpushm_error());
	ck_assert_uint_eq(page.bytes, bytes_of(right_pages[_i]));
	ck_assert(page.writable);
	ck_assert_uint_eq(page.address, 0);
	ck_assert_uint_eq(generation, 7);
}
END_TEST

static void wrong_magic(void *memory)
{
	*(uint64_t *)memory ^= 1;
}

static void wrong_version(void *memory)
{
	((struct stream_head *)memory)->version++;
}

static void wrong_slots(void *memory)
{
	((struct stream_head *)memory)->slots++;
}

static void no_slots(void *memory)
{
	((struct stream_head *)memory)->slots = 0;
}

static void wrong_order(void *memory)
{
	((struct stream_head *)memory)->order_size *= 2;
}

static void many_readers(void *memory)
{
	((struct stream_head *)memory)->readers = STREAM_READERS_MAX + 1;
}

static void no_readers(void *memory)
{
	((struct stream_head *)memory)->readers = 0;
}

static void large_slots(void *memory)
{
	((struct stream_head *)memory)->slot_bytes = SLOT_BYTES;
}

static void overflowing_slots(void *memory)
{
	((struct stream_head *)memory)->slot_bytes = UINT64_MAX / 2;
}

static const struct wrong wrongs[] = {
	{ "it is no head", EPROTO, STREAM_PAGE_HEAD, .change = wrong_magic },
	{ "upgrade the older one", EPROTONOSUPPORT, STREAM_PAGE_HEAD, .change = wrong_version },
	{ "slots", EPROTO, STREAM_PAGE_HEAD, .change = wrong_slots },
	{ "slots", EPROTO, STREAM_PAGE_HEAD, .change = no_slots },
	{ "slots", EPROTO, STREAM_PAGE_HEAD, .change = wrong_order },
	{ "readers", EPROTO, STREAM_PAGE_HEAD, .change = many_readers },
	{ "readers", EPROTO, STREAM_PAGE_HEAD, .change = no_readers },
	{ "larger than the buffer", EPROTO, STREAM_PAGE_HEAD, .change = large_slots },
	{ "larger than the buffer", EPROTO, STREAM_PAGE_HEAD, .change = overflowing_slots },
	{ "the stream's page", EPROTO, STREAM_PAGE_HEAD, .more_bytes = 8 },
	{ "another page", EPROTO, STREAM_PAGE_HEAD, .more_bytes = UINT32_MAX },
	{ "another page", EPROTO, STREAM_PAGE_HEAD, .another_page = 1 },
	{ "its size", EPROTO, STREAM_PAGE_GROUP, .more_pages = 1 },
	{ "its size", EPROTO, 9, .more_pages = 1 },
	{ "the stream's page", EPROTO, STREAM_PAGE_HEAD, .seals = -1 },
	{ "other file descriptors", EPROTO, STREAM_PAGE_HEAD, .fds = -1 },
	{ "other file descriptors", EPROTO, STREAM_PAGE_HEAD, .fds = 1 },
};

/* Readers may write them before others map them. */
START_TEST(a_wiped_page_of_readers_is_mapped)
{
	uint32_t number = _i ? 9 : STREAM_PAGE_GROUP;

	send_page(&(struct wrong){ .page = number, .change = wiped });
	canned_done(server);
	make_buffer();
	ck_assert_msg(pages_map(b, number, want_bytes(number), 0, &page, &generation) == 0, "%s",
		      gpushm_error());
}
END_TEST

START_TEST(a_wrong_page_is_refused)
{
	const struct wrong *w = &wrongs[_i];

	send_page(w);
	make_buffer();
	ck_assert_int_eq(pages_map(b, w->page, want_bytes(w->page), 0, &page, &generation),
			 -w->number);
	says(w->says);
	ck_assert_ptr_null(page.host);
}
END_TEST

START_TEST(a_seat_that_does_not_exist_is_refused)
{
	Gpushm__Proto__JoinReply m = GPUSHM__PROTO__JOIN_REPLY__INIT;
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;
	struct joined seat = { .reader = 99 };

	m.has_reader = m.has_generation = true;
	m.reader = _i ? 0 : STREAM_READERS_MAX;
	m.generation = _i ? 0 : 1;
	reply.result_case = GPUSHM__PROTO__REPLY__RESULT_JOINED;
	reply.joined = &m;
	canned_reply(server, &reply, NULL, 0);
	make_buffer();
	ck_assert_int_eq(pages_join(b, STREAM_EVERY, 1, &seat), -EPROTO);
	says("number");
	ck_assert_uint_eq(seat.reader, 99);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("stream_pages");

	tcase_add_checked_fixture(t, begin, end);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, a_right_page_is_mapped, 0, (int)array_size(right_pages));
	tcase_add_loop_test(t, a_wiped_page_of_readers_is_mapped, 0, 2);
	tcase_add_loop_test(t, a_wrong_page_is_refused, 0, (int)array_size(wrongs));
	tcase_add_loop_test(t, a_seat_that_does_not_exist_is_refused, 0, 2);
	return suite_run("stream_pages", t, NULL);
}
