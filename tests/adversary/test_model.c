/* SPDX-License-Identifier: MIT
 *
 * Random sequences of what clients can do, and of what can happen to them and to the daemon, played
 * against a real daemon and a small model of the rules at once (tests/model). After each operation
 * the answer and all counts must be the model's, and at intervals everything that can be listed.
 *
 * MODEL_SEQUENCES says how many sequences, MODEL_LENGTH of how many operations each; MODEL_SEED,
 * printed by each run, makes the same choices again. A sequence that fails is made shorter as long
 * as it fails, and what is left is told; MODEL_SEED as it is told then, with MODEL_SEQUENCES=1,
 * plays the whole of it, and with MODEL_TELLS=1 it is told step by step.
 *
 * It can fail: each of these changes to the daemon was found, most of them within ten sequences. A
 * lease ends when its socket closes; its charge is not returned; a limit is one less; a suspect's
 * connection stays charged; a charge is halved by a restart. Unlink frees the name with the last
 * lease; a half-made name outlives its socket; an id is given twice; a transient buffer stays, or
 * is a common one after a restart; an unlink is not journaled; a table's fd stays with the
 * supervisor; a create that fails keeps its name. Pending memory serves another user, or its own
 * after another had it, also across a restart; the limit of pending blocks is one less; an
 * inherited pool's memory stays used; suspect memory is not told; who waits for room is not told. A
 * dead writer leaves nothing dirty, also between two daemons; a restart forgets dirt; the last
 * death is told, not the first; what is not reclaimed is dirty; a cleaning or a publication wakes
 * nobody. A lease is reclaimed by another process, or closed by another connection; who reclaims it
 * is not journaled; a sealed buffer is opened for writing, or its maker goes on as a writer;
 * strangers attach to a mempool; a group's missing bit is looked for among the others'. A restart
 * forgets who is away; the end of the last user does not evict what is wanted; what has room is
 * wanted all the same; evicted memory that another user had is used again. A use does not change
 * who goes next; what is suspended goes before what nobody has.
 */
#include "proto/base/own.h"
#include "tests/lib/stormer.h"
#include "tests/lib/suite.h"
#include "tests/model/play.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#define LENGTH_MAX 1000u
#define DEADLINE_MS 60000
/* The sequence is known to fail here. */
#define SHORTENING_MS 500
#define SHORTENING_S 300

static unsigned length;

static uint64_t number_of(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

static struct op make_op(uint64_t *state)
{
	uint64_t a = stormer_random(state), b = stormer_random(state);

	return (struct op){ (uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32) };
}

/* Plays the operations of a sequence without those in left_out. */
static void play_sequence(struct play *p, uint64_t seed, const bool *left_out)
{
	uint64_t state = seed;

	p->theme = (uint32_t)stormer_random(&state);
	for (outcome->step = 0; outcome->step < length; outcome->step++) {
		struct op op = make_op(&state);

		if (!left_out || !left_out[outcome->step])
			play_step(p, &op);
	}
	play_tidy(p);
}

/* A process that fails writes the reason to *outcome, and leaves its daemon's folder. */
static pid_t fork_player(void)
{
	pid_t pid;

	fflush(NULL);
	*outcome = (struct outcome){ .counts = outcome->counts };
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static void remove_folder(void)
{
	static const char *const names[] = { "gpushmd.sock", "notify", "log", "conf" };
	char path[128];

	for (size_t i = 0; i < array_size(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", outcome->folder, names[i]);
		unlink(path);
	}
	rmdir(outcome->folder);
}

static bool succeeded(pid_t pid)
{
	int status = 0;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (status && !outcome->text[0])
		snprintf(outcome->text, sizeof(outcome->text),
			 "it ended with status 0x%x; see above", status);
	return status == 0;
}

static void play_many(uint64_t seed, unsigned from, unsigned n)
{
	struct play p = { .deadline_ms = DEADLINE_MS, .tells = getenv("MODEL_TELLS") };

	play_begin(&p);
	play_measure(&p);
	for (outcome->sequence = from; outcome->sequence < n; outcome->sequence++) {
		play_sequence(&p, seed + outcome->sequence, NULL);
		outcome->counts.sequences++;
		outcome->counts.evictions += p.model.evictions;
		outcome->counts.asked += p.model.asked;
		p.model.evictions = p.model.asked = 0;
		if (outcome->sequence % 50 == 49)
			play_check_fds(&p);
	}
	play_check_fds(&p);
	play_end(&p);
	_exit(0);
}

/* ---- a failure, made shorter ---- */

static bool fails(uint64_t seed, const bool *left_out, bool tells)
{
	pid_t pid = fork_player();

	if (pid == 0) {
		struct play p = { .tells = tells, .deadline_ms = SHORTENING_MS };

		raw_deadline_ms = SHORTENING_MS;
		if (!tells && !freopen("/dev/null", "w", stderr))
			_exit(1);
		play_begin(&p);
		play_sequence(&p, seed, left_out);
		play_end(&p);
		_exit(0);
	}
	if (succeeded(pid))
		return false;
	remove_folder();
	return true;
}

/* Leaves out as many operations as possible, at first half of them, for some minutes at most. */
static void shorten(uint64_t seed, bool *left_out)
{
	time_t end = time(NULL) + SHORTENING_S;

	for (unsigned part = length / 2; part > 0; part /= 2)
		for (unsigned from = 0; from < length && time(NULL) < end; from += part) {
			bool before[LENGTH_MAX];
			unsigned n = from + part < length ? part : length - from;

			memcpy(before, left_out, sizeof(before));
			memset(left_out + from, true, n);
			if (memcmp(before, left_out, sizeof(before)) == 0)
				continue;
			if (!fails(seed, left_out, false))
				memcpy(left_out, before, sizeof(before));
		}
}

static void explain(uint64_t seed)
{
	bool left_out[LENGTH_MAX] = { false };
	char first[sizeof(outcome->text) + 32];

	snprintf(first, sizeof(first), "step %u: %s", outcome->step, outcome->text);
	printf("model: MODEL_SEED=%lu MODEL_SEQUENCES=1: %s\n", (unsigned long)seed, first);
	if (!fails(seed, left_out, false))
		ck_abort_msg("%s\n(by itself the sequence does not fail)", first);
	shorten(seed, left_out);
	printf("model: this is enough:\n");
	if (!fails(seed, left_out, true))
		ck_abort_msg("%s\n(a shorter one failed once, and then no more)", first);
	ck_abort_msg("step %u: %s", outcome->step, outcome->text);
}

static void tell_counts(void)
{
	const struct counts *c = &outcome->counts;

	printf("model: %u sequences, %u operations, %u deaths of the daemon, %u of clients, %u"
	       " suspends, %u twins, %u evictions, %u restores, %u asked to yield, %u creates for "
	       "one of several;"
	       " answers: OK %u",
	       c->sequences, c->steps, c->restarts, c->deaths, c->suspends, c->twins, c->evictions,
	       c->restores, c->asked, c->crowds, c->codes[0]);
	for (int i = 1; i < CODE_COUNT; i++)
		if (c->codes[i])
			printf(", %s %u", code_name(i), c->codes[i]);
	putchar('\n');
}

START_TEST(the_daemon_follows_the_rules_of_the_model)
{
	uint64_t seed = number_of("MODEL_SEED", (uint64_t)time(NULL) * 1000);
	unsigned n = (unsigned)number_of("MODEL_SEQUENCES", 600), done = 0;

	printf("model: MODEL_SEED=%lu\n", (unsigned long)seed);
	while (done < n) {
		pid_t pid = fork_player();

		if (pid == 0)
			play_many(seed, done, n);
		if (succeeded(pid))
			break;
		remove_folder();
		if (!outcome->disturbed)
			explain(seed + outcome->sequence);
		/* The daemon's timers have run, too: the result is undefined. */
		printf("model: sequence %u took too long, and does not count\n", outcome->sequence);
		done = outcome->sequence + 1;
	}
	tell_counts();
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("model");

	length = (unsigned)number_of("MODEL_LENGTH", 150);
	length = length < LENGTH_MAX ? length : LENGTH_MAX;
	outcome = mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	tcase_set_timeout(t, 1800);
	tcase_add_test(t, the_daemon_follows_the_rules_of_the_model);
	return suite_run("model", t, NULL);
}
