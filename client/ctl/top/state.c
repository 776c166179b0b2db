/* SPDX-License-Identifier: MIT
 *
 * The keys are those of top(1) and less(1). Nothing here knows a terminal.
 */
#include "client/ctl/top/state.h"

static void set_view(struct state *s, unsigned view)
{
	s->choice.view = (enum top_view)(view % TOP_VIEWS);
	s->first = 0;
}

/* Moves by so many rows, and stops at the ends. */
static void move(struct state *s, const struct model *m, size_t page, long by)
{
	size_t n = m->lists[s->choice.view].n, last = n > page ? n - page : 0;
	size_t to = by < 0 && s->first < (size_t)-by ? 0 : s->first + (size_t)by;

	s->first = to < last ? to : last;
}

void state_key(struct state *s, uint32_t key, const struct model *m, size_t page)
{
	long step = page > 1 ? (long)page - 1 : 1;

	switch (key) {
	case TOP_KEY_UP:
	case 'k':
		move(s, m, page, -1);
		break;
	case TOP_KEY_DOWN:
	case 'j':
		move(s, m, page, 1);
		break;
	case TOP_KEY_PAGE_UP:
		move(s, m, page, -step);
		break;
	case TOP_KEY_PAGE_DOWN:
	case ' ':
		move(s, m, page, step);
		break;
	case TOP_KEY_HOME:
	case 'g':
		s->first = 0;
		break;
	case TOP_KEY_END:
	case 'G':
		move(s, m, page, (long)m->lists[s->choice.view].n);
		break;
	case '\t':
		set_view(s, s->choice.view + 1u);
		break;
	case TOP_KEY_BACK_TAB:
		set_view(s, s->choice.view + TOP_VIEWS - 1u);
		break;
	case '1':
	case '2':
	case '3':
	case '4':
		set_view(s, key - '1');
		break;
	case 'q':
		s->quit = true;
		break;
	}
}
