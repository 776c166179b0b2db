/* SPDX-License-Identifier: MIT
 *
 * Command lines: options are a table, and each value is stored in a struct at the entry's offset.
 * Options may stand before and after words; "--" ends them; "-" alone is a word.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define ARG_LIST_MAX 64
#define ARG_SUGGEST_MAX 64 /* options of one command that a mistyped one is compared with */

enum arg_type {
	ARG_FLAG,   /* bool */
	ARG_TEXT,   /* const char *, borrowed from argv */
	ARG_SIZE,   /* uint64_t, bytes: 4096, 4K, 1.5G, 8GiB, 64.0 MiB */
	ARG_COUNT,  /* uint64_t, a whole number of at least 1 */
	ARG_MODE,   /* unsigned, octal permission bits */
	ARG_TIME,   /* uint64_t, ms: 5, 2.5s, 300ms, 2m, 1h, inf; a bare number is seconds */
	ARG_LIST,   /* struct arg_list: may be given several times */
	ARG_JSON,   /* const char *: "short" or "pretty" */
	ARG_CHOICE, /* const char *: one of the words of meta, which stand between "|" */
	ARG_HELP,
};

struct arg {
	const char *name; /* without the dashes */
	enum arg_type type;
	char letter;	  /* 0: the option has none */
	const char *meta; /* the value's name in --help; NULL for a flag */
	const char *help; /* NULL: the option is hidden */
	size_t offset;
};

/* An entry of a table: its value is a member of struct `of`. */
#define ARG(of, member, name, type, letter, meta, help)                     \
	{                                                                   \
		name, type, letter, meta, help, offsetof(struct of, member) \
	}
#define FLAG(of, member, name, letter, help) ARG(of, member, name, ARG_FLAG, letter, NULL, help)

/* A table of struct arg for a struct command. */
#define ARGS(...) ((const struct arg[]){ __VA_ARGS__, { .name = NULL } })

struct arg_list {
	const char *v[ARG_LIST_MAX];
	size_t n;
};

/* A table, which ends with a NULL name, and the struct for its values. args may be NULL. */
struct arg_target {
	const struct arg *args;
	void *base;
};

/* Takes the options out of argv, which is NULL-terminated, and leaves the words at its front;
 * *ret_words is their number. first_word_ends: what follows the first word stays as it is.
 * 0; -EINVAL with the reason in err; -ECANCELED for --help. */
int args_parse(char **argv, const struct arg_target *targets, size_t n_targets,
	       bool first_word_ends, size_t *ret_words, char *err, size_t err_size);

/* A program without commands. */
struct args_program {
	const char *name, *synopsis; /* of --help: what follows the name */
	const char *about, *version;
	const struct arg *args;
};

/* Reads its command line into base. --help and --version, which each program has, end the process;
 * so does what is wrong, with a line on stderr and the exit status 2. */
void args_read(const struct args_program *p, char *const *argv, void *base);

/* Prints the options of a table, a line each. */
void args_help(const struct arg *args, FILE *out);

/* 0, or -EINVAL: no time, or a time that does not fit. */
int args_parse_time(const char *text, uint64_t *ret);
