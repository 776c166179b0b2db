/* SPDX-License-Identifier: MIT
 *
 * A storm over a stream in a host pool: its producer, its readers and the daemon are killed at
 * random, at times several at once, and others take their places. The contents of each frame are
 * checked while it is read, before and behind a pause. In the end no frame was torn, no `every`
 * reader has missed one, and the `share` group has done each frame at least once.
 *
 * STORM_SECONDS sets the duration, STORM_SEED repeats the choices. tests/system/RESULTS.md has long
 * runs.
 */
#include "proto/base/own.h"
#include "tests/lib/storm.h"
#include "tests/lib/stormer.h"
#include "tests/lib/suite.h"
#include "tests/system/lib/stream_board.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define SECONDS 4u
#define READERS 10

static struct role_process readers[READERS];
static unsigned n_readers, n_crashes, n_reader_deaths, n_producer_deaths, n_leaves;
static uint64_t state;

static unsigned choose(unsigned n)
{
	return (unsigned)(stormer_random(&state) % n);
}

static void start_producer(void)
{
	role_start(&producer, "producer",
		   (const char *[]){ k.socket, "s", path, "slots=24", "readers=24", "adopt=1",
				     "keep=1", "keep_queue=1", "limit=120000", "delay=20",
				     choose(2) ? "spin=300" : "spin=0", NULL });
}

/* At least two of them share. */
static void start_reader(unsigned i)
{
	static const char *const follows[] = { "follow=every", "follow=latest", "follow=share" };
	static const char *const spins[] = { "spin=0", "spin=50", "spin=1000" };
	char id[16], held[16], hold[16];

	snprintf(id, sizeof(id), "id=%u", n_readers++ % STREAMER_READERS);
	snprintf(held, sizeof(held), "held=%u", 1 + choose(3));
	snprintf(hold, sizeof(hold), "hold=%u", choose(4) ? choose(200) : choose(5000));
	role_start(&readers[i], "reader",
		   (const char *[]){ k.socket, "s", path, follows[i < 2 ? 2 : choose(3)], id, held,
				     hold, spins[choose(3)], NULL });
}

/* A role that has ended by itself has found an error. */
static void kill_role(struct role_process *p)
{
	int status;

	kill(p->pid, SIGKILL);
	status = role_wait(p);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
		      "a role ended with status 0x%x", status);
}

static void kill_reader(void)
{
	unsigned i = choose(READERS);

	kill_role(&readers[i]);
	n_reader_deaths++;
	start_reader(i);
}

static void end_reader(void)
{
	unsigned i = choose(READERS);

	role_finish(&readers[i]);
	n_leaves++;
	start_reader(i);
}

static void kill_producer(void)
{
	kill_role(&producer);
	n_producer_deaths++;
	if (choose(2))
		kill_reader();
	start_producer();
}

static void kill_daemon(void)
{
	supervisor_end(&k, choose(4) ? SIGKILL : SIGTERM);
	n_crashes++;
	if (choose(2))
		kill_reader();
	if (choose(3) == 0)
		kill_producer();
	supervisor_spawn(&k);
}

static void rage(unsigned seconds)
{
	time_t end = time(NULL) + seconds;

	while (time(NULL) < end) {
		poll(NULL, 0, 5 + (int)choose(100));
		switch (choose(12)) {
		case 0:
			supervisor_await(&k);
			kill_daemon();
			break;
		case 1:
		case 2:
			kill_producer();
			break;
		case 3:
		case 4:
			end_reader();
			break;
		default:
			kill_reader();
		}
	}
}

static void setup(void)
{
	const char *seed = getenv("STORM_SEED");

	board_setup();
	state = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
	printf("stream storm: STORM_SEED=%lu\n", (unsigned long)state);
	fflush(stdout);
}

static void begin(void)
{
	char line[16];

	start_producer();
	role_read_line(&producer, line, sizeof(line));
	for (unsigned i = 0; i < READERS; i++)
		start_reader(i);
}

/* All that are left read to the end. */
static void end(void)
{
	uint64_t frames = board->published, last;

	client_await(board->published > frames + 100);
	role_finish(&producer);
	client_await(board->ended + board->dropped >= READERS);
	for (unsigned i = 0; i < READERS; i++) {
		int status = 0;

		ck_assert_int_eq(waitpid(readers[i].pid, &status, 0), readers[i].pid);
		ck_assert_msg(status == 0, "a reader ended with status 0x%x", status);
		close_fd(&readers[i].to);
		close_fd(&readers[i].from);
	}
	last = board->published;
	printf("stream storm: %lu frames; killed: %u readers, %u producers, %u daemons; %u readers "
	       "left\n",
	       (unsigned long)last, n_reader_deaths, n_producer_deaths, n_crashes, n_leaves);
}

static void check(void)
{
	uint64_t last = board->published, twice = 0;

	ck_assert_uint_eq(board->torn, 0);
	ck_assert_uint_eq(board->disorder, 0);
	ck_assert_uint_eq(board->broken, 0);
	ck_assert_uint_eq(board->stale, 0);
	ck_assert_uint_eq(board->dropped, 0);
	ck_assert_uint_lt(last, STREAMER_FRAMES);
	for (uint64_t seq = 1; seq <= last; seq++) {
		ck_assert_msg(board->shared[seq] > 0, "no member has done frame %lu of %lu",
			      (unsigned long)seq, (unsigned long)last);
		twice += board->shared[seq] - 1u;
	}
	/* A member may die between what it does and the release. */
	ck_assert_uint_le(twice, n_reader_deaths * 3);
	printf("stream storm: %lu frames were done twice\n", (unsigned long)twice);
}

START_TEST(a_storm_tears_and_loses_no_frame)
{
	begin();
	rage(storm_seconds(SECONDS));
	supervisor_await(&k);
	end();
	check();
	ck_assert_int_eq(gpushm_unlink(c, "s"), 0);
}
END_TEST

int main(int argc, char **argv)
{
	TCase *t = tcase_create("stream_storm");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, setup, board_teardown);
	tcase_set_timeout(t, storm_seconds(SECONDS) + 240);
	tcase_add_test(t, a_storm_tears_and_loses_no_frame);
	return suite_run("stream_storm", t, NULL);
}
