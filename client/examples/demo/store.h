/* SPDX-License-Identifier: MIT
 *
 * What the demo keeps in the daemon: three buffers, filled from the files of tests/data.
 */
#ifndef GPUSHM_EXAMPLES_DEMO_STORE_H
#define GPUSHM_EXAMPLES_DEMO_STORE_H

#include "client/examples/demo/tensor.h"

enum store_file { W1, B1, W2, B2, IMAGES, LABELS, STORE_FILES };

#define STORE_BUFFERS 3 /* model, samples, answers */
extern const char *const store_names[STORE_BUFFERS];

#define STORE_NO_ANSWER 255

struct fdstore {
	struct tensor files[STORE_FILES];
	int64_t samples;
};

/* Reads the files in the folder. 0, or -errno with the reason on stderr; so for all below. */
int store_load(struct fdstore *s, const char *folder);
void store_clear(struct fdstore *s);

/* Makes the buffers in the pool: digits/model and digits/samples sealed, digits/answers shared and
 * full of STORE_NO_ANSWER. This process holds none of them afterwards. */
int store_put(const struct fdstore *s, struct gpushm *c, const char *pool);

/* Compares digits/answers with what this process alone computes from the files: rows from `first`
 * on must all agree, those before must be untouched. -EILSEQ if not. */
int store_check_answers(const struct fdstore *s, struct gpushm *c, long first);

/* How many of the rows from `first` on this process alone gets right. */
long store_count_right(const struct fdstore *s, long first);

int store_unlink(struct gpushm *c);

#endif
