/* SPDX-License-Identifier: MIT
 *
 * Each reply is packed as it would be sent and read as a client would: it must fit a frame and
 * carry exactly the fds that it counts, and these must be what the reply says: memory of that size,
 * a consistent table. An error has a code and a text. The codes are counted, so that a run shows
 * what it has reached.
 */
#include "tests/fuzz/replies.h"

#include "daemon/catalog/catalog.h"
#include "proto/base/arena.h"

#include "proto/base/own.h"
#include "proto/table.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

static struct arena arena;
/* A later protocol may have more requests. */
#define REQUESTS_MAX 64
static unsigned long counts[REQUESTS_MAX][CODE_COUNT];

void replies_init(void)
{
	require(arena_init(&arena, UNPACK_MAX) == 0);
}

int replies_request_of(const uint8_t *frame, size_t len)
{
	Gpushm__Proto__Request *q;

	arena_reset(&arena);
	q = gpushm__proto__request__unpack(&arena.allocator, len, frame);
	return q ? (int)q->verb_case : 0;
}

static void check_table(int fd, const Gpushm__Proto__Attach *m)
{
	void *image = mmap(NULL, m->table_bytes, PROT_READ, MAP_SHARED, fd, 0);
	struct table_array array;
	struct table_view v;

	require(image != MAP_FAILED);
	require(table_view_init(&v, image, m->table_bytes, m->size_bytes) == 0);
	for (uint32_t i = 0; i < v.arrays; i++)
		require(table_view_at(&v, i, &array) == 0);
	munmap(image, m->table_bytes);
}

/* RESUME brings no new lease, and no table; without memory it is evicted, and the lease away. */
static void check_attach(const struct catalog *c, const struct reply *a,
			 const Gpushm__Proto__Attach *m, int request)
{
	bool again = request == GPUSHM__PROTO__REQUEST__VERB_RESUME;
	const struct lease *l = catalog_lease_by_id(c, m->lease);
	bool evicted = l && l->buffer->evicted;
	struct stat st;

	require(l && a->lease == (again ? NULL : l) && !(again && m->table_fd));
	require(m->fds == a->n_fds && m->memory_fd == !evicted && !m->pool_fd);
	require(a->n_fds == (unsigned)m->memory_fd + (unsigned)m->table_fd);
	require(evicted ? l->away
			: fstat(a->fds[0], &st) == 0 && (uint64_t)st.st_size == m->allocated_bytes);
	require(m->size_bytes > 0 && m->size_bytes <= m->allocated_bytes);
	require(m->state != GPUSHM__PROTO__STATE__STATE_SEALED ||
		m->access == GPUSHM__PROTO__ACCESS__ACCESS_READ);
	if (m->table_fd)
		check_table(a->fds[m->memory_fd], m);
}

/* The fd lets its holder write only if the reply says so. */
static void check_page(const struct reply *a, const Gpushm__Proto__PageReply *m)
{
	struct stat st;

	require(a->n_fds == 1 && !a->lease);
	require(fstat(a->fds[0], &st) == 0 && (uint64_t)st.st_size == m->bytes);
	require((fcntl(a->fds[0], F_GETFL) & O_ACCMODE) == (m->writable ? O_RDWR : O_RDONLY));
}

void replies_check(const struct catalog *c, const struct reply *a, int request)
{
	static uint8_t frame[FRAME_MAX];
	size_t size = gpushm__proto__reply__get_packed_size(&a->message);
	Gpushm__Proto__Reply *reply;
	int code = CODE_OK;

	require(size <= sizeof(frame));
	gpushm__proto__reply__pack(&a->message, frame);
	arena_reset(&arena);
	reply = gpushm__proto__reply__unpack(&arena.allocator, size, frame);
	require(reply && reply->result_case);
	if (reply->result_case == GPUSHM__PROTO__REPLY__RESULT_ATTACH)
		check_attach(c, a, reply->attach, request);
	else if (reply->result_case == GPUSHM__PROTO__REPLY__RESULT_HELLO)
		require(a->n_fds == (size_t)reply->hello->board_fd && !a->lease);
	else if (reply->result_case == GPUSHM__PROTO__REPLY__RESULT_PAGE)
		check_page(a, reply->page);
	else
		require(a->n_fds == 0 && !a->lease);
	if (reply->result_case == GPUSHM__PROTO__REPLY__RESULT_ERROR) {
		code = (int)reply->error->code;
		require(code > CODE_OK && code < CODE_COUNT && reply->error->message.len > 0);
	}
	require(request < REQUESTS_MAX);
	counts[request][code]++;
}

void replies_print(void)
{
	for (size_t request = 0; request < array_size(counts); request++)
		for (int code = 0; code < CODE_COUNT; code++)
			if (counts[request][code])
				printf("request %2zu  %-14s %lu\n", request,
				       code ? code_name(code) : "OK", counts[request][code]);
}
