/* SPDX-License-Identifier: MIT
 *
 * A buffer in the making: what put and create have in common, from their options to PUBLISH.
 */
#ifndef GPUSHM_CLIENT_CTL_DRAFT_H
#define GPUSHM_CLIENT_CTL_DRAFT_H

#include "client/ctl/ctl.h"

struct draft {
	const char *pool, *group;
	unsigned mode;
	bool shared, sealed, transient, hold;
	struct arg_list attrs; /* "key=value" */
	uint64_t wait;	       /* ms */
};

/* The entries of an option table, for a struct that has a `struct draft` member. */
#define DRAFT_ARGS(type, member)                                                   \
	{ "pool",                                                                  \
	  ARG_TEXT,                                                                \
	  'p',                                                                     \
	  "POOL",                                                                  \
	  "the pool to take memory from (gpushmctl pools)",                        \
	  offsetof(type, member.pool) },                                           \
		{ "mode",                                                          \
		  ARG_MODE,                                                        \
		  'm',                                                             \
		  "OCTAL",                                                         \
		  "who may open it, as for a file (0600)",                         \
		  offsetof(type, member.mode) },                                   \
		{ "group",                                                         \
		  ARG_TEXT,                                                        \
		  'g',                                                             \
		  "GROUP",                                                         \
		  "the group that the mode speaks of",                             \
		  offsetof(type, member.group) },                                  \
		{ "attr",                                                          \
		  ARG_LIST,                                                        \
		  'a',                                                             \
		  "KEY=VALUE",                                                     \
		  "a user attribute; may be given again",                          \
		  offsetof(type, member.attrs) },                                  \
		{ "wait",                                                          \
		  ARG_TIME,                                                        \
		  'w',                                                             \
		  "TIME",                                                          \
		  "wait so long for room in a pool that is full",                  \
		  offsetof(type, member.wait) },                                   \
		{ "shared",                                                        \
		  ARG_FLAG,                                                        \
		  0,                                                               \
		  NULL,                                                            \
		  "publish for reading and writing",                               \
		  offsetof(type, member.shared) },                                 \
		{ "sealed",                                                        \
		  ARG_FLAG,                                                        \
		  0,                                                               \
		  NULL,                                                            \
		  "publish for reading only, never written again",                 \
		  offsetof(type, member.sealed) },                                 \
		{ "transient",                                                     \
		  ARG_FLAG,                                                        \
		  0,                                                               \
		  NULL,                                                            \
		  "unlink with the last lease; stay until the end of input",       \
		  offsetof(type, member.transient) },                              \
	{                                                                          \
		"hold", ARG_FLAG, 0, NULL,                                         \
			"fill now, publish when `gpushmctl publish NAME` says so", \
			offsetof(type, member.hold)                                \
	}

/* Places the arrays, creates the buffer and describes them. bytes: its size if above what the
 * arrays take. An exit code. */
int draft_create(struct ctl *ctl, const struct draft *d, const char *name,
		 struct gpushm_array_spec *specs, size_t n, uint64_t bytes,
		 struct gpushm_buffer **ret);

/* Publishes, now or, with --hold, when told; says what there is; with --transient stays until the
 * end of standard input. state: what neither --shared nor --sealed says. An exit code. */
int draft_finish(struct ctl *ctl, const struct draft *d, struct gpushm_buffer *b,
		 enum gpushm_state state);

#endif
