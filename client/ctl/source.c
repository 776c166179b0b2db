/* SPDX-License-Identifier: MIT
 *
 * Opening a .npy file: the header is read before a byte of shared memory is asked for, and a file
 * that is too short for what its header says is found before, too, where it has a size at all.
 * The data themselves are transfer.c's.
 */
#include "client/ctl/source.h"

#include "client/ctl/ctl.h"
#include "client/ctl/entry.h"
#include "client/ctl/transfer.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

static int read_exactly(struct source *s, void *buf, size_t n)
{
	ssize_t got = transfer_read(s->fd, buf, n);

	if (got < 0)
		return ctl_error(CTL_FAILED, "%s: %s", s->file, strerror((int)-got));
	if ((size_t)got < n)
		return ctl_error(CTL_FAILED, "%s: no .npy file: it is too short", s->file);
	return CTL_OK;
}

static int read_header(struct source *s)
{
	_cleanup_(free_ptr) char *header = malloc(NPY_HEADER_MAX);
	struct npy_error err;
	size_t len;
	int r;

	if (!header)
		return ctl_error(CTL_FAILED, "out of memory");
	r = read_exactly(s, header, NPY_PRELUDE);
	if (r)
		return r;
	if (npy_header_size(header, &len, &err) < 0)
		return ctl_error(CTL_FAILED, "%s: %s", s->file, err.text);
	r = read_exactly(s, header + NPY_PRELUDE, len - NPY_PRELUDE);
	if (r)
		return r;
	if (npy_parse(header, len, &s->npy, &err) < 0)
		return ctl_error(CTL_FAILED, "%s: %s", s->file, err.text);
	return CTL_OK;
}

static int check_length(const struct source *s)
{
	off_t here = lseek(s->fd, 0, SEEK_CUR);
	struct stat st;

	if (here < 0 || fstat(s->fd, &st) < 0 || !S_ISREG(st.st_mode))
		return CTL_OK;
	if ((uint64_t)(st.st_size - here) >= s->npy.bytes)
		return CTL_OK;
	return ctl_error(CTL_FAILED,
			 "%s: it has %" PRId64 " bytes of data, its header promises %" PRIu64,
			 s->file, (int64_t)(st.st_size - here), s->npy.bytes);
}

int source_open(struct source *s, const char *file, const char *array)
{
	bool standard = !strcmp(file, "-");
	int r;

	s->file = standard ? "standard input" : file;
	s->array = array;
	s->fd = standard ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
			 : open(file, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0)
		return ctl_error(CTL_FAILED, "%s: %s", s->file, strerror(errno));
	/* A hint; files of gigabytes are read once, from front to back. */
	posix_fadvise(s->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	r = read_header(s);
	return r ? r : check_length(s);
}

void source_close(struct source *s)
{
	close_fd(&s->fd);
}

int source_retype(struct source *s, const char *dtype)
{
	struct gpushm_dtype t;

	if (gpushm_dtype_parse(dtype, &t) < 0)
		return ctl_error(CTL_USAGE, "--dtype: %s", gpushm_error());
	if (gpushm_dtype_bits(t) != dtype_bits(s->npy.dtype))
		return ctl_error(CTL_USAGE,
				 "--dtype: %s has %" PRIu64 " bits an element, %s has %" PRIu64,
				 dtype, gpushm_dtype_bits(t), s->file, dtype_bits(s->npy.dtype));
	s->npy.dtype = entry_dtype(t);
	s->npy.descr[0] = '\0';
	return CTL_OK;
}

/* npy_parse() has checked the product of the whole shape; a dimension of 0 makes strides that
 * nothing is reached by, and stand in for 1. */
static void set_fortran_strides(struct source *s)
{
	int64_t stride = (int64_t)(dtype_bits(s->npy.dtype) / 8);

	for (uint32_t i = 0; i < s->npy.ndim; i++) {
		s->strides[i] = stride;
		stride *= s->npy.shape[i] ? s->npy.shape[i] : 1;
	}
}

void source_spec(struct source *s, struct gpushm_array_spec *ret)
{
	*ret = (struct gpushm_array_spec){
		.name = s->array,
		.dtype = entry_public_dtype(s->npy.dtype),
		.descr = s->npy.descr[0] ? s->npy.descr : NULL,
		.ndim = (int)s->npy.ndim,
		.shape = s->npy.shape,
	};
	if (!s->npy.fortran || s->npy.ndim < 2)
		return;
	set_fortran_strides(s);
	ret->strides = s->strides;
}
