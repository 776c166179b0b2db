/* SPDX-License-Identifier: MIT
 *
 * An intrusive, circular, doubly linked list. A head and a link are the same struct. A link in no
 * list points to itself, so that list_drop() may be called twice.
 */
#pragma once

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

/* Puts link at the tail of head's list. */
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

/* Moves all members of one list to the tail of another. */
static inline void list_move(struct list *from, struct list *to)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#define list_first(head, type, member) container_of((head)->next, type, member)

/* The body may drop and free `it`, but no other member of the list. */
#define list_foreach(it, head, member)                                                          \
	for (struct list *it##_at = (head)->next, *it##_next = it##_at->next;                   \
	     it##_at != (head) && ((it) = container_of(it##_at, __typeof__(*(it)), member), 1); \
	     it##_at = it##_next, it##_next = it##_at->next)

/* The same from the last to the first. */
#define list_foreach_reverse(it, head, member)                                                  \
	for (struct list *it##_at = (head)->prev, *it##_next = it##_at->prev;                   \
	     it##_at != (head) && ((it) = container_of(it##_at, __typeof__(*(it)), member), 1); \
	     it##_at = it##_next, it##_next = it##_at->prev)

/* Takes members off the list until it is empty. The body may free `it`, and may insert and drop
 * any other member. */
#define list_drain(it, head, member) \
	while (!list_empty(head) &&  \
	       ((it) = list_first(head, __typeof__(*(it)), member), list_drop(&(it)->member), 1))
