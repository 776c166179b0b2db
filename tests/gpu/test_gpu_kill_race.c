/* SPDX-License-Identifier: MIT
 *
 * The kill race. A client is killed while it writes without a pause to a shared buffer. At once
 * another client creates buffers of that size until it gets the same block, fills it and reads it
 * over and over: none of its bytes may be the dead client's. Then the same with a daemon that takes
 * a closed socket for the end of the process: there the new owner must see the dead client's
 * writes, otherwise the test could never fail.
 *
 * The test makes sure that the block is the same. vmm and pinned: the pool has space for one block,
 * and the new owner looks at it through a mapping from an earlier round, when the block was its
 * own. Through it the owner has seen the victim write, and at the end a fresh mapping shows the
 * bytes that it wrote through the old one. mempool: the pool's 32 MiB hold a small buffer of the
 * owner and one of 20 MiB, so two of these in turn share at least 8 MiB. Host memory needs no such
 * race: the kernel reuses no page while a driver has it pinned.
 *
 * This needs kernels; over the fake driver the victim plays the kernel (scribbler.h).
 */
#include "proto/base/own.h"
#include "tests/gpu/fixture.h"
#include "tests/gpu/mapped.h"
#include "tests/gpu/scribbler.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define READY 6 /* victims that are ready to be killed */
#define ROUNDS_MAX 1000
#define WATCH_US 100e3 /* after the kill, and as long again after the block was reused */
#define SMALL 512

#define POOLS                                    \
	"[pool vmm]\nkind=vmm\nsize=32M\n"       \
	"[pool pinned]\nkind=pinned\nsize=32M\n" \
	"[pool mempool]\nkind=mempool\nsize=32M\n"
#define TRUST "[daemon]\nunwatched-clients=trust\n"

/* ---- victims ---- */

static struct scribbler victims[READY];
static unsigned started, taken, wanted;

static void start_victims(unsigned n)
{
	started = taken = 0;
	wanted = n;
	while (started < wanted && started < READY)
		scribbler_start(&victims[started++], d.socket);
}

static struct scribbler *next_victim(void)
{
	return &victims[taken++ % READY];
}

static void replace_victim(struct scribbler *s)
{
	scribbler_end(s);
	if (started < wanted) {
		scribbler_start(s, d.socket);
		started++;
	}
}

/* ---- a race for the memory of one pool ---- */

struct race {
	const char *pool;
	struct raw owner, looker;
	struct mapped map;
	/* mempool: a small buffer that stays, so that importing the next one is cheap. */
	struct mapped small;
	uint64_t small_lease;
	bool fake;
	unsigned rounds;
	unsigned lost;	/* rounds in which a byte of the dead client was seen */
	unsigned early; /* rounds in which the block was reused before the process was gone */
	double given[ROUNDS_MAX],
		last; /* ms after the kill: reuse of the block; the last byte of the dead client */
};

static unsigned env_number(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);
	unsigned n = text ? (unsigned)atoi(text) : otherwise;

	return n < ROUNDS_MAX ? n : ROUNDS_MAX;
}

static const Gpushm__Proto__Pool *find_pool(const struct raw *r, const char *name)
{
	const Gpushm__Proto__HelloReply *hello = r->reply->hello;

	for (size_t i = 0; i < hello->n_pools; i++)
		if (hello->pools[i]->name.len == strlen(name) &&
		    memcmp(hello->pools[i]->name.data, name, strlen(name)) == 0)
			return hello->pools[i];
	ck_abort_msg("no pool %s", name);
}

static void ask(struct race *r, const char *name, uint64_t bytes)
{
	int e = raw_request(&r->owner,
			    REQUEST(CREATE, Create, create, BYTES(name, name), BYTES(pool, r->pool),
				    SET(size_bytes, bytes), SET(wait_ms, 30000)));

	ck_assert_int_eq(e, 0);
}

static const Gpushm__Proto__Attach *receive(struct race *r)
{
	ck_assert_msg(raw_receive(&r->owner) == 0, "%s", r->owner.text);
	return r->owner.reply->attach;
}

static int attach_fd(const struct race *r)
{
	return r->owner.frame.n_fds ? r->owner.frame.fds[0] : -1;
}

static void call(struct race *r, const Gpushm__Proto__Request *q)
{
	ck_assert_msg(raw_call(&r->owner, q) == 0, "%s", r->owner.text);
}

static void close_lease(struct race *r, uint64_t lease)
{
	call(r, REQUEST(CLOSE, Close, close, SET(lease, lease)));
}

static void race_begin(struct race *r, const struct driver *gpu)
{
	bool mempool = strcmp(r->pool, "mempool") == 0;
	const Gpushm__Proto__Attach *a;

	raw_greet(&r->owner, d.socket);
	raw_greet(&r->looker, d.socket);
	mapped_init(&r->map, gpu, find_pool(&r->owner, r->pool), (mempool ? 20 : 32) * MIB);
	r->fake = !driver_has_kernels(gpu);
	/* The owner's first block; for a mempool a small one, which stays. */
	ask(r, "first", mempool ? SMALL : r->map.bytes);
	a = receive(r);
	if (mempool) {
		mapped_import_pool(&r->map, attach_fd(r));
		r->small = r->map;
		mapped_open(&r->small, a, -1);
		r->small_lease = a->lease;
	} else {
		mapped_open(&r->map, a, attach_fd(r));
		close_lease(r, a->lease);
	}
}

static void race_end(struct race *r)
{
	if (r->small_lease) {
		mapped_close(&r->small);
		close_lease(r, r->small_lease);
	}
	mapped_done(&r->map);
	raw_close(&r->looker);
	raw_close(&r->owner);
}

/* Waits until the victim has written all of it. */
static void await_victim(struct race *r, unsigned value)
{
	size_t n = r->map.bytes / sizeof(value), i;
	uint64_t lease = 0;

	if (r->map.kind == GPUSHM_MEMPOOL) {
		call(r, REQUEST(OPEN, Open, open, BYTES(name, "victim")));
		lease = r->owner.reply->attach->lease;
		mapped_open(&r->map, r->owner.reply->attach, attach_fd(r));
	}
	do {
		mapped_read(&r->map);
		for (i = 0; i < n && r->map.words[i] == value; i++)
			;
	} while (i < n);
	if (r->map.kind == GPUSHM_MEMPOOL) {
		mapped_close(&r->map);
		close_lease(r, lease);
	}
	call(r, REQUEST(UNLINK, Unlink, unlink, BYTES(name, "victim")));
}

static bool is_answered(const struct race *r)
{
	struct pollfd p = { .fd = r->owner.socket, .events = POLLIN };

	return poll(&p, 1, 1) == 1;
}

static bool has_suspect(struct race *r)
{
	ck_assert_int_eq(raw_call(&r->looker, REQUEST(STATUS, Status, status)), 0);
	return r->looker.reply->status->suspects > 0;
}

/* Over the fake driver the victim's process ends when the daemon has decided about the closed
 * socket: it waits for the process, or it has reused the block. */
static void end_teardown(struct race *r, struct scribbler *victim)
{
	while (!is_answered(r) && !has_suspect(r))
		;
	if (!is_answered(r))
		scribbler_bury(victim);
}

/* A word may be half written: each of its bytes has one of the two values. */
static bool is_mixed(unsigned word, unsigned own, unsigned dead)
{
	for (unsigned mask = 0xff; mask; mask <<= 8)
		if ((word & mask) != (own & mask) && (word & mask) != (dead & mask))
			return false;
	return true;
}

/* The number of words that their owner did not write. */
static size_t foreign_words(struct mapped *m, unsigned own, unsigned dead)
{
	size_t foreign = 0;

	mapped_read(m);
	for (size_t i = 0; i < m->bytes / sizeof(own); i++) {
		if (m->words[i] == own)
			continue;
		if (!is_mixed(m->words[i], own, dead))
			ck_abort_msg("%x is nobody's", m->words[i]);
		foreign++;
	}
	return foreign;
}

/* The dead client's bytes stay until they are seen, so nothing is missed between two looks. */
static bool watch(struct race *r, double killed, unsigned own, unsigned dead)
{
	double given = now_us(), end = killed + WATCH_US, now;
	bool lost = false;

	if (end < given + WATCH_US)
		end = given + WATCH_US;
	mapped_fill(&r->map, own);
	do {
		now = now_us();
		if (foreign_words(&r->map, own, dead) == 0)
			continue;
		lost = true;
		if (now - killed > r->last * 1e3)
			r->last = (now - killed) / 1e3;
		mapped_fill(&r->map, own);
	} while (now < end);
	return lost;
}

/* Another mapping, of the fd in the reply, shows what was written through the old one; a word that
 * is neither the owner's nor the dead client's is one of another block. Returns whether the client
 * has written since the last look. */
static bool wrote_to_same_block(struct race *r, unsigned own, unsigned dead)
{
	struct mapped fresh = r->map;
	bool wrote;

	if (r->map.kind == GPUSHM_MEMPOOL)
		return false;
	fresh.ptr = 0;
	mapped_open(&fresh, r->owner.reply->attach, attach_fd(r));
	wrote = foreign_words(&fresh, own, dead) > 0;
	mapped_close(&fresh);
	return wrote;
}

static void race_once(struct race *r, unsigned round)
{
	unsigned dead = 0xdead0000 | round, own = 0x600d0000 | round;
	struct scribbler *victim = next_victim();
	uint64_t lease;
	bool lost;

	scribbler_write(victim, "victim", r->pool, r->map.bytes, dead);
	await_victim(r, dead);
	ask(r, "next", r->map.bytes);
	scribbler_kill(victim, r->fake);
	if (r->fake)
		end_teardown(r, victim);
	lease = receive(r)->lease;
	r->given[r->rounds++] = (now_us() - victim->killed) / 1e3;
	r->early += !scribbler_has_gone(victim);
	if (r->map.kind == GPUSHM_MEMPOOL)
		mapped_open(&r->map, r->owner.reply->attach, attach_fd(r));
	lost = watch(r, victim->killed, own, dead);
	replace_victim(victim);
	r->lost += lost || wrote_to_same_block(r, own, dead);
	if (r->map.kind == GPUSHM_MEMPOOL)
		mapped_close(&r->map);
	close_lease(r, lease);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void report(struct race *r, const char *rule)
{
	qsort(r->given, r->rounds, sizeof(*r->given), by_size);
	printf("figure: | %s | %s | %u | %u | %u | %.1f, %.1f, %.1f | ", r->pool, rule, r->rounds,
	       r->lost, r->early, r->given[0], r->given[r->rounds / 2], r->given[r->rounds - 1]);
	if (r->lost)
		printf("%.1f |\n", r->last);
	else
		puts("none |");
}

static void race_for(const char *const *pools, size_t n, unsigned rounds, const char *rule,
		     unsigned *ret_lost, unsigned *ret_early)
{
	struct driver gpu;

	ck_assert(driver_open(&gpu, 0));
	start_victims((unsigned)n * rounds);
	for (size_t i = 0; i < n; i++) {
		_cleanup_(free_ptr) struct race *r = calloc(1, sizeof(*r));

		r->pool = pools[i];
		race_begin(r, &gpu);
		for (unsigned round = 0; round < rounds; round++)
			race_once(r, round);
		report(r, rule);
		*ret_lost += r->lost;
		*ret_early += r->early;
		race_end(r);
	}
	driver_close(&gpu, 0);
}

static void head(void)
{
	puts("figure: | pool | a lease ends with | kills | rounds with a foreign byte | given "
	     "before "
	     "the process was gone | given after the kill, ms: least, median, most | last foreign "
	     "byte seen, ms |");
}

START_TEST(memory_is_reused_only_after_its_dead_process_has_gone)
{
	static const char *const pools[] = { "vmm", "mempool", "pinned" };
	unsigned lost = 0, early = 0;

	daemon_start(&d, POOLS, NULL);
	head();
	race_for(pools, array_size(pools), env_number("RACE_ROUNDS", gpu_is_fake() ? 3 : 100),
		 "pidfd", &lost, &early);
	ck_assert_uint_eq(lost, 0);
	ck_assert_uint_eq(early, 0);
	daemon_stop(&d);
}
END_TEST

/* The fake driver would abort the daemon at a mempool's block that is freed under an importer: so
 * strict is only that one. */
START_TEST(the_race_finds_foreign_bytes_where_the_rule_is_off)
{
	static const char *const pools[] = { "vmm", "pinned", "mempool" };
	const struct daemon_options o = { .program = "tests/gpushmd-nopidfd" };
	unsigned lost = 0, early = 0;

	daemon_start_with(&d, TRUST POOLS, &o);
	head();
	race_for(pools, gpu_is_fake() ? 2 : 3,
		 env_number("RACE_CONTROL_ROUNDS", gpu_is_fake() ? 3 : 30), "its socket", &lost,
		 &early);
	ck_assert_msg(lost > 0, "no foreign byte was seen where the rule is off: the race "
				"proves nothing");
	daemon_stop(&d);
}
END_TEST

static const struct role roles[] = { { "scribbler", scribbler_role } };

int main(int argc, char **argv)
{
	const TTest *const tests[] = { memory_is_reused_only_after_its_dead_process_has_gone,
				       the_race_finds_foreign_bytes_where_the_rule_is_off };

	return gpu_main_bare(argc, argv, "gpu_kill_race", roles, array_size(roles), tests,
			     array_size(tests));
}
