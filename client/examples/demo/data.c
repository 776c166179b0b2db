/* SPDX-License-Identifier: MIT
 *
 * Reads the files, fills the demo's buffers and reads the answers back. put_buffer() shows a
 * buffer's life as its creator sees it: create it with its arrays, copy the data in, publish,
 * close. From then on it lives in the daemon until a client unlinks it.
 *
 * gpushmctl's parser reads the headers of the files. The demo cannot use Fortran order, records and
 * more than four dimensions, and refuses them.
 */
#include "client/examples/demo/data.h"

#include "client/common/npy.h"
#include "client/examples/digits.h"
#include "proto/base/own.h"

#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

const char *const data_names[DATA_BUFFERS] = { "digits/model", "digits/samples", "digits/answers" };

static const struct {
	const char *file, *array;
} sources[DATA_FILES] = {
	[W1] = { "w1", "w1" },
	[B1] = { "b1", "b1" },
	[W2] = { "w2", "w2" },
	[B2] = { "b2", "b2" },
	[IMAGES] = { "digits-images", "images" },
	[LABELS] = { "digits-labels", "labels" },
};

static int read_data(int fd, struct tensor *t)
{
	size_t done = 0;
	ssize_t n = 1;

	t->data = malloc(t->bytes + 1);
	if (!t->data)
		return -ENOMEM;
	/* One byte more than there should be: the file must end. */
	for (; n > 0 && done <= t->bytes; done += (size_t)n) {
		n = read(fd, (char *)t->data + done, t->bytes + 1 - done);
		if (n < 0)
			return -errno;
	}
	return done == t->bytes ? 0 : -EINVAL;
}

static int read_file(const char *path, struct tensor *t)
{
	_cleanup_(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct npy_error why = { "cannot be opened" };
	struct npy npy;
	int r = fd < 0 ? -errno : npy_read(fd, &npy, &why);

	if (r < 0) {
		warnx("%s: %s", path, why.text);
		return r;
	}
	if (npy.fortran || npy.dtype.code == DTYPE_RECORD || npy.ndim > DATA_NDIM_MAX) {
		warnx("%s: not a plain array in C order", path);
		return -ENOTSUP;
	}
	t->dtype = (struct gpushm_dtype){ npy.dtype.code, npy.dtype.bits, npy.dtype.lanes, 0 };
	t->ndim = (int)npy.ndim;
	memcpy(t->shape, npy.shape, npy.ndim * sizeof(npy.shape[0]));
	t->bytes = npy.bytes;
	r = read_data(fd, t);
	if (r < 0)
		warnx("%s: %s", path, strerror(-r));
	return r;
}

int data_load(struct data *d, const char *folder)
{
	for (int i = 0; i < DATA_FILES; i++) {
		char path[4096];
		int r;

		snprintf(path, sizeof(path), "%s/%s.npy", folder, sources[i].file);
		r = read_file(path, &d->files[i]);
		if (r < 0)
			return r;
	}
	d->samples = d->files[IMAGES].shape[0];
	if (d->files[IMAGES].bytes != (size_t)d->samples * DIGITS_PIXELS ||
	    d->files[LABELS].bytes != (size_t)d->samples) {
		warnx("%s: the numbers of images and labels differ", folder);
		return -EINVAL;
	}
	return 0;
}

void data_clear(struct data *d)
{
	for (int i = 0; i < DATA_FILES; i++)
		free_ptr(&d->files[i].data);
}

static int complain(int r, const char *name)
{
	if (r < 0)
		warnx("%s: %s", name, gpushm_error());
	return r;
}

static void close_buffer(struct gpushm_buffer **b)
{
	gpushm_close(*b);
}

static int copy_in(struct gpushm_buffer *b, const char *array, const void *data)
{
	struct gpushm_array *a = NULL;
	int r = gpushm_array_get(b, array, &a);

	if (r == 0)
		r = gpushm_copy_from_host(a, data, NULL);
	gpushm_array_free(a);
	return r;
}

static int put_buffer(struct gpushm *c, const char *pool, const char *name,
		      struct gpushm_array_spec *specs, const void *const *data, size_t n,
		      enum gpushm_state state)
{
	struct gpushm_create_options options = { .struct_size = sizeof(options), .pool = pool };
	_cleanup_(close_buffer) struct gpushm_buffer *b = NULL;
	int r = gpushm_create_arrays(c, name, specs, n, &options, &b);

	for (size_t i = 0; i < n && r == 0; i++)
		r = copy_in(b, specs[i].name, data[i]);
	if (r == 0)
		r = gpushm_publish(b, state);
	return complain(r, name);
}

static int put_files(const struct data *d, struct gpushm *c, const char *pool, const char *name,
		     enum data_file first, size_t n)
{
	struct gpushm_array_spec specs[DATA_FILES] = { 0 };
	const void *data[DATA_FILES];

	for (size_t i = 0; i < n; i++) {
		const struct tensor *t = &d->files[first + i];

		specs[i] =
			(struct gpushm_array_spec){ .struct_size = sizeof(struct gpushm_array_spec),
						    .name = sources[first + i].array,
						    .dtype = t->dtype,
						    .ndim = t->ndim,
						    .shape = t->shape };
		data[i] = t->data;
	}
	return put_buffer(c, pool, name, specs, data, n, GPUSHM_SEALED);
}

static int put_answers(const struct data *d, struct gpushm *c, const char *pool)
{
	struct gpushm_array_spec spec = { .struct_size = sizeof(spec),
					  .name = "",
					  .dtype = d->files[LABELS].dtype,
					  .ndim = 1,
					  .shape = &d->samples };
	_cleanup_(free_ptr) uint8_t *none = malloc((size_t)d->samples);
	const void *data = none;

	if (!none)
		return -ENOMEM;
	memset(none, DATA_NO_ANSWER, (size_t)d->samples);
	return put_buffer(c, pool, data_names[2], &spec, &data, 1, GPUSHM_SHARED);
}

int data_put(const struct data *d, struct gpushm *c, const char *pool)
{
	int r = put_files(d, c, pool, data_names[0], W1, 4);

	if (r == 0)
		r = put_files(d, c, pool, data_names[1], IMAGES, 2);
	return r < 0 ? r : put_answers(d, c, pool);
}

static int read_answers(struct gpushm *c, uint8_t *ret)
{
	_cleanup_(close_buffer) struct gpushm_buffer *b = NULL;
	struct gpushm_array *a = NULL;
	int r = gpushm_open(c, data_names[2], GPUSHM_READ, 0, NULL, &b);

	if (r == 0)
		r = gpushm_array_get(b, "", &a);
	if (r == 0)
		r = gpushm_copy_to_host(a, ret, NULL);
	gpushm_array_free(a);
	return complain(r, data_names[2]);
}

int data_check_answers(const struct data *d, struct gpushm *c, long first, long *ret_right)
{
	_cleanup_(free_ptr) uint8_t *alone = malloc((size_t)d->samples);
	_cleanup_(free_ptr) uint8_t *together = malloc((size_t)d->samples);
	const uint8_t *labels = d->files[LABELS].data;
	long right = 0;
	int r = alone && together ? read_answers(c, together) : -ENOMEM;

	if (r < 0)
		return r;
	/* The plain way: one process, one thread, the files in its own memory. */
	digits_forward(d->files[W1].data, d->files[B1].data, d->files[W2].data, d->files[B2].data,
		       d->files[IMAGES].data, d->samples, alone);
	memset(alone, DATA_NO_ANSWER, (size_t)first);
	for (int64_t i = 0; i < d->samples; i++) {
		if (alone[i] != together[i]) {
			warnx("sample %d: the workers say %d, a process alone says %d", (int)i,
			      together[i], alone[i]);
			return -EILSEQ;
		}
		right += i >= first && alone[i] == labels[i];
	}
	*ret_right = right;
	return 0;
}

int data_unlink(struct gpushm *c)
{
	int r = 0;

	for (int i = 0; i < DATA_BUFFERS && r == 0; i++)
		r = complain(gpushm_unlink(c, data_names[i]), data_names[i]);
	return r;
}
