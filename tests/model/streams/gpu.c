/* SPDX-License-Identifier: MIT
 *
 * A GPU of each process: it does what was queued, one operation after another. It goes on when the
 * process dies, until the process is gone.
 */
#include "tests/model/streams/actors.h"

#include <string.h>

void gpu_enqueue(enum thread_id of, struct queued op)
{
	struct queue *q = &world_queues[of];

	if (q->n == QUEUED_MAX)
		violate("the model's queue is too small");
	else
		memcpy(&q->op[q->n++], &op, sizeof(op));
}

bool gpu_can_run(enum thread_id of)
{
	const struct queue *q = &world_queues[of];

	if (q->n == 0 || (q->op[0].kind == QUEUED_READ && plan->reader[of - READER].hangs))
		return false;
	return q->op[0].kind != QUEUED_WAIT ||
	       !stream_before(*(uint64_t *)q->op[0].word, q->op[0].value);
}

static bool was_dropped(enum thread_id of)
{
	return of != PRODUCER && head()->seats[of - READER].state != STREAM_SEAT_TAKEN;
}

/* A reader asks behind its work whether the frame was good. */
static void read_frame(enum thread_id of, const struct queued *op)
{
	const struct stream_slot *s = &head()->slot[op->slot];

	if (world.contents[op->slot] == contents_of(op->value, op->number))
		return;
	if (!stream_is_broken(s->broken, s->broken_span, op->value) && !was_dropped(of))
		violate("a GPU reads a frame that is not there, and nobody tells");
}

static void write_word(enum thread_id of, const struct queued *op)
{
	*op->word = op->value;
	if (of == PRODUCER)
		return;
	check_done((uint32_t)of - READER, op->number);
	world.producer.missed = !plan->gpu;
}

void gpu_run(enum thread_id of)
{
	struct queue *q = &world_queues[of];
	struct queued op = q->op[0];
	static const char *const kinds[] = { "its GPU has waited", "its GPU fills",
					     "its GPU has filled", "its GPU writes a word",
					     "its GPU reads a frame" };

	switch (op.kind) {
	case QUEUED_FILL:
		world.contents[op.slot] = DIRTY;
		break;
	case QUEUED_FILLED:
		world.contents[op.slot] = contents_of(op.value, op.number);
		break;
	case QUEUED_WRITE:
		write_word(of, &op);
		break;
	case QUEUED_READ:
		read_frame(of, &op);
		break;
	default:
		break;
	}
	memmove(&q->op[0], &q->op[1], (q->n - 1) * sizeof(q->op[0]));
	q->n--;
	memset(&q->op[q->n], 0, sizeof(q->op[0]));
	machine_say(kinds[op.kind]);
}
