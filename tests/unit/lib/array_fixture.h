/* SPDX-License-Identifier: MIT
 *
 * A buffer made by hand over this process's own memory, for tests of arrays: without daemon, lease
 * or map. And random numbers that can be repeated: the seed is printed, and read from
 * GPUSHM_TEST_SEED if that is set.
 */
#pragma once

#include "client/lib/array/array.h"
#include "client/lib/base/process.h"
#include "client/lib/base/spec.h"
#include "client/lib/buffer/buffer.h"
#include "client/lib/map/map.h"
#include "proto/base/own.h"
#include "tests/lib/fds.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct scene {
	struct gpushm *connection;
	struct pool_info pool;
	struct map_private map;
	struct gpushm_buffer buffer;
	unsigned char *memory; /* the buffer's */
};

static inline void scene_open(struct scene *s, enum gpushm_kind kind, size_t bytes)
{
	memset(s, 0, sizeof(*s));
	s->connection = calloc(1, sizeof(*s->connection));
	s->memory = calloc(1, bytes);
	ck_assert(s->connection && s->memory);
	s->connection->generation = process_generation();
	s->pool.map.kind = kind;
	s->map.map.priv = &s->map;
	s->map.map.device = kind == GPUSHM_VMM || kind == GPUSHM_MEMPOOL ? 3 : -1;
	s->map.device = kind == GPUSHM_HOST ? -1 : 5; /* mapped for another GPU */
	s->map.map.host_ptr = s->map.map.device < 0 ? s->memory : NULL;
	s->map.map.device_ptr = kind == GPUSHM_HOST ? NULL : s->memory;
	s->buffer.connection = s->connection;
	pthread_mutex_init(&s->buffer.lock, NULL);
	s->buffer.bytes = bytes;
	s->buffer.state = GPUSHM_SHARED;
	s->buffer.access = GPUSHM_WRITE;
	s->buffer.pool = &s->pool;
	s->buffer.map = &s->map.map;
	s->buffer.device = s->map.device;
	s->buffer.table = s->buffer.attrs = IMAGE_NONE;
	s->buffer.name = "scene";
}

/* Every array must have been freed. */
static inline void scene_close(struct scene *s)
{
	ck_assert_uint_eq(s->buffer.arrays, 0);
	table_builder_free(s->buffer.builder);
	image_done(&s->buffer.table);
	pthread_mutex_destroy(&s->buffer.lock);
	free(s->memory);
	free(s->connection);
}

static inline struct gpushm_dtype dtype_of(const char *name)
{
	struct gpushm_dtype t;

	ck_assert_int_eq(gpushm_dtype_parse(name, &t), 0);
	return t;
}

/* An array over the scene's bytes; strides NULL: C order. */
static inline struct gpushm_array *array_of(struct scene *s, const char *dtype, int ndim,
					    const int64_t *shape, const int64_t *strides,
					    uint64_t offset)
{
	struct gpushm_array_spec spec = { .struct_size = sizeof(spec),
					  .dtype = dtype_of(dtype),
					  .ndim = ndim,
					  .shape = shape,
					  .strides = strides,
					  .offset = offset };
	struct gpushm_array *a = NULL;
	int r = gpushm_array_over(&s->buffer, &spec, &a);

	ck_assert_msg(r == 0, "array_over: %s", gpushm_error());
	return a;
}

#define SHAPE(...) ((const int64_t[]){ __VA_ARGS__ })

/* ---- random numbers: splitmix64 (Steele, Lea, Flood 2014) ---- */

static uint64_t random_state;

static inline void random_start(void)
{
	const char *given = getenv("GPUSHM_TEST_SEED");

	if (given)
		random_state = strtoull(given, NULL, 0);
	else if (getrandom(&random_state, sizeof(random_state), 0) != sizeof(random_state))
		random_state = 1;
	printf("GPUSHM_TEST_SEED=0x%llx\n", (unsigned long long)random_state);
	fflush(stdout);
}

static inline uint64_t random_u64(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* From low to high, both included. */
static inline int64_t random_in(int64_t low, int64_t high)
{
	return low + (int64_t)(random_u64() % (uint64_t)(high - low + 1));
}

static inline void random_fill(void *memory, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		((unsigned char *)memory)[i] = (unsigned char)random_u64();
}

/* ---- the slow reference: one element after the other ---- */

/* The next position in C order; false after the last. Starts from all 0. */
static inline bool next_index(int ndim, const int64_t *shape, int64_t *index)
{
	for (int i = ndim - 1; i >= 0; i--) {
		if (++index[i] < shape[i])
			return true;
		index[i] = 0;
	}
	return false;
}

static inline int64_t address_of(int ndim, const int64_t *strides, const int64_t *index)
{
	int64_t at = 0;

	for (int i = 0; i < ndim; i++)
		at += index[i] * strides[i];
	return at;
}
