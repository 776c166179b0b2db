/* SPDX-License-Identifier: MIT
 *
 * The options: what to measure, and for how long.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIZES_MAX 8

struct options {
	uint64_t sizes[SIZES_MAX]; /* bytes, of the buffers that are attached */
	size_t n_sizes;
	unsigned count;	    /* rounds of each race at most */
	unsigned seconds;   /* of each race at most */
	unsigned clients;   /* that ask at the same time */
	unsigned arrays;    /* in the buffer that has many */
	unsigned buffers;   /* that a restart brings back */
	unsigned many;	    /* buffers at the end of the scaling curve */
	unsigned busy_poll; /* us, of the daemon that most rows ask */
	const char *pool;   /* "host", "vmm", "mempool", "pinned"; NULL: all that there are */
	const char *only;   /* select rows whose id contains this text; NULL: all */
	const char *json;   /* a file; "-" is standard output; NULL: none */
	bool quick;	    /* few rounds, which only show that everything runs */
};

/* Reads the command line; if it is wrong, prints the usage and exits. */
void options_parse(int argc, char **argv, struct options *ret);

/* Whether the options select the row with this id. */
bool options_want(const struct options *o, const char *id);
