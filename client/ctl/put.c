/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl put`: .npy files into a new buffer. All headers are read first, then the buffer is
 * created with room for all of them, filled file by file, and published last: others see it whole
 * or not at all, and a put that fails or is interrupted leaves nothing.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/draft.h"
#include "client/ctl/interrupt.h"
#include "client/ctl/source.h"
#include "client/ctl/transfer.h"
#include "proto/base/own.h"

#include <string.h>

struct options {
	struct draft draft;
	const char *dtype;
};

/* What a put works on; freed as a whole. */
struct load {
	const char *name;
	struct source *sources;		 /* owned */
	struct gpushm_array_spec *specs; /* owned */
	char **arrays;			 /* owned: names that were split from files */
	size_t n;
};

static void load_free(struct load *l)
{
	for (size_t i = 0; i < l->n; i++) {
		source_close(&l->sources[i]);
		free(l->arrays[i]);
	}
	free(l->sources);
	free(l->specs);
	free(l->arrays);
}

static int load_new(struct load *l, size_t n)
{
	l->sources = calloc(n, sizeof(*l->sources));
	l->specs = calloc(n, sizeof(*l->specs));
	l->arrays = calloc(n, sizeof(*l->arrays));
	if (!l->sources || !l->specs || !l->arrays)
		return ctl_error(CTL_FAILED, "out of memory");
	l->n = n;
	for (size_t i = 0; i < n; i++)
		l->sources[i].fd = -1;
	return CTL_OK;
}

static int add(struct load *l, size_t i, const char *file, const char *array, size_t array_len,
	       const char *dtype)
{
	int r;

	l->arrays[i] = strndup(array, array_len);
	if (!l->arrays[i])
		return ctl_error(CTL_FAILED, "out of memory");
	r = source_open(&l->sources[i], file, l->arrays[i]);
	if (r == CTL_OK && dtype)
		r = source_retype(&l->sources[i], dtype);
	if (r == CTL_OK)
		source_spec(&l->sources[i], &l->specs[i]);
	return r;
}

/* "FILE NAME", or "NAME ARRAY=FILE...". */
static int open_all(struct load *l, const struct options *o, size_t n, char **words)
{
	bool single = n == 2 && !strchr(words[1], '=');
	int r = load_new(l, n - 1);

	if (r)
		return r;
	l->name = words[single ? 1 : 0];
	if (single)
		return add(l, 0, words[0], "", 0, o->dtype);
	for (size_t i = 1; i < n; i++) {
		const char *equals = strchr(words[i], '=');

		if (!equals)
			return ctl_error(CTL_USAGE,
					 "put: \"%s\" is not ARRAY=FILE; write gpushmctl put "
					 "FILE.npy NAME, or gpushmctl put NAME ARRAY=FILE.npy...",
					 words[i]);
		r = add(l, i - 1, equals + 1, words[i], (size_t)(equals - words[i]), o->dtype);
		if (r)
			return r;
	}
	return CTL_OK;
}

static int fill(const struct ctl *ctl, struct load *l, struct gpushm_buffer *b)
{
	struct progress p;
	uint64_t total = 0;
	int r = CTL_OK;

	for (size_t i = 0; i < l->n; i++)
		total += l->sources[i].npy.bytes;
	progress_start(&p, l->name, total, ctl->quiet);
	interrupt_catch();
	for (size_t i = 0; i < l->n && r == CTL_OK; i++)
		r = transfer_fill(l->sources[i].fd, l->sources[i].file, b, l->specs[i].offset,
				  l->sources[i].npy.bytes, &p);
	interrupt_release();
	progress_end(&p);
	return r == CTL_OK && interrupt_pending() ? ctl_error(CTL_FAILED, "interrupted") : r;
}

static int put(struct ctl *ctl, const struct options *o, struct load *l, size_t n, char **words)
{
	struct gpushm_buffer *b = NULL;
	int r = open_all(l, o, n, words);

	if (r == CTL_OK)
		r = ctl_connect(ctl);
	if (r == CTL_OK)
		r = draft_create(ctl, &o->draft, l->name, l->specs, l->n, 0, &b);
	if (r == CTL_OK)
		r = fill(ctl, l, b);
	if (r == CTL_OK)
		r = draft_finish(ctl, &o->draft, b, GPUSHM_SEALED);
	gpushm_close(b);
	return r;
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	struct load l = { 0 };
	int r = put(ctl, options, &l, n, words);

	load_free(&l);
	return r;
}

const struct command command_put = {
	.name = "put",
	.synopsis = "[OPTIONS] FILE.npy NAME\n[OPTIONS] NAME ARRAY=FILE.npy...",
	.about = "make a buffer of NumPy files",
	.more = "The first form makes a buffer of one array, which has no name of its own. \"-\" "
		"is\n"
		"standard input. The buffer is sealed unless --shared is given. With --hold it is\n"
		"filled, and published when `gpushmctl publish NAME` says so.",
	.args =
		(const struct arg[]){
			DRAFT_ARGS(struct options, draft),
			{ "dtype", ARG_TEXT, 'd', "DTYPE",
			  "call the elements so: bfloat16, float8_e4m3fn",
			  offsetof(struct options, dtype) },
			{ .name = NULL },
		},
	.options_size = sizeof(struct options),
	.min_words = 2,
	.max_words = SIZE_MAX,
	.run = run,
};
