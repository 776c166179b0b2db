/* SPDX-License-Identifier: MIT
 *
 * What a user has chosen on the screen of `gpushmctl top`, and what the keys do.
 */
#pragma once

#include "client/ctl/top/model.h"

/* Keys that are no character; a character is its code point. */
enum top_key {
	TOP_KEY_UP = 0x110000,
	TOP_KEY_DOWN,
	TOP_KEY_LEFT,
	TOP_KEY_RIGHT,
	TOP_KEY_PAGE_UP,
	TOP_KEY_PAGE_DOWN,
	TOP_KEY_HOME,
	TOP_KEY_END,
	TOP_KEY_ENTER,
	TOP_KEY_BACKSPACE,
	TOP_KEY_TAB,
	TOP_KEY_BACK_TAB,
	TOP_KEY_ESCAPE,
	TOP_KEY_F1,
	TOP_KEY_F10,
	TOP_KEY_REDRAW,
};

enum top_mode {
	TOP_LIST,
	TOP_HELP,
	TOP_DETAIL, /* all about one buffer, process, pool or event */
	TOP_FILTER, /* the footer is a prompt */
	TOP_ASK_USER,
	TOP_ASK_DELAY,
};

#define TOP_DELAY_MIN_MS 100u
#define TOP_DELAY_MAX_MS 3600000u

struct state {
	struct choice choice; /* its filter points to filter */
	char filter[256], filter_before[256];
	enum top_mode mode;
	char prompt[256];
	size_t selected, first; /* rows: of the list, or, in first, of a text that is read */
	size_t list_first;	/* while a text is read */
	/* What TOP_DETAIL shows. */
	uint64_t id;
	struct top_process process;
	char pool[64];

	uint64_t delay_ms;
	bool exact, paused, quit;
	char message[160];  /* until the next key */
	char error[512];    /* "": the last sample came */
	uint64_t silent_ms; /* since the daemon was asked; 0: it replied */
};

void state_init(struct state *s);

/* rows: those of the list, or the lines of the text; page: how many of them are visible. */
void state_fit(struct state *s, size_t rows, size_t page);

/* What a key changes; rows are those of the list, of which `page` are visible. */
void state_key(struct state *s, uint32_t key, const struct model *m, const struct rows *rows,
	       size_t page);
