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
	TOP_KEY_PAGE_UP,
	TOP_KEY_PAGE_DOWN,
	TOP_KEY_HOME,
	TOP_KEY_END,
	TOP_KEY_BACK_TAB,
};

struct state {
	struct choice choice;
	size_t first; /* row of the list that is visible */
	bool exact, quit;
	char error[512]; /* "": the last sample came */
};

/* What a key changes; `page` rows are visible. */
void state_key(struct state *s, uint32_t key, const struct model *m, size_t page);
