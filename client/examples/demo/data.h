/* SPDX-License-Identifier: MIT
 *
 * The demo's data: the files of tests/data, and the three buffers that it fills from them.
 * Functions return 0, or -errno with the reason on stderr.
 */
#pragma once

#include <gpushm_array.h>

#define DATA_NDIM_MAX 4
#define DATA_BUFFERS 3 /* model, samples, answers */
#define DATA_NO_ANSWER 255

enum data_file { W1, B1, W2, B2, IMAGES, LABELS, DATA_FILES };

/* An array of a .npy file in this process's own memory, in C order. */
struct tensor {
	struct gpushm_dtype dtype;
	int ndim;
	int64_t shape[DATA_NDIM_MAX];
	void *data; /* owned */
	size_t bytes;
};

struct data {
	struct tensor files[DATA_FILES];
	int64_t samples;
};

extern const char *const data_names[DATA_BUFFERS];

/* Reads the files in the folder. */
int data_load(struct data *d, const char *folder);
void data_clear(struct data *d);

/* Makes the buffers in the pool: digits/model and digits/samples sealed, digits/answers shared and
 * full of DATA_NO_ANSWER. This process holds none of them afterwards. */
int data_put(const struct data *d, struct gpushm *c, const char *pool);

/* Compares digits/answers with what this process alone computes from the files: the rows from
 * `first` on must agree, those before must be unchanged; else -EILSEQ. *ret_right is the number of
 * correct answers from `first` on. */
int data_check_answers(const struct data *d, struct gpushm *c, long first, long *ret_right);

int data_unlink(struct gpushm *c);
