/* SPDX-License-Identifier: MIT
 *
 * The pages of `gpushmctl top`: text, with the styles of table.h.
 */
#pragma once

#include "client/ctl/top/model.h"
#include "client/ctl/top/state.h"

#include <stdio.h>

/* The screen: `height` lines, at least 1, of which those of the list have at most `width` columns.
 * It first moves the list so that it fills its lines. Returns how many rows of it are visible. */
size_t view_screen(const struct model *m, struct state *s, size_t height, size_t width, FILE *out);

/* Everything, for --once; flags as for table_print(). 0 or -ENOMEM. */
int view_once(const struct model *m, const struct state *s, unsigned flags, FILE *out);
