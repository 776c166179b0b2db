/* SPDX-License-Identifier: MIT
 *
 * The floor: a second process behind a socket that does only what a broker can't leave out. No
 * names, no rights, no leases: an epoll, a datagram in, a datagram of the wanted size out, and the
 * driver's or the kernel's calls between them.
 */
#pragma once

#include "proto/limits.h"
#include "tests/lib/role.h"

#include <stddef.h>
#include <stdint.h>

enum floor_op {
	FLOOR_ECHO,	 /* nothing */
	FLOOR_LEND,	 /* the fd that is held */
	FLOOR_RECORD,	 /* the record of the mempool's pointer that is held */
	FLOOR_HOLD_HOST, /* from now on this is held, of so many bytes ... */
	FLOOR_HOLD_VMM,
	FLOOR_HOLD_MEMPOOL, /* the reply has its record and the pool's fd */
	FLOOR_MAKE_HOST,    /* made for this reply, and freed after it */
	FLOOR_MAKE_VMM,
	FLOOR_MAKE_MEMPOOL, /* freed by FLOOR_FREE */
	FLOOR_FREE,
	FLOOR_OPS,
};

struct floor {
	struct role_process process;
	char path[108];
	int socket; /* the first connection */
};

/* The sizes of the two datagrams, and the operation between them. */
struct trip {
	size_t request, reply; /* bytes; at least FLOOR_REQUEST_BYTES */
	enum floor_op op;
};

struct floor_request {
	uint8_t op, unused;
	uint16_t reply; /* bytes */
	uint32_t mib;	/* size of the memory to hold or make; 0: 4 KiB */
};
#define FLOOR_REQUEST_BYTES sizeof(struct floor_request)

extern const struct role floor_role;

/* with_gpu: the floor starts the driver, and makes a context. */
void floor_start(struct floor *f, const char *folder, int with_gpu);
void floor_stop(struct floor *f);

/* Another connection. */
int floor_connect(const struct floor *f);

/* One round trip. Returns the fd of the reply, or -1. record may be NULL. */
int floor_trip(int socket, const struct trip *t, uint64_t bytes,
	       unsigned char record[RECORD_BYTES]);

/* The round trip of the smallest datagrams, for steps that are not measured. */
int floor_call(const struct floor *f, enum floor_op op, uint64_t bytes,
	       unsigned char record[RECORD_BYTES]);
