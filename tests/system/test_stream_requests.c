/* SPDX-License-Identifier: MIT
 *
 * The requests of streams, sent without the library: who may do what, in which order, and what is
 * left afterwards.
 */
#include "proto/base/own.h"
#include "proto/stream.h"
#include "tests/lib/actor.h"
#include "tests/lib/daemon.h"
#include "tests/lib/fds.h"
#include "tests/lib/raw.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define SLOTS 4u
#define SLOT_BYTES 4096u

static struct daemon d;

/* ---- requests ---- */

static int make_stream(struct raw *r, uint64_t lease, uint32_t slots, uint64_t slot_bytes)
{
	return raw_call(r, REQUEST(STREAM, Stream, stream, SET(lease, lease), SET(slots, slots),
				   SET(slot_bytes, slot_bytes), SET(readers, 2)));
}

/* A published stream; returns the producer's lease. */
static uint64_t produce(struct raw *r, const char *name)
{
	uint64_t lease = raw_create(r, name, SLOTS * SLOT_BYTES);

	ck_assert_msg(make_stream(r, lease, SLOTS, SLOT_BYTES) == 0, "%s", r->text);
	raw_publish(r, lease, GPUSHM__PROTO__STATE__STATE_SHARED);
	return lease;
}

static int join_as(struct raw *r, uint64_t lease, enum stream_follow follow, uint32_t max_held)
{
	return raw_call(r, REQUEST(JOIN, Join, join, SET(lease, lease),
				   SET(follow, (Gpushm__Proto__Follow)follow),
				   SET(max_held, max_held)));
}

static uint32_t join(struct raw *r, uint64_t lease, enum stream_follow follow)
{
	ck_assert_msg(join_as(r, lease, follow, 1) == 0, "%s", r->text);
	return r->reply->joined->reader;
}

static int ask_page(struct raw *r, uint64_t lease, uint32_t page)
{
	return raw_call(r, REQUEST(PAGE, Page, page, SET(lease, lease), SET(page, page)));
}

/* Maps the page as it was lent. */
static void *map_page(struct raw *r, uint64_t lease, uint32_t page)
{
	int protection = PROT_READ;
	void *map;

	ck_assert_msg(ask_page(r, lease, page) == 0, "%s", r->text);
	ck_assert_uint_eq(r->reply->page->page, page);
	if (r->reply->page->writable)
		protection |= PROT_WRITE;
	map = mmap(NULL, r->reply->page->bytes, protection, MAP_SHARED, r->frame.fds[0], 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	return map;
}

static int drop(struct raw *r, uint64_t lease, uint32_t reader, uint64_t generation)
{
	return raw_call(r, REQUEST(DROP, Drop, drop, SET(lease, lease), SET(reader, reader),
				   SET(generation, generation)));
}

static int close_lease(struct raw *r, uint64_t lease)
{
	return raw_call(r, REQUEST(CLOSE, Close, close, SET(lease, lease)));
}

/* ---- the fixture: a producer and a reader, each with a connection ---- */

static struct raw p, q;
static uint64_t producer, reader;

static void setup(void)
{
	daemon_start(&d, "", NULL);
	raw_greet(&p, d.socket);
	raw_greet(&q, d.socket);
	producer = produce(&p, "s");
	reader = raw_open(&q, "s");
}

static void teardown(void)
{
	raw_close(&p);
	raw_close(&q);
	daemon_stop(&d);
}

/* ---- the order ---- */

START_TEST(a_stream_is_made_joined_and_left)
{
	struct stream_head *h = map_page(&p, producer, STREAM_PAGE_HEAD);
	const struct stream_group_page *g = map_page(&p, producer, STREAM_PAGE_GROUP);
	const struct stream_reader_page *seen;
	struct stream_reader_page *own;
	uint32_t i;

	ck_assert_uint_eq(h->magic, STREAM_HEAD_MAGIC);
	ck_assert_uint_eq(h->slots, SLOTS);
	ck_assert_uint_eq(h->readers, 2);
	ck_assert_uint_eq(h->slot_bytes, SLOT_BYTES);
	ck_assert_uint_eq(h->limit_ms, 10000);
	ck_assert_uint_eq(h->state, STREAM_RUNNING);
	ck_assert_uint_eq(h->producers, 1);
	ck_assert_uint_eq(g->magic, STREAM_GROUP_MAGIC);

	i = join(&q, reader, STREAM_EVERY);
	ck_assert_uint_eq(h->seats[i].state, STREAM_SEAT_TAKEN);
	ck_assert_uint_eq(h->seats[i].generation, 1);
	ck_assert_uint_eq(h->active, 1u << i);
	ck_assert_uint_eq(h->every, 1u << i);
	own = map_page(&q, reader, STREAM_PAGE_READER + i);
	seen = map_page(&p, producer, STREAM_PAGE_READER + i);
	own->taken = 7;
	ck_assert_uint_eq(seen->taken, 7);
	own->claims[2].claim = stream_claim_word(1, STREAM_CLAIMED);

	ck_assert_int_eq(close_lease(&q, reader), 0);
	ck_assert_uint_eq(h->seats[i].state, STREAM_SEAT_FREE);
	ck_assert_uint_eq(h->active, 0);
	ck_assert_uint_eq(seen->claims[2].claim, 0);
	ck_assert_uint_eq(seen->claims[2].released, STREAM_RELEASED_ALL);

	ck_assert_int_eq(close_lease(&p, producer), 0);
	ck_assert_uint_eq(h->state, STREAM_ENDED);
}
END_TEST

START_TEST(a_reader_drops_another)
{
	uint32_t i = join(&q, reader, STREAM_EVERY);

	ck_assert_int_eq(drop(&q, reader, i, 1), CODE_ACCESS);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("stream_requests");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_stream_is_made_joined_and_left);
	tcase_add_test(tc, a_reader_drops_another);
	return suite_run("stream_requests", tc, NULL);
}
