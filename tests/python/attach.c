/* SPDX-License-Identifier: MIT
 *
 * The C side of bench_attach.py: `attach NAME N` opens the buffer's array and closes the buffer, N
 * times on one connection, and prints the nanoseconds of each.
 */
#include "client/gpushm_array.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void attach(struct gpushm *c, const char *name)
{
	struct gpushm_buffer *b = NULL;
	struct gpushm_array *a = NULL;

	if (gpushm_open(c, name, GPUSHM_READ, 0, NULL, &b) < 0 || gpushm_array_get(b, "", &a) < 0)
		errx(1, "%s", gpushm_error());
	gpushm_array_free(a);
	if (gpushm_close(b) < 0)
		errx(1, "%s", gpushm_error());
}

int main(int argc, char **argv)
{
	struct gpushm *c = NULL;
	long n = argc == 3 ? atol(argv[2]) : 0;
	long *took = n > 0 ? calloc((size_t)n, sizeof(*took)) : NULL;

	if (!took)
		errx(2, "usage: attach NAME N");
	if (gpushm_connect(NULL, &c) < 0)
		errx(1, "%s", gpushm_error());
	attach(c, argv[1]);
	for (long i = 0; i < n; i++) {
		long began = now();

		attach(c, argv[1]);
		took[i] = now() - began;
	}
	for (long i = 0; i < n; i++)
		printf("%ld\n", took[i]);
	free(took);
	gpushm_disconnect(c);
	return 0;
}
