/* SPDX-License-Identifier: MIT
 *
 * The page of `gpushmctl top`: text, with the styles of table.h.
 */
#pragma once

#include "client/ctl/top/model.h"

#include <stdio.h>

/* Where a page goes, and what is on it. */
struct page {
	FILE *out;
	unsigned flags; /* of table_print() */
	size_t lines;	/* of a terminal, for the list to end in time; 0: no limit */
	bool exact;	/* as for output_size() */
	const struct model *m;
};

/* Prints the page with the list of this view. 0 or -ENOMEM. */
int view_print(const struct page *p, enum top_view view);
