/* SPDX-License-Identifier: MIT
 *
 * Replaces digits_gpu.c in a build without nvcc: without a compiled kernel nothing can run.
 */
#include "client/examples/digits.h"

#include <errno.h>

int digits_gpu(const struct digits_net *net, const struct gpushm_array *images,
	       struct gpushm_array *answers)
{
	(void)net;
	(void)images;
	(void)answers;
	return -ENOTSUP;
}
