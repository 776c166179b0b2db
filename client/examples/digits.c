/* SPDX-License-Identifier: MIT
 *
 * The digits network on the CPU, and the choice where to compute: host memory in place, GPU memory
 * by digits_gpu(). If that cannot run, the arrays are copied to the host, computed there, and the
 * answers are copied back.
 */
#include "client/examples/digits.h"

#include "client/gpushm_array.h"
#include <errno.h>
#include <stdlib.h>

#define MODEL_FLOATS                                                                      \
	(DIGITS_PIXELS * DIGITS_HIDDEN + DIGITS_HIDDEN + DIGITS_HIDDEN * DIGITS_CLASSES + \
	 DIGITS_CLASSES)

static uint8_t classify_one(const float *w1, const float *b1, const float *w2, const float *b2,
			    const uint8_t *image)
{
	float hidden[DIGITS_HIDDEN], best = 0;
	uint8_t answer = 0;

	for (int j = 0; j < DIGITS_HIDDEN; j++) {
		hidden[j] = b1[j];
		for (int i = 0; i < DIGITS_PIXELS; i++)
			hidden[j] += image[i] * w1[i * DIGITS_HIDDEN + j];
		if (hidden[j] < 0)
			hidden[j] = 0;
	}

	for (int k = 0; k < DIGITS_CLASSES; k++) {
		float out = b2[k];

		for (int j = 0; j < DIGITS_HIDDEN; j++)
			out += hidden[j] * w2[j * DIGITS_CLASSES + k];
		if (k == 0 || out > best) {
			best = out;
			answer = (uint8_t)k;
		}
	}
	return answer;
}

static void forward(const float *w1, const float *b1, const float *w2, const float *b2,
		    const uint8_t *images, int64_t n, uint8_t *ret_answers)
{
	for (int64_t i = 0; i < n; i++)
		ret_answers[i] = classify_one(w1, b1, w2, b2, images + i * DIGITS_PIXELS);
}

/* Whether the array is as the functions above expect it. */
static int fits(const struct gpushm_array *a, uint8_t code, uint8_t bits, int64_t rows,
		int64_t columns)
{
	struct gpushm_dtype t = gpushm_array_dtype(a);

	return t.code == code && t.bits == bits && gpushm_array_is_c_contiguous(a) &&
	       gpushm_array_ndim(a) == (columns ? 2 : 1) && gpushm_array_dim(a, 0) == rows &&
	       (!columns || gpushm_array_dim(a, 1) == columns);
}

static int all_fit(const struct digits_net *net, const struct gpushm_array *images,
		   const struct gpushm_array *answers)
{
	enum { UINT = 1, FLOAT = 2 }; /* DLPack's codes */

	return fits(net->w1, FLOAT, 32, DIGITS_PIXELS, DIGITS_HIDDEN) &&
	       fits(net->b1, FLOAT, 32, DIGITS_HIDDEN, 0) &&
	       fits(net->w2, FLOAT, 32, DIGITS_HIDDEN, DIGITS_CLASSES) &&
	       fits(net->b2, FLOAT, 32, DIGITS_CLASSES, 0) &&
	       fits(images, UINT, 8, gpushm_array_dim(images, 0), DIGITS_PIXELS) &&
	       fits(answers, UINT, 8, gpushm_array_dim(images, 0), 0);
}

static void in_place(const struct digits_net *net, const struct gpushm_array *images,
		     struct gpushm_array *answers)
{
	forward(gpushm_array_host_ptr(net->w1), gpushm_array_host_ptr(net->b1),
		gpushm_array_host_ptr(net->w2), gpushm_array_host_ptr(net->b2),
		gpushm_array_host_ptr(images), gpushm_array_dim(images, 0),
		gpushm_array_host_ptr(answers));
}

static int on_copies(const struct digits_net *net, const struct gpushm_array *images,
		     struct gpushm_array *answers)
{
	int64_t n = gpushm_array_dim(images, 0);
	float *w1 = malloc(MODEL_FLOATS * sizeof(float));
	float *b1 = w1 + DIGITS_PIXELS * DIGITS_HIDDEN, *w2 = b1 + DIGITS_HIDDEN;
	float *b2 = w2 + DIGITS_HIDDEN * DIGITS_CLASSES;
	uint8_t *pixels = malloc((size_t)n * (DIGITS_PIXELS + 1));
	uint8_t *digits = pixels + n * DIGITS_PIXELS;
	const struct {
		const struct gpushm_array *array;
		void *copy;
	} copies[] = { { net->w1, w1 },
		       { net->b1, b1 },
		       { net->w2, w2 },
		       { net->b2, b2 },
		       { images, pixels } };
	int r = w1 && pixels ? 0 : -ENOMEM;

	for (size_t i = 0; i < sizeof(copies) / sizeof(copies[0]) && r == 0; i++)
		r = gpushm_copy_to_host(copies[i].array, copies[i].copy, NULL);
	if (r == 0) {
		forward(w1, b1, w2, b2, pixels, n, digits);
		r = gpushm_copy_from_host(answers, digits, NULL);
	}
	free(w1);
	free(pixels);
	return r;
}

int digits_classify(const struct digits_net *net, const struct gpushm_array *images,
		    struct gpushm_array *answers, const char **ret_where)
{
	int r = 0;

	if (!all_fit(net, images, answers))
		return -EINVAL;

	if (gpushm_array_host_ptr(images)) {
		in_place(net, images, answers);
		*ret_where = "CPU";
		return 0;
	}

	r = digits_gpu(net, images, answers);
	if (r == 0)
		*ret_where = "GPU";
	if (r != -ENOTSUP)
		return r;

	r = on_copies(net, images, answers);
	if (r == 0)
		*ret_where = "CPU, on copies";
	return r;
}
