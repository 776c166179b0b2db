/* SPDX-License-Identifier: MIT
 *
 * A reader: takes frames and releases them until the stream ends, or leaves before that.
 */
#include "tests/model/streams/actors.h"
#include "tests/model/streams/steps.h"

#include <errno.h>
#include <string.h>

enum {
	START,
	ASK,
	JOINING,
	JOINED,
	TAKE,
	TOOK,
	USE,
	CHECK,
	ENQUEUE,
	RELEASE,
	WAKE,
	PREPARE,
	SLEEP,
	ASLEEP,
	AWAKE,
	DRAIN,
	LEAVING,
	LEFT,
	ENDED
};

static uint32_t index_of_me(void)
{
	return (uint32_t)machine_thread() - READER;
}

static struct follower *me(void)
{
	return &world_followers[index_of_me()];
}

static const struct reader_plan *my_plan(void)
{
	return &plan->reader[index_of_me()];
}

static struct stream_reader_page *my_page(void)
{
	return page_of(index_of_me(), me()->page);
}

/* ---- joining ---- */

static void start(void)
{
	if (my_plan()->follow == 0 || my_plan()->bad) {
		machine_next(ENDED);
		return;
	}
	if (my_plan()->heir)
		machine_wait(BLOCK_HEIR);
	machine_next(my_plan()->late || my_plan()->heir ? ASK : JOINED);
}

static void ask(void)
{
	world.thread[machine_thread()].request = JOIN;
	machine_next(JOINING);
}

static void joining(void)
{
	machine_wait(BLOCK_REQUEST);
	machine_next(JOINED);
}

static void joined(void)
{
	uint32_t i = index_of_me();

	machine_at_once(true);
	reader_init(&me()->reader, head(), plan->slots, my_page(),
		    my_plan()->follow == STREAM_SHARE ? group() : NULL, i,
		    head()->seats[i].generation);
	machine_at_once(false);
	machine_next(TAKE);
}

/* ---- taking ---- */

static void take(void)
{
	struct reader r = me()->reader;
	struct reader_frame f = { 0 };
	bool wake = false;
	/* With the mending of what a bad member has written. */
	bool mends = plan->rubbish & RUBBISH_OF_GROUP && r.group;
	int e = mends ? reader_take(&r, &f, &wake) : reader_try(&r, &f, &wake);

	memcpy(&me()->reader, &r, sizeof(r));
	if (e == 0) {
		memcpy(&me()->held[me()->n_held++], &f, sizeof(f));
		me()->frames++;
		me()->napped = false;
		check_delivery(index_of_me(), &f);
	}
	me()->result = e;
	me()->wake |= wake;
	machine_next(e == -EINPROGRESS ? TAKE : TOOK);
}

static void enqueue_use(void)
{
	const struct reader_frame *f = &me()->held[me()->n_held - 1];

	gpu_enqueue(machine_thread(), (struct queued){ .kind = QUEUED_WAIT,
						       .word = &head()->slot[f->slot].ready,
						       .value = f->seq });
	gpu_enqueue(machine_thread(), (struct queued){ .kind = QUEUED_READ,
						       .slot = f->slot,
						       .value = f->seq,
						       .number = f->meta[0] });
}

static uint32_t after_use(void)
{
	bool full = me()->n_held == my_plan()->max_held;

	return full || me()->frames == my_plan()->leaves_after ? ENQUEUE : TAKE;
}

static void dropped(void)
{
	if (!me()->dropped && world.daemon_op != DROP && world.daemon_op != WATCH)
		violate("a reader is told that it was dropped");
	me()->n_held = 0;
	memset(me()->held, 0, sizeof(me()->held));
	machine_next(ENDED);
}

static void end(void)
{
	check_end(index_of_me());
	machine_next(ENDED);
}

static bool has_no_frame(int e)
{
	return e == -EAGAIN || (e == -EOWNERDEAD && plan->adopt);
}

static void took(void)
{
	int e = me()->result;

	if (me()->wake)
		machine_call_wake(&my_page()->released_count);
	me()->wake = false;
	if (e == 0 && me()->prepared)
		machine_next(AWAKE);
	else if (e == 0)
		machine_next(USE);
	else if (e == -ESTALE)
		dropped();
	else if (me()->n_held > 0)
		machine_next(ENQUEUE);
	else if (has_no_frame(e) && !me()->prepared)
		machine_next(PREPARE);
	else if (has_no_frame(e))
		machine_next(my_plan()->naps && !me()->napped ? AWAKE : SLEEP);
	else
		end();
}

/* ---- sleep ---- */

static void prepare(void)
{
	struct reader r = me()->reader;
	uint32_t value;

	reader_sleeps(&r, &value);
	me()->wake_value = value;
	me()->prepared = true;
	machine_next(TAKE);
}

static void sleep_on_word(void)
{
	bool changed;

	machine_point();
	changed = *(uint32_t *)&head()->wake != me()->wake_value;
	machine_say(changed ? "does not sleep" : "sleeps");
	machine_next(changed ? PREPARE : ASLEEP);
}

static void asleep(void)
{
	machine_wait(BLOCK_FUTEX);
	machine_next(PREPARE);
}

/* With a frame, or behind a nap that nobody has ended: then it looks, and sleeps again. */
static void awake(void)
{
	struct reader r = me()->reader;

	reader_is_awake(&r);
	me()->prepared = false;
	me()->wake_value = 0;
	me()->napped = me()->result != 0;
	machine_next(me()->napped ? TAKE : USE);
}

/* ---- using ---- */

/* Once it is ready it stays so. */
static bool is_ready(void)
{
	const struct reader_frame *f = &me()->held[me()->n_held - 1];

	return !stream_before(*(uint64_t *)&head()->slot[f->slot].ready, f->seq);
}

static void use(void)
{
	if (my_plan()->gpu) {
		enqueue_use();
		machine_next(after_use());
		return;
	}
	if (!is_ready())
		machine_wait(BLOCK_READY);
	me()->bad = !check_contents(&me()->held[me()->n_held - 1]);
	machine_next(CHECK);
}

static void check(void)
{
	struct reader r = me()->reader;

	if (world.thread[machine_thread()].n_log == 0)
		me()->bad |= !check_contents(&me()->held[me()->n_held - 1]);
	if (reader_check(&r, &me()->held[me()->n_held - 1]) == 0 && me()->bad)
		violate("a frame is told to be good, and is not");
	me()->bad = false;
	machine_next(after_use());
}

/* ---- releasing ---- */

static void enqueue(void)
{
	const struct reader_frame *f = &me()->held[0];
	struct reader r = me()->reader;
	uint64_t after = my_plan()->gpu ? reader_release_after(&r, f) : 0;
	_Atomic uint64_t *released = &my_page()->claims[f->slot].released;

	if (after)
		gpu_enqueue(machine_thread(), (struct queued){ .kind = QUEUED_WAIT,
							       .word = released,
							       .value = after });
	if (my_plan()->gpu)
		gpu_enqueue(machine_thread(), (struct queued){ .kind = QUEUED_WRITE,
							       .word = released,
							       .slot = f->slot,
							       .number = frame_index(f->seq),
							       .value = reader_release_value(f) });
	if (my_plan()->follow == STREAM_SHARE)
		world.frame[frame_index(f->seq)].releasing = true;
	me()->releasing = true;
	machine_next(RELEASE);
}

static void release(void)
{
	struct reader r = me()->reader;
	const struct reader_frame *f = &me()->held[0];
	bool wake = my_plan()->gpu ? reader_release_enqueued(&r, f) : reader_release(&r, f);

	memcpy(&me()->reader, &r, sizeof(r));
	if (!my_plan()->gpu)
		check_done(index_of_me(), frame_index(f->seq));
	memmove(&me()->held[0], &me()->held[1], sizeof(me()->held) - sizeof(me()->held[0]));
	memset(&me()->held[HELD_MAX - 1], 0, sizeof(me()->held[0]));
	me()->n_held--;
	me()->releasing = false;
	me()->wake = wake;
	machine_next(WAKE);
}

static void wake(void)
{
	if (me()->wake)
		machine_call_wake(&my_page()->released_count);
	me()->wake = false;
	if (my_plan()->hangs) /* its host waits for its GPU */
		machine_next(ENDED);
	else if (me()->frames != my_plan()->leaves_after || my_plan()->leaves_after == 0)
		machine_next(TAKE);
	else
		machine_next(me()->n_held > 0 ? ENQUEUE : DRAIN);
}

/* ---- the end ---- */

static void drain(void)
{
	if (my_plan()->gpu)
		machine_wait(BLOCK_QUEUE);
	world.thread[machine_thread()].request = LEAVE;
	machine_next(LEAVING);
}

static void leaving(void)
{
	machine_wait(BLOCK_REQUEST);
	machine_next(LEFT);
}

static void left(void)
{
	machine_next(my_plan()->returns && me()->joins < PAGES ? ASK : ENDED);
}

static void ended(void)
{
	machine_stop(BLOCK_DONE);
}

bool reader_could_go_on(uint32_t reader)
{
	struct reader r = world_followers[reader].reader;
	struct reader_frame f = { 0 };
	bool wake;

	return reader_take(&r, &f, &wake) == 0;
}

void reader_phase(void)
{
	static void (*const phases[])(void) = {
		[START] = start,
		[ASK] = ask,
		[JOINING] = joining,
		[JOINED] = joined,
		[TAKE] = take,
		[TOOK] = took,
		[USE] = use,
		[CHECK] = check,
		[ENQUEUE] = enqueue,
		[RELEASE] = release,
		[WAKE] = wake,
		[PREPARE] = prepare,
		[SLEEP] = sleep_on_word,
		[ASLEEP] = asleep,
		[AWAKE] = awake,
		[DRAIN] = drain,
		[LEAVING] = leaving,
		[LEFT] = left,
		[ENDED] = ended,
	};

	phases[world.thread[machine_thread()].phase]();
}
