/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl create`: makes a buffer with one array, of zeros or of a file's plain bytes. It
 * publishes the buffer before it ends, because an unpublished buffer ends with its creator; shared
 * by default, because zeros that no process may write are of little use.
 */
#include "client/ctl/ctl.h"
#include "client/ctl/new_buffer.h"
#include "client/ctl/transfer.h"
#include "proto/base/own.h"
#include "proto/limits.h"

#include <inttypes.h>
#include <string.h>

struct options {
	struct new_buffer new_buffer; /* first: more_args */
	uint64_t size;
	const char *shape, *dtype, *from;
};

/* The array to make. */
struct plan {
	int64_t shape[DIMENSIONS_MAX];
	struct gpushm_array_spec spec; /* borrows shape */
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
			return ctl_error(CTL_USAGE, "--shape: \"%s\" is not a shape; write 8,1080",
					 text);
		if (p->spec.ndim == DIMENSIONS_MAX)
			return ctl_error(CTL_USAGE, "--shape: more than %u dimensions",
					 DIMENSIONS_MAX);
		p->shape[p->spec.ndim++] = v;
		c = *end ? end + 1 : end;
	}
	return CTL_OK;
}

static int parse_size(const struct options *o, struct plan *p)
{
	uint64_t bits = gpushm_dtype_bits(p->spec.dtype);

	if (!o->size)
		return ctl_error(CTL_USAGE, "create: give --size or --shape");
	if (o->size > INT64_MAX / 8 || o->size * 8 % bits)
		return ctl_error(CTL_USAGE,
				 "--size: %" PRIu64 " bytes are not a whole number of %s", o->size,
				 o->dtype);
	p->spec.ndim = 1;
	p->shape[0] = (int64_t)(o->size * 8 / bits);
	return CTL_OK;
}

static int make_plan(const struct options *o, struct plan *p)
{
	uint64_t bytes;
	int r;

	p->spec.name = "";
	p->spec.shape = p->shape;
	if (o->size && o->shape)
		return ctl_error(CTL_USAGE, "--size and --shape: choose one");
	if (gpushm_dtype_parse(o->dtype, &p->spec.dtype) < 0)
		return ctl_error(CTL_USAGE, "--dtype: %s", gpushm_error());
	r = o->shape ? parse_shape(o->shape, p) : parse_size(o, p);
	if (r)
		return r;
	r = gpushm_layout(&p->spec, 1, &bytes);
	return r < 0 ? ctl_error(CTL_USAGE, "%s", gpushm_error()) : CTL_OK;
}

/* The array's bytes; the layout's size may be larger. */
static uint64_t array_bytes(const struct plan *p)
{
	uint64_t bits = gpushm_dtype_bits(p->spec.dtype);

	for (int i = 0; i < p->spec.ndim; i++)
		bits *= (uint64_t)p->shape[i];
	return (bits + 7) / 8;
}

/* fd -1: zeros, over the whole buffer. */
static int fill(const struct ctl *ctl, const struct plan *p, int fd, const char *file,
		struct gpushm_buffer *b)
{
	uint64_t bytes = fd >= 0 ? array_bytes(p) : gpushm_buffer_bytes(b);
	struct transfer t;
	int r;

	transfer_begin(&t, gpushm_buffer_name(b), bytes, ctl->quiet);
	r = transfer_fill(&t, fd, file, b, 0, bytes);
	transfer_end(&t);
	return r;
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	_cleanup_(close_fd) int fd = -1;
	const char *file = o->from ? o->from : "zeros";
	struct gpushm_buffer *b = NULL;
	struct plan p = { 0 };
	int r = make_plan(o, &p);

	if (r == CTL_OK && o->from)
		r = transfer_open(&file, &fd);
	if (r == CTL_OK)
		r = new_buffer_create(ctl, &o->new_buffer, words[0], &p.spec, 1, &b);
	if (r == CTL_OK)
		r = fill(ctl, &p, fd, file, b);
	if (r == CTL_OK)
		r = new_buffer_finish(ctl, &o->new_buffer, b, GPUSHM_SHARED);
	gpushm_close(b);
	return r;
}

const struct command command_create = {
	.name = "create",
	.synopsis = "--size=SIZE [OPTIONS] NAME\n--shape=N,... [OPTIONS] NAME",
	.about = "make a buffer of zeros, or of a file's bytes",
	.more = "The buffer is one array, shared unless --sealed is given. With --hold it is\n"
		"filled, and `gpushmctl publish NAME` publishes it later.",
	.args = ARGS({ "size", ARG_SIZE, 'S', "SIZE", "its size in bytes: 4096, 64K, 1.5G",
		       offsetof(struct options, size) },
		     { "shape", ARG_TEXT, 'n', "N,...", "its shape: 8,1080",
		       offsetof(struct options, shape) },
		     { "dtype", ARG_TEXT, 'd', "DTYPE", "the type of its elements (uint8)",
		       offsetof(struct options, dtype) },
		     { "from", ARG_TEXT, 'f', "FILE",
		       "fill it with this file's bytes; \"-\": standard input",
		       offsetof(struct options, from) }),
	.more_args = new_buffer_args,
	.options_size = sizeof(struct options),
	.defaults = &(const struct options){ .dtype = "uint8" },
	.min_words = 1,
	.max_words = 1,
	.connects_itself = true,
	.run = run,
};
