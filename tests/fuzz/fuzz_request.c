/* SPDX-License-Identifier: MIT
 *
 * Any requests of two clients, in any order, with connections that close, processes that die and
 * deadlines that come in between: see world.h for what must hold. The input is one record after
 * another:
 *
 *	op	the lowest bit: which client; the rest modulo OPS: an enum op
 *	...	REQUEST, HASTY: two bytes of length (little endian) and a frame; CONNECT: who it is
 *
 * Half of all mutations change a field of a frame's message, a third the order of records, so that
 * most inputs test the requests and few the decoder, which fuzz_frame.c is for. request_seeds.py
 * wrote the first inputs of the corpus.
 */
#include "proto/base/own.h"
#include "proto/limits.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/world.h"

#include "gpushm.pb-c.h"

#include <stdbool.h>
#include <string.h>

#define RECORDS_MAX 256u
#define FRAME_LEN_BYTES 2u

enum op {
	REQUEST,    /* a frame; then all work that it causes is done */
	HASTY,	    /* a frame, and the next record comes before the worker has done anything */
	DISCONNECT, /* the connection closes, the process continues */
	DIE,	    /* the connection closes and the process ends */
	CONNECT,    /* a new process and connection in place of one that has closed */
	LATE,	    /* all deadlines expire */
	DEAF,	    /* the next reply can't be sent */
	FLUSH,	    /* pools give back what is pending */
	OPS
};

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

struct record {
	uint8_t op;
	const uint8_t *body;
	size_t size;
};

static enum op op_of(const struct record *r)
{
	return (enum op)((r->op >> 1) % OPS);
}

/* Reads the next record; false at the end. A frame that is cut short is used as it is. */
static bool next_record(const uint8_t **at, const uint8_t *end, struct record *ret)
{
	size_t left;

	if (*at == end)
		return false;
	ret->op = *(*at)++;
	left = (size_t)(end - *at);
	ret->size = op_of(ret) == CONNECT && left > 0;
	if (op_of(ret) <= HASTY && left >= FRAME_LEN_BYTES) {
		ret->size = (size_t)((*at)[0] | (*at)[1] << 8);
		*at += FRAME_LEN_BYTES;
		left -= FRAME_LEN_BYTES;
	}
	ret->size = ret->size < left ? ret->size : left;
	ret->body = *at;
	*at += ret->size;
	return true;
}

static void play(const struct record *r)
{
	unsigned who = r->op & 1;

	switch (op_of(r)) {
	case REQUEST:
	case HASTY:
		world_request(who, r->body, r->size);
		break;
	case DISCONNECT:
		world_disconnect(who);
		break;
	case DIE:
		world_die(who);
		break;
	case CONNECT:
		world_connect(who, r->size ? r->body[0] : 0);
		break;
	case LATE:
		world_be_late();
		break;
	case DEAF:
		world_deafen(who);
		break;
	default:
		world_flush();
	}
	if (op_of(r) == REQUEST)
		world_settle();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	world_init();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = data + size;
	struct record r;

	world_make();
	for (unsigned n = 0; n < RECORDS_MAX && next_record(&data, end, &r); n++)
		play(&r);
	world_end();
	return 0;
}

/* ---- mutations ---- */

struct script {
	struct record records[RECORDS_MAX];
	unsigned n;
};

static void parse(const uint8_t *data, size_t size, struct script *ret)
{
	const uint8_t *end = data + size;

	ret->n = 0;
	while (ret->n < RECORDS_MAX && next_record(&data, end, &ret->records[ret->n]))
		ret->n++;
}

/* Leaves out what no longer fits. */
static size_t write_script(const struct script *s, uint8_t *out, size_t max)
{
	size_t at = 0;

	for (unsigned i = 0; i < s->n; i++) {
		const struct record *r = &s->records[i];
		bool frame = op_of(r) <= HASTY;

		if (1 + (frame ? FRAME_LEN_BYTES : 0) + r->size > max - at)
			break;
		out[at++] = r->op;
		if (frame) {
			out[at++] = (uint8_t)r->size;
			out[at++] = (uint8_t)(r->size >> 8);
		}
		if (r->size > 0)
			memcpy(out + at, r->body, r->size);
		at += r->size;
	}
	return at;
}

/* A new frame, made from nothing or from the present one. */
static void change_frame(struct dice *d, struct record *r)
{
	static uint8_t frame[FRAME_MAX - 1];
	size_t size = r->size, changed;

	if (size > 0)
		memcpy(frame, r->body, size);
	changed = dice_roll(d, 8) ? mutate_message(d, &gpushm__proto__request__descriptor, frame,
						   size, sizeof(frame))
				  : LLVMFuzzerMutate(frame, size, sizeof(frame));
	r->body = frame;
	r->size = changed ? changed : size;
}

static struct record new_record(struct dice *d)
{
	static uint8_t who;
	struct record r = { .op = (uint8_t)dice_roll(d, 256) };

	who = (uint8_t)dice_roll(d, 8);
	if (op_of(&r) == CONNECT)
		r = (struct record){ r.op, &who, 1 };
	if (op_of(&r) <= HASTY)
		change_frame(d, &r);
	return r;
}

static void insert(struct script *s, unsigned at, struct record r)
{
	if (s->n == RECORDS_MAX)
		return;
	memmove(&s->records[at + 1], &s->records[at], (s->n - at) * sizeof(r));
	s->records[at] = r;
	s->n++;
}

static void drop(struct script *s, unsigned at)
{
	s->n--;
	memmove(&s->records[at], &s->records[at + 1], (s->n - at) * sizeof(s->records[0]));
}

static void change_order(struct dice *d, struct script *s)
{
	unsigned from = dice_roll(d, s->n), to = dice_roll(d, s->n);
	struct record r = s->records[from];

	switch (dice_roll(d, 4)) {
	case 0:
		insert(s, to, r);
		break;
	case 1:
		drop(s, from);
		break;
	case 2:
		s->records[from] = s->records[to];
		s->records[to] = r;
		break;
	default:
		s->records[from].op ^= (uint8_t)(1u << dice_roll(d, 4));
	}
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
	_cleanup_(free_ptr) uint8_t *before = malloc(size + 1);
	struct dice d = { seed };
	static struct script s;
	uint32_t choice = dice_roll(&d, 12);
	unsigned at;

	if (!before || choice == 0)
		return LLVMFuzzerMutate(data, size, max_size);
	memcpy(before, data, size);
	parse(before, size, &s);
	at = s.n ? dice_roll(&d, s.n) : 0;
	if (s.n == 0 || choice < 3)
		insert(&s, at, new_record(&d));
	else if (choice < 6)
		change_order(&d, &s);
	else if (op_of(&s.records[at]) <= HASTY)
		change_frame(&d, &s.records[at]);
	else
		s.records[at] = new_record(&d);
	return write_script(&s, data, max_size);
}
