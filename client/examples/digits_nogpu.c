/* SPDX-License-Identifier: MIT
 *
 * Stands in for digits_gpu.c where nvcc was not found at build time: no kernel was compiled, so
 * none can run.
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
