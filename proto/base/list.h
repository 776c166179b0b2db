/* SPDX-License-Identifier: MIT
 *
 * An intrusive, circular, doubly linked list. A head and a link are the same struct; a link that
 * is in no list points to itself, so that list_drop() may be called twice.
 */
#ifndef GPUSHM_PROTO_BASE_LIST_H
#define GPUSHM_PROTO_BASE_LIST_H

#include "proto/base/own.h"

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *prev, *next;
};

static inline void list_init(struct list *l)
{
	l->prev = l->next = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

/* Puts link at the tail of the list that head stands for. */
static inline void list_insert(struct list *head, struct list *link)
{
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

static inline void list_drop(struct list *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	list_init(link);
}

#define list_first(head, type, member) container_of((head)->next, type, member)

/* The body may drop and free `it`, but no other member of the list. */
#define list_foreach(it, head, member)                                                          \
	for (struct list *it##_at = (head)->next, *it##_next = it##_at->next;                   \
	     it##_at != (head) && ((it) = container_of(it##_at, __typeof__(*(it)), member), 1); \
	     it##_at = it##_next, it##_next = it##_at->next)

#endif
