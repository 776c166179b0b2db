/* SPDX-License-Identifier: MIT
 *
 * The producer: fills and publishes the plan's frames, then closes the stream. It sleeps only until
 * it is woken: there are no timeouts, so that a lost wake-up stops the model.
 */
#include "tests/model/streams/actors.h"
#include "tests/model/streams/steps.h"

#include <errno.h>
#include <string.h>

enum {
	BEGUN,
	MAP,
	MAP_ONE,
	TAKE,
	TOOK,
	PREPARE,
	SLEEP,
	ASLEEP,
	AWAKE,
	FILL,
	PUBLISH,
	WAKE,
	DRAIN,
	CLOSE,
	CLOSED
};

static struct producer *me(void)
{
	return &world.producer;
}

/* ---- the struct writer, which has a pointer ---- */

static uint32_t queue[SLOTS_MAX];

static struct writer load_writer(void)
{
	struct writer w = { .head = head(),
			    .group = group(),
			    .slots = plan->slots,
			    .order_size = stream_order_size(plan->slots),
			    .readers = READERS,
			    .seq = me()->seq,
			    .passed = me()->passed,
			    .knows_passed = me()->knows_passed,
			    .queue = queue,
			    .first = me()->first,
			    .n = me()->n };

	memcpy(queue, me()->queue, sizeof(queue));
	for (uint32_t i = 0; i < READERS; i++)
		if (me()->mapped[i])
			w.pages[i] = (struct writer_page){ page_of(i, me()->mapped_page[i]),
							   me()->mapped[i] };
	return w;
}

static void save_writer(const struct writer *w)
{
	me()->seq = w->seq;
	me()->passed = w->passed;
	me()->knows_passed = w->knows_passed;
	me()->first = w->first;
	me()->n = w->n;
	memcpy(me()->queue, w->queue, plan->slots * sizeof(uint32_t));
}

static struct writer_slot load_slot(void)
{
	return (struct writer_slot){ .slot = me()->slot, .seq = me()->slot_seq };
}

static void save_slot(const struct writer_slot *s)
{
	me()->slot = s->slot;
	me()->slot_seq = s->seq;
	me()->finished = s->finished;
	me()->n_waits = (uint32_t)s->n_waits;
	for (uint32_t i = 0; i < READERS; i++) {
		memset(&me()->waits[i], 0, sizeof(me()->waits[i]));
		if (i < s->n_waits) {
			me()->waits[i].reader = s->waits[i].reader;
			me()->waits[i].value = s->waits[i].value;
		}
	}
}

/* ---- phases ---- */

static bool is_last(uint64_t seq)
{
	return frame_index(seq) + 1 >= plan->frames;
}

static void begun(void)
{
	struct writer w;

	if (world.producers > 0)
		machine_wait(BLOCK_REQUEST);
	machine_at_once(true);
	if (writer_init(&w, head(), group(), head()->slots, head()->readers) < 0)
		violate("out of memory");
	save_writer(&w);
	writer_done(&w);
	machine_at_once(false);
	me()->number = ++world.producers;
	machine_next(head()->newest != plan->newest && is_last(head()->newest) ? DRAIN : MAP);
}

static void map(void)
{
	struct writer w = load_writer();
	uint32_t reader;
	bool unmapped = writer_unmapped(&w, &reader);

	machine_next(unmapped ? MAP_ONE : TAKE);
}

/* PAGE: the daemon replies when it does nothing else. */
static void map_one(void)
{
	machine_wait(BLOCK_IDLE);
	for (uint32_t i = 0; i < READERS; i++)
		if (head()->seats[i].state == STREAM_SEAT_TAKEN) {
			me()->mapped[i] = head()->seats[i].generation;
			me()->mapped_page[i] = world_followers[i].page;
		}
	machine_next(me()->prepared ? PREPARE : MAP);
}

static void take(void)
{
	struct writer w = load_writer();
	struct writer_slot slot = { 0 };
	struct writer_blocker blocker;
	int r = writer_take(&w, plan->gpu, 1, &slot, &blocker);

	save_writer(&w);
	if (r == 0) {
		save_slot(&slot);
		if (!plan->gpu)
			world.contents[slot.slot] = DIRTY;
		check_take(slot.slot);
	}
	me()->result = r;
	me()->wake = blocker.wake;
	machine_next(TOOK);
}

static void took(void)
{
	int r = me()->result;

	if (me()->wake)
		machine_call_wake(&head()->wake);
	me()->wake = false;
	if (r == -ESTALE)
		machine_next(MAP);
	else if (r == 0)
		machine_next(me()->prepared ? AWAKE : FILL);
	else
		machine_next(me()->prepared ? SLEEP : PREPARE);
}

static void add_word(struct sleep_word *words, uint32_t *n, const _Atomic uint32_t *word)
{
	words[*n].word = word;
	words[*n].value = stream_load(word);
	++*n;
}

/* As producer_words() in client/lib/stream/producer.c. */
static void prepare(void)
{
	struct sleep_word words[READERS + 1] = { 0 };
	uint32_t n = 0;

	stream_store(&head()->asleep, 1);
	add_word(words, &n, &head()->wake);
	for (uint64_t left = stream_load(&head()->active); left; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(left);

		if (me()->mapped[i])
			add_word(words, &n, &page_of(i, me()->mapped_page[i])->released_count);
	}
	memcpy(me()->sleeps, words, sizeof(words));
	me()->n_sleeps = n;
	me()->missed = false;
	me()->prepared = true;
	machine_next(MAP);
}

static void sleep_on_words(void)
{
	bool changed = false;

	machine_point();
	for (uint32_t i = 0; i < me()->n_sleeps; i++)
		changed |= *(const uint32_t *)me()->sleeps[i].word != me()->sleeps[i].value;
	machine_say(changed ? "does not sleep" : "sleeps");
	machine_next(changed ? PREPARE : ASLEEP);
}

static void asleep(void)
{
	machine_wait(BLOCK_FUTEX);
	machine_next(PREPARE);
}

static void awake(void)
{
	stream_store(&head()->asleep, 0);
	memset(me()->sleeps, 0, sizeof(me()->sleeps));
	me()->n_sleeps = 0;
	me()->prepared = me()->missed = false;
	machine_next(FILL);
}

static void fill_on_gpu(void)
{
	uint32_t slot = me()->slot;

	for (uint32_t i = 0; i < me()->n_waits; i++) {
		uint32_t reader = me()->waits[i].reader;
		struct stream_reader_page *p = page_of(reader, me()->mapped_page[reader]);

		gpu_enqueue(PRODUCER, (struct queued){ .kind = QUEUED_WAIT,
						       .word = &p->claims[slot].released,
						       .value = me()->waits[i].value });
	}
	if (me()->finished)
		gpu_enqueue(PRODUCER, (struct queued){ .kind = QUEUED_WAIT,
						       .word = &head()->slot[slot].ready,
						       .value = me()->finished });
	gpu_enqueue(PRODUCER, (struct queued){ .kind = QUEUED_FILL, .slot = slot });
	gpu_enqueue(PRODUCER, (struct queued){ .kind = QUEUED_FILLED,
					       .slot = slot,
					       .value = me()->slot_seq,
					       .number = me()->number });
	gpu_enqueue(PRODUCER, (struct queued){ .kind = QUEUED_WRITE,
					       .word = &head()->slot[slot].ready,
					       .value = me()->slot_seq });
	machine_next(PUBLISH);
}

static void fill(void)
{
	if (plan->gpu) {
		fill_on_gpu();
		return;
	}
	world.contents[me()->slot] = contents_of(me()->slot_seq, me()->number);
	machine_next(PUBLISH);
}

static void publish(void)
{
	struct writer w = load_writer();
	struct writer_slot slot = load_slot();
	unsigned char number = (unsigned char)me()->number;
	bool wake = writer_publish(&w, &slot, !plan->gpu, 1, &number, 1);

	save_writer(&w);
	check_publish(slot.seq);
	me()->wake = wake;
	machine_next(WAKE);
}

static void wake(void)
{
	if (me()->wake)
		machine_call_wake(&head()->wake);
	me()->wake = false;
	machine_next(is_last(me()->slot_seq) ? DRAIN : MAP);
}

static void drain(void)
{
	if (plan->gpu)
		machine_wait(BLOCK_QUEUE);
	world.thread[PRODUCER].request = END;
	machine_next(CLOSE);
}

static void close_stream(void)
{
	machine_wait(BLOCK_REQUEST);
	machine_next(CLOSED);
}

static void closed(void)
{
	machine_stop(BLOCK_DONE);
}

/* Another producer, in another process; the daemon is to let it begin. */
void producer_reset(void)
{
	memset(me(), 0, sizeof(*me()));
	memset(logs[PRODUCER], 0, sizeof(logs[PRODUCER]));
	memset(&world_queues[PRODUCER], 0, sizeof(world_queues[PRODUCER]));
	world.thread[PRODUCER] = (struct thread){ .block = BLOCK_REQUEST,
						  .paused = BLOCK_REQUEST,
						  .request = BEGIN };
}

bool producer_could_go_on(void)
{
	struct writer w = load_writer();
	struct writer_slot slot = { 0 };
	struct writer_blocker blocker;

	return writer_take(&w, plan->gpu, 1, &slot, &blocker) == 0;
}

void producer_phase(void)
{
	static void (*const phases[])(void) = {
		[BEGUN] = begun,
		[MAP] = map,
		[MAP_ONE] = map_one,
		[TAKE] = take,
		[TOOK] = took,
		[PREPARE] = prepare,
		[SLEEP] = sleep_on_words,
		[ASLEEP] = asleep,
		[AWAKE] = awake,
		[FILL] = fill,
		[PUBLISH] = publish,
		[WAKE] = wake,
		[DRAIN] = drain,
		[CLOSE] = close_stream,
		[CLOSED] = closed,
	};

	phases[world.thread[PRODUCER].phase]();
}
