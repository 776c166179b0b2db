/* SPDX-License-Identifier: MIT
 *
 * The memory of what a function returns at once: one or several structs, with their texts and
 * lists. gpushm_free() frees all of it.
 */
#pragma once

#include <stddef.h>

struct result_block;

/* Zeroed: empty. */
struct result {
	struct result_block *blocks; /* owned */
	void **items;		     /* owned; the structs, n of them */
	size_t n;
};

void result_done(struct result *r);

/* Zeroed memory that lives as long as the result. NULL with gpushm_error() set. */
void *result_alloc(struct result *r, size_t bytes);

/* The same, as one more item. */
void *result_add(struct result *r, size_t bytes);

/* Hands out the array of items: ret points to a variable for it. r is empty then. 0, or -ENOMEM
 * with gpushm_error() set. */
int result_list(struct result *r, size_t *ret_n, void *ret);

/* Hands out the item that was the first memory that was taken; r is empty then. */
void *result_one(struct result *r);
