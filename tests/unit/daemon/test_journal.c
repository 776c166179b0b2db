/* SPDX-License-Identifier: MIT
 *
 * The test cuts a journal or flips bits in it. Reading must always give the first records that were
 * written, and report how many bytes were dropped.
 */
#include "daemon/state/journal.h"
#include "proto/base/own.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <string.h>
#include <sys/mman.h>

#define RECORDS 16

/* Record i: type i, 1 + i * 7 % 90 bytes of i. */
static size_t body_of(unsigned i, unsigned char *body)
{
	size_t len = 1 + i * 7 % 90;

	memset(body, (int)i, len);
	return len;
}

static void fill(struct journal *j, unsigned from, unsigned to)
{
	unsigned char body[128];

	for (unsigned i = from; i < to; i++)
		ck_assert_int_eq(journal_append(j, (uint16_t)i, body, body_of(i, body)), 0);
}

static int expect_next(uint16_t type, const void *body, size_t len, void *arg)
{
	unsigned *n = arg;
	unsigned char want[128];

	ck_assert_uint_eq(type, *n);
	ck_assert_uint_eq(len, body_of(*n, want));
	ck_assert_mem_eq(body, want, len);
	(*n)++;
	return 0;
}

/* A second journal over a copy of the first one's file. */
static struct journal copy_of(const struct journal *j, size_t bytes)
{
	struct journal copy = JOURNAL_NONE;
	int fd = memfd_create("copy", MFD_CLOEXEC);

	ck_assert_int_eq(write(fd, j->map, bytes), (ssize_t)bytes);
	ck_assert_int_eq(journal_adopt(&fd, &copy), 0);
	ck_assert_int_eq(fd, -1);
	return copy;
}

static unsigned count(struct journal *j, size_t *ret_dropped)
{
	unsigned n = 0;

	ck_assert_int_eq(journal_replay(j, expect_next, &n, ret_dropped), 0);
	return n;
}

START_TEST(every_record_is_read_back_unchanged)
{
	struct journal j = JOURNAL_NONE, again;
	size_t dropped;

	ck_assert_int_eq(journal_new(7, &j), 0);
	fill(&j, 0, RECORDS);
	again = copy_of(&j, j.bytes);
	ck_assert_uint_eq(again.generation, 7);
	ck_assert_uint_eq(count(&again, &dropped), RECORDS);
	ck_assert_uint_eq(dropped, 0);
	/* Appending continues. */
	fill(&again, RECORDS, RECORDS + 3);
	ck_assert_uint_eq(again.sequence, RECORDS + 3);
	journal_done(&again);
	journal_done(&j);
}
END_TEST

START_TEST(a_journal_that_grows_keeps_every_record)
{
	struct journal j = JOURNAL_NONE, again;
	size_t dropped;

	ck_assert_int_eq(journal_new(1, &j), 0);
	fill(&j, 0, 20000);
	ck_assert_uint_gt(j.bytes, 1 << 20);
	again = copy_of(&j, j.bytes);
	ck_assert_uint_eq(again.generation, 1);
	journal_done(&again);
	/* A type has 16 bits. */
	again = copy_of(&j, j.bytes);
	ck_assert_uint_eq(count(&again, &dropped), 20000);
	ck_assert_uint_eq(dropped, 0);
	journal_done(&again);
	journal_done(&j);
}
END_TEST

START_TEST(a_cut_journal_gives_its_first_whole_records)
{
	struct journal j = JOURNAL_NONE;
	unsigned last = 0;

	ck_assert_int_eq(journal_new(1, &j), 0);
	fill(&j, 0, RECORDS);
	for (size_t bytes = 24; bytes <= j.used; bytes++) {
		struct journal again = copy_of(&j, bytes);
		size_t dropped;
		unsigned n = count(&again, &dropped);

		ck_assert_uint_ge(n, last);
		last = n;
		journal_done(&again);
	}
	ck_assert_uint_eq(last, RECORDS);
	journal_done(&j);
}
END_TEST

START_TEST(a_flipped_bit_leaves_only_records_that_were_written)
{
	struct journal j = JOURNAL_NONE;

	ck_assert_int_eq(journal_new(1, &j), 0);
	fill(&j, 0, RECORDS);
	for (size_t bit = 24 * 8; bit < j.used * 8; bit++) {
		struct journal again;
		size_t dropped;
		unsigned n;

		j.map[bit / 8] ^= 1 << bit % 8;
		again = copy_of(&j, j.used + 64);
		n = count(&again, &dropped);
		/* A bit of the padding or of a reserved field changes no record. */
		ck_assert(n == RECORDS ? dropped == 0 : dropped > 0);
		/* No dropped record comes back behind a new one. */
		fill(&again, n, n + 1);
		journal_done(&again);
		j.map[bit / 8] ^= 1 << bit % 8;
	}
	journal_done(&j);
}
END_TEST

START_TEST(a_file_of_another_kind_or_version_is_refused)
{
	struct journal j = JOURNAL_NONE, other = JOURNAL_NONE;
	static const unsigned char garbage[200] = "not a journal at all";
	int fd = memfd_create("x", MFD_CLOEXEC);

	ck_assert_int_eq(journal_adopt(&fd, &other), -EBADMSG);
	ck_assert_int_eq(write(fd, garbage, sizeof(garbage)), sizeof(garbage));
	ck_assert_int_eq(journal_adopt(&fd, &other), -EBADMSG);
	ck_assert_int_ge(fd, 0);
	close_fd(&fd);
	ck_assert_int_eq(journal_new(1, &j), 0);
	j.map[8] = JOURNAL_VERSION + 1;
	fd = dup(j.fd);
	ck_assert_int_eq(journal_adopt(&fd, &other), -EPROTONOSUPPORT);
	close_fd(&fd);
	ck_assert_int_eq(journal_append(&j, 1, garbage, 0), -EMSGSIZE);
	ck_assert_int_eq(journal_append(&j, 1, garbage, JOURNAL_BODY_MAX + 1), -EMSGSIZE);
	journal_done(&j);
}
END_TEST

/* CRC-32C, one bit at a time, as RFC 3720 defines it. */
static uint32_t crc_of(uint32_t crc, const void *data, size_t len)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < 8 * len; i++)
		crc = (crc >> 1) ^ (0x82f63b78u & -((crc ^ p[i / 8] >> i % 8) & 1));
	return crc;
}

/* All lengths, and so every number of bytes behind the last whole word. */
START_TEST(the_checksum_is_crc32c)
{
	unsigned char body[128];
	struct journal j;

	ck_assert_uint_eq(~crc_of(~0u, "123456789", 9), 0xe3069283);
	ck_assert_int_eq(journal_new(1, &j), 0);
	for (uint32_t len = 1; len < sizeof(body); len++) {
		const unsigned char *at = j.map + j.used;
		uint64_t sequence = j.sequence + 1;
		uint16_t type = (uint16_t)(len * 77);
		uint32_t crc = crc_of(~0u, &type, sizeof(type)), found;

		for (uint32_t i = 0; i < len; i++)
			body[i] = (unsigned char)(i * 37 + len);
		crc = crc_of(crc, &len, sizeof(len));
		crc = crc_of(crc, &sequence, sizeof(sequence));
		ck_assert_int_eq(journal_append(&j, type, body, len), 0);
		memcpy(&found, at, sizeof(found));
		ck_assert_uint_eq(found, ~crc_of(crc, body, len));
	}
	journal_done(&j);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("journal");

	tcase_add_checked_fixture(t, fds_mark, fds_check);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, every_record_is_read_back_unchanged);
	tcase_add_test(t, a_journal_that_grows_keeps_every_record);
	tcase_add_test(t, a_cut_journal_gives_its_first_whole_records);
	tcase_add_test(t, a_flipped_bit_leaves_only_records_that_were_written);
	tcase_add_test(t, a_file_of_another_kind_or_version_is_refused);
	tcase_add_test(t, the_checksum_is_crc32c);
	return suite_run("journal", t, NULL);
}
