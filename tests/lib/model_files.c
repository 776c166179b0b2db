/* SPDX-License-Identifier: MIT
 *
 * One folder at a time.
 */
#include "tests/lib/model_files.h"

#include "client/gpushm_array.h"
#include "proto/base/own.h"

#include <check.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[64];

void model_files_open(void)
{
	strcpy(folder, "/tmp/gpushm-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	/* For tests that load as another user. */
	ck_assert_int_eq(chmod(folder, 0755), 0);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *place)
{
	return remove(path);
}

void model_files_close(void)
{
	ck_assert_int_eq(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

const char *model_file(const char *name)
{
	static char paths[8][160];
	static unsigned next;
	char *path = paths[next++ % array_size(paths)];

	snprintf(path, sizeof(paths[0]), "%s%s%s", folder, name[0] ? "/" : "", name);
	return path;
}

const char *model_write(const char *name, const char *tensor, const char *shape)
{
	const struct safetensors_tensor t = { tensor, "U8", shape };
	const char *path = model_file(name);

	safetensors_write(path, &t, 1, NULL);
	return path;
}

const char *model_write_two(const char *name, const char *tensor, const char *shape,
			    const char *other, const char *other_shape)
{
	const struct safetensors_tensor t[] = { { tensor, "U8", shape },
						{ other, "U8", other_shape } };
	const char *path = model_file(name);

	safetensors_write(path, t, 2, NULL);
	return path;
}

const char *model_write_text(const char *name, const char *format, ...)
{
	const char *path = model_file(name);
	FILE *f = fopen(path, "we");
	va_list ap;

	ck_assert_ptr_nonnull(f);
	va_start(ap, format);
	vfprintf(f, format, ap);
	va_end(ap);
	ck_assert_int_eq(fclose(f), 0);
	return path;
}

void model_expect(struct gpushm_buffer *b, const char *array, const char *tensor)
{
	struct gpushm_array *a = NULL;
	_cleanup_(free_ptr) char *got = NULL, *wanted = NULL;
	uint64_t n;

	ck_assert_msg(gpushm_array_get(b, array, &a) == 0, "%s", gpushm_error());
	n = gpushm_array_nbytes(a);
	got = malloc(n + 1);
	wanted = malloc(n + 1);
	ck_assert(got && wanted);
	safetensors_fill(tensor, wanted, n);
	ck_assert_msg(gpushm_copy_to_host(a, got, NULL) == 0, "%s", gpushm_error());
	ck_assert_msg(memcmp(got, wanted, n) == 0, "array \"%s\" has other bytes", array);
	gpushm_array_free(a);
}

void model_expect_error(const char *text)
{
	ck_assert_msg(strstr(gpushm_error(), text), "no \"%s\" in: %s", text, gpushm_error());
}
