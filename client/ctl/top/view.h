/* SPDX-License-Identifier: MIT
 *
 * The pages of `gpushmctl top`, made of a model and of what the user has chosen.
 */
#pragma once

#include "client/ctl/top/model.h"
#include "client/ctl/top/page.h"
#include "client/ctl/top/state.h"

/* The screen: `height` lines, at least 1, of page->width columns. It first moves the list so that
 * the selected row is visible. Returns how many rows of the list or of the text are visible. */
size_t view_screen(const struct model *m, const struct rows *rows, struct state *s, size_t height,
		   struct page *page);

/* Everything, for --once. */
void view_once(const struct model *m, const struct rows *rows, const struct state *s,
	       struct page *page);
