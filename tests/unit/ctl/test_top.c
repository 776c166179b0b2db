/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl top` without a terminal and without a daemon: rates, rows and their order, and pages.
 */
#include "client/ctl/output.h"
#include "client/ctl/top/top.h"
#include "proto/base/own.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"
#include "tests/unit/ctl/no_names.h"

#include <check.h>
#include <locale.h>
#include <math.h>
#include <string.h>

#define SECOND 1000000000ull
#define GIB (1ull << 30)
#define BUFFERS 6

/* A daemon's state, which tests change. */
struct world {
	struct sample sample;
	struct gpushm_status status;
	struct gpushm_usage usage[2];
	struct gpushm_pool pools[2];
	struct gpushm_stat buffers[BUFFERS];
	struct gpushm_holder holders[3];
	/* As the library returns them. */
	struct gpushm_usage *usage_list[2];
	struct gpushm_pool *pool_list[2];
	struct gpushm_stat *buffer_list[BUFFERS];
	struct gpushm_holder *holder_list[3];
	struct gpushm_stream_info stream, *stream_list[1];
};

static struct world before, now;
static struct model m;
static struct choice choice;
static enum top_view view;

static void point(struct world *w)
{
	for (size_t i = 0; i < array_size(w->usage_list); i++)
		w->usage_list[i] = &w->usage[i];
	for (size_t i = 0; i < array_size(w->pool_list); i++)
		w->pool_list[i] = &w->pools[i];
	for (size_t i = 0; i < array_size(w->buffer_list); i++)
		w->buffer_list[i] = &w->buffers[i];
	for (size_t i = 0; i < array_size(w->holder_list); i++)
		w->holder_list[i] = &w->holders[i];
	w->status.usage = w->usage_list;
	w->sample.status = &w->status;
	w->sample.pools = w->pool_list;
	w->sample.buffers = w->buffer_list;
	w->stream_list[0] = &w->stream;
	w->sample.streams = w->stream_list;
	w->buffers[1].holders = w->holder_list;
	w->buffers[2].holders = w->holder_list + 2;
}

static void fill(struct world *w)
{
	static const char *const names[BUFFERS] = { "small",   "model/large",
						    "model/b", "\xe6\xbc\xa2",
						    "",	       "z\033[2J" };
	static const uint64_t sizes[BUFFERS] = { 1, 40 * GIB, 3 * GIB, 2, 4096, 5 };

	*w = (struct world){ .sample = { .taken_ns = 10 * SECOND,
					 .time_ns = 100 * SECOND,
					 .n_pools = 2,
					 .n_buffers = BUFFERS } };
	strcpy(w->status.software, "gpushmd 0.1.0");
	w->status.pid = 42;
	w->status.uptime_ms = 60000;
	w->status.n_usage = 2;
	w->usage[0] = (struct gpushm_usage){ .uid = 1001,
					     .bytes = 43 * GIB,
					     .bytes_max = UINT64_MAX,
					     .buffers = 2,
					     .buffers_max = 10,
					     .leases = 3,
					     .leases_max = 100,
					     .peers = 1,
					     .peers_max = 4 };
	w->usage[1] = w->usage[0];
	w->usage[1].uid = 1002;
	w->usage[1].bytes = GIB;
	w->usage[1].bytes_max = 2 * GIB;
	w->usage[1].buffers = 4;
	w->usage[1].leases = 0;
	strcpy(w->pools[0].name, "gpu0");
	w->pools[0].kind = GPUSHM_VMM;
	w->pools[0].bytes = 80 * GIB;
	w->pools[0].used_bytes = 43 * GIB;
	w->pools[0].pending_bytes = 10 * GIB;
	w->pools[0].suspect_bytes = 3 * GIB;
	strcpy(w->pools[1].name, "host");
	w->pools[1].failed = 1;
	strcpy(w->pools[1].why, "the disk is on fire");
	for (size_t i = 0; i < BUFFERS; i++) {
		struct gpushm_stat *s = &w->buffers[i];

		s->id = 10 + i;
		strcpy(s->name, names[i]);
		strcpy(s->pool, "gpu0");
		s->state = GPUSHM_SHARED;
		s->bytes = sizes[i];
		s->uid = i == 0 ? 1002 : 1001;
		s->created_ns = (90 - i) * SECOND;
	}
	for (size_t i = 0; i < array_size(w->holders); i++)
		w->holders[i] =
			(struct gpushm_holder){ .lease = i + 1,
						.pid = 500,
						.uid = 1001,
						.access = i == 1 ? GPUSHM_WRITE : GPUSHM_READ,
						.suspect = i == 2,
						.since_ns = (95 - i) * SECOND,
						.command = "py" };
	w->buffers[1].n_holders = 2;
	w->buffers[1].readers = w->buffers[1].writers = 1;
	w->buffers[2].n_holders = w->buffers[2].readers = 1;
	point(w);
}

static void setup(void)
{
	ck_assert_ptr_nonnull(setlocale(LC_CTYPE, "C.UTF-8"));
	fill(&before);
	fill(&now);
	now.sample.taken_ns += 2 * SECOND;
	now.status.uptime_ms += 2000;
	choice = (struct choice){ 0 };
	view = TOP_BUFFERS;
}

static void look(void)
{
	model_done(&m);
	ck_assert_int_eq(model_make(&before.sample, &now.sample, &choice, &m), 0);
}

static void teardown(void)
{
	model_done(&m);
}

static const struct top_list *rows(void)
{
	return &m.lists[view];
}

static const char *row(size_t i)
{
	return rows()->rows[i].name;
}

/* A page for a terminal of so many lines; 0: of any number. */
static char *page(size_t lines)
{
	size_t size;
	char *text = NULL;
	FILE *out = open_memstream(&text, &size);
	struct page p = { .out = out, .lines = lines, .m = &m };

	ck_assert_int_eq(view_print(&p, view), 0);
	fclose(out);
	return text;
}

static size_t lines_of(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

#define shows(text, wanted) ck_assert_msg(strstr(text, wanted), "no \"%s\" in:\n%s", wanted, text)
#define hides(text, other) ck_assert_msg(!strstr(text, other), "\"%s\" in:\n%s", other, text)

/* ---- rates ---- */

/* The row of the buffer with that id. */
static const struct top_row *find(uint64_t id)
{
	for (size_t i = 0; i < m.lists[TOP_BUFFERS].n; i++)
		if (m.lists[TOP_BUFFERS].rows[i].buffer->id == id)
			return &m.lists[TOP_BUFFERS].rows[i];
	ck_abort_msg("no such buffer");
	return NULL;
}

START_TEST(rates_are_right_or_unknown_if_no_time_has_passed)
{
	before.status.requests = 100;
	now.status.requests = 300;
	now.status.refused = 5;
	before.buffers[0].opens = UINT32_MAX - 1; /* the count wraps */
	now.buffers[0].opens = 3;
	before.buffers[2].id = 8; /* has gone; */
	now.buffers[5].id = 20;	  /* is new */
	now.buffers[5].opens = 8;
	now.pools[0].used_bytes = before.pools[0].used_bytes - 4096;
	now.sample.creates = 41; /* the daemon counts also what nobody saw */
	before.sample.creates = before.sample.opens = 1;
	now.sample.opens = 201;
	look();
	ck_assert_double_eq(m.seconds, 2);
	ck_assert_double_eq(m.requests, 100);
	ck_assert_double_eq(m.refused, 2.5);
	ck_assert_double_eq(find(10)->rate, 2.5);
	ck_assert_double_eq(find(20)->rate, 4);
	ck_assert_double_eq(m.creates, 20);
	ck_assert_double_eq(m.opens, 100);
	ck_assert_double_eq(m.lists[TOP_POOLS].rows[0].rate, -2048);
	now.sample.taken_ns = before.sample.taken_ns;
	look();
	ck_assert(isnan(m.requests) && isnan(find(10)->rate));
}
END_TEST

START_TEST(a_restarted_daemon_has_no_rates_yet)
{
	before.status.requests = 1000;
	now.status.uptime_ms = 10;
	look();
	ck_assert(isnan(m.requests) && isnan(m.opens) && isnan(m.lists[TOP_POOLS].rows[0].rate));
	setup();
	now.status.daemon[3] = 1;
	look();
	ck_assert(isnan(m.requests));
	model_done(&m);
	ck_assert_int_eq(model_make(NULL, &now.sample, &choice, &m), 0);
}
END_TEST

START_TEST(a_process_with_many_leases_is_counted_once)
{
	look();
	ck_assert_uint_eq(m.lists[TOP_PROCESSES].n, 1);
	ck_assert_uint_eq(m.processes[0].buffers, 2);
	ck_assert_uint_eq(m.processes[0].writes, 1);
	ck_assert_uint_eq(m.processes[0].bytes, 43 * GIB);
	ck_assert_uint_eq(m.processes[0].since_ns, 93 * SECOND);
	ck_assert(m.processes[0].ending);
	now.holders[2].pid = 501;
	look();
	ck_assert_uint_eq(m.lists[TOP_PROCESSES].n, 2);
}
END_TEST

/* ---- rows ---- */

START_TEST(the_largest_rows_come_first)
{
	look();
	ck_assert_uint_eq(rows()->n, BUFFERS);
	ck_assert_str_eq(row(0), "model/large");
	ck_assert_str_eq(row(BUFFERS - 1), "small");
}
END_TEST

START_TEST(a_word_and_a_user_choose_exactly_what_matches)
{
	choice.word = "model/";
	look();
	ck_assert_uint_eq(rows()->n, 2);
	ck_assert_uint_eq(m.lists[TOP_POOLS].n, 2);
	choice.word = "*l*";
	look();
	ck_assert_uint_eq(rows()->n, 3);
	choice.word = "zzz";
	look();
	ck_assert_uint_eq(rows()->n, 0);
	choice = (struct choice){ .by_user = true, .user = 1002 };
	look();
	ck_assert_uint_eq(rows()->n, 1);
	ck_assert_str_eq(row(0), "small");
	ck_assert_uint_eq(m.lists[TOP_USERS].n, 1);
	ck_assert_uint_eq(m.lists[TOP_PROCESSES].n, 0);
}
END_TEST

/* ---- pages ---- */

/* Six buffers, two pools and two users: all of it has 21 lines, and the cursor is below them. */
START_TEST(a_page_fits_the_terminal_and_says_what_it_leaves_out)
{
	_cleanup_(free_ptr) char *all = NULL, *fits = NULL, *cut = NULL, *low = NULL;

	look();
	all = page(0);
	hides(all, " more\n");
	fits = page(21);
	ck_assert_str_eq(fits, all);
	cut = page(20);
	shows(cut, "\n1 more\n");
	shows(cut, "model/large");
	hides(cut, "small");
	ck_assert_uint_eq(lines_of(cut), 19);
	low = page(1);
	shows(low, "\n1 more\n");
}
END_TEST

START_TEST(a_page_shows_all_facts)
{
	_cleanup_(free_ptr) char *all = NULL;

	now.status.requests = 2469;
	now.buffers[1].opens = 25;
	now.pools[0].used_bytes += GIB;
	look();
	all = page(0);
	shows(all, "gpushmd 0.1.0, pid 42, up 62s");
	shows(all, "requests 1234/s");
	shows(all, "44.0 GiB  10.0 GiB  80.0 GiB");
	shows(all, "+512.0 MiB/s");
	shows(all, "failed: the disk is on fire");
	shows(all, "z\\x1b[2J");
	shows(all, "(unlinked 14)");
	shows(all, "  1.0 GiB of 2.0 GiB");
	shows(all, "\nNAME           POOL  STATE       SIZE        RATE  READ  WRITE  USER  AGE  "
		   "HELD BY\n"
		   "model/large    gpu0  shared  40.0 GiB  12 opens/s     1      1  1001  11s  py "
		   "500, py "
		   "500\n");
}
END_TEST

/* Pools and users stand above the other lists, and are not printed twice. */
START_TEST(each_view_has_its_list_at_the_end)
{
	static const char *const titles[] = {
		[TOP_BUFFERS] = "HELD BY",
		[TOP_PROCESSES] = "COMMAND",
		[TOP_USERS] = "CONNECTIONS",
		[TOP_POOLS] = "PENDING",
	};

	look();
	for (unsigned i = 0; i < TOP_VIEWS; i++) {
		_cleanup_(free_ptr) char *text = NULL;
		const char *found;

		view = (enum top_view)i;
		text = page(0);
		found = strstr(text, titles[i]);
		ck_assert_ptr_nonnull(found);
		ck_assert_ptr_null(strstr(found + 1, titles[i]));
		ck_assert_ptr_null(strstr(found, "\n\n"));
	}
}
END_TEST

static void make_stream(void)
{
	now.buffers[1].stream = 1;
	before.stream = now.stream = (struct gpushm_stream_info){ .buffer = 11, .newest = 1000 };
	now.stream.newest += 480;
	before.sample.n_streams = now.sample.n_streams = 1;
	look();
}

START_TEST(a_stream_is_shown_as_a_stream_with_its_frames)
{
	_cleanup_(free_ptr) char *text = NULL;

	make_stream();
	text = page(0);
	shows(text, "gpu0  shared, stream  40.0 GiB  240 frames/s");
	/* Its first frames, and those of a daemon that has just started. */
	before.sample.n_streams = 0;
	look();
	ck_assert_double_eq(find(11)->frames, 740);
	model_done(&m);
	ck_assert_int_eq(model_make(NULL, &now.sample, &choice, &m), 0);
	ck_assert(isnan(find(11)->frames));
}
END_TEST

/* Only the rows that are shown are formatted. */
START_TEST(ten_thousand_buffers_are_one_page)
{
	static struct gpushm_stat many[10000], *list[array_size(many)];
	_cleanup_(free_ptr) char *text = NULL;

	for (size_t i = 0; i < array_size(many); i++) {
		list[i] = &many[i];
		many[i] = now.buffers[0];
		many[i].id = 100 + i;
		many[i].bytes = i;
		snprintf(many[i].name, sizeof(many[i].name), "many/%05zu", i);
	}
	now.sample.buffers = before.sample.buffers = list;
	now.sample.n_buffers = before.sample.n_buffers = array_size(many);
	look();
	text = page(50);
	ck_assert_uint_eq(lines_of(text), 49);
	shows(text, "many/09999");
	now.sample.buffers = now.buffer_list;
	before.sample.buffers = before.buffer_list;
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("top");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, rates_are_right_or_unknown_if_no_time_has_passed);
	tcase_add_test(tc, a_restarted_daemon_has_no_rates_yet);
	tcase_add_test(tc, a_process_with_many_leases_is_counted_once);
	tcase_add_test(tc, the_largest_rows_come_first);
	tcase_add_test(tc, a_word_and_a_user_choose_exactly_what_matches);
	tcase_add_test(tc, a_page_fits_the_terminal_and_says_what_it_leaves_out);
	tcase_add_test(tc, a_page_shows_all_facts);
	tcase_add_test(tc, each_view_has_its_list_at_the_end);
	tcase_add_test(tc, a_stream_is_shown_as_a_stream_with_its_frames);
	tcase_add_test(tc, ten_thousand_buffers_are_one_page);
	return suite_run("top", tc, NULL);
}
