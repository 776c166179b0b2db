/* SPDX-License-Identifier: MIT
 *
 * The keys are those of top(1), htop(1) and less(1), where these agree. Nothing here knows a
 * terminal.
 */
#include "client/ctl/top/state.h"

#include "client/ctl/args.h"
#include "client/ctl/output.h"
#include "client/ctl/top/columns.h"
#include "proto/base/own.h"

#include <stdio.h>
#include <string.h>

void state_init(struct state *s)
{
	*s = (struct state){ .delay_ms = 1000 };
	s->choice.filter = s->filter;
}

void state_fit(struct state *s, size_t rows, size_t page)
{
	size_t last = rows > page ? rows - page : 0;

	if (s->mode == TOP_HELP || s->mode == TOP_DETAIL) {
		s->first = s->first < last ? s->first : last;
		return;
	}
	if (s->selected >= rows)
		s->selected = rows ? rows - 1 : 0;
	if (s->first > s->selected)
		s->first = s->selected;
	if (page && s->selected - s->first >= page)
		s->first = s->selected - page + 1;
	s->first = s->first < last ? s->first : last;
}

/* Moves by so many rows, and stops at the ends. */
static size_t moved(size_t at, long by)
{
	return by < 0 && at < (size_t)-by ? 0 : at + (size_t)by;
}

/* Returns whether the key moves. The caller fits the end. */
static bool move(struct state *s, uint32_t key, size_t page)
{
	size_t *at = s->mode == TOP_LIST ? &s->selected : &s->first;
	long step = page > 1 ? (long)page - 1 : 1;

	switch (key) {
	case TOP_KEY_UP:
	case 'k':
		*at = moved(*at, -1);
		return true;
	case TOP_KEY_DOWN:
	case 'j':
		*at = moved(*at, 1);
		return true;
	case TOP_KEY_PAGE_UP:
		*at = moved(*at, -step);
		return true;
	case TOP_KEY_PAGE_DOWN:
		*at = moved(*at, step);
		return true;
	case TOP_KEY_HOME:
	case 'g':
		*at = 0;
		return true;
	case TOP_KEY_END:
	case 'G':
		*at = SIZE_MAX / 2;
		return true;
	default:
		return false;
	}
}

static void go_to_top(struct state *s)
{
	s->selected = s->first = 0;
}

static void set_view(struct state *s, unsigned view)
{
	s->choice.view = (enum top_view)(view % TOP_VIEWS);
	go_to_top(s);
}

static void set_sort(struct state *s, enum top_sort sort)
{
	s->choice.sort = sort;
	s->choice.reversed = false;
	go_to_top(s);
}

/* Returns whether it is a key for the order. */
static bool sort_by(struct state *s, uint32_t key)
{
	static const struct {
		uint32_t key;
		enum top_sort sort;
	} keys[] = {
		{ 'M', TOP_SIZE }, { 'S', TOP_SIZE },	 { 'P', TOP_RATE },
		{ 'O', TOP_RATE }, { 'H', TOP_HOLDERS }, { 'N', TOP_NAME },
		{ 'T', TOP_AGE },  { 'A', TOP_AGE },	 { 'U', TOP_USER },
	};

	for (size_t i = 0; i < array_size(keys); i++)
		if (keys[i].key == key) {
			set_sort(s, keys[i].sort);
			return true;
		}
	if (key == '<' || key == TOP_KEY_LEFT)
		set_sort(s, columns_next_sort(s->choice.view, s->choice.sort, -1));
	else if (key == '>' || key == TOP_KEY_RIGHT)
		set_sort(s, columns_next_sort(s->choice.view, s->choice.sort, 1));
	else if (key == 'R' || key == 'I')
		s->choice.reversed = !s->choice.reversed;
	else
		return false;
	return true;
}

/* ---- prompts ---- */

static void ask(struct state *s, enum top_mode mode, const char *text)
{
	s->mode = mode;
	snprintf(s->prompt, sizeof(s->prompt), "%s", text);
	if (mode == TOP_FILTER)
		memcpy(s->filter_before, s->filter, sizeof(s->filter));
}

static void set_user(struct state *s, const char *name)
{
	s->choice.by_user = output_find_user(name, &s->choice.user);
	go_to_top(s);
	if (*name && !s->choice.by_user)
		snprintf(s->message, sizeof(s->message), "there is no user \"%.80s\"", name);
}

static void set_delay(struct state *s, const char *text)
{
	uint64_t ms;

	if (!*text)
		return;
	if (args_parse_time(text, &ms) < 0 || ms < TOP_DELAY_MIN_MS || ms > TOP_DELAY_MAX_MS)
		snprintf(s->message, sizeof(s->message),
			 "\"%.40s\" is no period; write 0.1 to 3600 seconds", text);
	else
		s->delay_ms = ms;
}

static void end_prompt(struct state *s, bool take)
{
	enum top_mode mode = s->mode;

	s->mode = TOP_LIST;
	if (mode == TOP_FILTER && !take)
		memcpy(s->filter, s->filter_before, sizeof(s->filter));
	else if (mode == TOP_ASK_USER && take)
		set_user(s, s->prompt);
	else if (mode == TOP_ASK_DELAY && take)
		set_delay(s, s->prompt);
}

/* Adds a character as UTF-8, if there is space for it. */
static void type(char *text, size_t size, uint32_t c)
{
	size_t len = strlen(text), n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	static const unsigned char lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };

	if (c < 0x20 || c == 0x7f || c >= TOP_KEY_UP || len + n >= size)
		return;
	for (size_t i = n; i-- > 1; c >>= 6)
		text[len + i] = (char)(0x80 | (c & 0x3f));
	text[len] = (char)(lead[n == 1 ? 0 : n] | c);
	text[len + n] = '\0';
}

static void erase(char *text)
{
	size_t len = strlen(text);

	while (len && ((unsigned char)text[--len] & 0xc0) == 0x80)
		;
	text[len] = '\0';
}

static void prompt_key(struct state *s, uint32_t key)
{
	if (key == TOP_KEY_ENTER || key == TOP_KEY_ESCAPE) {
		end_prompt(s, key == TOP_KEY_ENTER);
		return;
	}
	if (key == TOP_KEY_BACKSPACE)
		erase(s->prompt);
	else if (key == 0x15) /* Ctrl-U */
		s->prompt[0] = '\0';
	else
		type(s->prompt, sizeof(s->prompt), key);
	if (s->mode == TOP_FILTER) {
		memcpy(s->filter, s->prompt, sizeof(s->filter));
		go_to_top(s);
	}
}

/* ---- the list ---- */

/* All about the selected row. A user has no more than is in the list: the buffers are shown. */
static void show_selected(struct state *s, const struct model *m, const struct rows *rows)
{
	size_t at;

	if (s->selected >= rows->n)
		return;
	at = rows->at[s->selected];
	if (s->choice.view == TOP_USERS) {
		s->choice.by_user = true;
		s->choice.user = m->users[at].usage->uid;
		set_view(s, TOP_BUFFERS);
		return;
	}
	if (s->choice.view == TOP_BUFFERS)
		s->id = m->buffers[at].stat->id;
	else if (s->choice.view == TOP_PROCESSES)
		s->process = m->processes[at];
	else if (s->choice.view == TOP_EVENTS)
		s->id = m->events[at]->number;
	else
		memcpy(s->pool, m->pools[at].pool->name, sizeof(s->pool));
	s->mode = TOP_DETAIL;
	s->list_first = s->first;
	s->first = 0;
}

static void drop_filters(struct state *s)
{
	s->filter[0] = '\0';
	s->choice.by_user = false;
	go_to_top(s);
}

static void list_key(struct state *s, uint32_t key, const struct model *m, const struct rows *rows)
{
	switch (key) {
	case '1':
	case '2':
	case '3':
	case '4':
	case '5':
		set_view(s, key - '1');
		break;
	case TOP_KEY_TAB:
		set_view(s, s->choice.view + 1u);
		break;
	case TOP_KEY_BACK_TAB:
		set_view(s, s->choice.view + TOP_VIEWS - 1u);
		break;
	case '/':
		ask(s, TOP_FILTER, s->filter);
		break;
	case 'u':
		ask(s, TOP_ASK_USER, "");
		break;
	case 'd':
	case 's':
		ask(s, TOP_ASK_DELAY, "");
		break;
	case 'b':
		s->exact = !s->exact;
		break;
	case TOP_KEY_ENTER:
		show_selected(s, m, rows);
		break;
	case TOP_KEY_ESCAPE:
		drop_filters(s);
		break;
	default:
		if (key > ' ' && key < TOP_KEY_UP && key != 0x7f)
			snprintf(s->message, sizeof(s->message),
				 "this key means nothing here; h lists the keys");
	}
}

/* Keys that do the same in a list and in a text. */
static bool common_key(struct state *s, uint32_t key)
{
	if (key == 'q' || key == TOP_KEY_F10)
		s->quit = true;
	else if (key == ' ')
		s->paused = !s->paused;
	else if ((key == 'h' || key == '?' || key == TOP_KEY_F1) && s->mode == TOP_LIST) {
		s->mode = TOP_HELP;
		s->list_first = s->first;
		s->first = 0;
	} else
		return false;
	return true;
}

void state_key(struct state *s, uint32_t key, const struct model *m, const struct rows *rows,
	       size_t page)
{
	s->message[0] = '\0';
	if (key == TOP_KEY_REDRAW)
		return;
	if (s->mode == TOP_FILTER || s->mode == TOP_ASK_USER || s->mode == TOP_ASK_DELAY) {
		prompt_key(s, key);
		return;
	}
	/* In a text, q only leaves it, as in htop and less. */
	if (s->mode != TOP_LIST && key == 'q')
		key = TOP_KEY_ESCAPE;
	if (move(s, key, page) || common_key(s, key))
		return;
	if (s->mode == TOP_LIST) {
		if (!sort_by(s, key))
			list_key(s, key, m, rows);
		return;
	}
	s->mode = TOP_LIST;
	s->first = s->list_first;
}
