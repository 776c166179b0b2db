/* SPDX-License-Identifier: MIT
 *
 * What must hold in each state, after each delivery, and in the end.
 */
#include "tests/model/streams/actors.h"

#include <string.h>

static bool is_follower(uint32_t reader, enum stream_follow follow)
{
	return plan->reader[reader].follow == follow;
}

/* What a process has that is gone, and a reader that is being dropped, may be taken away. */
static bool is_alive(uint32_t reader)
{
	return !world.thread[READER + reader].gone &&
	       head()->seats[reader].state != STREAM_SEAT_DROPPED;
}

/* The daemon has done all that it does about the end of a reader. */
static bool is_over(uint32_t reader)
{
	return world.thread[READER + reader].buried || world_followers[reader].dropped;
}

/* ---- slots ---- */

static bool holds(const struct follower *f, uint32_t slot)
{
	for (uint32_t i = 0; i < f->n_held; i++)
		if (f->held[i].slot == slot && !(i == 0 && f->releasing))
			return true;
	return false;
}

/* A reader on a GPU looks itself whether the frame is there. */
void check_take(uint32_t slot)
{
	for (uint32_t i = 0; i < READERS; i++)
		if (!plan->reader[i].gpu && is_alive(i) &&
		    head()->seats[i].state == STREAM_SEAT_TAKEN && holds(&world_followers[i], slot))
			violate("the producer takes a slot that a reader holds");
}

bool check_contents(const struct reader_frame *f)
{
	return world.contents[f->slot] == contents_of(f->seq, f->meta[0]);
}

void check_publish(uint64_t seq)
{
	struct frame *f = &world.frame[frame_index(seq)];

	if (f->published)
		violate("a number is given twice");
	f->published = true;
}

/* ---- frames ---- */

static void check_every(const struct follower *f, uint64_t seq)
{
	if (f->last == 0 && (stream_before(f->high, seq - 1) || !stream_before(f->low, seq)))
		violate("`every` begins with another frame than the first behind its join");
	if (f->last != 0 && seq != stream_next(f->last))
		violate("`every` misses a frame, or gets one twice");
}

/* Again only if the former holder is dead or was dropped. */
static void check_share(uint32_t reader, uint64_t seq)
{
	struct frame *f = &world.frame[frame_index(seq)];

	if (!is_alive(reader))
		return; /* it was dropped, and is told so when it asks */
	if (rubbish_in_group())
		return;
	if (f->done)
		violate("`share` gives a frame again that was done");
	if (f->holder != NOBODY && is_alive(f->holder))
		violate("`share` gives a frame to two readers");
	if (f->holder != NOBODY && plan->delivery == STREAM_AT_MOST_ONCE)
		violate("`share` gives a frame twice");
	f->holder = (uint8_t)reader;
	f->releasing = false;
}

void check_delivery(uint32_t reader, const struct reader_frame *got)
{
	struct follower *f = &world_followers[reader];
	struct frame *frame = &world.frame[frame_index(got->seq)];

	if (got->seq == 0 || got->slot >= plan->slots || got->meta_bytes != 1)
		violate("a reader gets rubbish");
	if (is_follower(reader, STREAM_EVERY))
		check_every(f, got->seq);
	if (is_follower(reader, STREAM_LATEST) && f->last != 0 && !stream_before(f->last, got->seq))
		violate("`latest` goes back");
	if (is_follower(reader, STREAM_SHARE))
		check_share(reader, got->seq);
	if (frame->number != 0 && frame->number != got->meta[0])
		violate("two readers get different frames of one number");
	frame->number = got->meta[0];
	f->last = got->seq;
}

void check_done(uint32_t reader, uint32_t frame)
{
	if (!is_follower(reader, STREAM_SHARE) || !is_alive(reader))
		return;
	world.frame[frame].done = true;
	world.frame[frame].releasing = false;
}

/* ---- sleep ---- */

/* Whether a thread is between two operations, so that it owes nobody a wake-up. */
static bool is_between(enum thread_id id)
{
	const struct thread *t = &world.thread[id];

	if (t->dead)
		return t->buried;
	return !t->begun &&
	       !(id == PRODUCER ? world.producer.wake : world_followers[id - READER].wake);
}

void check_sleepers(void)
{
	static struct memory before;
	bool asleep = false;

	if (world.daemon_op != NO_REQUEST || rubbish_in_group())
		return;
	for (enum thread_id i = PRODUCER; i < DAEMON; i++) {
		if (!is_between(i))
			return;
		asleep |= world.thread[i].block == BLOCK_FUTEX && !world.thread[i].dead;
	}
	if (!asleep)
		return;
	before = world.m;
	machine_at_once(true);
	if (world.thread[PRODUCER].block == BLOCK_FUTEX && !world.producer.missed &&
	    producer_could_go_on())
		violate("the producer sleeps, and a slot is free");
	world.m = before;
	for (uint32_t i = 0; i < READERS; i++)
		if (world.thread[READER + i].block == BLOCK_FUTEX && reader_could_go_on(i))
			violate("a reader sleeps, and there is a frame");
	world.m = before;
	machine_at_once(false);
}

/* ---- the end ---- */

static bool is_done_with(uint32_t reader)
{
	return is_over(reader) && (world.thread[READER + reader].dead ||
				   world.thread[READER + reader].block == BLOCK_DONE);
}

/* Its holder had died when the producer's end was told, so it comes back. */
static bool comes_back(const struct frame *f)
{
	return f->holder != NOBODY && !f->done && !f->releasing && !is_over(f->holder) &&
	       world.left & 1u << f->holder && plan->delivery != STREAM_AT_MOST_ONCE;
}

/* A frame of the group that nobody has done and nobody is going to do. */
static bool is_forgotten(const struct frame *f, uint64_t seq)
{
	if (f->done || f->releasing || (f->holder != NOBODY && !is_over(f->holder)))
		return false;
	/* A member may have taken it, and not returned yet; one that was dropped meanwhile is about
	 * to count it as lost. Or the daemon is about to say that it is to be redone. */
	for (uint32_t i = 0; i < plan->slots; i++)
		if (group()->owner[i] == stream_owner(seq, STREAM_REDO) &&
		    world.daemon_op != NO_REQUEST)
			return false;
	for (uint32_t i = 0; i < plan->slots; i++)
		for (uint32_t reader = 0; reader < READERS; reader++)
			if (group()->owner[i] == stream_owner(seq, reader) &&
			    !is_done_with(reader) && f->holder != reader)
				return false;
	return true;
}

static void check_share_end(void)
{
	uint64_t first = plan->keep_queue ? plan->newest : world_followers[0].high;
	uint32_t forgotten = 0, maybe = 0;

	for (uint64_t seq = stream_next(first); !stream_before(head()->newest, seq);
	     seq = stream_next(seq)) {
		const struct frame *f = &world.frame[frame_index(seq)];

		if (comes_back(f))
			violate("`share` ends before a dead member's frame has come back");
		forgotten += is_forgotten(f, seq);
		maybe += f->releasing || (f->holder != NOBODY && !f->done && !is_alive(f->holder) &&
					  !is_over(f->holder));
	}
	if (forgotten > group()->lost)
		violate("`share` forgets a frame");
	if (group()->lost > forgotten + maybe && plan->drops == 0)
		violate("`share` counts more frames as lost than there are");
}

void check_end(uint32_t reader)
{
	const struct follower *f = &world_followers[reader];
	bool began = f->last != 0 || f->high != head()->newest;

	if (is_follower(reader, STREAM_SHARE) && rubbish_in_group())
		return;
	if (is_follower(reader, STREAM_SHARE))
		check_share_end();
	else if (is_follower(reader, STREAM_EVERY) && began && f->last != head()->newest)
		violate("`every` does not get the last frame");
	else if (is_follower(reader, STREAM_LATEST) && head()->newest != 0 &&
		 f->last != head()->newest)
		violate("`latest` does not get the last frame");
}

void check_last_state(void)
{
	if (world.daemon_op != NO_REQUEST)
		violate("the daemon does not end an operation");
	for (uint32_t i = 0; i < PROCESSES; i++) {
		if (!world.thread[i].buried && world.thread[i].block != BLOCK_DONE)
			violate(i == PRODUCER ? "the producer waits for ever"
					      : "a reader waits for ever");
		if (world_queues[i].n > 0 && (i == PRODUCER || !plan->reader[i - READER].hangs))
			violate("a GPU waits for ever");
	}
}
