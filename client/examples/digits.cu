/* SPDX-License-Identifier: MIT
 *
 * The digits network as a kernel: one block for each image, one thread for each hidden unit.
 * nvcc makes PTX of it, and the driver of the machine that runs it makes code of that.
 */
#include "client/examples/digits.h"

extern "C" __global__ void digits(const float *w1, const float *b1, const float *w2,
				  const float *b2, const unsigned char *images,
				  unsigned char *answers)
{
	__shared__ float hidden[DIGITS_HIDDEN], out[DIGITS_CLASSES];
	const unsigned char *image = images + (size_t)blockIdx.x * DIGITS_PIXELS;
	int t = threadIdx.x;
	float sum = b1[t];

	for (int i = 0; i < DIGITS_PIXELS; i++)
		sum += image[i] * w1[i * DIGITS_HIDDEN + t];
	hidden[t] = fmaxf(sum, 0);
	__syncthreads();

	if (t < DIGITS_CLASSES) {
		out[t] = b2[t];
		for (int j = 0; j < DIGITS_HIDDEN; j++)
			out[t] += hidden[j] * w2[j * DIGITS_CLASSES + t];
	}
	__syncthreads();

	if (t == 0) {
		int best = 0;

		for (int k = 1; k < DIGITS_CLASSES; k++)
			if (out[k] > out[best])
				best = k;
		answers[blockIdx.x] = best;
	}
}
