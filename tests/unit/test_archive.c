/* SPDX-License-Identifier: MIT
 *
 * The archive against a model of it: random sequences of what is published, leased, changed, moved,
 * unlinked, closed and freed, with new journals in between. Then the journal is cut, or a bit of it
 * is flipped, and what is replayed must be what there was after some record: for a cut the last
 * whole one, for a bit the one before it, unless the bit says nothing. ARCHIVE_SEED makes the same
 * choices again.
 */
#include "daemon/state/deserialize.h"
#include "daemon/util/log.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"
#include "tests/unit/archive_fixture.h"

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

/* A lease on what is not there is one of a buffer that was about to be published. */
static uint64_t hash_replay(struct replay *r)
{
	struct item *it;
	uint64_t sum = 0;

	list_foreach (it, &r->buffers, link) {
		const Gpushm__Journal__Buffer *m = (Gpushm__Journal__Buffer *)it->message;

		sum += hash_buffer(m->id, (const char *)m->key.data, m->has_key ? m->key.len : 0,
				   m->state * 8u + (m->transient ? 4u : 0) + (m->dirty ? 2u : 0) +
					   (m->foreign ? 1u : 0),
				   m->bytes);
	}
	list_foreach (it, &r->leases, link) {
		const Gpushm__Journal__Lease *m = (Gpushm__Journal__Lease *)it->message;

		if (is_there(r, m->buffer))
			sum += hash_lease(m->id, m->buffer, m->access, m->session);
	}
	return sum;
}

/* A copy of what the memfd holds, cut there, the bit flipped (none: UINT64_MAX). */
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

/* What a successor finds that inherits these journals, which are closed. */
static int read_again(const struct fdstore_fd *journals, size_t n, struct reading *ret)
{
	struct fdstore store = { .inherited = calloc(n, sizeof(*journals)), .n_inherited = n };
	struct replay r;
	int err;

	memcpy(store.inherited, journals, n * sizeof(*journals));
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
	struct fdstore_fd one = { .fd = copy_of(&l->archive.journal, bytes, bit) };

	fdstore_name(one.name, 'j', l->archive.journal.generation);
	return read_again(&one, 1, ret);
}

/* The last state whose record ends there or before; -1: the journal was not complete. */
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

	ck_assert_int_eq(read_one(l, l->archive.journal.bytes, UINT64_MAX, &got), 0);
	ck_assert_uint_eq(got.hash, hash_ledger(l));
	ck_assert_uint_eq(got.generation, l->archive.journal.generation);
	/* No id is given again. */
	ck_assert_uint_ge(got.next, l->next_id);
}

static void check_cut(struct ledger *l)
{
	size_t bytes = stormer_random(&l->random) % (l->archive.journal.used + 1);
	int at = state_at(l, bytes), err;
	struct reading got;

	err = read_one(l, bytes, UINT64_MAX, &got);
	ck_assert_int_eq(err, at < 0 ? -ENOENT : 0);
	if (at >= 0)
		ck_assert_msg(got.hash == l->states[at].hash, "cut at %zu of %zu", bytes,
			      l->archive.journal.used);
}

static void check_flip(struct ledger *l, uint64_t bit)
{
	int at = state_at(l, bit / 8), err;
	struct reading got;

	err = read_one(l, l->archive.journal.bytes, bit, &got);
	if (err == 0)
		ck_assert_uint_eq(got.generation, l->archive.journal.generation);
	if (err == 0 && got.hash == hash_ledger(l))
		return;
	ck_assert_int_eq(err, at < 0 ? -ENOENT : 0);
	if (at >= 0)
		ck_assert_msg(got.hash == l->states[at].hash, "bit %lu flipped",
			      (unsigned long)bit);
}

static void check_any_flip(struct ledger *l)
{
	check_flip(l, stormer_random(&l->random) % (l->archive.journal.used * 8));
}

static uint64_t seed(void)
{
	const char *text = getenv("ARCHIVE_SEED");
	uint64_t n = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);

	printf("archive: ARCHIVE_SEED=%lu\n", (unsigned long)n);
	fflush(stdout);
	log_open(-1);
	return n;
}

START_TEST(a_damaged_journal_gives_what_never_was)
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

/* Some 1 MiB, so that it has grown several times. */
START_TEST(a_journal_that_has_grown_gives_what_never_was)
{
	struct ledger *l = ledger_new(seed());

	while (l->archive.journal.used < 1 << 20)
		step(l);
	check_whole(l);
	for (unsigned n = 0; n < 300; n++) {
		check_cut(l);
		check_any_flip(l);
	}
	ledger_free(l);
}
END_TEST

/* Wherever the writing of a new journal ends, the old one or the new one says the same. */
START_TEST(a_journal_that_is_half_written_counts)
{
	struct ledger *l = ledger_new(seed());
	struct fdstore_fd both[2];
	struct reading got;

	for (unsigned n = 0; n < 60; n++)
		step(l);
	for (size_t bytes = 0; bytes < 6000; bytes += 1 + choose(l, 40)) {
		struct journal *j = &l->archive.journal;
		int old = copy_of(j, j->used, UINT64_MAX);

		fdstore_name(both[0].name, 'j', j->generation);
		renew(l);
		fdstore_name(both[1].name, 'j', j->generation);
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

/* Its keeper is not there: then nothing that is published is in it, and it fills up with ends. */
START_TEST(a_journal_whose_fds_are_not_kept_is_never_written_anew)
{
	struct ledger *l = ledger_new(seed());
	struct buffer b = { .pool = &l->pool, .block = { .fd = 0 }, .table_fd = -1 };

	setenv("NOTIFY_SOCKET", "@nobody is there", 1);
	l->store.systemd = true;
	while (l->archive.dead < 10000) {
		b.id = l->next_id++;
		b.fd_index = FD_INDEX_NONE;
		ck_assert_int_lt(archive_buffer(&l->archive, &b), 0);
		archive_gone(&l->archive, &b);
	}
	ck_assert(archive_is_stale(&l->archive));
	ledger_free(l);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("archive");

	tcase_add_checked_fixture(t, fds_mark, fds_check);
	tcase_set_timeout(t, 300);
	tcase_add_test(t, a_damaged_journal_gives_what_never_was);
	tcase_add_test(t, a_journal_that_has_grown_gives_what_never_was);
	tcase_add_test(t, a_journal_that_is_half_written_counts);
	tcase_add_test(t, a_journal_whose_fds_are_not_kept_is_never_written_anew);
	return suite_run("archive", t, NULL);
}
