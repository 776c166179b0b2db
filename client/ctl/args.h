/* SPDX-License-Identifier: MIT
 *
 * Command lines: options are a table, and each value lands in a struct at the entry's offset.
 * Options may stand before and after words; "--" ends them; "-" alone is a word.
 */
#ifndef GPUSHM_CLIENT_CTL_ARGS_H
#define GPUSHM_CLIENT_CTL_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define ARG_LIST_MAX 64

enum arg_type {
	ARG_FLAG,  /* bool */
	ARG_TEXT,  /* const char *, borrowed from argv */
	ARG_SIZE,  /* uint64_t, bytes: 4096, 4K, 1.5G, 8GiB */
	ARG_COUNT, /* uint64_t, a whole number of at least 1 */
	ARG_MODE,  /* unsigned, octal permission bits */
	ARG_TIME,  /* uint64_t, ms: 5, 2.5s, 300ms, 2m, 1h, inf; a bare number is seconds */
	ARG_LIST,  /* struct arg_list: may be given again and again */
	ARG_JSON,  /* const char *: "short" or "pretty" */
	ARG_HELP,
};

struct arg {
	const char *name; /* without the dashes */
	enum arg_type type;
	char letter;	  /* 0: none */
	const char *meta; /* the value's name in --help; NULL for a flag */
	const char *help; /* NULL: hidden */
	size_t offset;
};

struct arg_list {
	const char *v[ARG_LIST_MAX];
	size_t n;
};

/* Where the values of one table go. */
struct arg_target {
	const struct arg *args;
	void *base;
};

/* Takes the options out of argv, which is NULL-terminated, and leaves the words at its front;
 * *ret_words is their number. first_word_ends: leave what follows the first word as it is.
 * 0; -EINVAL with what is wrong in err; -ECANCELED where --help was asked for. */
int args_parse(char **argv, const struct arg_target *targets, size_t n_targets,
	       bool first_word_ends, size_t *ret_words, char *err, size_t err_size);

/* The options of a table, a line each. */
void args_help(const struct arg *args, FILE *out);

/* 0 or -EINVAL, also for what does not fit. */
int args_parse_time(const char *text, uint64_t *ret);

/* How many letters must be typed, taken away, exchanged or swapped to get from a to b: the
 * restricted Damerau-Levenshtein distance. Words above 31 bytes count as far away. */
unsigned args_distance(const char *a, const char *b);

#endif
