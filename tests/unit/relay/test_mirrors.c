/* SPDX-License-Identifier: MIT
 *
 * What relays say of themselves, which of them a busy relay names, and how many may read at a time.
 */
#include "client/relay/fleet/mirrors.h"
#include "client/relay/fleet/transfers.h"
#include "proto/base/own.h"
#include "tests/lib/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ETAG "\"xxh3-0-0\""

/* ---- announcements ---- */

static void assert_bad(const char *text)
{
	struct announcement a;

	ck_assert_msg(announcement_parse(text, &a) < 0, "taken: %s", text);
}

START_TEST(an_announcement_has_a_url_a_host_and_a_time)
{
	struct announcement a;

	ck_assert_int_eq(announcement_parse("https://b:19401/v1/buffers/x/y; since=12", &a), 0);
	ck_assert_str_eq(a.url, "https://b:19401/v1/buffers/x/y");
	ck_assert_str_eq(a.host, "b");
	ck_assert_uint_eq(a.since, 12);
	ck_assert_int_eq(announcement_parse("http://[fe80::1]:1/v1/buffers/x", &a), 0);
	ck_assert_str_eq(a.host, "fe80::1");
	ck_assert_uint_eq(a.since, 0);
}
END_TEST

START_TEST(what_is_no_announcement_is_refused)
{
	static const char *const bad[] = { "",
					   "b",
					   "ftp://b/v1/buffers/x",
					   "https://b/",
					   "https://b/v1/buffers/",
					   "https:///v1/buffers/x",
					   "https://[::1/v1/buffers/x",
					   "https://[]/v1/buffers/x",
					   "https://u@b/v1/buffers/x",
					   "https://b#.c.d/v1/buffers/x",
					   "https://b?.c.d/v1/buffers/x",
					   "https://b%2e.c.d/v1/buffers/x",
					   "https://[fe80::1%25eth0]/v1/buffers/x",
					   "https://b:x/v1/buffers/x",
					   "https://b/v1/buffers/x>; rel=duplicate",
					   "https://b/v1/buffers/x, <y>",
					   "https://b/v1/buffers/x;since=-1",
					   "https://b/v1/buffers/x;since=",
					   "https://b/v1/buffers/x;since=1x",
					   "https://b/v1/buffers/x;since=99999999999999999999999",
					   "https://b/v1/buffers/x; until=1",
					   "https://b/v1/buffers/\x80",
					   "https://b/v1/buffers/x\r\ny" };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_bad(bad[i]);
}
END_TEST

START_TEST(an_announcement_that_is_too_long_is_refused)
{
	char text[2 * ANNOUNCEMENT_MAX], name[ANNOUNCEMENT_MAX], ret[ANNOUNCEMENT_MAX];

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	snprintf(text, sizeof(text), "https://b/v1/buffers/%s", name);
	assert_bad(text);
	ck_assert_int_lt(announcement_format("https://b", name, 1, ret), 0);
}
END_TEST

START_TEST(what_is_written_is_read)
{
	char text[ANNOUNCEMENT_MAX];
	struct announcement a;

	ck_assert_int_eq(announcement_format("https://b:1", "a b/\"é", UINT64_MAX, text), 0);
	ck_assert_int_eq(announcement_parse(text, &a), 0);
	ck_assert_str_eq(a.url, "https://b:1/v1/buffers/a%20b/%22%C3%A9");
	ck_assert_uint_eq(a.since, UINT64_MAX);
}
END_TEST

static struct announcement at(unsigned host, uint64_t since)
{
	struct announcement a;
	char text[ANNOUNCEMENT_MAX];

	snprintf(text, sizeof(text), "https://h%03u/v1/buffers/x; since=%llu", host,
		 (unsigned long long)since);
	ck_assert_int_eq(announcement_parse(text, &a), 0);
	return a;
}

START_TEST(no_two_machines_wait_for_each_other)
{
	for (unsigned i = 0; i < 16; i++) {
		struct announcement a = at(i / 4, 1 + i % 4);

		ck_assert(!announcement_before(&a, &a));
		for (unsigned j = 0; j < 16; j++) {
			struct announcement b = at(j / 4, 1 + j % 4);

			if (i != j)
				ck_assert(announcement_before(&a, &b) !=
					  announcement_before(&b, &a));
		}
	}
}
END_TEST

START_TEST(everybody_may_read_from_a_machine_that_has_all)
{
	struct announcement whole = at(9, 0), part = at(1, 5);

	ck_assert(announcement_before(&whole, &part));
	ck_assert(!announcement_before(&part, &whole));
}
END_TEST

/* ---- mirrors ---- */

static struct mirrors *m;

static void setup(void)
{
	m = mirrors_new();
	ck_assert_ptr_nonnull(m);
}

static void teardown(void)
{
	m = mirrors_free(m);
}

static void note(unsigned host, uint64_t since)
{
	struct announcement a = at(host, since);

	mirrors_note(m, ETAG, &a);
}

static bool is_named(const struct announcement *named, size_t n, unsigned host)
{
	struct announcement a = at(host, 0);

	for (size_t i = 0; i < n; i++)
		if (strcmp(named[i].url, a.url) == 0)
			return true;
	return false;
}

static void note_at(unsigned host, uint64_t since, const char *address)
{
	struct announcement a = at(host, since);

	snprintf(a.address, sizeof(a.address), "%s", address);
	mirrors_note(m, ETAG, &a);
}

START_TEST(bytes_stay_in_the_network_of_the_one_that_asks)
{
	static const struct {
		const char *near, *far, *asks;
	} cases[] = {
		{ "10.1.2.3", "10.1.3.3", "10.1.2.200" },
		{ "fd00:1:2:3::7", "fd00:1:2:4::7", "fd00:1:2:3::8" },
	};

	for (unsigned i = 0; i < 2; i++) {
		struct announcement named[MIRRORS_NAMED], asks = at(100, 100);

		snprintf(asks.address, sizeof(asks.address), "%s", cases[i].asks);
		for (unsigned host = 0; host < 20; host++)
			note_at(host, 30 + host, cases[i].far);
		for (unsigned host = 20; host < 24; host++)
			note_at(host, host, cases[i].near);
		ck_assert_uint_eq(mirrors_choose(m, ETAG, &asks, MIRRORS_OLDER, named), 4);
		for (unsigned host = 20; host < 24; host++)
			ck_assert(is_named(named, 4, host));
		ck_assert_str_eq(named[0].url, at(23, 0).url);
		/* A few of them could all be busy: others are named, too. */
		note_at(20, 20, cases[i].far);
		ck_assert_uint_eq(mirrors_choose(m, ETAG, &asks, MIRRORS_OLDER, named),
				  MIRRORS_NAMED);
		for (unsigned host = 21; host < 24; host++)
			ck_assert(is_named(named, 3, host));
	}
}
END_TEST

START_TEST(the_youngest_is_named_first)
{
	struct announcement named[MIRRORS_NAMED], asks = at(50, 50);

	for (unsigned i = 1; i <= 20; i++)
		note(i * 7 % 20 + 1, i * 7 % 20 + 1);
	ck_assert_uint_eq(mirrors_choose(m, ETAG, &asks, MIRRORS_OLDER, named), MIRRORS_NAMED);
	for (unsigned i = 0; i < MIRRORS_NAMED / 2; i++)
		ck_assert_uint_eq(named[i].since, 20 - i);
	for (unsigned i = 0; i < MIRRORS_NAMED; i++)
		for (unsigned j = 0; j < i; j++)
			ck_assert_str_ne(named[i].url, named[j].url);
}
END_TEST

START_TEST(each_machine_is_named_some_time)
{
	bool seen[21] = { false };

	for (unsigned i = 1; i <= 20; i++)
		note(i, i);
	for (unsigned round = 0; round < 1000; round++) {
		struct announcement named[MIRRORS_NAMED];
		size_t n = mirrors_choose(m, ETAG, NULL, MIRRORS_OLDER, named);

		for (size_t i = 0; i < n; i++)
			seen[named[i].since] = true;
	}
	for (unsigned i = 1; i <= 20; i++)
		ck_assert_msg(seen[i], "machine %u was never named", i);
}
END_TEST

START_TEST(neither_oneself_nor_one_that_began_later_is_named)
{
	struct announcement named[MIRRORS_NAMED], asks = at(3, 30);
	size_t n;

	note(1, 10);
	note(2, 0);
	note(3, 30);
	note(4, 40);
	n = mirrors_choose(m, ETAG, &asks, MIRRORS_OLDER, named);
	ck_assert_uint_eq(n, 2);
	ck_assert(is_named(named, n, 1) && is_named(named, n, 2));
	ck_assert_uint_eq(mirrors_choose(m, ETAG, NULL, MIRRORS_OLDER, named), 4);
	n = mirrors_choose(m, ETAG, &asks, MIRRORS_ANY, named);
	ck_assert_uint_eq(n, 3);
	ck_assert(!is_named(named, n, 3));
}
END_TEST

START_TEST(a_machine_is_named_for_the_file_that_it_has_now)
{
	struct announcement named[MIRRORS_NAMED], a = at(1, 0);

	mirrors_note(m, "\"old\"", &a);
	note(1, 0);
	ck_assert_uint_eq(mirrors_choose(m, "\"old\"", NULL, MIRRORS_OLDER, named), 0);
	ck_assert_uint_eq(mirrors_choose(m, ETAG, NULL, MIRRORS_OLDER, named), 1);
}
END_TEST

START_TEST(strangers_can_not_fill_the_memory)
{
	struct announcement named[MIRRORS_NAMED], asks = at(0, UINT64_MAX);

	for (unsigned i = 1; i <= 9000; i++) {
		struct announcement a = at(i % 1000, i);

		snprintf(a.url, sizeof(a.url), "https://h/v1/buffers/%u", i);
		snprintf(a.address, sizeof(a.address), "10.0.%u.%u", i % 100, i % 90);
		mirrors_note(m, ETAG, &a);
	}
	ck_assert_uint_eq(mirrors_choose(m, ETAG, &asks, MIRRORS_OLDER, named), MIRRORS_NAMED);
	ck_assert_uint_eq(named[0].since, 9000);
	for (unsigned i = 0; i < 1000; i++) {
		mirrors_choose(m, ETAG, NULL, MIRRORS_OLDER, named);
		for (unsigned j = 0; j < MIRRORS_NAMED; j++)
			ck_assert_uint_gt(named[j].since, 9000 - 4096);
	}
}
END_TEST

START_TEST(one_client_can_not_fill_the_list)
{
	struct announcement named[MIRRORS_NAMED], asks = at(50, UINT64_MAX);

	snprintf(asks.address, sizeof(asks.address), "10.1.2.200");
	for (unsigned host = 1; host <= 3; host++)
		note_at(host, host, "10.1.2.3");
	for (unsigned i = 1; i <= 5000; i++) {
		struct announcement a = at(0, 1000 + i);

		snprintf(a.url, sizeof(a.url), "https://10.9.9.9:1/v1/buffers/%u", i);
		snprintf(a.address, sizeof(a.address), "10.9.9.9");
		mirrors_note(m, ETAG, &a);
	}
	ck_assert_uint_eq(mirrors_choose(m, ETAG, &asks, MIRRORS_OLDER, named), MIRRORS_NAMED);
	for (unsigned host = 1; host <= 3; host++)
		ck_assert(is_named(named, 3, host));
	/* Its own last ones are kept. */
	for (unsigned i = 3; i < MIRRORS_NAMED; i++)
		ck_assert_uint_gt(named[i].since, 6000 - 256);
}
END_TEST

START_TEST(link_is_that_of_rfc_6249)
{
	char *text = mirrors_link(m, ETAG, NULL);

	ck_assert_ptr_null(text);
	note(1, 1);
	note(2, 2);
	text = mirrors_link(m, ETAG, NULL);
	ck_assert_str_eq(text, "<https://h002/v1/buffers/x>; rel=duplicate, "
			       "<https://h001/v1/buffers/x>; rel=duplicate");
	free(text);
}
END_TEST

/* ---- transfers ---- */

START_TEST(requests_of_one_machine_are_one_transfer)
{
	struct transfers *t = transfers_new();

	ck_assert(transfers_begin(t, "10.0.0.1", ETAG, 1));
	ck_assert(transfers_begin(t, "10.0.0.1", ETAG, 1));
	ck_assert(!transfers_begin(t, "10.0.0.2", ETAG, 1));
	ck_assert(!transfers_begin(t, "10.0.0.1", "\"other\"", 1));
	ck_assert(transfers_begin(t, "10.0.0.2", ETAG, 2));
	ck_assert(transfers_begin(t, "10.0.0.3", ETAG, 0));
	ck_assert(!transfers_begin(t, "10.0.0.4", ETAG, 3));
	ck_assert(transfers_begin(t, "10.0.0.4", ETAG, 4));
	transfers_free(t);
}
END_TEST

START_TEST(a_machine_keeps_its_turn_between_two_requests)
{
	struct transfers *t = transfers_new();

	ck_assert(transfers_begin(t, "10.0.0.1", ETAG, 1));
	transfers_end(t, "10.0.0.1", ETAG);
	ck_assert(!transfers_begin(t, "10.0.0.2", ETAG, 1));
	ck_assert(transfers_begin(t, "10.0.0.1", ETAG, 1));
	transfers_end(t, "10.0.0.1", ETAG);
	while (!transfers_begin(t, "10.0.0.2", ETAG, 1))
		;
	ck_assert(!transfers_begin(t, "10.0.0.1", ETAG, 1));
	transfers_free(t);
}
END_TEST

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

enum { FEW = 4, MANY = 4000, TRIES = 64 };

/* What the last of n machines costs again, in ns: the least of some tries. */
static uint64_t cost_of_last(unsigned n, void (*one)(unsigned host, void *of), void *of)
{
	uint64_t least = UINT64_MAX;

	for (unsigned i = 0; i < n; i++)
		one(i, of);
	for (unsigned i = 0; i < TRIES; i++) {
		uint64_t begin = cpu_ns(), ns;

		for (unsigned k = 0; k < TRIES; k++)
			one(n - 1, of);
		ns = (cpu_ns() - begin) / TRIES;
		least = ns < least ? ns : least;
	}
	return least;
}

static void turn_away(unsigned host, void *of)
{
	char address[32];

	sprintf(address, "10.0.%u.%u", host / 256, host % 256);
	transfers_refused_ns(of, address, ETAG);
	ck_assert(!transfers_begin(of, address, ETAG, 1));
}

/* In a list it would cost tens of times as much. */
START_TEST(to_turn_away_one_of_thousands_costs_what_one_of_a_few_does)
{
	struct transfers *t = transfers_new();
	uint64_t few;

	ck_assert(transfers_begin(t, "10.1.0.1", ETAG, 1));
	few = cost_of_last(FEW, turn_away, t);
	ck_assert_uint_lt(cost_of_last(MANY, turn_away, t), 4 * few);
	transfers_free(t);
}
END_TEST

static void hear(unsigned host, void *of)
{
	char address[32];

	sprintf(address, "10.0.%u.%u", host / 256, host % 256);
	note_at(host, 1 + host, address);
}

START_TEST(to_hear_one_of_thousands_again_costs_what_one_of_a_few_does)
{
	uint64_t few = cost_of_last(FEW, hear, NULL);

	ck_assert_uint_lt(cost_of_last(MANY, hear, NULL), 4 * few);
}
END_TEST

START_TEST(a_refusal_is_remembered_since_the_first_one)
{
	struct transfers *t = transfers_new();
	char address[32];

	ck_assert(transfers_begin(t, "10.1.0.1", ETAG, 1));
	ck_assert(!transfers_begin(t, "10.0.0.1", ETAG, 1));
	ck_assert_uint_eq(transfers_refused_ns(t, "10.0.0.1", "\"other\""), 0);
	while (transfers_refused_ns(t, "10.0.0.1", ETAG) < 1000000)
		ck_assert(!transfers_begin(t, "10.0.0.1", ETAG, 1));
	/* Those that were refused last are remembered. */
	for (unsigned i = 0; i < 5000; i++) {
		sprintf(address, "10.2.%u.%u", i / 256, i % 256);
		ck_assert(!transfers_begin(t, address, ETAG, 1));
	}
	ck_assert_uint_eq(transfers_refused_ns(t, "10.0.0.1", ETAG), 0);
	ck_assert_uint_gt(transfers_refused_ns(t, address, ETAG), 0);
	transfers_free(t);
}
END_TEST

int main(void)
{
	TCase *says = tcase_create("announcements"), *names = tcase_create("mirrors"),
	      *turns = tcase_create("transfers");

	tcase_add_test(says, an_announcement_has_a_url_a_host_and_a_time);
	tcase_add_test(says, what_is_no_announcement_is_refused);
	tcase_add_test(says, an_announcement_that_is_too_long_is_refused);
	tcase_add_test(says, what_is_written_is_read);
	tcase_add_test(says, no_two_machines_wait_for_each_other);
	tcase_add_test(says, everybody_may_read_from_a_machine_that_has_all);
	tcase_add_checked_fixture(names, setup, teardown);
	tcase_add_test(names, bytes_stay_in_the_network_of_the_one_that_asks);
	tcase_add_test(names, the_youngest_is_named_first);
	tcase_add_test(names, each_machine_is_named_some_time);
	tcase_add_test(names, neither_oneself_nor_one_that_began_later_is_named);
	tcase_add_test(names, a_machine_is_named_for_the_file_that_it_has_now);
	tcase_add_test(names, strangers_can_not_fill_the_memory);
	tcase_add_test(names, one_client_can_not_fill_the_list);
	tcase_add_test(names, link_is_that_of_rfc_6249);
	tcase_add_test(turns, requests_of_one_machine_are_one_transfer);
	tcase_add_test(names, to_hear_one_of_thousands_again_costs_what_one_of_a_few_does);
	tcase_add_test(turns, a_machine_keeps_its_turn_between_two_requests);
	tcase_add_test(turns, to_turn_away_one_of_thousands_costs_what_one_of_a_few_does);
	tcase_add_test(turns, a_refusal_is_remembered_since_the_first_one);
	return suite_run("mirrors", says, names, turns, NULL);
}
