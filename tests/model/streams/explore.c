/* SPDX-License-Identifier: MIT
 *
 * Depth first through all states: from each one all that can happen next, unless the state was met
 * before. States are told apart by a hash of 64 bits.
 */
#include "tests/model/streams/explore.h"

#include "tests/model/streams/actors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- what can happen ---- */

enum {
	RUN = 0,
	RUN_GPU = RUN + THREADS,
	DIE = RUN_GPU + PROCESSES,
	GO = DIE + PROCESSES,
	SERVE = GO + PROCESSES,
	DROP_IT = SERVE + PROCESSES,
	WATCH_IT = DROP_IT + READERS,
	SCRIBBLE = WATCH_IT + READERS,
	RESTART = SCRIBBLE + RUBBISH_MAX,
	EVENTS
};

static bool can_die(enum thread_id id)
{
	const struct thread *t = &world.thread[id];

	return world.deaths < plan->deaths && plan->mortal & 1u << id && !t->dead &&
	       t->block != BLOCK_DONE && (id != PRODUCER || world.producers == 1) &&
	       (id == PRODUCER || world_followers[id - READER].joins > 0);
}

static bool can_happen(uint32_t e)
{
	if (e < RUN_GPU)
		return machine_is_enabled(e) || rubbish_ends_nap(e);
	if (e < DIE)
		return gpu_can_run(e - RUN_GPU);
	if (e < GO)
		return can_die(e - DIE);
	if (e < SERVE)
		return world.thread[e - GO].dead && !world.thread[e - GO].gone;
	if (e < DROP_IT)
		return daemon_can_start(e - SERVE);
	if (e < WATCH_IT)
		return daemon_can_drop(e - DROP_IT);
	if (e < SCRIBBLE)
		return daemon_can_watch(e - WATCH_IT);
	return e < RESTART ? rubbish_can_be_written(e - SCRIBBLE) : daemon_can_restart();
}

static void die(enum thread_id id)
{
	struct thread *t = &world.thread[id];

	world.deaths++;
	t->dead = true;
	t->phase = t->block = t->paused = 0;
	memset(logs[id], 0, sizeof(logs[id]));
	t->n_log = 0;
	machine_say("dies");
}

static void go(enum thread_id id)
{
	world.thread[id].gone = true;
	memset(&world_queues[id], 0, sizeof(world_queues[id]));
	machine_say("is gone");
}

static void happen(uint32_t e)
{
	if (e < RUN_GPU)
		machine_run(e, actor_phase(e));
	else if (e < DIE)
		gpu_run(e - RUN_GPU);
	else if (e < GO)
		die(e - DIE);
	else if (e < SERVE)
		go(e - GO);
	else if (e < DROP_IT)
		daemon_start(e - SERVE);
	else if (e < WATCH_IT)
		daemon_drop(e - DROP_IT);
	else if (e < SCRIBBLE)
		daemon_watch(e - WATCH_IT);
	else if (e < RESTART)
		rubbish_write(e - SCRIBBLE);
	else
		daemon_restart();
}

static const char *who(uint32_t e)
{
	static const char *const names[] = { "producer", "reader 0", "reader 1", "reader 2",
					     "daemon" };

	if (e < RUN_GPU)
		return names[e];
	if (e < SERVE)
		return names[(e - RUN_GPU) % PROCESSES];
	return e >= SCRIBBLE && e < RESTART ? "bad" : names[DAEMON];
}

/* ---- states that were met ---- */

struct met {
	uint64_t *hashes;
	uint64_t size, n; /* size: a power of two */
};

static bool met_insert(struct met *m, uint64_t hash);

static void met_grow(struct met *m)
{
	struct met bigger = { .size = m->size ? 4 * m->size : 1u << 16 };

	bigger.hashes = calloc(bigger.size, sizeof(uint64_t));
	if (!bigger.hashes)
		abort();
	for (uint64_t i = 0; i < m->size; i++)
		if (m->hashes[i])
			met_insert(&bigger, m->hashes[i]);
	free(m->hashes);
	*m = bigger;
}

/* Whether it is new. */
static bool met_insert(struct met *m, uint64_t hash)
{
	uint64_t i;

	if (2 * m->n >= m->size)
		met_grow(m);
	hash |= !hash;
	for (i = hash & (m->size - 1); m->hashes[i]; i = (i + 1) & (m->size - 1))
		if (m->hashes[i] == hash)
			return false;
	m->hashes[i] = hash;
	m->n++;
	return true;
}

/* ---- the way to a state ---- */

#define DEPTH_MAX 4000u
struct level {
	unsigned char *state;
	size_t bytes;
	uint32_t event; /* the next to be tried */
	uint32_t taken; /* the event that led to the next level */
	bool dead_end;
	uint64_t hash;
	struct machine_note note;
};

static struct level *levels;
static uint32_t depth;
static unsigned char buffer[STATE_MAX];

/* A way that comes back to a state has no end. */
static bool is_on_way(uint64_t hash)
{
	for (uint32_t i = 0; i < depth; i++)
		if (levels[i].hash == hash)
			return true;
	return false;
}

static void push(size_t bytes, uint64_t hash)
{
	struct level *l;

	if (depth == DEPTH_MAX) {
		violate("there is no end");
		return;
	}
	l = &levels[depth++];
	l->state = realloc(l->state, bytes);
	if (!l->state)
		abort();
	memcpy(l->state, buffer, bytes);
	l->bytes = bytes;
	l->hash = hash;
	l->event = 0;
	l->dead_end = true;
}

static void print_way(void)
{
	static const char *const kinds[] = { "load", "store", "add", "swap" };

	for (uint32_t i = 0; i < depth; i++) {
		const struct machine_note *n = &levels[i].note;

		printf("  %3u %-9s ", i, who(levels[i].taken));
		if (n->text)
			printf("%s\n", n->text);
		else
			printf("%s %s[%u] %" PRIx64 " -> %" PRIx64 "\n", kinds[n->kind],
			       word_name(n->word), n->index, n->value, n->result);
	}
}

/* Whether there is another state behind the last one; *ret_end: nothing can happen there. */
static bool step_on(struct level *l)
{
	state_restore(l->state);
	while (l->event < EVENTS && !can_happen(l->event))
		l->event++;
	if (l->event == EVENTS)
		return false;
	l->dead_end = false;
	l->taken = l->event++;
	happen(l->taken);
	l->note = machine_note();
	machine_settle();
	check_sleepers();
	return true;
}

static void explore(struct met *m, struct exploration *ret)
{
	while (depth > 0 && !violation) {
		struct level *l = &levels[depth - 1];
		uint64_t hash;
		size_t bytes;

		if (!step_on(l)) {
			if (l->dead_end) {
				check_last_state();
				ret->ends++;
			}
			depth -= !violation;
			continue;
		}
		ret->steps++;
		bytes = state_save(buffer);
		hash = XXH3_64bits(buffer, bytes);
		if (!violation && met_insert(m, hash))
			push(bytes, hash);
		else if (!violation && is_on_way(hash))
			violate("there is a way without an end");
		if (depth > ret->deepest)
			ret->deepest = depth;
	}
}

struct exploration explore_plan(const struct plan *p)
{
	struct exploration ret = { 0 };
	struct met m = { 0 };
	size_t bytes;

	plan = p;
	violation = NULL;
	depth = 0;
	if (!levels)
		levels = calloc(DEPTH_MAX, sizeof(*levels));
	if (!levels)
		abort();
	actors_begin();
	bytes = state_save(buffer);
	met_insert(&m, XXH3_64bits(buffer, bytes));
	push(bytes, 0);
	explore(&m, &ret);
	ret.states = m.n;
	ret.violation = violation;
	if (violation && getenv("MODEL_WAY"))
		print_way();
	free(m.hashes);
	return ret;
}
