/* SPDX-License-Identifier: MIT
 *
 * Correct replies to CREATE and OPEN of a host buffer, which a test may change.
 */
#pragma once

#include "tests/unit/lib/canned_fixture.h"

#include "client/lib/buffer/buffer.h"
#include "proto/table.h"

#include <sys/mman.h>

#define SIZE 1000u
#define ALLOCATED 4096u
#define LEASE 77u
#define MEMORY_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)

static Gpushm__Proto__Attach attach;

/* A memfd as the daemon makes them. The caller owns it. */
static inline int memory_fd(size_t size, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* The same file, open for reading alone. */
static inline int read_only(int fd)
{
	char path[32];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(again, 0);
	return again;
}

/* A table of one array "a" of two float32, in a buffer of SIZE bytes. The caller owns it. */
static inline int table_fd(uint64_t *ret_bytes, uint64_t *ret_digest)
{
	struct table_array a = { .name = "a",
				 .name_len = 1,
				 .dtype = { .code = DTYPE_FLOAT, .bits = 32, .lanes = 1 },
				 .ndim = 1,
				 .shape = { 2 } };
	struct table_builder *b = NULL;
	struct fault err;
	int fd;

	ck_assert_int_eq(table_builder_new(SIZE, &b), 0);
	ck_assert_msg(table_builder_add(b, &a, &err) == 0, "%s", err.text);
	ck_assert_int_eq(table_builder_finish(b, &fd, ret_bytes, ret_digest), 0);
	table_builder_free(b);
	return fd;
}

static inline void an_attach(enum gpushm_state state, enum gpushm_access access)
{
	gpushm__proto__attach__init(&attach);
	attach.has_buffer = attach.has_lease = attach.has_pool = attach.has_size_bytes = true;
	attach.has_allocated_bytes = attach.has_state = attach.has_access = true;
	attach.has_fds = attach.has_memory_fd = attach.memory_fd = true;
	attach.buffer = 5;
	attach.lease = LEASE;
	attach.pool = 1;
	attach.size_bytes = SIZE;
	attach.allocated_bytes = ALLOCATED;
	attach.state = (Gpushm__Proto__State)state;
	attach.access = (Gpushm__Proto__Access)access;
	attach.fds = 1;
}

/* Queues the attach with these fds and closes them. */
static inline void reply_attach(int memory, int table)
{
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;
	int fds[2] = { memory, table };

	reply.result_case = GPUSHM__PROTO__REPLY__RESULT_ATTACH;
	reply.attach = &attach;
	canned_reply(server, &reply, fds, table < 0 ? 1 : 2);
	close_fd(&memory);
	close_fd(&table);
}

static inline void announce_table(uint64_t table_bytes)
{
	attach.has_table_fd = attach.table_fd = attach.has_table_bytes = true;
	attach.table_bytes = table_bytes;
	attach.fds = 2;
}

/* A correct reply to OPEN of a sealed buffer, with its table. */
static inline void reply_to_open(enum gpushm_state state, enum gpushm_access access, int memory)
{
	uint64_t n, digest;
	int table = table_fd(&n, &digest);

	an_attach(state, access);
	announce_table(n);
	attach.has_digest = true;
	attach.digest = digest;
	reply_attach(memory, table);
}

static inline void reply_to_create(void)
{
	an_attach(GPUSHM_FILLING, GPUSHM_WRITE);
	reply_attach(memory_fd(ALLOCATED, MEMORY_SEALS), -1);
}

/* Checks that the last request was a CLOSE, which ends the lease. */
static inline void lease_was_ended(void)
{
	const Gpushm__Proto__Request *r;

	canned_join(server);
	r = canned_request(server, canned_requests(server) - 1);
	ck_assert_int_eq(r->verb_case, GPUSHM__PROTO__REQUEST__VERB_CLOSE);
	ck_assert_uint_eq(r->close->lease, LEASE);
}
