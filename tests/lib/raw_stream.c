/* SPDX-License-Identifier: MIT
 *
 * Pages are mapped for the rest of the test's process.
 */
#include "tests/lib/raw_stream.h"

#include <check.h>
#include <string.h>
#include <sys/mman.h>

uint64_t raw_hello(struct raw *r)
{
	int code =
		raw_call(r, REQUEST(HELLO, Hello, hello, SET(version_min, 1), SET(version_max, 1)));

	ck_assert_msg(code == 0, "HELLO: %s", r->text);
	ck_assert(r->reply->hello->streams);
	return r->reply->hello->session;
}

uint64_t raw_greet_as(struct raw *r, struct actor *a)
{
	*r = (struct raw){ .socket = actor_connect(a) };
	return raw_hello(r);
}

int raw_make_stream(struct raw *r, uint64_t lease, uint32_t slots, uint64_t slot_bytes,
		    uint32_t readers)
{
	return raw_call(r, REQUEST(STREAM, Stream, stream, SET(lease, lease), SET(slots, slots),
				   SET(slot_bytes, slot_bytes), SET(readers, readers)));
}

uint64_t raw_produce(struct raw *r, const char *name)
{
	uint64_t lease;

	ck_assert_msg(raw_call(r, REQUEST(CREATE, Create, create, BYTES(name, name),
					  SET(size_bytes, RAW_SLOTS * RAW_SLOT_BYTES),
					  SET(mode, 0666))) == 0,
		      "%s", r->text);
	lease = r->reply->attach->lease;
	ck_assert_msg(raw_make_stream(r, lease, RAW_SLOTS, RAW_SLOT_BYTES, RAW_READERS) == 0, "%s",
		      r->text);
	raw_publish(r, lease, GPUSHM__PROTO__STATE__STATE_SHARED);
	return lease;
}

int raw_continue(struct raw *r, const char *name, uint64_t wait_ms)
{
	return raw_call(r, REQUEST(OPEN, Open, open, BYTES(name, name),
				   SET(access, GPUSHM__PROTO__ACCESS__ACCESS_WRITE),
				   SET(wait_ms, wait_ms), SET(produce, true)));
}

int raw_join_as(struct raw *r, uint64_t lease, uint32_t follow, uint32_t max_held)
{
	return raw_call(r, REQUEST(JOIN, Join, join, SET(lease, lease),
				   SET(follow, (Gpushm__Proto__Follow)follow),
				   SET(max_held, max_held)));
}

uint32_t raw_join(struct raw *r, uint64_t lease, enum stream_follow follow)
{
	ck_assert_msg(raw_join_as(r, lease, follow, 1) == 0, "%s", r->text);
	return r->reply->joined->reader;
}

int raw_drop(struct raw *r, uint64_t lease, uint32_t reader, uint64_t generation)
{
	return raw_call(r, REQUEST(DROP, Drop, drop, SET(lease, lease), SET(reader, reader),
				   SET(generation, generation)));
}

int raw_leave(struct raw *r, uint64_t lease)
{
	return raw_call(r, REQUEST(DROP, Drop, drop, SET(lease, lease)));
}

int raw_close_lease(struct raw *r, uint64_t lease)
{
	return raw_call(r, REQUEST(CLOSE, Close, close, SET(lease, lease)));
}

int raw_page(struct raw *r, uint64_t lease, uint32_t page)
{
	return raw_call(r, REQUEST(PAGE, Page, page, SET(lease, lease), SET(page, page)));
}

void *raw_map_page(struct raw *r, uint64_t lease, uint32_t page)
{
	int protection = PROT_READ;
	void *map;

	ck_assert_msg(raw_page(r, lease, page) == 0, "%s", r->text);
	ck_assert_uint_eq(r->reply->page->page, page);
	if (r->reply->page->writable)
		protection |= PROT_WRITE;
	map = mmap(NULL, r->reply->page->bytes, protection, MAP_SHARED, r->frame.fds[0], 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	return map;
}

const Gpushm__Proto__StreamInfo *raw_stream_info(struct raw *r, const char *name)
{
	const Gpushm__Proto__StreamsReply *m;

	ck_assert_msg(raw_call(r, REQUEST(STREAMS, Streams, streams, BYTES(prefix, name))) == 0,
		      "%s", r->text);
	m = r->reply->streams;
	for (size_t i = 0; i < m->n_streams; i++)
		if (m->streams[i]->name.len == strlen(name))
			return m->streams[i];
	return NULL;
}

void raw_publish_frame(struct stream_head *h, uint32_t slot, uint64_t seq, bool finished)
{
	if (finished)
		h->slot[slot].ready = seq;
	h->slot[slot].time_ns = 1000 + seq;
	h->slot[slot].seq = seq;
	*stream_order(h, h->slots, h->order_size, seq) = slot;
	h->newest = seq;
	h->wake++;
}
