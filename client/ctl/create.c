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

/* The input of --from; without it, zeros. */
struct source {
	const char *file; /* borrowed; for messages */
	int fd;		  /* owned; -1: zeros */
	bool sized;	  /* it is a regular file, of which so many bytes are left */
	uint64_t bytes;
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

/* An array of one dimension. what: the option or file that has these bytes. */
static int take_size(const struct options *o, const char *what, uint64_t bytes, struct plan *p)
{
	uint64_t bits = gpushm_dtype_bits(p->spec.dtype);

	if (bytes > INT64_MAX / 8 || bytes * 8 % bits)
		return ctl_error(CTL_USAGE, "%s: %" PRIu64 " bytes are not a whole number of %s",
				 what, bytes, o->dtype);
	p->spec.ndim = 1;
	p->shape[0] = (int64_t)(bytes * 8 / bits);
	return CTL_OK;
}

/* From --shape, --size, or the size of the file. */
static int choose_shape(const struct options *o, const struct source *from, struct plan *p)
{
	if (o->size && o->shape)
		return ctl_error(CTL_USAGE, "--size and --shape: choose one");
	if (o->shape)
		return parse_shape(o->shape, p);
	if (o->size)
		return take_size(o, "--size", o->size, p);
	if (from->sized)
		return take_size(o, from->file, from->bytes, p);
	if (!o->from)
		return ctl_error(CTL_USAGE,
				 "create: give --size or --shape, or a file with --from");
	return ctl_error(CTL_USAGE,
			 "create: give --size or --shape: %s is not a regular file, so its size is "
			 "not known when the memory is allocated",
			 from->file);
}

/* The array's bytes; the layout's size may be larger. */
static uint64_t array_bytes(const struct plan *p)
{
	uint64_t bits = gpushm_dtype_bits(p->spec.dtype);

	for (int i = 0; i < p->spec.ndim; i++)
		bits *= (uint64_t)p->shape[i];
	return (bits + 7) / 8;
}

static int check_length(const struct source *from, const struct plan *p)
{
	uint64_t bytes = array_bytes(p);

	if (!from->sized || from->bytes == bytes)
		return CTL_OK;
	return ctl_error(CTL_FAILED,
			 "%s: it has %" PRIu64 " bytes, but the array needs %" PRIu64
			 ": leave out --size and --shape to take the whole file",
			 from->file, from->bytes, bytes);
}

static int make_plan(const struct options *o, const struct source *from, struct plan *p)
{
	uint64_t bytes;
	int r;

	p->spec.struct_size = sizeof(p->spec);
	p->spec.name = "";
	p->spec.shape = p->shape;
	if (gpushm_dtype_parse(o->dtype, &p->spec.dtype) < 0)
		return ctl_error(CTL_USAGE, "--dtype: %s", gpushm_error());
	r = choose_shape(o, from, p);
	if (r)
		return r;
	r = gpushm_layout(&p->spec, 1, &bytes);
	return r < 0 ? ctl_error(CTL_USAGE, "%s", gpushm_error()) : check_length(from, p);
}

static int open_source(struct source *from)
{
	int r = transfer_open(&from->file, &from->fd);

	if (r == CTL_OK)
		from->sized = transfer_rest(from->fd, &from->bytes);
	return r;
}

/* Zeros go over the whole buffer. */
static int fill(const struct ctl *ctl, const struct plan *p, const struct source *from,
		struct gpushm_buffer *b)
{
	uint64_t bytes = from->fd >= 0 ? array_bytes(p) : gpushm_buffer_bytes(b);
	struct transfer t;
	int r;

	transfer_begin(&t, gpushm_buffer_name(b), bytes, ctl->quiet);
	r = transfer_fill(&t, from->fd, from->file, b, 0, bytes);
	transfer_end(&t);
	return r;
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	struct source from = { .file = o->from ? o->from : "zeros", .fd = -1 };
	_cleanup_(close_buffer) struct gpushm_buffer *b = NULL;
	struct plan p = { 0 };
	int r = o->from ? open_source(&from) : CTL_OK;

	if (r == CTL_OK)
		r = make_plan(o, &from, &p);
	if (r == CTL_OK)
		r = new_buffer_create(ctl, &o->new_buffer, words[0], &p.spec, 1, &b);
	if (r == CTL_OK)
		r = fill(ctl, &p, &from, b);
	if (r == CTL_OK)
		r = new_buffer_finish(ctl, &o->new_buffer, b, GPUSHM_SHARED);
	close_fd(&from.fd);
	return r;
}

const struct command command_create = {
	.name = "create",
	.synopsis = "--size=SIZE [OPTIONS] NAME\n--shape=N,... [OPTIONS] NAME\n"
		    "--from=FILE [OPTIONS] NAME",
	.about = "make a buffer of zeros, or of a file's bytes",
	.more = "The buffer is one array, shared unless --sealed is given. A file fills the\n"
		"whole array; a regular file needs neither --size nor --shape.",
	OPTIONS(options,
		ARG(options, size, "size", ARG_SIZE, 'S', "SIZE",
		    "its size in bytes: 4096, 64K, 1.5G"),
		ARG(options, shape, "shape", ARG_TEXT, 'n', "N,...", "its shape: 8,1080"),
		ARG(options, dtype, "dtype", ARG_TEXT, 'd', "DTYPE",
		    "the type of its elements (uint8)"),
		ARG(options, from, "from", ARG_TEXT, 'f', "FILE",
		    "fill it with this file's bytes; \"-\": standard input")),
	.more_args = { new_buffer_state_args, new_buffer_args },
	.defaults = &(const struct options){ .dtype = "uint8" },
	.words = { 1, 1 },
	.connects_itself = true,
	.run = run,
};
