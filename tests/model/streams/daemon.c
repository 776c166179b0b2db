/* SPDX-License-Identifier: MIT
 *
 * The daemon: one operation on the words after another, each step of it between steps of the
 * others. And the first state.
 */
#include "tests/model/streams/actors.h"
#include "tests/model/streams/steps.h"

#include <string.h>

enum { OPERATE, WAKE_HEAD, WAKE_PAGE, REPLY };

static uint32_t subject(void)
{
	return world.daemon_for - READER;
}

static struct stream_reader_page *subject_page(void)
{
	return page_of(subject(), world_followers[subject()].page);
}

/* Whether the group waits for what members hold that may have died. */
static bool may_give_back(void)
{
	bool shares = false;

	for (uint32_t i = 0; i < READERS; i++)
		shares |= plan->reader[i].follow == STREAM_SHARE;
	return shares && plan->delivery != STREAM_AT_MOST_ONCE;
}

static void look_who_left(void)
{
	world.leavers = 0;
	for (uint32_t i = 0; i < READERS; i++)
		if (world.thread[READER + i].dead && !world.thread[READER + i].buried &&
		    plan->reader[i].follow == STREAM_SHARE)
			world.leavers |= (uint8_t)(1u << i);
	if (head()->state == STREAM_RUNNING)
		world.left = world.leavers;
}

static bool drops_readers(void)
{
	return world.daemon_op == DROP || world.daemon_op == WATCH;
}

/* ---- operations ---- */

static void join(void)
{
	struct stream_words w = words();
	const struct reader_plan *r = &plan->reader[subject()];

	stream_words_join(&w, subject(), subject_page(),
			  &(struct stream_join){ .generation = world.generations,
						 .now_ns = 1,
						 .max_held = r->max_held,
						 .follow = r->follow,
						 .pid = 1 });
}

static void leave(void)
{
	struct stream_words w = words();

	if (world_followers[subject()].dropped)
		stream_words_free_seat(&w, subject(), subject_page());
	else
		stream_words_leave(&w, subject(), subject_page());
}

/* The end of a producer: the daemon looks which members have left before it tells of it. */
static void find_leaving(void)
{
	struct stream_reader_page *pages[STREAM_READERS_MAX] = { NULL };
	struct stream_words w = words();

	for (uint32_t i = 0; i < READERS; i++)
		if (world.leavers & 1u << i)
			pages[i] = page_of(i, world_followers[i].page);
	if (may_give_back())
		stream_words_find_leaving(&w, pages);
}

static void find_pages(struct stream_reader_page **ret)
{
	for (uint32_t i = 0; i < READERS; i++)
		if (head()->seats[i].state != STREAM_SEAT_FREE)
			ret[i] = page_of(i, world_followers[i].page);
}

static uint64_t find_stuck(void)
{
	struct stream_reader_page *pages[STREAM_READERS_MAX] = { NULL };
	struct stream_words w = words();

	find_pages(pages);
	return stream_words_stuck(&w, pages, 2);
}

static void operate(void)
{
	struct stream_words w = words();

	if (world.daemon_op == END || world.daemon_op == ORPHAN)
		find_leaving();
	switch (world.daemon_op) {
	case JOIN:
		join();
		break;
	case LEAVE:
		leave();
		break;
	case WATCH:
		if (!(find_stuck() & 1ull << subject()))
			break;
		/* fall through */
	case DROP:
		stream_words_drop(&w, subject(), subject_page());
		break;
	case END:
		stream_words_end(&w);
		break;
	case ORPHAN:
		stream_words_orphan(&w);
		break;
	case SUSPECT:
		stream_words_suspect(&w, subject());
		machine_next(REPLY);
		return;
	default:
		stream_words_begin(&w, world.producers + 1u);
	}
	machine_next(WAKE_HEAD);
}

static void wake_head(void)
{
	machine_wake(&head()->wake);
	machine_next(world.daemon_op == LEAVE || drops_readers() ? WAKE_PAGE : REPLY);
}

static void wake_page(void)
{
	machine_wake(&subject_page()->released_count);
	machine_next(REPLY);
}

/* ---- replies ---- */

static void reply_to(struct thread *t)
{
	if (t->request == NO_REQUEST || t->dead)
		return;
	t->request = NO_REQUEST;
	t->block = BLOCK_STEP;
}

static void reply(void)
{
	struct thread *t = &world.thread[world.daemon_for];
	uint8_t op = world.daemon_op;

	if (op == JOIN)
		world_followers[subject()].high = head()->newest;
	if (drops_readers())
		world_followers[subject()].dropped |=
			head()->seats[subject()].state == STREAM_SEAT_DROPPED;
	world.daemon_op = NO_REQUEST;
	world.daemon_for = 0;
	if (t->dead && (op == LEAVE || op == ORPHAN)) {
		t->buried = true;
		t->request = NO_REQUEST;
		if (op == ORPHAN && plan->adopt)
			producer_reset();
	} else if (op != DROP && op != WATCH) {
		reply_to(t);
	}
	machine_next(OPERATE);
	machine_stop(BLOCK_STEP);
}

void daemon_phase(void)
{
	static void (*const phases[])(void) = { operate, wake_head, wake_page, reply };

	phases[world.thread[DAEMON].phase]();
}

/* ---- which operation ---- */

bool daemon_can_start(enum thread_id id)
{
	const struct thread *t = &world.thread[id];

	if (world.daemon_op != NO_REQUEST)
		return false;
	if (t->dead && !t->gone)
		return id != PRODUCER && !t->suspected && may_give_back() &&
		       head()->state != STREAM_RUNNING;
	return t->dead ? !t->buried : t->request != NO_REQUEST;
}

static void begin_join(uint32_t reader)
{
	struct follower *f = &world_followers[reader];
	struct stream_words w = words();

	f->page = f->joins++;
	f->frames = 0;
	f->last = 0;
	f->low = head()->newest;
	world.generations++;
	memset(world.m.page[reader][f->page], 0, sizeof(world.m.page[reader][f->page]));
	stream_words_init_reader(&w, page_of(reader, f->page));
}

static void start(uint32_t op, enum thread_id id)
{
	world.daemon_op = (uint8_t)op;
	world.daemon_for = (uint8_t)id;
	if (op == JOIN)
		begin_join((uint32_t)id - READER);
	if (op == END || op == ORPHAN)
		look_who_left();
	world.thread[id].suspected = op == SUSPECT;
	machine_start(DAEMON, daemon_phase);
}

void daemon_start(enum thread_id id)
{
	const struct thread *t = &world.thread[id];

	machine_say("begins an operation");
	if (t->dead && !t->gone)
		start(SUSPECT, id);
	else
		start(t->dead ? (id == PRODUCER ? ORPHAN : LEAVE) : t->request, id);
}

/* With rubbish it is the bad one. */
bool daemon_can_drop(uint32_t reader)
{
	const struct thread *t = &world.thread[READER + reader];

	if (plan->rubbish && !plan->reader[reader].bad)
		return false;
	return world.daemon_op == NO_REQUEST && world.drops < plan->drops && !t->dead &&
	       (t->block != BLOCK_DONE || plan->reader[reader].bad) && t->request == NO_REQUEST &&
	       head()->seats[reader].state == STREAM_SEAT_TAKEN;
}

void daemon_drop(uint32_t reader)
{
	world.drops++;
	machine_say("drops a reader");
	start(DROP, READER + reader);
}

bool daemon_can_watch(uint32_t reader)
{
	static struct memory before;
	uint64_t stuck;
	bool changes;

	if (!plan->watch || world.daemon_op != NO_REQUEST || world.thread[READER + reader].dead)
		return false;
	before = world.m;
	machine_at_once(true);
	stuck = find_stuck();
	machine_at_once(false);
	changes = memcmp(world.m.page[reader], before.page[reader], sizeof(before.page[reader]));
	world.m = before;
	return stuck & 1ull << reader || changes;
}

void daemon_watch(uint32_t reader)
{
	machine_say("looks for whom a GPU waits");
	start(WATCH, READER + reader);
}

/* A JOIN that was not finished is another reader's. */
bool daemon_can_restart(void)
{
	return world.restarts < plan->restarts && world.daemon_op != NO_REQUEST &&
	       world.daemon_op != JOIN && world.thread[DAEMON].phase == OPERATE;
}

void daemon_restart(void)
{
	world.restarts++;
	memset(logs[DAEMON], 0, sizeof(logs[DAEMON]));
	world.thread[DAEMON].n_log = 0;
	machine_say("dies, and its successor does it again");
	look_who_left();
	machine_start(DAEMON, daemon_phase);
}

/* ---- the first state ---- */

/* A frame that is there already. */
static void begin_behind(uint64_t newest)
{
	struct stream_head *h = head();

	for (uint32_t i = 0; i < plan->slots; i++)
		h->slot[i].ready = newest;
	h->slot[0].seq = newest;
	h->newest = newest;
	h->slot[0].meta_bytes = 1;
	*stream_order(h, plan->slots, h->order_size, newest) = 0;
	world.contents[0] = contents_of(newest, 0);
	group()->next = stream_next(newest);
}

static void join_at_once(uint32_t reader)
{
	world.daemon_for = (uint8_t)(READER + reader);
	begin_join(reader);
	join();
	world_followers[reader].high = head()->newest;
	world.producer.mapped[reader] = world.generations;
	world.producer.mapped_page[reader] = world_followers[reader].page;
}

void actors_begin(void)
{
	struct stream_words w;

	memset(&world, 0, sizeof(world));
	memset(world_followers, 0, sizeof(world_followers));
	memset(world_queues, 0, sizeof(world_queues));
	memset(logs, 0, sizeof(logs));
	w = words();
	machine_at_once(true);
	stream_words_init(&w);
	if (plan->newest)
		begin_behind(plan->newest);
	stream_words_begin(&w, 1);
	for (uint32_t i = 0; i < READERS; i++)
		if (plan->reader[i].follow && !plan->reader[i].late && !plan->reader[i].heir)
			join_at_once(i);
	world.daemon_for = 0;
	for (uint32_t i = 0; i < FRAMES_MAX; i++)
		world.frame[i].holder = NOBODY;
	for (enum thread_id i = PRODUCER; i < DAEMON; i++)
		machine_start(i, actor_phase(i));
}
