/* SPDX-License-Identifier: MIT
 *
 * The kinds of pools, and what holds for each: one table for the daemon, the library, gpushmctl and
 * the Python package. Other code asks the table, and names a kind only where it means that one
 * kind. Everything is inline, because the Python package links with the library only, which exports
 * none of this.
 */
#pragma once

#include <stdbool.h>

/* A row: the kind's word, the same in capitals, its number (enum Kind on the wire); whether its
 * memory is a GPU's, else the host's; whether a process can have it for reading only; and how many
 * descriptors of a buffer's memory the daemon has while that is filling, sealed and shared. 0: the
 * pool has one for all its buffers, and each has a record.
 *
 * The lists tell who makes and maps the memory: the kernel, or the driver of a GPU. */
#define KERNEL_KINDS(X) X(host, HOST, 1, false, true, 3, 1, 2)
#define DRIVER_KINDS(X)                            \
	X(pinned, PINNED, 2, false, true, 1, 1, 1) \
	X(vmm, VMM, 3, true, true, 1, 1, 1)        \
	X(mempool, MEMPOOL, 4, true, false, 0, 0, 0)
#define ALL_KINDS(X) KERNEL_KINDS(X) DRIVER_KINDS(X)

#define KIND_NUMBER(name, NAME, number, ...) POOL_##NAME = (number),
#define KIND_COUNTED(...) +1
/* The numbers have no gap, but the rows need not be in their order. */
enum pool_kind { ALL_KINDS(KIND_NUMBER) KIND_END = 1 ALL_KINDS(KIND_COUNTED) };

struct kind {
	const char *word;
	bool by_driver;
	bool on_gpu;
	bool read_only;
	unsigned char fds[4]; /* by enum State */
};

#define KIND_ROW(driver, name, number, gpu, reading, filling, sealed, shared) \
	[number] = { #name, driver, gpu, reading, { 0, filling, sealed, shared } },
#define KERNEL_ROW(name, NAME, ...) KIND_ROW(false, name, __VA_ARGS__)
#define DRIVER_ROW(name, NAME, ...) KIND_ROW(true, name, __VA_ARGS__)

/* Of any other number: "unknown", of which nothing holds. */
static inline const struct kind *kind_of(unsigned int kind)
{
	static const struct kind kinds[KIND_END] = {
		[0] = { "unknown", false, false, false, { 0 } },
		KERNEL_KINDS(KERNEL_ROW) DRIVER_KINDS(DRIVER_ROW)
	};

	return &kinds[kind < KIND_END ? kind : 0];
}

/* Whether one descriptor opens all of the pool's memory: a buffer has none, but a record. */
static inline bool kind_opens_pool(unsigned int kind)
{
	const struct kind *k = kind_of(kind);

	return k != kind_of(0) && k->fds[1] == 0;
}

static inline const char *kind_word(unsigned int kind)
{
	return kind_of(kind)->word;
}
