/* SPDX-License-Identifier: MIT
 *
 * A worker as a starting point for your own: classify FIRST COUNT. It attaches to a model and to
 * samples that another process has put into shared memory, on a GPU or on the host, classifies
 * COUNT samples from FIRST on, and writes the answers into a buffer that all workers share. Before
 * the timed attach, and before it computes, it prints a line and waits for one.
 */
#include "client/examples/digits.h"
#include "client/gpushm_array.h"

#include <err.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define COUNT_MAX 4096

static double open_us; /* duration of the last attach() */

static struct gpushm_buffer *attach(struct gpushm *c, const char *name, enum gpushm_access access)
{
	struct gpushm_buffer *b = NULL;
	struct timespec start, end;

	clock_gettime(CLOCK_MONOTONIC, &start);
	if (gpushm_open(c, name, access, 5000, NULL, &b) < 0)
		errx(1, "%s", gpushm_error());
	clock_gettime(CLOCK_MONOTONIC, &end);
	open_us = (end.tv_sec - start.tv_sec) * 1e6 + (end.tv_nsec - start.tv_nsec) / 1e3;
	return b;
}

/* Some rows of an array: a view, which shares the memory. */
static struct gpushm_array *rows(struct gpushm_buffer *b, const char *name, long first, long end)
{
	struct gpushm_array *all = NULL, *part = NULL;

	if (gpushm_array_get(b, name, &all) < 0 ||
	    gpushm_array_slice(all, 0, first, end, 1, &part) < 0)
		errx(1, "%s", gpushm_error());
	gpushm_array_free(all);
	return part;
}

static void wait_for_go(void)
{
	if (fflush(stdout) != 0 || getchar() != '\n')
		errx(1, "no line on standard input");
}

static long count_right(struct gpushm_array *answers, struct gpushm_array *labels, long count)
{
	static uint8_t answer[COUNT_MAX], label[COUNT_MAX];
	long right = 0;

	if (gpushm_copy_to_host(answers, answer, NULL) < 0 ||
	    gpushm_copy_to_host(labels, label, NULL) < 0)
		errx(1, "%s", gpushm_error());
	for (long i = 0; i < count; i++)
		right += answer[i] == label[i];
	return right;
}

int main(int argc, char **argv)
{
	long first = argc == 3 ? atol(argv[1]) : -1, count = argc == 3 ? atol(argv[2]) : 0;
	const char *where = NULL;
	struct gpushm *c = NULL;

	if (first < 0 || count < 1 || count > COUNT_MAX)
		errx(2, "usage: classify FIRST COUNT");
	if (gpushm_connect(NULL, &c) < 0)
		errx(1, "%s", gpushm_error());
	/* The first open of a process also starts CUDA, if the memory is on a GPU. */
	struct gpushm_buffer *samples = attach(c, "digits/samples", GPUSHM_READ);
	printf("ready %.1f\n", open_us);
	struct gpushm_buffer *shared = attach(c, "digits/answers", GPUSHM_WRITE);
	wait_for_go();
	struct gpushm_buffer *model = attach(c, "digits/model", GPUSHM_READ);
	printf("attached %" PRIu64 " %.1f\n", gpushm_buffer_id(model), open_us);
	wait_for_go();

	struct digits_net net = { rows(model, "w1", 0, LONG_MAX), rows(model, "b1", 0, LONG_MAX),
				  rows(model, "w2", 0, LONG_MAX), rows(model, "b2", 0, LONG_MAX) };
	struct gpushm_array *images = rows(samples, "images", first, first + count);
	struct gpushm_array *labels = rows(samples, "labels", first, first + count);
	struct gpushm_array *answers = rows(shared, "", first, first + count);
	if (gpushm_array_dim(images, 0) < count || digits_classify(&net, images, answers, &where))
		errx(1, "samples %ld to %ld: cannot classify them", first, first + count - 1);
	printf("done %ld %s\n", count_right(answers, labels, count), where);

	struct gpushm_array *all[] = { net.w1, net.b1, net.w2, net.b2, images, labels, answers };
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		gpushm_array_free(all[i]);
	if (gpushm_close(samples) < 0 || gpushm_close(model) < 0 || gpushm_close(shared) < 0)
		errx(1, "%s", gpushm_error());
	gpushm_disconnect(c);
	return 0;
}
