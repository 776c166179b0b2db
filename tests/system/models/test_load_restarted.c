/* SPDX-License-Identifier: MIT
 *
 * The daemon restarts between the two requests by which a load creates its buffer, or when the
 * files are read. This program has a gpushm_describe() and a gpushm_set_attrs() of its own, which
 * the library of the loads finds first.
 */
#include "client/gpushm_load.h"
#include "proto/base/own.h"
#include "tests/lib/model_files.h"
#include "tests/lib/reexec.h"
#include "tests/lib/suite.h"

#include <dlfcn.h>

static unsigned restarts; /* still to come */

__attribute__((visibility("default"))) int gpushm_describe(struct gpushm_buffer *b,
							   const struct gpushm_array_spec *specs,
							   size_t n)
{
	int (*describe)(struct gpushm_buffer *, const struct gpushm_array_spec *, size_t);

	*(void **)&describe = dlsym(RTLD_NEXT, "gpushm_describe");
	if (restarts > 0) {
		restarts--;
		reexec_restart();
	}
	return describe(b, specs, n);
}

static bool restart_when_read;

__attribute__((visibility("default"))) int gpushm_set_attrs(struct gpushm_buffer *b,
							    const struct gpushm_attr *attrs,
							    size_t n)
{
	int (*set_attrs)(struct gpushm_buffer *, const struct gpushm_attr *, size_t);

	*(void **)&set_attrs = dlsym(RTLD_NEXT, "gpushm_set_attrs");
	if (restart_when_read)
		reexec_restart();
	return set_attrs(b, attrs, n);
}

static void setup(void)
{
	model_files_open();
	reexec_setup();
}

static void teardown(void)
{
	model_files_close();
	client_teardown();
}

START_TEST(a_load_outlives_a_restart_before_it_reads)
{
	static const uint32_t flags[] = { 0, GPUSHM_LOAD_IF_MISSING, GPUSHM_LOAD_REPLACE,
					  GPUSHM_LOAD_IF_MISSING | GPUSHM_LOAD_REPLACE };
	const char *path = model_write("a.safetensors", "x", "1000");

	for (size_t i = 0; i < array_size(flags); i++) {
		struct gpushm_buffer *b = NULL;

		restarts = 2;
		ck_assert_msg(model_load(c, path, "m", flags[i], &b) == 0, "%s", gpushm_error());
		ck_assert_uint_eq(restarts, 0);
		model_expect(b, "x", "x");
		client_close_and_unlink(b, "m");
	}
}
END_TEST

START_TEST(an_error_of_a_restart_names_the_callers_buffer)
{
	static const uint32_t flags[] = { 0, GPUSHM_LOAD_IF_MISSING, GPUSHM_LOAD_REPLACE };
	const char *path = model_write("a.safetensors", "x", "1000");

	restart_when_read = true;
	for (size_t i = 0; i < array_size(flags); i++) {
		ck_assert_int_eq(model_load(c, path, "m", flags[i], NULL), -ECONNRESET);
		ck_assert_ptr_nonnull(strstr(gpushm_error(), "\"m\""));
		ck_assert_ptr_nonnull(strstr(gpushm_error(), "load it again"));
	}
	restart_when_read = false;
	ck_assert_int_eq(model_load(c, path, "m", 0, NULL), 0);
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("load_restarted");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_load_outlives_a_restart_before_it_reads);
	tcase_add_test(t, an_error_of_a_restart_names_the_callers_buffer);
	return suite_run("load_restarted", t, NULL);
}
