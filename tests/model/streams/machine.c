/* SPDX-License-Identifier: MIT */
#include "tests/model/streams/machine.h"

#include "tests/model/streams/steps.h"

#include <setjmp.h>
#include <string.h>

static jmp_buf leave;
static enum thread_id current;
static bool granted, at_once;
static enum block resumed;
static uint32_t position;
static struct machine_note note;

const char *violation;

void violate(const char *what)
{
	if (!violation)
		violation = what;
}

enum thread_id machine_thread(void)
{
	return current;
}

struct machine_note machine_note(void)
{
	return note;
}

void machine_say(const char *text)
{
	note = (struct machine_note){ .text = text };
}

void machine_at_once(bool on)
{
	at_once = on;
}

static struct thread *thread(void)
{
	return &world.thread[current];
}

void machine_next(uint32_t phase)
{
	memset(logs[current], 0, thread()->n_log * sizeof(uint64_t));
	thread()->n_log = 0;
	thread()->begun = false;
	thread()->phase = (uint8_t)phase;
	position = 0;
}

void machine_stop(enum block why)
{
	thread()->block = thread()->paused = (uint8_t)why;
	longjmp(leave, 1);
}

void machine_point(void)
{
	if (!granted)
		machine_stop(BLOCK_STEP);
	granted = false;
	thread()->begun = true;
}

void machine_wait(enum block why)
{
	if (!granted || resumed != why)
		machine_stop(why);
	resumed = BLOCK_STEP;
}

/* ---- which steps others may notice ---- */

/* Whether a reader may come or go from now on. */
static bool seats_change(void)
{
	bool change = world.deaths < plan->deaths || world.drops < plan->drops || plan->watch ||
		      (world.daemon_op != NO_REQUEST && world.daemon_op != END);

	for (uint32_t i = 0; i < PROCESSES; i++)
		change |= world.thread[i].dead && !world.thread[i].buried;
	for (uint32_t i = 0; i < READERS; i++) {
		const struct reader_plan *r = &plan->reader[i];

		change |= ((r->late || r->heir) && world_followers[i].joins == 0) ||
			  (r->leaves_after && world.thread[READER + i].block != BLOCK_DONE);
	}
	return change;
}

static bool is_mortal(enum thread_id id)
{
	return plan->deaths > 0 && plan->mortal & 1u << id;
}

static bool producer_notices(enum step_kind kind, enum word w)
{
	switch (w) {
	case WORD_SEQ:
	case WORD_NEWEST:
		return kind != STEP_LOAD;
	case WORD_TAKING:
		return is_mortal(PRODUCER) || seats_change();
	case WORD_READY:
		return plan->gpu;
	default:
		return true;
	}
}

static bool reader_notices(enum word w)
{
	if (w == WORD_READY)
		return plan->gpu || is_mortal(PRODUCER);
	return w != WORD_BROKEN || is_mortal(PRODUCER);
}

/* A word that this thread alone changes, or that nobody changes any more, is read without a step,
 * as is one written that nobody reads. */
static bool is_noticed(enum step_kind kind, enum word w)
{
	if (w == WORD_PEOPLE || w == WORD_WAITS)
		return w == WORD_WAITS && plan->watch;
	if (w == WORD_REDOS && kind == STEP_LOAD)
		return seats_change();
	if (w == WORD_SEAT || (w >= WORD_ACTIVE && w <= WORD_GROUP_OPEN))
		return (current != DAEMON || kind != STEP_LOAD) && seats_change();
	if (w == WORD_CLAIM && kind == STEP_LOAD && current != PRODUCER)
		return plan->drops > 0 || plan->watch;
	if (current == PRODUCER)
		return producer_notices(kind, w);
	return current == DAEMON || reader_notices(w);
}

/* ---- steps ---- */

static uint64_t do_step(enum step_kind kind, void *word, unsigned bytes, uint64_t value,
			uint64_t old)
{
	uint32_t narrow;
	uint64_t was;

	if (bytes == sizeof(narrow)) {
		memcpy(&narrow, word, sizeof(narrow));
		was = narrow;
	} else {
		memcpy(&was, word, sizeof(was));
	}
	if (kind == STEP_LOAD || (kind == STEP_SWAP && was != old))
		return kind == STEP_LOAD ? was : 0;
	if (kind == STEP_ADD)
		value += was;
	narrow = (uint32_t)value;
	memcpy(word, bytes == sizeof(narrow) ? (void *)&narrow : (void *)&value, bytes);
	return kind == STEP_SWAP ? 1 : was;
}

/* ---- futexes ---- */

#define FUTEXES (1 + READERS * PAGES)

static bool is_futex(enum word w)
{
	return w == WORD_WAKE || w == WORD_RELEASED_COUNT;
}

static _Atomic uint32_t *futex(uint32_t i)
{
	return i == 0 ? &head()->wake : &page_of((i - 1) / PAGES, (i - 1) % PAGES)->released_count;
}

static uint8_t futex_of(const void *word)
{
	uint8_t i = 0;

	while (i < FUTEXES - 1 && futex(i) != word)
		i++;
	return i;
}

static uint32_t settled(uint32_t i, uint32_t value)
{
	return value == *futex(i) ? 0 : STALE;
}

void machine_settle(void)
{
	struct producer *p = &world.producer;

	for (int i = 0; i < THREADS; i++)
		for (uint32_t k = 0; k < world.thread[i].n_log; k++)
			if (log_futex[i][k])
				logs[i][k] = settled(log_futex[i][k] - 1u, (uint32_t)logs[i][k]);
	for (uint32_t i = 0; i < p->n_sleeps; i++)
		p->sleeps[i].value = settled(futex_of(p->sleeps[i].word), p->sleeps[i].value);
	for (uint32_t i = 0; i < READERS; i++)
		if (world_followers[i].prepared)
			world_followers[i].wake_value = settled(0, world_followers[i].wake_value);
	for (uint32_t i = 0; i < FUTEXES; i++)
		*futex(i) = 0;
}

uint64_t step(enum step_kind kind, void *word, unsigned bytes, uint64_t value, uint64_t old)
{
	struct thread *t = thread();
	uint32_t index = 0;
	enum word w = word_of(word, &index);
	uint64_t result;

	if (w == WORD_PRIVATE || at_once)
		return do_step(kind, word, bytes, value, old);
	if (position < t->n_log)
		return logs[current][position++];
	if (t->n_log == LOG_MAX) {
		violate("an operation does not end");
		longjmp(leave, 1);
	}
	if (is_noticed(kind, w)) {
		machine_point();
		result = do_step(kind, word, bytes, value, old);
		note = (struct machine_note){ NULL, kind, w, index, value, result };
	} else {
		result = do_step(kind, word, bytes, value, old);
	}
	logs[current][t->n_log] = is_futex(w) && kind == STEP_ADD ? 0 : result;
	log_futex[current][t->n_log++] = is_futex(w) && kind == STEP_LOAD ? 1 + futex_of(word) : 0;
	position++;
	return result;
}

/* ---- threads ---- */

static void run(enum thread_id id, void (*phase)(void), bool grant)
{
	current = id;
	granted = grant;
	resumed = (enum block)thread()->paused;
	at_once = false;
	position = 0;
	if (setjmp(leave) == 0)
		for (;;) {
			position = 0;
			phase();
		}
}

void machine_run(enum thread_id id, void (*phase)(void))
{
	machine_say("goes on");
	run(id, phase, true);
}

void machine_start(enum thread_id id, void (*phase)(void))
{
	run(id, phase, false);
}

static bool is_asleep(enum thread_id id)
{
	return world.thread[id].block == BLOCK_FUTEX;
}

void machine_wake(const _Atomic uint32_t *word)
{
	for (uint32_t i = 0; i < READERS; i++)
		if (is_asleep(READER + i) && word == &head()->wake)
			world.thread[READER + i].block = BLOCK_STEP;
	if (!is_asleep(PRODUCER))
		return;
	for (uint32_t i = 0; i < world.producer.n_sleeps; i++)
		if (world.producer.sleeps[i].word == word)
			world.thread[PRODUCER].block = BLOCK_STEP;
}

void machine_call_wake(const _Atomic uint32_t *word)
{
	if (is_mortal(current) && world.deaths < plan->deaths) {
		machine_point();
		machine_say("wakes who sleeps");
	}
	machine_wake(word);
}

static bool is_ready(const struct follower *f)
{
	const struct reader_frame *r = &f->held[f->n_held - 1];

	return !stream_before(*(uint64_t *)&head()->slot[r->slot].ready, r->seq);
}

bool machine_is_enabled(enum thread_id id)
{
	const struct thread *t = &world.thread[id];

	if (t->dead)
		return false;
	switch (t->block) {
	case BLOCK_STEP:
		return id != DAEMON || world.daemon_op != NO_REQUEST;
	case BLOCK_FUTEX:
		return id == PRODUCER && world.producer.missed;
	case BLOCK_READY:
		return is_ready(&world_followers[id - READER]);
	case BLOCK_IDLE:
		return world.daemon_op == NO_REQUEST;
	case BLOCK_HEIR:
		return world.thread[READER].buried || world.thread[READER].block == BLOCK_DONE;
	case BLOCK_QUEUE:
		return world_queues[id].n == 0;
	default:
		return false;
	}
}
