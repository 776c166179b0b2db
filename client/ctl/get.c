/* SPDX-License-Identifier: MIT
 *
 * `gpushmctl get`: writes an array to a .npy file, or as plain bytes. The buffer is open for
 * reading during the copy, so its memory stays even if its name is unlinked. Other processes may
 * write to a shared buffer at the same time; the file then has the bytes of the moment each chunk
 * was read.
 *
 * The bytes go to a temporary file in the same folder, which gets the name and the mode of the old
 * file when it is complete: readers of the old file are not disturbed, and an interrupted get
 * leaves the old file as it was. Only SIGKILL leaves the temporary file behind. A safetensors file
 * gets all arrays, from the library that saves models.
 */
#include "client/base/spec.h"
#include "client/ctl/ctl.h"
#include "client/ctl/model.h"
#include "client/ctl/npy.h"
#include "client/ctl/transfer.h"
#include "proto/base/own.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

struct options {
	const char *array;
	bool raw;
	uint64_t timeout;
};

struct output_file {
	const char *file; /* borrowed; for messages */
	char *target;	  /* owned; the file's name, links followed; NULL: written in place */
	char *temporary;  /* owned; until it is renamed to target */
	int fd;		  /* owned */
};

static int file_failed(const struct output_file *f)
{
	return ctl_error(CTL_FAILED, "%s: %s", f->file, strerror(errno));
}

static int open_temporary(struct output_file *f, mode_t mode)
{
	if (asprintf(&f->temporary, "%s.XXXXXX", f->target) < 0) {
		f->temporary = NULL;
		return ctl_error(CTL_FAILED, "out of memory");
	}
	f->fd = mkostemp(f->temporary, O_CLOEXEC);
	if (f->fd < 0) {
		int r = file_failed(f);

		free_ptr(&f->temporary);
		return r;
	}
	/* mkostemp() makes it 0600 whatever the umask is. */
	return fchmod(f->fd, mode) < 0 ? file_failed(f) : CTL_OK;
}

static mode_t default_mode(void)
{
	mode_t mask = umask(0);

	umask(mask);
	return 0666 & ~mask;
}

/* "-" is standard output. A file that is not regular (a pipe, /dev/null) is written in place. */
static int open_file(struct output_file *f, const char *file)
{
	struct stat st;
	bool exists;

	if (!strcmp(file, "-")) {
		f->file = "standard output";
		f->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
		return f->fd < 0 ? file_failed(f) : CTL_OK;
	}
	f->file = file;
	exists = stat(file, &st) == 0;
	if (exists && !S_ISREG(st.st_mode)) {
		f->fd = open(file, O_WRONLY | O_CLOEXEC);
		return f->fd < 0 ? file_failed(f) : CTL_OK;
	}
	/* A link stays a link: /dev/stdout is one, and its folder is /dev. */
	f->target = exists ? realpath(file, NULL) : strdup(file);
	if (!f->target)
		return file_failed(f);
	return open_temporary(f, exists ? st.st_mode & 0777 : default_mode());
}

/* Gives the file its name. */
static int commit_file(struct output_file *f)
{
	/* NFS and quotas may report a lost write only now. */
	if (close(take_fd(&f->fd)) < 0)
		return file_failed(f);
	if (!f->temporary)
		return CTL_OK;
	if (rename(f->temporary, f->target) < 0)
		return file_failed(f);
	free_ptr(&f->temporary);
	return CTL_OK;
}

/* Removes the file unless it was committed. */
static void close_file(struct output_file *f)
{
	close_fd(&f->fd);
	if (f->temporary)
		unlink(f->temporary);
	free_ptr(&f->temporary);
	free_ptr(&f->target);
}

static int no_array(struct gpushm_buffer *b, const char *array)
{
	size_t n = gpushm_buffer_arrays(b), used = 0;
	char names[200] = "";

	for (size_t i = 0; i < n && i < 4 && used < sizeof(names); i++) {
		struct gpushm_array *a = NULL;

		if (gpushm_array_at(b, i, &a) < 0)
			break;
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s\"%s\"",
					 i ? ", " : "", gpushm_array_name(a));
		gpushm_array_free(a);
	}
	return ctl_error(CTL_NOT_FOUND, "%s: it has no array \"%s\"; its %zu arrays are %s%s",
			 gpushm_buffer_name(b), array, n, names, n > 4 ? ", ..." : "");
}

/* The named array; without a name the buffer's own, or the only one. */
static int find_array(struct gpushm_buffer *b, const char *name, struct gpushm_array **ret)
{
	int r = gpushm_array_get(b, name ? name : "", ret);

	if (r == -ENOENT && !name && gpushm_buffer_arrays(b) == 1)
		r = gpushm_array_at(b, 0, ret);
	return r == -ENOENT ? no_array(b, name ? name : "") : ctl_result(r);
}

static int write_header(const struct gpushm_array *a, const struct output_file *f)
{
	struct npy npy = { .dtype = dtype_from_public(gpushm_array_dtype(a)),
			   .ndim = (uint32_t)gpushm_array_ndim(a) };
	const char *descr = gpushm_array_descr(a);
	_cleanup_(free_ptr) char *header = NULL;
	size_t len;
	int r;

	npy.fortran = gpushm_array_is_f_contiguous(a) && !gpushm_array_is_c_contiguous(a);
	snprintf(npy.descr, sizeof(npy.descr), "%s", descr ? descr : "");
	for (uint32_t i = 0; i < npy.ndim; i++)
		npy.shape[i] = gpushm_array_shape(a)[i];
	r = npy_format(&npy, &header, &len);
	if (r == -ENOTSUP)
		return ctl_error(CTL_FAILED,
				 "NumPy has no type for %s; --raw writes the elements without a "
				 "header",
				 output_dtype(gpushm_array_dtype(a)).text);
	return r < 0 ? ctl_error(CTL_FAILED, "%s: %s", f->file, strerror(-r))
		     : transfer_write(f->fd, f->file, header, len);
}

static int write_file(const struct ctl *ctl, const struct options *o, const struct gpushm_array *a,
		      const char *file)
{
	struct output_file f = { .fd = -1 };
	struct transfer t;
	int r;

	transfer_begin(&t, file, gpushm_array_nbytes(a), ctl->quiet);
	r = open_file(&f, file);
	if (r == CTL_OK && !o->raw)
		r = write_header(a, &f);
	if (r == CTL_OK)
		r = transfer_dump(&t, a, f.fd, f.file);
	if (r == CTL_OK)
		r = commit_file(&f);
	close_file(&f);
	transfer_end(&t);
	return r;
}

static void report(const struct ctl *ctl, const struct gpushm_array *a, const char *file)
{
	struct output_text type = output_dtype(gpushm_array_dtype(a));
	struct json j;

	if (!strcmp(file, "-") || ctl->quiet)
		return;
	if (!ctl_json(ctl, &j)) {
		output_line(stdout, "%s: %s %s, %s", file, type.text, output_shape(a).text,
			    ctl_size(ctl, gpushm_array_nbytes(a)).text);
		return;
	}
	json_open(&j, NULL, '{');
	json_string(&j, "file", file);
	json_string(&j, "array", gpushm_array_name(a));
	json_string(&j, "dtype", type.text);
	json_ints(&j, "shape", gpushm_array_shape(a), gpushm_array_ndim(a));
	json_uint(&j, "bytes", gpushm_array_nbytes(a));
	json_close(&j, '}');
}

/* colon: the end of the buffer's name in words[0], or NULL. */
static int get_array(struct ctl *ctl, const struct options *o, char **words, char *colon)
{
	struct gpushm_buffer *b = NULL;
	struct gpushm_array *a = NULL;
	int r;

	if (colon)
		*colon = '\0';
	r = model_open(ctl, words[0], o->timeout, &b);
	if (r)
		return r;
	r = find_array(b, colon ? colon + 1 : o->array, &a);
	if (r == CTL_OK)
		r = write_file(ctl, o, a, words[1]);
	if (r == CTL_OK)
		report(ctl, a, words[1]);
	gpushm_array_free(a);
	gpushm_close(b);
	return r;
}

static int run(struct ctl *ctl, const void *options, size_t n, char **words)
{
	const struct options *o = options;
	const struct model_save save = { .timeout = o->timeout };
	char *colon = o->array ? NULL : strchr(words[0], ':');

	if (o->raw || !model_is_file(words[1]))
		return get_array(ctl, o, words, colon);
	if (colon || o->array)
		return ctl_error(CTL_USAGE,
				 "get: a safetensors file has all arrays of a buffer: leave out "
				 "the array, or write a .npy file");
	return model_save(ctl, &save, words[0], words[1]);
}

const struct command command_get = {
	.name = "get",
	.synopsis = "[OPTIONS] NAME[:ARRAY] FILE\n[OPTIONS] NAME FILE.safetensors",
	.about = "write an array to a NumPy file, or a model to a safetensors file",
	.more = "Without ARRAY it writes the buffer's own array, or its only one. \"-\" is "
		"standard\n"
		"output. To FILE.safetensors it writes all arrays, as `gpushmctl save` does.",
	.args = ARGS({ "array", ARG_TEXT, 'A', "ARRAY",
		       "the array; a colon in NAME is then part of NAME",
		       offsetof(struct options, array) },
		     { "raw", ARG_FLAG, 'r', NULL, "write the elements without a NumPy header",
		       offsetof(struct options, raw) },
		     ARG_TIMEOUT(struct options)),
	.options_size = sizeof(struct options),
	.min_words = 2,
	.max_words = 2,
	.run = run,
};
