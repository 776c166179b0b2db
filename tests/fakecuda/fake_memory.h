/* SPDX-License-Identifier: MIT
 *
 * Physical memory: a memfd, of which the last page tells what it is. In a process it is known by
 * one whole, writable mapping, the alias, through which the driver's own copies go; further
 * mappings of it are made where the caller wants them. An fd is kept only where it can be exported.
 */
#pragma once

#include "tests/fakecuda/fake_state.h"

#include <stddef.h>

#define MEMORY_STEP (2ull << 20) /* the granularity of all of the driver's memory */
#define MEMORY_EXTRA \
	(512ull << 10) /* bytes of a pool's memfd for the pool itself, after the data */

enum memory_kind { MEMORY_VMM = 1, MEMORY_POOL };

/* The last page of the memfd, read by who imports it. */
struct memory_tag {
	char magic[8];
	uint32_t kind;
	uint32_t location; /* CUmemLocationType: DEVICE, HOST, HOST_NUMA */
	int32_t id;	   /* physical GPU or node */
	uint32_t epoch;	   /* FAKECUDA_EPOCH of who made it */
	int32_t maker;	   /* its pid; 0: given back, and FAKECUDA_BREAK=kept */
	uint64_t serial;   /* random: tells pools apart */
	uint64_t bytes;	   /* of data, from the memfd's start */
};

struct memory {
	unsigned int refs;
	struct memory_tag tag;
	struct claim claim; /* exporters' only: what the GPU lost to it */
	int fd;		    /* -1 where it can't be exported */
	unsigned char *alias;
	unsigned char *extra; /* pools: MEMORY_EXTRA bytes shared by all processes */
	bool imported;
};

/* A new one of that kind, place and size, zero, with one reference; it claims nothing yet. */
CUresult memory_new(struct memory_tag tag, struct memory **ret);
/* The memory behind another process's fd, which remains the caller's. UNKNOWN: the fd is not from a
 * fake driver. */
CUresult memory_import(int fd, enum memory_kind kind, struct memory **ret);

struct memory *memory_ref(struct memory *m);
void memory_unref(struct memory *m);
/* Its maker gives it back: with FAKECUDA_BREAK=kept, nobody can import it any more. */
void memory_give_back(struct memory *m);
/* Keeps it from being exported and lets its fd go. */
void memory_seclude(struct memory *m);

/* Another mapping of all its data at `address`, PROT_NONE. NULL: anywhere. Returns the address, or
 * NULL. */
unsigned char *memory_place(struct memory *m, void *address);
/* Address space without anything behind it, aligned to MEMORY_STEP. NULL: none left. */
unsigned char *memory_reserve(void *address, size_t bytes, size_t alignment);
