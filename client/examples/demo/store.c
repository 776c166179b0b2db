/* SPDX-License-Identifier: MIT
 *
 * Fills the demo's buffers and reads the answers back. A buffer's life as its maker sees it is in
 * put_buffer(): create it with its arrays, copy the data in, publish, close; from then on it lives
 * in the daemon until someone unlinks it.
 */
#include "client/examples/demo/store.h"

#include "client/examples/digits.h"
#include "proto/base/own.h"

#include <err.h>
#include <stdio.h>
#include <string.h>

const char *const store_names[STORE_BUFFERS] = { "digits/model", "digits/samples",
						 "digits/answers" };

static const struct {
	const char *file, *array;
} sources[STORE_FILES] = {
	[W1] = { "w1", "w1" },
	[B1] = { "b1", "b1" },
	[W2] = { "w2", "w2" },
	[B2] = { "b2", "b2" },
	[IMAGES] = { "digits-images", "images" },
	[LABELS] = { "digits-labels", "labels" },
};

int store_load(struct fdstore *s, const char *folder)
{
	for (int i = 0; i < STORE_FILES; i++) {
		char path[4096];
		int r = 0;

		snprintf(path, sizeof(path), "%s/%s.npy", folder, sources[i].file);
		r = tensor_read(path, &s->files[i]);
		if (r < 0)
			return r;
	}
	s->samples = s->files[IMAGES].shape[0];
	if (s->files[IMAGES].bytes != (size_t)s->samples * DIGITS_PIXELS ||
	    s->files[LABELS].bytes != (size_t)s->samples) {
		warnx("%s: images and labels don't belong together", folder);
		return -EINVAL;
	}
	return 0;
}

void store_clear(struct fdstore *s)
{
	for (int i = 0; i < STORE_FILES; i++)
		tensor_clear(&s->files[i]);
}

static int complain(int r, const char *name)
{
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
	struct gpushm_options options = { .struct_size = sizeof(options), .pool = pool };
	_cleanup_(close_buffer) struct gpushm_buffer *b = NULL;
	int r = gpushm_create_arrays(c, name, specs, n, &options, &b);

	if (r < 0)
		return complain(r, name);
	for (size_t i = 0; i < n; i++) {
		r = copy_in(b, specs[i].name, data[i]);
		if (r < 0)
			return complain(r, name);
	}

	r = gpushm_publish(b, state);
	return r < 0 ? complain(r, name) : 0;
}

static int put_files(const struct fdstore *s, struct gpushm *c, const char *pool, const char *name,
		     enum store_file first, size_t n)
{
	struct gpushm_array_spec specs[STORE_FILES] = { 0 };
	const void *data[STORE_FILES];

	for (size_t i = 0; i < n; i++) {
		const struct tensor *file = &s->files[first + i];

		specs[i].name = sources[first + i].array;
		specs[i].dtype = file->dtype;
		specs[i].ndim = file->ndim;
		specs[i].shape = file->shape;
		data[i] = file->data;
	}
	return put_buffer(c, pool, name, specs, data, n, GPUSHM_SEALED);
}

static int put_answers(const struct fdstore *s, struct gpushm *c, const char *pool)
{
	struct gpushm_array_spec spec = {
		.name = "",
		.dtype = s->files[LABELS].dtype,
		.ndim = 1,
		.shape = &s->samples,
	};
	_cleanup_(free_ptr) uint8_t *none = malloc((size_t)s->samples);
	const void *data = none;

	if (!none)
		return -ENOMEM;
	memset(none, STORE_NO_ANSWER, (size_t)s->samples);
	return put_buffer(c, pool, store_names[2], &spec, &data, 1, GPUSHM_SHARED);
}

int store_put(const struct fdstore *s, struct gpushm *c, const char *pool)
{
	int r = put_files(s, c, pool, store_names[0], W1, 4);

	if (r == 0)
		r = put_files(s, c, pool, store_names[1], IMAGES, 2);
	if (r == 0)
		r = put_answers(s, c, pool);
	return r;
}

/* The plain way: one process, one thread, the files in its own memory. */
static void compute_alone(const struct fdstore *s, uint8_t *ret)
{
	digits_forward(s->files[W1].data, s->files[B1].data, s->files[W2].data, s->files[B2].data,
		       s->files[IMAGES].data, s->samples, ret);
}

static int read_answers(struct gpushm *c, uint8_t *ret)
{
	_cleanup_(close_buffer) struct gpushm_buffer *b = NULL;
	struct gpushm_array *a = NULL;
	int r = gpushm_open(c, store_names[2], GPUSHM_READ, 0, NULL, &b);

	if (r == 0)
		r = gpushm_array_get(b, "", &a);
	if (r == 0)
		r = gpushm_copy_to_host(a, ret, NULL);
	if (r < 0)
		complain(r, store_names[2]);
	gpushm_array_free(a);
	return r;
}

int store_check_answers(const struct fdstore *s, struct gpushm *c, long first)
{
	_cleanup_(free_ptr) uint8_t *alone = malloc((size_t)s->samples);
	_cleanup_(free_ptr) uint8_t *together = malloc((size_t)s->samples);
	int r = 0;

	if (!alone || !together)
		return -ENOMEM;
	r = read_answers(c, together);
	if (r < 0)
		return r;

	compute_alone(s, alone);
	memset(alone, STORE_NO_ANSWER, (size_t)first);
	for (int64_t i = 0; i < s->samples; i++)
		if (alone[i] != together[i]) {
			warnx("sample %d: the workers say %d, a process alone says %d", (int)i,
			      together[i], alone[i]);
			return -EILSEQ;
		}
	return 0;
}

long store_count_right(const struct fdstore *s, long first)
{
	_cleanup_(free_ptr) uint8_t *alone = malloc((size_t)s->samples);
	const uint8_t *labels = s->files[LABELS].data;
	long right = 0;

	if (!alone)
		return -ENOMEM;
	compute_alone(s, alone);
	for (int64_t i = first; i < s->samples; i++)
		right += alone[i] == labels[i];
	return right;
}

int store_unlink(struct gpushm *c)
{
	for (int i = 0; i < STORE_BUFFERS; i++) {
		int r = gpushm_unlink(c, store_names[i]);

		if (r < 0)
			return complain(r, store_names[i]);
	}
	return 0;
}
