/* SPDX-License-Identifier: MIT
 *
 * What the benchmark is asked to measure, and how long.
 */
#ifndef GPUSHM_TESTS_BENCH_OPTIONS_H
#define GPUSHM_TESTS_BENCH_OPTIONS_H

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
	const char *only;   /* a part of the ids of the rows that are wanted; NULL: all */
	const char *json;   /* a file; "-" is standard output; NULL: none */
	bool quick;	    /* so few rounds that it shows only that everything runs */
};

/* From the command line; explains itself and exits where that is wrong. */
void options_parse(int argc, char **argv, struct options *ret);

/* Whether a row with this id is wanted. */
bool options_want(const struct options *o, const char *id);

#endif
