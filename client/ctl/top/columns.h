/* SPDX-License-Identifier: MIT
 *
 * The tables of `gpushmctl top`: which columns each view has, and what is in a cell.
 */
#pragma once

#include "client/ctl/top/model.h"
#include "client/ctl/top/page.h"
#include "gpushm_records.h"

/* How a table is shown. */
struct table_form {
	const struct choice *choice;
	bool exact;	 /* sizes as exact numbers of bytes */
	bool live;	 /* on the screen: with the sign of the order, and a selected row */
	size_t first, n; /* the rows that are shown */
	size_t selected;
};

/* Adds the titles, and those rows. */
void columns_show(const struct model *m, const struct rows *rows, const struct table_form *form,
		  struct page *page);

/* The order that the column at the left or right of the one in order stands for. */
enum top_sort columns_next_sort(enum top_view view, enum top_sort sort, int step);

/* The colour of an event. */
enum table_style columns_event_style(const struct gpushm_logged_event *e);

/* "12.3", "1234", "1.2 M" a second; "-" if it is not known. */
struct output_text columns_rate(double rate);

/* "+1.2 GiB/s"; "-": not known, or nothing changed. */
struct output_text columns_byte_rate(double rate);
