/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl top` without a terminal and without a daemon: rates, rows and their order, pages of
 * any size, and keys.
 */
#include "client/ctl/output.h"
#include "client/ctl/top/columns.h"
#include "client/ctl/top/state.h"
#include "client/ctl/top/view.h"
#include "client/lib/base/result.h"
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
};

static struct world before, now;
static struct gpushm_logged_event events[3];
static struct gpushm_logged_event *event_list[] = { &events[0], &events[1], &events[2] };
static struct gpushm_events batch = { .events = event_list };
static struct history history;
static struct model m;
static struct rows rows;
static struct state state;

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

static void log_events(void)
{
	static struct gpushm_events *batches[] = { &batch };
	static const char *const types[] = { "created", "refused", "published" };

	for (size_t i = 0; i < array_size(events); i++)
		events[i] = (struct gpushm_logged_event){ .number = 7 + i,
							  .time_ns = (97 + i) * SECOND,
							  .type = types[i],
							  .command = "py",
							  .pid = 500,
							  .uid = i == 1 ? 1002 : 1001,
							  .owner = 1001,
							  .buffer = i == 1 ? 0 : 11,
							  .name = "model/large",
							  .pool = "gpu0",
							  .former = "",
							  .verb = i == 1 ? "OPEN" : "",
							  .code = i == 1 ? "ACCESS" : "",
							  .text = i == 1 ? "not\033yours" : "" };
	batch.n_events = 3;
	history = (struct history){ batches, 1, 3 };
}

static void setup(void)
{
	ck_assert_ptr_nonnull(setlocale(LC_CTYPE, "C.UTF-8"));
	fill(&before);
	fill(&now);
	now.sample.taken_ns += 2 * SECOND;
	now.status.uptime_ms += 2000;
	state_init(&state);
	history = (struct history){ 0 };
}

static void choose(void)
{
	free(rows.at);
	ck_assert_int_eq(model_choose(&m, &state.choice, &rows), 0);
}

static void look(void)
{
	model_done(&m);
	ck_assert_int_eq(model_make(&before.sample, &now.sample, &history, &m), 0);
	choose();
}

static void teardown(void)
{
	model_done(&m);
	free(rows.at);
	rows = (struct rows){ 0 };
}

/* The names of the rows, of which each view has another kind. */
static const char *row(size_t i)
{
	size_t at = rows.at[i];

	switch (state.choice.view) {
	case TOP_BUFFERS:
		return m.buffers[at].stat->name;
	case TOP_PROCESSES:
		return m.processes[at].command;
	case TOP_POOLS:
		return m.pools[at].pool->name;
	default:
		return m.users[at].usage->uid == 1001 ? "1001" : "1002";
	}
}

static char *once(size_t width)
{
	struct page page;
	size_t size;
	char *text = NULL;
	FILE *out = open_memstream(&text, &size);

	page_init(&page, width);
	view_once(&m, &rows, &state, &page);
	ck_assert(!page.failed);
	page_print(&page, false, out);
	page_done(&page);
	fclose(out);
	return text;
}

/* The screen as text; each line must fit. */
static char *screen(size_t height, size_t width)
{
	struct page page;
	size_t size;
	char *text = NULL;
	FILE *out = open_memstream(&text, &size);

	page_init(&page, width);
	view_screen(&m, &rows, &state, height, &page);
	ck_assert(!page.failed);
	ck_assert_uint_eq(page.n, height);
	for (size_t i = 0; i < page.n; i++) {
		ck_assert_uint_le(page.lines[i].columns, width);
		if (page.lines[i].text)
			ck_assert_uint_eq(output_columns(page.lines[i].text),
					  page.lines[i].columns);
	}
	page_print(&page, false, out);
	page_done(&page);
	fclose(out);
	return text;
}

static void press(const char *keys)
{
	for (; *keys; keys++) {
		state_key(&state, (uint32_t)*keys, &m, &rows, 5);
		choose();
	}
}

static void press_key(uint32_t key)
{
	state_key(&state, key, &m, &rows, 5);
	choose();
}

#define shows(text, wanted) ck_assert_msg(strstr(text, wanted), "no \"%s\" in:\n%s", wanted, text)
#define hides(text, other) ck_assert_msg(!strstr(text, other), "\"%s\" in:\n%s", other, text)

/* ---- rates ---- */

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
	ck_assert_double_eq(m.buffers[0].opens, 2.5);
	ck_assert_double_eq(m.buffers[5].opens, 4);
	ck_assert_double_eq(m.creates, 20);
	ck_assert_double_eq(m.opens, 100);
	ck_assert_double_eq(m.pools[0].bytes, -2048);
	now.sample.taken_ns = before.sample.taken_ns;
	look();
	ck_assert(isnan(m.requests) && isnan(m.buffers[0].opens));
}
END_TEST

START_TEST(a_restarted_daemon_has_no_rates_yet)
{
	before.status.requests = 1000;
	now.status.uptime_ms = 10;
	look();
	ck_assert(isnan(m.requests) && isnan(m.opens) && isnan(m.pools[0].bytes));
	setup();
	now.status.daemon[3] = 1;
	look();
	ck_assert(isnan(m.requests));
	model_done(&m);
	ck_assert_int_eq(model_make(NULL, &now.sample, &history, &m), 0);
}
END_TEST

START_TEST(a_process_with_many_leases_is_counted_once)
{
	look();
	ck_assert_uint_eq(m.n[TOP_PROCESSES], 1);
	ck_assert_uint_eq(m.processes[0].buffers, 2);
	ck_assert_uint_eq(m.processes[0].writes, 1);
	ck_assert_uint_eq(m.processes[0].bytes, 43 * GIB);
	ck_assert_uint_eq(m.processes[0].since_ns, 93 * SECOND);
	ck_assert(m.processes[0].ending);
	now.holders[2].pid = 501;
	look();
	ck_assert_uint_eq(m.n[TOP_PROCESSES], 2);
}
END_TEST

/* ---- rows ---- */

START_TEST(rows_are_in_the_order_that_was_asked_for)
{
	static const struct {
		enum top_sort sort;
		const char *first, *last;
	} orders[] = {
		{ TOP_SIZE, "model/large", "small" },
		{ TOP_RATE, "z\033[2J", "\xe6\xbc\xa2" },
		{ TOP_HOLDERS, "model/large", "\xe6\xbc\xa2" },
		{ TOP_NAME, "", "\xe6\xbc\xa2" },
		{ TOP_AGE, "z\033[2J", "small" },
		{ TOP_USER, "", "small" },
	};

	now.buffers[5].opens = 7;
	look();
	for (size_t i = 0; i < array_size(orders); i++) {
		state.choice.sort = orders[i].sort;
		state.choice.reversed = false;
		choose();
		ck_assert_uint_eq(rows.n, BUFFERS);
		ck_assert_str_eq(row(0), orders[i].first);
		ck_assert_str_eq(row(BUFFERS - 1), orders[i].last);
		state.choice.reversed = true;
		choose();
		ck_assert_str_eq(row(0), orders[i].last);
	}
}
END_TEST

START_TEST(a_filter_shows_exactly_what_matches)
{
	look();
	press("/MODEL");
	ck_assert_uint_eq(rows.n, 2);
	press_key(TOP_KEY_BACKSPACE);
	press_key(TOP_KEY_ENTER);
	ck_assert_str_eq(state.filter, "MODE");
	ck_assert_uint_eq(rows.n, 2);
	press("/zzz");
	ck_assert_uint_eq(rows.n, 0);
	press_key(TOP_KEY_ESCAPE); /* the filter as it was */
	ck_assert_uint_eq(rows.n, 2);
	press_key(TOP_KEY_ESCAPE);
	ck_assert_uint_eq(rows.n, BUFFERS);
	press("/*l*");
	ck_assert_uint_eq(rows.n, 3);
	press_key(TOP_KEY_ENTER);
	press_key(TOP_KEY_ESCAPE);
	press("u1002");
	press_key(TOP_KEY_ENTER);
	ck_assert_uint_eq(rows.n, 1);
	ck_assert_str_eq(row(0), "small");
	press("unobody knows");
	press_key(TOP_KEY_ENTER);
	shows(state.message, "there is no user \"nobody knows\"");
	ck_assert_uint_eq(rows.n, BUFFERS);
	state.choice.word = "model/";
	choose();
	ck_assert_uint_eq(rows.n, 2);
	state.choice.view = TOP_POOLS;
	choose();
	ck_assert_uint_eq(rows.n, 2);
}
END_TEST

START_TEST(a_prompt_keeps_whole_characters)
{
	static const uint32_t typed[] = { 'a', 0xe9, 0x6f22, 0x1f600 };

	look();
	press("/");
	for (size_t i = 0; i < array_size(typed); i++)
		press_key(typed[i]);
	ck_assert_str_eq(state.filter, "a\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80");
	for (size_t i = 0; i < array_size(typed); i++)
		press_key(TOP_KEY_BACKSPACE);
	ck_assert_str_eq(state.filter, "");
	press_key(TOP_KEY_BACKSPACE);
	for (size_t i = 0; i < 300; i++)
		press_key(0x6f22);
	ck_assert_uint_eq(strlen(state.filter), 255);
	press_key(TOP_KEY_UP); /* is no character */
	ck_assert_uint_eq(strlen(state.filter), 255);
	press_key(0x15);
	ck_assert_str_eq(state.filter, "");
}
END_TEST

/* ---- pages ---- */

START_TEST(a_page_fits_the_terminal)
{
	static const size_t heights[] = { 1, 2, 3, 4, 5, 6, 8, 9, 12, 13, 24, 100 };
	static const size_t widths[] = { 1, 2, 5, 19, 20, 39, 40, 60, 79, 80, 81, 120, 200, 300 };
	static const enum top_mode modes[] = { TOP_LIST,   TOP_HELP,	 TOP_DETAIL,
					       TOP_FILTER, TOP_ASK_USER, TOP_ASK_DELAY };

	look();
	log_events();
	look();
	state.id = 11;
	for (size_t i = 0; i < array_size(heights) * array_size(widths); i++)
		for (unsigned k = 0; k < array_size(modes) * TOP_VIEWS; k++) {
			state.mode = modes[k / TOP_VIEWS];
			state.choice.view = (enum top_view)(k % TOP_VIEWS);
			choose();
			free(screen(heights[i % array_size(heights)],
				    widths[i / array_size(heights)]));
		}
	/* The list keeps half of a small screen. */
	state = (struct state){ .choice = { .filter = state.filter } };
	choose();
	{
		_cleanup_(free_ptr) char *text = screen(5, 20);

		shows(text, "NAME");
		shows(text, "arge");
	}
}
END_TEST

START_TEST(a_page_shows_all_facts)
{
	_cleanup_(free_ptr) char *text = NULL, *wide = NULL, *detail = NULL, *process = NULL;

	now.status.requests = 2469;
	now.buffers[1].opens = 25;
	look();
	text = screen(30, 160);
	shows(text, "gpushmd 0.1.0, pid 42, up 62s");
	shows(text, "requests 1234/s");
	shows(text, "] ");
	shows(text, " 54%  43.0 GiB of 80.0 GiB\n");
	shows(text, "failed: the disk is on fire");
	shows(text, "[1 Buffers: 6]  2 Processes: 1  3 Users: 2  4 Pools: 2  5 Events: 0");
	shows(text, "OPENS/S");
	shows(text, "12");
	shows(text, "py 500, py 500");
	shows(text, "z\\x1b[2J");
	shows(text, "(unlinked 14)");
	wide = once(0);
	shows(wide, "43.0 GiB of 80.0 GiB");
	shows(wide, "  1.0 GiB of 2.0 GiB");
	shows(wide,
	      "\nNAME           POOL  STATE       SIZE  OPENS/S  READ  WRITE  USER  AGE  HELD BY\n"
	      "model/large    gpu0  shared  40.0 GiB       12     1      1  1001  11s  py 500, py "
	      "500\n");
	press_key(TOP_KEY_ENTER);
	detail = screen(24, 80);
	shows(detail, "id         11");
	shows(detail, "500 py (1001): write");
	press("q2");
	press_key(TOP_KEY_ENTER);
	process = screen(24, 80);
	shows(process, "holds      model/large: write, 40.0 GiB");
}
END_TEST

START_TEST(a_stream_is_shown_as_a_stream)
{
	_cleanup_(free_ptr) char *text = NULL, *detail = NULL;

	now.buffers[1].stream = 1;
	look();
	text = once(0);
	shows(text, "gpu0  shared, stream  40.0 GiB");
	press_key(TOP_KEY_ENTER);
	detail = screen(24, 80);
	shows(detail, "state      shared, stream");
}
END_TEST

/* "[||||::...    ]": 80 GiB of which 43 are used, 3 of them by processes that end, and 10 wait. */
START_TEST(a_bar_shows_the_shares_of_the_pool)
{
	_cleanup_(free_ptr) char *text = NULL, *full = NULL, *tiny = NULL;

	look();
	text = once(0);
	shows(text, "gpu0 [|||||||||||||||:....          ]  54%");
	now.pools[0].pending_bytes = 80 * GIB; /* makes no sense; stays in the bar */
	now.pools[0].suspect_bytes = 0;
	look();
	full = once(0);
	shows(full, "gpu0 [||||||||||||||||..............]  54%");
	now.pools[0].used_bytes = now.pools[0].bytes = 0;
	look();
	tiny = once(0);
	shows(tiny, "gpu0 [                              ]   0%");
}
END_TEST

START_TEST(all_events_are_shown_in_order)
{
	_cleanup_(free_ptr) char *below = NULL, *all = NULL, *small = NULL, *detail = NULL;

	log_events();
	look();
	below = screen(24, 100);
	ck_assert(strstr(below, "created ") < strstr(below, "refused       "));
	ck_assert(strstr(below, "refused       ") < strstr(below, "published "));
	small = screen(12, 100);
	hides(small, "published ");
	press("5");
	ck_assert_uint_eq(rows.n, 3);
	ck_assert_uint_eq(rows.at[0], 2); /* the newest one is first */
	all = screen(24, 100);
	shows(all, "[5 Events: 3]");
	shows(all, "not\\x1byours");
	press_key(TOP_KEY_DOWN);
	press_key(TOP_KEY_ENTER);
	detail = screen(24, 100);
	shows(detail, "event      refused");
	shows(detail, "process    500 py (1002)");
	press("qu1002");
	press_key(TOP_KEY_ENTER);
	ck_assert_uint_eq(rows.n, 1);
}
END_TEST

/* The library frees a batch as one block. */
static struct gpushm_events *make_batch(size_t n)
{
	struct result r = { 0 };
	struct gpushm_events *b = result_add(&r, sizeof(*b));

	b->n_events = n;
	return result_one(&r);
}

START_TEST(a_history_is_bounded_and_keeps_the_newest_events)
{
	struct history h = { 0 }, earlier = { 0 };

	for (size_t i = 0; i < 1000; i++)
		ck_assert_int_eq(history_add(&h, make_batch(3)), 0);
	ck_assert_uint_ge(h.n, HISTORY_EVENTS);
	ck_assert_uint_le(h.n, HISTORY_EVENTS + 3);
	ck_assert_uint_eq(h.n, 3 * h.n_batches);
	ck_assert_int_eq(history_add(&h, make_batch(512)), 0);
	ck_assert_uint_eq(h.n_batches, 1);
	ck_assert_int_eq(history_add(&earlier, make_batch(1)), 0);
	ck_assert_int_eq(history_add(&earlier, make_batch(0)), 0);
	history_prepend(&h, &earlier);
	ck_assert_uint_eq(h.n, 512); /* the earlier one is not needed any more */
	ck_assert_uint_eq(earlier.n_batches, 0);
	history_done(&h);
	ck_assert_int_eq(history_add(&h, make_batch(2)), 0);
	ck_assert_int_eq(history_add(&earlier, make_batch(1)), 0);
	history_prepend(&h, &earlier);
	ck_assert_uint_eq(h.n, 3);
	ck_assert_uint_eq(h.batches[0]->n_events, 1);
	history_done(&h);
}
END_TEST

START_TEST(a_gone_or_silent_daemon_is_reported)
{
	_cleanup_(free_ptr) char *gone = NULL, *silent = NULL, *paused = NULL;

	look();
	strcpy(state.error, "the daemon has gone");
	gone = screen(5, 80);
	shows(gone, "the daemon has gone; trying again");
	state.error[0] = '\0';
	state.silent_ms = 5000;
	silent = screen(24, 80);
	shows(silent, "the daemon has not replied for 5s");
	state.silent_ms = 0;
	press(" ");
	paused = screen(24, 80);
	shows(paused, "paused");
}
END_TEST

/* ---- keys ---- */

START_TEST(the_selected_row_stays_visible)
{
	_cleanup_(free_ptr) char *text = NULL;

	look();
	for (size_t i = 0; i < BUFFERS - 1; i++)
		press_key(TOP_KEY_DOWN);
	ck_assert_uint_eq(state.selected, BUFFERS - 1);
	text = screen(6, 80); /* a line for the daemon, the titles, some rows, the footer */
	shows(text, "small");
	hides(text, "model/large");
	press_key(TOP_KEY_DOWN);
	free(screen(6, 80));
	ck_assert_uint_eq(state.selected, BUFFERS - 1);
	press_key(TOP_KEY_HOME);
	free(screen(6, 80));
	ck_assert_uint_eq(state.first, 0);
	press_key(TOP_KEY_END);
	free(screen(6, 80));
	ck_assert_uint_eq(state.selected, BUFFERS - 1);
	press_key(TOP_KEY_PAGE_UP);
	ck_assert_uint_eq(state.selected, 1);
	press_key(TOP_KEY_PAGE_UP);
	ck_assert_uint_eq(state.selected, 0);
	press_key(TOP_KEY_END);
	now.sample.n_buffers = 2; /* the others have gone */
	look();
	free(screen(24, 80));
	ck_assert_uint_eq(state.selected, 1);
	now.sample.n_buffers = 0;
	look();
	press_key(TOP_KEY_ENTER);
	free(screen(24, 80));
	ck_assert_int_eq(state.mode, TOP_LIST);
}
END_TEST

START_TEST(each_key_has_its_effect)
{
	look();
	press("P");
	ck_assert_int_eq(state.choice.sort, TOP_RATE);
	press("<");
	ck_assert_int_eq(state.choice.sort, TOP_SIZE);
	press("<<<<");
	ck_assert_int_eq(state.choice.sort, TOP_NAME);
	press(">>>>>>>>");
	ck_assert_int_eq(state.choice.sort, TOP_AGE);
	press("R");
	ck_assert(state.choice.reversed);
	press("d0.01");
	press_key(TOP_KEY_ENTER);
	ck_assert_uint_eq(state.delay_ms, 1000);
	shows(state.message, "is no period");
	press("s2.5");
	press_key(TOP_KEY_ENTER);
	ck_assert_uint_eq(state.delay_ms, 2500);
	press_key(TOP_KEY_TAB);
	ck_assert_int_eq(state.choice.view, TOP_PROCESSES);
	press_key(TOP_KEY_BACK_TAB);
	press_key(TOP_KEY_BACK_TAB);
	ck_assert_int_eq(state.choice.view, TOP_EVENTS);
	press("3");
	press_key(TOP_KEY_ENTER); /* the buffers of the user who has most */
	ck_assert_int_eq(state.choice.view, TOP_BUFFERS);
	ck_assert(state.choice.by_user);
	press("hq");
	ck_assert(!state.quit);
	press("k9");
	shows(state.message, "means nothing here");
	press("q");
	ck_assert(state.quit);
}
END_TEST

/* Only the rows that are shown are formatted. */
START_TEST(ten_thousand_buffers_can_be_paged_through)
{
	static struct gpushm_stat many[10000], *list[array_size(many)];

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
	for (int i = 0; i < 100; i++) {
		press_key(TOP_KEY_PAGE_DOWN);
		free(screen(50, 200));
	}
	ck_assert_uint_eq(state.selected, 400);
	ck_assert_str_eq(row(0), "many/09999");
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
	tcase_add_test(tc, rows_are_in_the_order_that_was_asked_for);
	tcase_add_test(tc, a_filter_shows_exactly_what_matches);
	tcase_add_test(tc, a_prompt_keeps_whole_characters);
	tcase_add_test(tc, a_page_fits_the_terminal);
	tcase_add_test(tc, a_page_shows_all_facts);
	tcase_add_test(tc, a_stream_is_shown_as_a_stream);
	tcase_add_test(tc, a_bar_shows_the_shares_of_the_pool);
	tcase_add_test(tc, all_events_are_shown_in_order);
	tcase_add_test(tc, a_history_is_bounded_and_keeps_the_newest_events);
	tcase_add_test(tc, a_gone_or_silent_daemon_is_reported);
	tcase_add_test(tc, the_selected_row_stays_visible);
	tcase_add_test(tc, each_key_has_its_effect);
	tcase_add_test(tc, ten_thousand_buffers_can_be_paged_through);
	return suite_run("top", tc, NULL);
}
