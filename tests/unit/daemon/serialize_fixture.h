/* SPDX-License-Identifier: MIT
 *
 * A ledger: a serializer, and a model of what its journal says. Each step does something random to
 * both, and notes what there is then, as a number, and how long the journal was.
 */
#pragma once

#include "daemon/state/serialize.h"
#include "proto/base/own.h"
#include "tests/lib/stormer.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define BUFFERS 12
#define LEASES 24
#define STATES_MAX 40000

/* What the journal says after a record. */
struct state {
	size_t used; /* of the journal */
	uint64_t hash;
};

struct ledger {
	struct serializer serializer;
	struct fdstore store;
	struct pool pool;
	struct process processes[3];
	struct buffer buffers[BUFFERS]; /* id 0: this entry is unused */
	struct cached cached[BUFFERS];	/* of those that have or had a twin */
	struct lease leases[LEASES];	/* likewise */
	uint64_t next_id, random;
	struct state states[STATES_MAX]; /* of this journal, since it was complete */
	unsigned n;
};

static inline unsigned choose(struct ledger *l, unsigned n)
{
	return (unsigned)(stormer_random(&l->random) % n);
}

/* ---- states, as numbers ---- */

static inline uint64_t mix(uint64_t h, uint64_t value)
{
	return stormer_random(&(uint64_t){ h ^ value });
}

static inline uint64_t mix_bytes(uint64_t h, const void *data, size_t len)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < len; i++)
		h = mix(h, p[i]);
	return mix(h, len);
}

static inline uint64_t hash_buffer(uint64_t id, const char *key, size_t len, uint64_t flags,
				   uint64_t bytes)
{
	return mix(mix(mix(mix_bytes(1, key, len), id), flags), bytes);
}

/* twin: an id, or 0; keeps: somebody has said how long. */
static inline uint64_t hash_residence(bool evicted, uint64_t twin, bool keeps, uint64_t keep_ms,
				      int32_t priority)
{
	return mix(mix(mix(mix(3, twin), evicted * 2u + keeps), keep_ms), (uint64_t)priority);
}

static inline uint64_t hash_lease(uint64_t id, uint64_t buffer, uint64_t access, uint64_t session,
				  bool away)
{
	return mix(mix(mix(mix(2 + 2 * away, id), buffer), access), session);
}

static inline uint64_t hash_residence_of(const struct buffer *b)
{
	const struct cached *it = b->cached;
	bool keeps = it && it->keeps;

	return hash_residence(b->evicted, b->twin ? b->twin->id : 0, keeps, keeps ? it->keep_ms : 0,
			      keeps ? it->priority : 0);
}

/* A sum, because the order does not matter. */
static inline uint64_t hash_ledger(const struct ledger *l)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < BUFFERS; i++) {
		const struct buffer *b = &l->buffers[i];

		if (b->id)
			sum += hash_buffer(b->id, b->key, b->key ? strlen(b->key) : 0,
					   b->state * 8u + b->transient * 4u + b->dirty * 2u +
						   b->foreign,
					   b->bytes) ^
			       hash_residence_of(b);
	}
	for (unsigned i = 0; i < LEASES; i++)
		if (l->leases[i].id)
			sum += hash_lease(l->leases[i].id, l->leases[i].buffer->id,
					  l->leases[i].access, l->leases[i].process->session,
					  l->leases[i].away);
	return sum;
}

/* ---- the ledger ---- */

static inline void note(struct ledger *l)
{
	ck_assert_uint_lt(l->n, STATES_MAX);
	l->states[l->n++] = (struct state){ l->serializer.journal.used, hash_ledger(l) };
}

static inline uint32_t count_live(const struct ledger *l)
{
	uint32_t n = 1; /* the pool */

	for (unsigned i = 0; i < BUFFERS; i++)
		n += l->buffers[i].id != 0;
	for (unsigned i = 0; i < LEASES; i++)
		n += l->leases[i].id != 0;
	return n;
}

static inline int write_all(struct ledger *l, struct serializer *s)
{
	int r = serialize_pool(s, &l->pool);

	for (unsigned i = 0; i < BUFFERS && r == 0; i++)
		if (l->buffers[i].id)
			r = serialize_buffer(s, &l->buffers[i], NULL);
	for (unsigned i = 0; i < LEASES && r == 0; i++)
		if (l->leases[i].id)
			r = serialize_lease(s, &l->leases[i]);
	return r;
}

static inline void renew(struct ledger *l)
{
	struct serialize_head head = { "0123456789abcde", l->next_id, l->next_id, 2 };
	uint64_t generation = l->serializer.journal.generation + 1;

	serializer_done(&l->serializer);
	ck_assert_int_eq(serializer_init(&l->serializer, &l->store, generation, &head), 0);
	ck_assert_int_eq(write_all(l, &l->serializer), 0);
	ck_assert_int_eq(serialize_complete(&l->serializer), 0);
	l->n = 0;
	note(l);
}

static inline struct ledger *ledger_new(uint64_t seed)
{
	struct ledger *l = calloc(1, sizeof(*l));

	l->random = seed;
	l->next_id = 1000;
	l->serializer.journal = JOURNAL_NONE;
	list_init(&l->serializer.observer.link);
	ck_assert_int_eq(fdstore_reset_indices(&l->store), 0);
	l->pool.id = 1;
	l->pool.pool_fd = -1;
	l->pool.granularity = 4096;
	l->pool.config.kind = POOL_HOST;
	strcpy(l->pool.config.name, "host");
	for (unsigned i = 0; i < array_size(l->processes); i++)
		l->processes[i] = (struct process){ .pid = (pid_t)(10 + i), .session = 77 + i };
	renew(l);
	return l;
}

static inline void ledger_free(struct ledger *l)
{
	for (unsigned i = 0; i < BUFFERS; i++)
		free(l->buffers[i].key);
	serializer_done(&l->serializer);
	fdstore_close(&l->store);
	free(l);
}

/* ---- what happens ---- */

static inline void record_buffer(struct ledger *l, struct buffer *b, enum buffer_event event)
{
	struct catalog_observer *o = &l->serializer.observer;

	o->record_buffer(o, b, event);
}

static inline int record_lease(struct ledger *l, const struct lease *lease, enum lease_event event)
{
	struct catalog_observer *o = &l->serializer.observer;

	return o->record_lease(o, lease, event);
}

static inline struct lease *free_lease(struct ledger *l)
{
	for (unsigned i = 0; i < LEASES; i++)
		if (l->leases[i].id == 0)
			return &l->leases[i];
	return NULL;
}

static inline void publish(struct ledger *l, struct buffer *b)
{
	struct lease *lease = free_lease(l), made;

	if (!lease)
		return;
	*b = (struct buffer){
		.id = l->next_id++,
		.pool = &l->pool,
		.state = choose(l, 2) ? BUFFER_SEALED : BUFFER_SHARED,
		.transient = choose(l, 4) == 0,
		.bytes = 1 + choose(l, 1000),
		.block = { .bytes = 4096, .fd = 0, .fd_read_only = -1, .fd_original = -1 },
		.table_fd = -1,
		.fd_index = BUFFER_NOT_KEPT
	};
	ck_assert_int_gt(asprintf(&b->key, "%0*u", (int)(1 + choose(l, 200)), choose(l, 1000)), 0);
	made = (struct lease){ .id = l->next_id++,
			       .buffer = b,
			       .process = &l->processes[choose(l, 3)],
			       .access = b->state == BUFFER_SEALED ? ACCESS_READ : ACCESS_WRITE };
	/* The lease first: the buffer's record makes both count. */
	ck_assert_int_eq(serialize_lease(&l->serializer, &made), 0);
	l->states[l->n] = (struct state){ l->serializer.journal.used, l->states[l->n - 1].hash };
	l->n++;
	ck_assert_int_eq(serialize_buffer(&l->serializer, b, NULL), 0);
	*lease = made;
}

static inline void lease(struct ledger *l, struct buffer *b)
{
	struct lease *lease = free_lease(l);

	if (!lease)
		return;
	*lease = (struct lease){ .id = l->next_id++,
				 .buffer = b,
				 .process = &l->processes[choose(l, 3)],
				 .access = choose(l, 2) ? ACCESS_READ : ACCESS_WRITE };
	ck_assert_int_eq(serialize_lease(&l->serializer, lease), 0);
}

static inline unsigned count_leases(const struct ledger *l, const struct buffer *b)
{
	unsigned n = 0;

	for (unsigned i = 0; i < LEASES; i++)
		n += l->leases[i].id && l->leases[i].buffer == b;
	return n;
}

static inline bool is_twin(const struct ledger *l, const struct buffer *b)
{
	for (unsigned i = 0; i < BUFFERS; i++)
		if (l->buffers[i].id && l->buffers[i].twin == b)
			return true;
	return false;
}

static inline void unlink_or_free(struct ledger *l, struct buffer *b)
{
	if (is_twin(l, b))
		return;
	if (b->key) {
		record_buffer(l, b, BUFFER_UNLINKED);
		free(take_ptr(b->key));
	} else if (count_leases(l, b) == 0) {
		record_buffer(l, b, BUFFER_FREED);
		b->id = 0;
	}
}

static inline void change(struct ledger *l, struct buffer *b)
{
	b->foreign = b->foreign || choose(l, 2);
	b->dirty = !b->dirty;
	record_buffer(l, b, BUFFER_DIRTIED);
}

/* b gets a new name, or that of another buffer. */
static inline void rename_buffer(struct ledger *l, struct buffer *b)
{
	struct catalog_observer *o = &l->serializer.observer;
	struct buffer *replaced = &l->buffers[choose(l, BUFFERS)];

	if (!b->key)
		return;
	if (replaced == b || !replaced->id || !replaced->key)
		replaced = NULL;
	free(b->key);
	if (replaced)
		b->key = take_ptr(replaced->key);
	else
		ck_assert_int_gt(asprintf(&b->key, "renamed/%u", choose(l, 1000)), 0);
	ck_assert_int_eq(o->record_name(o, b, BUFFER_RENAMED, replaced), 0);
}

/* It gets a twin; then its memory goes and comes, and somebody says how long it stays. */
static inline void move(struct ledger *l, struct buffer *b)
{
	struct catalog_observer *o = &l->serializer.observer;
	struct buffer *twin = &l->buffers[choose(l, BUFFERS)];
	bool moved = b->twin && choose(l, 2);

	if (!b->twin && (!twin->id || twin == b))
		return;
	if (!b->twin) {
		b->twin = twin;
		b->cached = &l->cached[b - l->buffers];
		*b->cached = (struct cached){ .buffer = b };
	} else if (moved) {
		b->evicted = !b->evicted;
		b->block.bytes = b->evicted ? 0 : 4096;
	} else {
		b->cached->keeps = true;
		b->cached->keep_ms = choose(l, 3) ? choose(l, 1000) : UINT64_MAX;
		b->cached->priority = (int32_t)choose(l, 9) - 4;
	}
	ck_assert_int_eq(o->record_residence(o, b, moved), 0);
}

static inline void close_or_move(struct ledger *l, struct lease *lease)
{
	if (lease->id == 0)
		return;
	if (choose(l, 3) == 0) {
		lease->away = !lease->away;
		ck_assert_int_eq(record_lease(l, lease, LEASE_CHANGED), 0);
	} else if (choose(l, 4)) {
		record_lease(l, lease, LEASE_ENDED);
		lease->id = 0;
	} else {
		lease->process = &l->processes[choose(l, 3)];
		ck_assert_int_eq(record_lease(l, lease, LEASE_CHANGED), 0);
	}
}

static inline void step(struct ledger *l)
{
	struct buffer *b = &l->buffers[choose(l, BUFFERS)];

	if (choose(l, 3) == 0)
		close_or_move(l, &l->leases[choose(l, LEASES)]);
	else if (b->id == 0)
		publish(l, b);
	else if (choose(l, 3) == 0)
		unlink_or_free(l, b);
	else if (choose(l, 3) == 0)
		change(l, b);
	else if (choose(l, 3) == 0)
		rename_buffer(l, b);
	else if (choose(l, 2))
		move(l, b);
	else
		lease(l, b);
	note(l);
	ck_assert_uint_eq(l->serializer.live, count_live(l));
}
