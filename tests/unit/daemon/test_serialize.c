/* SPDX-License-Identifier: MIT
 *
 * The serializer against a model of it: random sequences of buffers and leases that are published,
 * granted, changed, moved, suspended, given twins, evicted, restored, kept, unlinked, ended and
 * freed, with new journals in between. Then the test
 * cuts the journal or flips a bit of it, and replaying must give the state after some record: for a
 * cut, the last whole one; for a bit, the one before it, unless the bit says nothing.
 * SERIALIZE_SEED repeats the choices.
 */
#include "daemon/state/replay.h"
#include "daemon/util/log.h"
#include "proto/systemd/systemd.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"
#include "tests/unit/daemon/serialize_fixture.h"

#include <sys/mman.h>
#include <time.h>

#define HEAD_BITS (24u * 8u) /* of the journal's header */

/* ---- reading it again ---- */

static bool is_there(struct replay *r, uint64_t buffer)
{
	struct item *it;

	list_foreach (it, &r->buffers, link)
		if (it->id == buffer)
			return true;
	return false;
}

/* A lease whose buffer is missing belongs to a buffer that was not published yet. */
static uint64_t hash_replay(struct replay *r)
{
	struct item *it;
	uint64_t sum = 0;

	list_foreach (it, &r->buffers, link) {
		const Gpushm__Journal__Buffer *m = (Gpushm__Journal__Buffer *)it->message;

		sum += hash_buffer(m->id, (const char *)m->key.data, m->has_key ? m->key.len : 0,
				   m->state * 8u + (m->transient ? 4u : 0) + (m->dirty ? 2u : 0) +
					   (m->foreign ? 1u : 0),
				   m->bytes) ^
		       hash_residence(m->evicted, m->twin, m->has_keep_ms, m->keep_ms, m->priority);
	}
	list_foreach (it, &r->leases, link) {
		const Gpushm__Journal__Lease *m = (Gpushm__Journal__Lease *)it->message;

		if (is_there(r, m->buffer))
			sum += hash_lease(m->id, m->buffer, m->access, m->session, m->away);
	}
	return sum;
}

/* A copy of the memfd's first `bytes`, with one bit flipped (UINT64_MAX: none). */
static int copy_of(const struct journal *j, size_t bytes, uint64_t bit)
{
	int fd = memfd_create("copy", MFD_CLOEXEC);
	unsigned char byte;

	ck_assert_int_eq(write(fd, j->map, bytes), (ssize_t)bytes);
	if (bit == UINT64_MAX)
		return fd;
	byte = j->map[bit / 8] ^ (unsigned char)(1 << bit % 8);
	ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
	return fd;
}

struct reading {
	uint64_t hash;
	uint64_t next, generation;
};

/* What a successor finds in these journals; closes them. */
static int read_again(const struct named_fd *journals, size_t n, struct reading *ret)
{
	struct fdstore store = { .received = { .items = calloc(n, sizeof(*journals)), .n = n } };
	struct replay r;
	int err;

	memcpy(store.received.items, journals, n * sizeof(*journals));
	err = replay(&store, &r, &ret->generation);
	if (err == 0) {
		ret->hash = hash_replay(&r);
		ret->next = r.next_buffer > r.next_lease ? r.next_buffer : r.next_lease;
		replay_done(&r);
	}
	fdstore_close(&store);
	return err;
}

static int read_one(const struct ledger *l, size_t bytes, uint64_t bit, struct reading *ret)
{
	struct named_fd one = { .fd = copy_of(&l->serializer.journal, bytes, bit) };

	strcpy(one.name, fdstore_name('j', l->serializer.journal.generation).text);
	return read_again(&one, 1, ret);
}

/* The last state whose record ends there or before; -1: the journal is not complete. */
static int state_at(const struct ledger *l, size_t bytes)
{
	int i = (int)l->n - 1;

	while (i >= 0 && l->states[i].used > bytes)
		i--;
	return i;
}

static void check_whole(const struct ledger *l)
{
	struct reading got;

	ck_assert_int_eq(read_one(l, l->serializer.journal.bytes, UINT64_MAX, &got), 0);
	ck_assert_uint_eq(got.hash, hash_ledger(l));
	ck_assert_uint_eq(got.generation, l->serializer.journal.generation);
	/* No id is given again. */
	ck_assert_uint_ge(got.next, l->next_id);
}

static void check_cut(struct ledger *l)
{
	size_t bytes = stormer_random(&l->random) % (l->serializer.journal.used + 1);
	int at = state_at(l, bytes), err;
	struct reading got;

	err = read_one(l, bytes, UINT64_MAX, &got);
	ck_assert_int_eq(err, at < 0 ? -ENOENT : 0);
	if (at >= 0)
		ck_assert_msg(got.hash == l->states[at].hash, "cut at %zu of %zu", bytes,
			      l->serializer.journal.used);
}

static void check_flip(struct ledger *l, uint64_t bit)
{
	int at = state_at(l, bit / 8), err;
	struct reading got;

	err = read_one(l, l->serializer.journal.bytes, bit, &got);
	if (err == 0)
		ck_assert_uint_eq(got.generation, l->serializer.journal.generation);
	if (err == 0 && got.hash == hash_ledger(l))
		return;
	ck_assert_int_eq(err, at < 0 ? -ENOENT : 0);
	if (at >= 0)
		ck_assert_msg(got.hash == l->states[at].hash, "bit %lu flipped",
			      (unsigned long)bit);
}

static void check_any_flip(struct ledger *l)
{
	check_flip(l, stormer_random(&l->random) % (l->serializer.journal.used * 8));
}

static uint64_t seed(void)
{
	const char *text = getenv("SERIALIZE_SEED");
	uint64_t n = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);

	printf("serialize: SERIALIZE_SEED=%lu\n", (unsigned long)n);
	fflush(stdout);
	log_open(-1);
	return n;
}

START_TEST(a_damaged_journal_gives_a_recorded_state)
{
	uint64_t first = seed();

	for (unsigned i = 0; i < 100; i++) {
		struct ledger *l = ledger_new(first + i);

		for (unsigned n = 0; n < 60; n++) {
			step(l);
			if (choose(l, 40) == 0)
				renew(l);
		}
		check_whole(l);
		for (uint64_t bit = 0; bit < HEAD_BITS; bit++)
			check_flip(l, bit);
		for (unsigned n = 0; n < 200; n++) {
			check_cut(l);
			check_any_flip(l);
		}
		ledger_free(l);
	}
}
END_TEST

/* 1 MiB: it has grown several times. */
START_TEST(a_damaged_journal_that_has_grown_gives_a_recorded_state)
{
	struct ledger *l = ledger_new(seed());

	while (l->serializer.journal.used < 1 << 20)
		step(l);
	check_whole(l);
	for (unsigned n = 0; n < 300; n++) {
		check_cut(l);
		check_any_flip(l);
	}
	ledger_free(l);
}
END_TEST

/* The writing of a new journal may end anywhere: the old or the new one has the same state. */
START_TEST(a_half_written_journal_leaves_the_old_one_in_force)
{
	struct ledger *l = ledger_new(seed());
	struct named_fd both[2];
	struct reading got;

	for (unsigned n = 0; n < 60; n++)
		step(l);
	for (size_t bytes = 0; bytes < 6000; bytes += 1 + choose(l, 40)) {
		struct journal *j = &l->serializer.journal;
		int old = copy_of(j, j->used, UINT64_MAX);

		strcpy(both[0].name, fdstore_name('j', j->generation).text);
		renew(l);
		strcpy(both[1].name, fdstore_name('j', j->generation).text);
		both[0].fd = old;
		both[1].fd = copy_of(j, bytes < j->used ? bytes : j->used, UINT64_MAX);
		ck_assert_int_eq(read_again(both, 2, &got), 0);
		ck_assert_uint_eq(got.hash, hash_ledger(l));
		ck_assert_uint_eq(got.generation,
				  bytes < j->used ? j->generation - 1 : j->generation);
	}
	ledger_free(l);
}
END_TEST

/* Without its supervisor no published buffer is in the journal, and only records of ends fill it.
 */
START_TEST(a_journal_without_an_fd_store_comes_due_for_renewal)
{
	const struct config config = { .limits = { .buffers = 1, .share = 50 } };
	struct ledger *l = ledger_new(seed());
	struct accounts accounts;
	struct buffer b = { .pool = &l->pool,
			    .state = BUFFER_SHARED,
			    .block = { .fd = 0, .fd_original = -1 },
			    .table_fd = -1 };
	struct fault f;

	ck_assert_int_eq(accounts_init(&accounts, &config), 0);
	ck_assert_int_eq(charge(&accounts, 1, ACCOUNT_BUFFERS, 1, 0, &b.buffer_charge, &f), 0);
	l->store.systemd = true;
	while (l->serializer.dead < 10000) {
		b.id = l->next_id++;
		b.fd_index = BUFFER_NOT_KEPT;
		ck_assert_int_lt(serialize_buffer(&l->serializer, &b, NULL), 0);
		record_buffer(l, &b, BUFFER_FREED);
	}
	ck_assert(serialize_is_stale(&l->serializer));
	ledger_free(l);
	discharge(&b.buffer_charge);
	accounts_done(&accounts);
}
END_TEST

static void setup(void)
{
	setenv("NOTIFY_SOCKET", "@nobody is there", 1);
	systemd_notify("the socket stays open");
	fds_mark();
}

int main(void)
{
	TCase *t = tcase_create("serialize");

	tcase_add_checked_fixture(t, setup, fds_check);
	tcase_set_timeout(t, 300);
	tcase_add_test(t, a_damaged_journal_gives_a_recorded_state);
	tcase_add_test(t, a_damaged_journal_that_has_grown_gives_a_recorded_state);
	tcase_add_test(t, a_half_written_journal_leaves_the_old_one_in_force);
	tcase_add_test(t, a_journal_without_an_fd_store_comes_due_for_renewal);
	return suite_run("serialize", t, NULL);
}
