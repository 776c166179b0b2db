/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl create`: a buffer of zeros, or of a file's plain bytes, as one array. It is published
 * before the command ends (an unpublished buffer goes with its creator), shared unless --sealed
 * is given: zeros that nobody may write would be of little use.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/draft.h"
#include "client/ctl/interrupt.h"
#include "client/ctl/transfer.h"
#include "proto/base/own.h"
#include "proto/limits.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

struct options {
	struct draft draft;
	uint64_t size;
	const char *shape, *dtype, *from;
};

/* The array that is made. */
struct plan {
	int64_t shape[DIMENSIONS_MAX];
	struct gpushm_array_spec spec;
	uint64_t bytes; /* of the buffer, and of what fills it */
};

/* "8,1080", "8x1080"; "" is a single element. */
static int parse_shape(const char *text, struct plan *p)
{
	const char *c = text;

	while (*c) {
		char *end;
		long long v;

		errno = 0;
		v = strtoll(c, &end, 10);
		if (*c < '0' || *c > '9' || errno || (*end && *end != ',' && *end != 'x'))
			return ctl_error(CTL_USAGE, "--shape: \"%s\" is no shape; write 8,1080",
					 text);
		if (p->spec.ndim == DIMENSIONS_MAX)
			return ctl_error(CTL_USAGE, "--shape: more than %u dimensions",
					 DIMENSIONS_MAX);
		p->shape[p->spec.ndim++] = v;
		c = *end ? end + 1 : end;
	}
	return CTL_OK;
}

static int plan_size(const struct options *o, struct plan *p)
{
	uint64_t bits = gpushm_dtype_bits(p->spec.dtype);

	if (!o->size)
		return ctl_error(CTL_USAGE, "create: give --size or --shape");
	if (o->size > INT64_MAX / 8 || o->size * 8 % bits)
		return ctl_error(CTL_USAGE, "--size: %" PRIu64 " bytes are no whole number of %s",
				 o->size, o->dtype);
	p->spec.ndim = 1;
	p->shape[0] = (int64_t)(o->size * 8 / bits);
	return CTL_OK;
}

static int make_plan(const struct options *o, struct plan *p)
{
	int r;

	p->spec.name = "";
	p->spec.shape = p->shape;
	if (o->size && o->shape)
		return ctl_error(CTL_USAGE, "--size and --shape: choose one");
	if (gpushm_dtype_parse(o->dtype, &p->spec.dtype) < 0)
		return ctl_error(CTL_USAGE, "--dtype: %s", gpushm_error());
	r = o->shape ? parse_shape(o->shape, p) : plan_size(o, p);
	if (r)
		return r;
	r = gpushm_layout(&p->spec, 1, &p->bytes);
	return r < 0 ? ctl_error(CTL_USAGE, "%s", gpushm_error()) : CTL_OK;
}

/* Bytes that the array takes: layout's size may be larger. */
static uint64_t array_bytes(const struct plan *p)
{
	uint64_t bits = gpushm_dtype_bits(p->spec.dtype);

	for (int i = 0; i < p->spec.ndim; i++)
		bits *= (uint64_t)p->shape[i];
	return (bits + 7) / 8;
}

static int open_from(const char *file, int *ret)
{
	*ret = !strcmp(file, "-") ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
				  : open(file, O_RDONLY | O_CLOEXEC);
	return *ret < 0 ? ctl_error(CTL_FAILED, "%s: %s", file, strerror(errno)) : CTL_OK;
}

static int fill(const struct ctl *ctl, const struct options *o, const struct plan *p, int fd,
		struct gpushm_buffer *b)
{
	uint64_t bytes = fd >= 0 ? array_bytes(p) : gpushm_buffer_bytes(b);
	struct progress progress;
	int r;

	progress_start(&progress, gpushm_buffer_name(b), bytes, ctl->quiet);
	interrupt_catch();
	r = fd >= 0 ? transfer_fill(fd, o->from, b, 0, bytes, &progress)
		    : transfer_zero(b, 0, bytes, &progress);
	interrupt_release();
	progress_end(&progress);
	return r == CTL_OK && interrupt_pending() ? ctl_error(CTL_FAILED, "interrupted") : r;
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	_cleanup_(close_fd) int fd = -1;
	struct gpushm_buffer *b = NULL;
	struct plan p = { 0 };
	int r = make_plan(o, &p);

	if (r == CTL_OK && o->from)
		r = open_from(o->from, &fd);
	if (r == CTL_OK)
		r = ctl_connect(ctl);
	if (r == CTL_OK)
		r = draft_create(ctl, &o->draft, words[0], &p.spec, 1, p.bytes, &b);
	if (r == CTL_OK)
		r = fill(ctl, o, &p, fd, b);
	if (r == CTL_OK)
		r = draft_finish(ctl, &o->draft, b, GPUSHM_SHARED);
	gpushm_close(b);
	return r;
}

const struct command command_create = {
	.name = "create",
	.synopsis = "--size=SIZE [OPTIONS] NAME\n--shape=N,... [OPTIONS] NAME",
	.about = "make a buffer of zeros, or of a file's bytes",
	.more = "The buffer is one array, shared unless --sealed is given. With --hold it is\n"
		"published when `gpushmctl publish NAME` says so.",
	.args =
		(const struct arg[]){
			{ "size", ARG_SIZE, 'S', "SIZE", "so many bytes: 4096, 64K, 1.5G",
			  offsetof(struct options, size) },
			{ "shape", ARG_TEXT, 'n', "N,...", "so many elements: 8,1080",
			  offsetof(struct options, shape) },
			{ "dtype", ARG_TEXT, 'd', "DTYPE", "of the elements (uint8)",
			  offsetof(struct options, dtype) },
			{ "from", ARG_TEXT, 'f', "FILE",
			  "fill with a file's bytes; \"-\": standard input",
			  offsetof(struct options, from) },
			DRAFT_ARGS(struct options, draft),
			{ .name = NULL },
		},
	.options_size = sizeof(struct options),
	.defaults = &(const struct options){ .dtype = "uint8" },
	.min_words = 1,
	.max_words = 1,
	.run = run,
};
