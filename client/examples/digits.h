/* SPDX-License-Identifier: MIT
 *
 * The network that reads handwritten digits: 64 pixels, 64 hidden units, 10 outputs. It computes
 * where its arrays lie: on the CPU from host memory, in a kernel from GPU memory. tests/data says
 * where weights and images come from.
 */
#pragma once

#include <gpushm.h>

#define DIGITS_PIXELS 64 /* of one image; uint8, 0 to 16 */
#define DIGITS_HIDDEN 64
#define DIGITS_CLASSES 10

/* float32, C order: w1 [64, 64], b1 [64], w2 [64, 10], b2 [10]. */
struct digits_net {
	struct gpushm_array *w1, *b1, *w2, *b2;
};

/* Writes the digit of images[i] to answers[i]; images is [n, 64] and answers [n], both uint8 and in
 * C order. If the memory is on a GPU and no kernel can run (a build without nvcc), it works on
 * copies. *ret_where is "CPU", "GPU" or "CPU, on copies". 0; -EINVAL (shapes or types); else the
 * library's or the driver's error. */
int digits_classify(const struct digits_net *net, const struct gpushm_array *images,
		    struct gpushm_array *answers, const char **ret_where);

/* The same by a kernel on device memory; returns when it is done. 0; -ENOTSUP (this build, or this
 * process, cannot run kernels: nothing was done); -EIO (the kernel failed). */
int digits_gpu(const struct digits_net *net, const struct gpushm_array *images,
	       struct gpushm_array *answers);
