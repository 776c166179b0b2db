/* SPDX-License-Identifier: MIT
 *
 * gpushm_verify() on every pool of the machine, against a digest that is computed in the simplest
 * way.
 */
#include "client/gpushm_load.h"
#include "proto/base/own.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/lib/client.h"
#include "tests/lib/digest.h"
#include "tests/lib/safetensors.h"
#include "tests/lib/suite.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1u << 20)
#define BYTES (13 * MIB)

static struct gpushm_pool **pools;
static size_t n_pools;
static char *contents; /* BYTES: what is in the buffer */

static void setup(void)
{
	client_setup();
	ck_assert_int_eq(gpushm_pools(c, &pools, &n_pools), 0);
	contents = malloc(BYTES);
	safetensors_fill("contents", contents, BYTES);
}

static void teardown(void)
{
	pools = gpushm_free(pools);
	free(take_ptr(contents));
	client_teardown();
}

static void on_every_pool(void (*test)(const char *pool))
{
	for (size_t i = 0; i < n_pools; i++)
		if (!pools[i]->failed)
			test(pools[i]->name);
}

/* An array of bytes. */
static struct gpushm_array_spec bytes_at(const char *name, uint64_t offset, const int64_t *size)
{
	struct gpushm_array_spec s = {
		.struct_size = sizeof(s), .name = name, .ndim = 1, .shape = size, .offset = offset
	};

	ck_assert_int_eq(gpushm_dtype_parse("uint8", &s.dtype), 0);
	return s;
}

/* A buffer of BYTES bytes, not published. digest: its attribute; NULL: none. */
static struct gpushm_buffer *fill(const char *pool, const struct gpushm_array_spec *specs, size_t n,
				  const char *digest)
{
	struct gpushm_attr attr = { sizeof(attr), "gpushm.content", digest,
				    digest ? strlen(digest) : 0 };
	struct gpushm_create_options o = {
		.struct_size = sizeof(o), .pool = pool, .attrs = &attr, .n_attrs = digest != NULL
	};
	struct gpushm_buffer *b = client_create("m", BYTES, &o);

	ck_assert_int_eq(gpushm_describe(b, specs, n), 0);
	ck_assert_int_eq(gpushm_write(b, 0, contents, BYTES), 0);
	return b;
}

/* A shared buffer. */
static struct gpushm_buffer *make(const char *pool, const struct gpushm_array_spec *specs, size_t n,
				  const char *digest)
{
	struct gpushm_buffer *b = fill(pool, specs, n, digest);

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	return b;
}

static void drop(struct gpushm_buffer *b)
{
	client_close_and_unlink(b, "m");
}

/* ---- what is covered ---- */

static void verify_covered(const char *pool)
{
	static const int64_t large[] = { 9 * MIB + 1 }, small[] = { 100 }, none[] = { 0 };
	static const int64_t transposed[] = { 10, 10 }, back[] = { 1, 10 };
	struct gpushm_load_report report = { .struct_size = sizeof(report) };
	struct gpushm_array_spec specs[] = {
		bytes_at("large", 512, large),
		bytes_at("tied", 512, large),		/* the same bytes */
		bytes_at("inside", 1000, small),	/* some of them */
		bytes_at("over", 9 * MIB + 500, small), /* 13 of them, and others */
		bytes_at("none", 12 * MIB, none),
		bytes_at("strided", 11 * MIB, small),
		bytes_at("last", BYTES - 100, small),
		bytes_at("first", 0, small),
	};
	char *covered = malloc(BYTES), digest[NAIVE_DIGEST_TEXT], *to = covered;
	struct gpushm_buffer *b;

	specs[5].ndim = 2;
	specs[5].shape = transposed;
	specs[5].strides = back;
	to = mempcpy(to, contents, 100);
	to = mempcpy(to, contents + 512, 9 * MIB + 600 - 512);
	to = mempcpy(to, contents + 11 * MIB, 100);
	to = mempcpy(to, contents + BYTES - 100, 100);
	naive_digest(covered, (size_t)(to - covered), digest);

	b = make(pool, specs, array_size(specs), digest);
	ck_assert_msg(gpushm_verify(b, NULL, NULL, &report) == 0, "%s: %s", pool, gpushm_error());
	ck_assert_str_eq(report.content, digest);
	ck_assert_uint_eq(report.bytes, (size_t)(to - covered));
	ck_assert_uint_eq(report.tensors, array_size(specs));
	ck_assert_int_eq(report.direct, 0);
	ck_assert_int_eq(gpushm_verify(b, NULL, NULL, NULL), 0);

	/* A byte that no array covers, and one of the last array. */
	ck_assert_int_eq(gpushm_write(b, 10 * MIB, "x", 1), 0);
	ck_assert_int_eq(gpushm_verify(b, NULL, NULL, NULL), 0);
	ck_assert_int_eq(gpushm_write(b, BYTES - 1, contents[BYTES - 1] ? "\0" : "x", 1), 0);
	ck_assert_int_eq(gpushm_verify(b, NULL, NULL, NULL), -EBADMSG);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), digest));
	drop(b);
	free(covered);
}

START_TEST(a_changed_byte_of_an_array_is_noticed)
{
	on_every_pool(verify_covered);
}
END_TEST

START_TEST(a_digest_is_right_for_each_size)
{
	static const uint64_t sizes[] = { 1,	   255,		256,	 4 * MIB - 1,
					  4 * MIB, 4 * MIB + 1, 8 * MIB, 8 * MIB + 255 };

	for (size_t i = 0; i < array_size(sizes); i++) {
		int64_t size = (int64_t)sizes[i];
		struct gpushm_array_spec spec = bytes_at("", 3, &size);
		char digest[NAIVE_DIGEST_TEXT];
		struct gpushm_buffer *b;

		naive_digest(contents + 3, sizes[i], digest);
		for (size_t j = 0; j < n_pools; j++) {
			if (pools[j]->failed)
				continue;
			b = make(pools[j]->name, &spec, 1, digest);
			ck_assert_msg(gpushm_verify(b, NULL, NULL, NULL) == 0, "%s, %llu bytes: %s",
				      pools[j]->name, (unsigned long long)sizes[i], gpushm_error());
			drop(b);
		}
	}
}
END_TEST

START_TEST(a_buffer_without_arrays_has_a_digest)
{
	struct gpushm_buffer *b;
	char digest[NAIVE_DIGEST_TEXT];

	naive_digest(contents, 0, digest);
	b = make(pools[0]->name, NULL, 0, digest);
	ck_assert_int_eq(gpushm_verify(b, NULL, NULL, NULL), 0);
	drop(b);
}
END_TEST

static void digest_by_hand(const char *pool)
{
	static const int64_t size[] = { 9 * MIB };
	struct gpushm_load_report report = { .struct_size = sizeof(report) };
	struct gpushm_array_spec spec = bytes_at("x", 512, size);
	struct gpushm_buffer *b = fill(pool, &spec, 1, NULL);
	char digest[NAIVE_DIGEST_TEXT];

	naive_digest(contents + 512, 9 * MIB, digest);
	ck_assert_int_eq(gpushm_digest(b, NULL, NULL, &report), 0);
	ck_assert_str_eq(report.content, digest);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_verify(b, NULL, NULL, NULL), 0);
	ck_assert_int_eq(gpushm_digest(b, NULL, NULL, NULL), -EBUSY);
	drop(b);
}

START_TEST(a_buffer_that_a_program_fills_gets_a_digest_too)
{
	on_every_pool(digest_by_hand);
	ck_assert_int_eq(gpushm_digest(NULL, NULL, NULL, NULL), -EINVAL);
}
END_TEST

/* ---- errors ---- */

static int cancel(void *user, const struct gpushm_load_progress *p)
{
	ck_assert_ptr_null(p->file);
	ck_assert_uint_eq(p->total, MIB);
	return 1;
}

START_TEST(each_mistake_has_its_error)
{
	static const int64_t size[] = { MIB };
	struct gpushm_array_spec spec = bytes_at("x", 0, size);
	struct gpushm_buffer *b = make(pools[0]->name, &spec, 1, NULL);

	ck_assert_int_eq(gpushm_verify(b, NULL, NULL, NULL), -ENODATA);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "gpushm.content"));
	ck_assert_int_eq(gpushm_verify(NULL, NULL, NULL, NULL), -EINVAL);
	drop(b);

	b = make(pools[0]->name, &spec, 1, "sha1:of an unknown kind");
	ck_assert_int_eq(gpushm_verify(b, NULL, NULL, NULL), -EBADMSG);
	ck_assert_int_eq(gpushm_verify(b, cancel, NULL, NULL), -ECANCELED);
	drop(b);
}
END_TEST

static void *driver_symbol(const char *name)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	return driver ? dlsym(driver, name) : NULL;
}

/* Each kind of pool that a GPU has: its contents are right, whatever call fails. */
START_TEST(a_driver_failure_is_told_from_wrong_contents)
{
	static const char *const gpu_pools[] = { "gpu0", "pinned" };
	static const int64_t size[] = { 9 * MIB };
	fakecuda_reset_fail_fn *reset_fail = driver_symbol("fakecuda_reset_fail");
	fakecuda_calls_fn *calls = driver_symbol("fakecuda_calls");
	fakecuda_handed_out_fn *handed_out = driver_symbol("fakecuda_handed_out");
	struct gpushm_array_spec spec = bytes_at("x", 0, size);
	char digest[NAIVE_DIGEST_TEXT];

	if (!reset_fail) {
		puts("skipped: needs the fake driver");
		return;
	}
	naive_digest(contents, 9 * MIB, digest);
	for (size_t i = 0; i < array_size(gpu_pools); i++) {
		struct gpushm_buffer *b = make(gpu_pools[i], &spec, 1, digest);
		unsigned long alive = handed_out(), before;

		for (unsigned n = 1;; n++) {
			int r;

			before = calls(NULL);
			reset_fail(n);
			r = gpushm_verify(b, NULL, NULL, NULL);
			reset_fail(0);
			ck_assert_uint_eq(handed_out(), alive);
			ck_assert(r == 0 || strstr(gpushm_error(), "CUDA_ERROR_UNKNOWN"));
			if (calls(NULL) - before < n)
				break;
		}
		drop(b);
	}
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("verify");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_changed_byte_of_an_array_is_noticed);
	tcase_add_test(t, a_digest_is_right_for_each_size);
	tcase_add_test(t, a_buffer_without_arrays_has_a_digest);
	tcase_add_test(t, a_buffer_that_a_program_fills_gets_a_digest_too);
	tcase_add_test(t, each_mistake_has_its_error);
	tcase_add_test(t, a_driver_failure_is_told_from_wrong_contents);
	return suite_run("verify", t, NULL);
}
