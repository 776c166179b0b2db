/* SPDX-License-Identifier: MIT
 *
 * The n-th allocation fails, for n = 1, 2, ... until none is left, while the sources of a model are
 * opened, checked and planned. Each time the result is -ENOMEM with a text, and nothing stays open.
 */
#include "client/models/files/checkpoint.h"
#include "client/models/files/model.h"
#include "tests/lib/fds.h"
#include "tests/lib/model_files.h"
#include "tests/lib/suite.h"
#include "tests/unit/memory_fixture.h"

#include <check.h>
#include <string.h>

static void setup(void)
{
	fds_mark();
	model_files_open();
}

static void teardown(void)
{
	model_files_close();
	fds_check();
}

static int make(const char *source, const char *sums, size_t *ret_arrays)
{
	struct checkpoint cp = { 0 };
	struct model m = { 0 };
	int r = checkpoint_open(&source, 1, sums, NULL, (struct load_stop){ 0 }, &cp);

	if (r == 0)
		r = model_build(&cp, NULL, &m);
	*ret_arrays = m.n;
	model_clear(&m);
	checkpoint_close(&cp);
	return r;
}

/* Returns how many allocations there are. */
static unsigned fail_each(const char *source, const char *sums, size_t arrays)
{
	for (unsigned n = 1; n < 1000; n++) {
		size_t got = 0;
		int r;

		memory_left = n;
		r = WITHOUT_MEMORY(make(source, sums, &got));
		if (memory_left > 0) {
			memory_left = 0;
			ck_assert_msg(r == 0, "%s", gpushm_error());
			ck_assert_uint_eq(got, arrays);
			return n - 1;
		}
		ck_assert_msg(r == -ENOMEM, "allocation %u: %d: %s", n, r, gpushm_error());
		model_expect_error("out of memory");
	}
	ck_abort_msg("it never ends");
}

START_TEST(a_source_without_memory_fails_and_leaks_nothing)
{
	static const struct safetensors_tensor t[] = { { "a", "U8", "3" }, { "b", "F32", "2,2" } };
	char metadata[3000] = "{\"tied\":\"a\",\"x\":\"";
	size_t n = strlen(metadata);

	memset(metadata + n, 'y', 2000);
	strcpy(metadata + n + 2000, "\"}");
	safetensors_write(model_file("1.safetensors"), t, 2, metadata);
	model_write("2.safetensors", "c", "4");
	model_write_text("m.index.json", "{\"weight_map\":{\"a\":\"1.safetensors\","
					 "\"b\":\"1.safetensors\",\"c\":\"2.safetensors\"}}");
	model_write_text("SHA256SUMS", "%064d  1.safetensors\n%064d  2.safetensors\n", 1, 2);
	ck_assert_uint_gt(fail_each(model_file("m.index.json"), NULL, 5), 20);
	ck_assert_uint_gt(fail_each(model_file(""), NULL, 5), 20);
	ck_assert_uint_gt(fail_each(model_file("m.index.json"), model_file("SHA256SUMS"), 5), 20);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("checkpoint_memory");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_source_without_memory_fails_and_leaks_nothing);
	return suite_run("checkpoint_memory", tc, NULL);
}
