/* SPDX-License-Identifier: MIT
 *
 * One row of client/records.txt: a field of a struct that libgpushm returns, and all its names. The
 * tables, records_table.h, are compiled into those who use them: the library reads replies by them,
 * gpushmctl writes JSON, and the Python package makes named tuples.
 */
#pragma once

#include "proto/words.h"

#include <stddef.h>

/* The types of client/records.txt, which says what each one is. */
enum record_type {
	RECORD_NAME,
	RECORD_TEXT,
	RECORD_LABEL,
	RECORD_STRING,
	RECORD_U32,
	RECORD_U64,
	RECORD_INT,
	RECORD_PID,
	RECORD_BOOL,
	RECORD_ID,
	RECORD_ID0,
	RECORD_HEX,
	RECORD_HEX16,
	RECORD_PID0,
	RECORD_ORDINAL,
	RECORD_TIME,
	RECORD_NS,
	RECORD_MS,
	RECORD_LIMIT,
	RECORD_UID,
	RECORD_UIDN,
	RECORD_GID,
	RECORD_MODE,
	RECORD_STATE,
	RECORD_STATEN,
	RECORD_ACCESS,
	RECORD_ACCESSN,
	RECORD_KIND,
	RECORD_FOLLOW,
	RECORD_DELIVERY,
	RECORD_RESIDENCE,
	RECORD_STREAM_STATE,
	RECORD_WHAT,
	RECORD_CODE,
	RECORD_TYPE,
	RECORD_UUID,
	RECORD_ATTRS,
	RECORD_LIST,
	RECORD_ONE,
	RECORD_NUMBERS,
};

struct record;

struct record_field {
	const char *member, *json, *python; /* NULL: it is not there */
	const char *doc;
	enum record_type type;
	unsigned at, size; /* of the member in the struct */
	unsigned when;	   /* where an int is; while it is 0 the field is missing; 0: no such int */
	unsigned count;	   /* where the number of elements is, a size_t */
	const struct record *of; /* of a list or one: its elements */
	/* Where the message has it, and whether or how many; 0: nowhere. For the library alone. */
	unsigned wire, has;
};

struct record {
	const char *name;   /* of the struct, without gpushm_ */
	const char *python; /* "gpushm.BufferInfo" */
	const char *doc;
	const struct record_field *fields;
	unsigned n, bytes;
};

/* For records_table.h: a row's member, and where the message has the field. */
#define RECORD_MEMBER(record, name) \
	offsetof(struct gpushm_##record, name), sizeof(((struct gpushm_##record *)0)->name)
#ifndef RECORD_WIRE
#define RECORD_WIRE(message, field, has) , 0, 0
#endif
#define RECORD_NO_WIRE , 0, 0
#define RECORD_MAY_BE_UNUSED __attribute__((unused))

static inline const void *record_at(const void *s, unsigned at)
{
	return (const char *)s + at;
}

static inline size_t record_count(const struct record_field *f, const void *s)
{
	return *(const size_t *)record_at(s, f->count);
}

/* Whether the field has a value, as far as its `when` says. */
static inline int record_has(const struct record_field *f, const void *s)
{
	return !f->when || *(const int *)record_at(s, f->when);
}

/* The word for a value of an enum, also 0 where that means none. NULL: the type is no enum. */
static inline const char *record_word(enum record_type type, unsigned value)
{
	switch (type) {
	case RECORD_STATE:
	case RECORD_STATEN:
		return state_word(value);
	case RECORD_ACCESS:
	case RECORD_ACCESSN:
		return access_word(value);
	case RECORD_KIND:
		return kind_word(value);
	case RECORD_FOLLOW:
		return follow_word(value);
	case RECORD_DELIVERY:
		return delivery_word(value);
	case RECORD_STREAM_STATE:
		return stream_state_word(value);
	case RECORD_WHAT:
		return what_word(value);
	case RECORD_RESIDENCE:
		return residence_word(value);
	default:
		return NULL;
	}
}
