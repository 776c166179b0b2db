/* SPDX-License-Identifier: MIT
 *
 * STREAM, JOIN, PAGE and DROP, and the pages that PAGE brings. A page is checked as host memory is:
 * its kind, its size, its owner, and that nobody can truncate it, which would raise SIGBUS here.
 * What never changes in the head must fit its size. All else in a page may be anything at any time:
 * its writer is another process.
 *
 * The mapping keeps the memory; no fd is kept.
 */
#include "client/lib/stream/pages.h"

#include "client/lib/base/endpoint.h"
#include "client/lib/base/error.h"
#include "client/lib/link/request.h"

#include <fcntl.h>
#include <sys/mman.h>

#define BYTES_MAX stream_head_bytes(STREAM_SLOTS_MAX, STREAM_READERS_MAX)

static int nonsense(const char *what)
{
	return error_set(EPROTO, "the daemon's page of a stream makes no sense: %s", what);
}

/* ---- PAGE ---- */

int pages_read_shape(const struct order_page *p, uint64_t buffer_bytes, struct page_shape *ret)
{
	const volatile struct stream_head *h = p->host;
	struct page_shape s = { .slots = h->slots,
				.readers = h->readers,
				.slot_bytes = h->slot_bytes,
				.limit_ms = h->limit_ms };
	uint64_t all;

	if (s.readers == 0 || s.readers > STREAM_READERS_MAX)
		return nonsense("readers");
	if (s.slots < STREAM_SLOTS_MIN || s.slots > STREAM_SLOTS_MAX ||
	    h->order_size != stream_order_size(s.slots) ||
	    p->bytes != stream_head_bytes(s.slots, s.readers))
		return nonsense("slots");
	if (__builtin_mul_overflow(s.slots, s.slot_bytes, &all) || all > buffer_bytes)
		return nonsense("slots larger than the buffer");
	*ret = s;
	return 0;
}

static int check_head(const struct order_page *p, uint64_t buffer_bytes)
{
	const struct stream_head *h = p->host;
	struct page_shape shape;

	if (p->bytes < sizeof(*h) || h->magic != STREAM_HEAD_MAGIC)
		return nonsense("it is no head");
	if (h->version != STREAM_VERSION)
		return error_set(EPROTONOSUPPORT,
				 "the stream has version %u of its pages, this library knows "
				 "version %u: upgrade the older one",
				 h->version, STREAM_VERSION);
	return pages_read_shape(p, buffer_bytes, &shape);
}

/* Readers may write all of their pages and of the group's at any time, also before others map them.
 * So nothing in them is checked here, and what never changes is not read from them: the head has
 * it. */
static int check_page(const struct order_page *p, uint64_t bytes, uint64_t buffer_bytes)
{
	if (bytes == 0)
		return check_head(p, buffer_bytes);
	return p->bytes == bytes ? 0 : nonsense("its size");
}

struct page_reply {
	struct gpushm_buffer *buffer;
	uint32_t page;
	uint64_t bytes; /* that it must have; 0: as the head says that is in it */
	struct order_page mapped;
	uint64_t generation;
};

static int map(int fd, struct order_page *p)
{
	int prot = PROT_READ | (p->writable ? PROT_WRITE : 0);
	void *memory = mmap(NULL, p->bytes, prot, MAP_SHARED | MAP_POPULATE, fd, 0);

	if (memory == MAP_FAILED)
		return error_set(errno == ENOMEM ? ENOMEM : EPROTO,
				 "can't map a page of a stream: %m");
	p->host = memory;
	return 0;
}

static int read_page(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	const Gpushm__Proto__PageReply *from = reply->page;
	struct page_reply *r = to;
	struct order_page p = { .bytes = from->bytes, .writable = from->writable };
	struct stat st;
	int result;

	if (from->page != r->page || from->bytes > BYTES_MAX)
		return nonsense("another page than asked");
	result = endpoint_check_file("the stream's page that the daemon sent", c->frame.fds[0],
				     c->server_uid, from->bytes, F_SEAL_SHRINK | F_SEAL_GROW, &st);
	if (result == 0)
		result = map(c->frame.fds[0], &p);
	if (result < 0)
		return result;
	result = check_page(&p, r->bytes, r->buffer->bytes);
	if (result < 0)
		pages_unmap(&p);
	r->mapped = p;
	r->generation = from->generation;
	return result;
}

int pages_map(struct gpushm_buffer *b, uint32_t page, uint64_t bytes, uint64_t ms,
	      struct order_page *ret, uint64_t *ret_generation)
{
	Gpushm__Proto__Page message = GPUSHM__PROTO__PAGE__INIT;
	struct page_reply reply = { .buffer = b, .page = page, .bytes = bytes };
	int r;

	SET(&message, lease, b->lease.id);
	SET(&message, page, page);
	r = request_read_within(b->connection, ms, request_with(PAGE, page, &message), read_page,
				&reply);
	if (r < 0)
		return r;
	*ret = reply.mapped;
	if (ret_generation)
		*ret_generation = reply.generation;
	return 0;
}

void pages_unmap(struct order_page *p)
{
	if (p->host)
		munmap(p->host, p->bytes);
	*p = (struct order_page){ 0 };
}

/* ---- STREAM, JOIN, DROP ---- */

int pages_make_stream(struct gpushm_buffer *b, const struct gpushm_stream_spec *spec,
		      uint64_t slot_bytes)
{
	Gpushm__Proto__Stream message = GPUSHM__PROTO__STREAM__INIT;
	Gpushm__Proto__Reply *reply;
	unsigned sends;
	int r;

	SET(&message, lease, b->lease.id);
	SET(&message, slots, spec->slots);
	SET(&message, slot_bytes, slot_bytes);
	SET(&message, readers, spec->readers);
	SET(&message, delivery, (Gpushm__Proto__Delivery)spec->delivery);
	SET(&message, keep_queue, !!(spec->flags & GPUSHM_KEEP_QUEUE));
	SET(&message, limit_ms, spec->limit_ms);
	r = request_call(b->connection, request_with(STREAM, stream, &message), &reply, &sends);
	if (r == 0)
		request_done(b->connection);
	return buffer_lost_with_daemon(b, r, sends);
}

static int read_join(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	if (reply->joined->reader >= STREAM_READERS_MAX || reply->joined->generation == 0)
		return nonsense("the reader's number");
	*(struct joined *)to = (struct joined){ reply->joined->reader, reply->joined->generation };
	return 0;
}

int pages_join(struct gpushm_buffer *b, uint32_t follow, uint32_t max_held, struct joined *ret)
{
	Gpushm__Proto__Join message = GPUSHM__PROTO__JOIN__INIT;

	SET(&message, lease, b->lease.id);
	SET(&message, follow, (Gpushm__Proto__Follow)follow);
	SET(&message, max_held, max_held);
	return request_read(b->connection, request_with(JOIN, join, &message), read_join, ret);
}

int pages_drop(struct gpushm_buffer *b, uint32_t reader, uint64_t generation, uint64_t ms)
{
	Gpushm__Proto__Drop message = GPUSHM__PROTO__DROP__INIT;

	SET(&message, lease, b->lease.id);
	if (generation > 0) {
		SET(&message, reader, reader);
		SET(&message, generation, generation);
	}
	return request_ack_within(b->connection, ms, request_with(DROP, drop, &message));
}
