/* SPDX-License-Identifier: MIT
 *
 * A writer of metrics as text, in one of two formats: OpenMetrics 1.0, and Prometheus' text format
 * 0.0.4 for what does not read OpenMetrics. They differ in the names of families, in UNIT lines and
 * in the end. The caller writes all samples of a family behind its head.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum exposition_format { EXPOSITION_OPENMETRICS, EXPOSITION_PROMETHEUS };

enum exposition_type {
	EXPOSITION_GAUGE,
	EXPOSITION_COUNTER,   /* its samples end in _total */
	EXPOSITION_HISTOGRAM, /* _bucket, _count and _sum */
	EXPOSITION_SUMMARY,   /* _count and _sum */
	EXPOSITION_INFO	      /* _info, always 1 */
};

struct exposition {
	FILE *out; /* borrowed */
	enum exposition_format format;
	const char *family; /* the last one's name */
	bool labelled;	    /* the sample has a label */
};

/* For a request with that header Accept, or NULL: only a client that says so reads OpenMetrics. */
enum exposition_format exposition_format_for(const char *accept);

/* The value of the header Content-Type. */
const char *exposition_content_type(enum exposition_format format);

/* name: without _total and the like; with the unit at its end. unit: NULL if it has none. All are
 * borrowed until the next family. */
void exposition_family(struct exposition *e, enum exposition_type type, const char *name,
		       const char *unit, const char *help);

/* A sample: exposition_begin(), its labels, then its value. suffix: "_total", or "". */
void exposition_begin(struct exposition *e, const char *suffix);
/* value: UTF-8; NULL or "" is as if the sample did not have the label. */
void exposition_label(struct exposition *e, const char *name, const char *value);
void exposition_number(struct exposition *e, uint64_t value);
void exposition_seconds(struct exposition *e, uint64_t ns);

/* A whole sample with one label. */
void exposition_sample(struct exposition *e, const char *suffix, const char *label,
		       const char *value, uint64_t number);

/* A sample for each word, which is the label's value. */
void exposition_words(struct exposition *e, const char *suffix, const char *label,
		      const char *const *words, const uint64_t *numbers, size_t n);

/* A family of one sample without labels. */
void exposition_one(struct exposition *e, enum exposition_type type, const char *name,
		    const char *unit, const char *help, uint64_t value);

/* A label whose value is a bound of a histogram's bucket; UINT64_MAX: no bound. */
void exposition_bound(struct exposition *e, uint64_t ns);

/* Behind the last family. */
void exposition_end(struct exposition *e);
