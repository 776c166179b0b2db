/* SPDX-License-Identifier: MIT
 *
 * Tables when memory runs out: the n-th allocation fails for n = 1, 2, ... until none is left to
 * fail. Each time the error must be the documented one, nothing may have been added, nothing may
 * leak, and the same call must then succeed.
 */
#include "proto/base/arena.h"
#include "proto/base/own.h"
#include "proto/table_image.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"
#include "tests/unit/memory_fixture.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define ARRAYS 100u

static void refused(int r, const struct fault *err)
{
	ck_assert_int_eq(r, -ENOMEM);
	ck_assert_int_eq(err->code, CODE_NO_MEMORY);
	ck_assert_ptr_nonnull(strstr(err->text, "no memory for one more"));
}

static void add(struct table_builder *b, unsigned number)
{
	struct table_array a = { .dtype = { DTYPE_UINT, 8, 1, 0 }, .offset = number };
	struct fault err;
	char name[16];
	int r;

	a.name = name;
	a.name_len = snprintf(name, sizeof(name), "w%u", number);
	r = WITHOUT_MEMORY(table_builder_add(b, &a, &err));
	if (r == 0)
		return;
	refused(r, &err);
	ck_assert_uint_eq(table_builder_arrays(b), number);
	ck_assert_int_eq(table_builder_add(b, &a, &err), 0);
}

static void set_attr(struct table_builder *b, const char *value)
{
	const struct table_attr attr = { "key", 3, value, strlen(value) };
	struct fault err;
	int r = WITHOUT_MEMORY(table_builder_set_attr(b, &attr, &err));

	if (r == 0)
		return;
	refused(r, &err);
	ck_assert_int_eq(table_builder_set_attr(b, &attr, &err), 0);
}

static void change_attrs(struct table_builder *b)
{
	const struct table_attr attrs[] = { { "key", 3, "", 0 }, { "other", 5, "x", 1 } };
	struct table_builder *changed = NULL;
	struct fault err;
	int r = WITHOUT_MEMORY(table_builder_change_attrs(b, attrs, 2, &changed, &err));

	if (r < 0) {
		ck_assert_int_eq(r, -ENOMEM);
		ck_assert_int_eq(err.code, CODE_NO_MEMORY);
		ck_assert_ptr_null(changed);
		ck_assert_int_eq(table_builder_change_attrs(b, attrs, 2, &changed, &err), 0);
	}
	table_builder_swap_attrs(b, changed);
	table_builder_free(changed);
	ck_assert_uint_eq(table_builder_attrs(b), 1);
}

static uint64_t finish(struct table_builder *b)
{
	_cleanup_(close_fd) int fd = -1;
	uint64_t bytes, digest;
	int r = WITHOUT_MEMORY(table_builder_finish(b, &fd, &bytes, &digest));

	if (r < 0) {
		ck_assert_int_eq(r, -ENOMEM);
		ck_assert_int_eq(fd, -1);
		ck_assert_int_eq(table_builder_finish(b, &fd, &bytes, &digest), 0);
	}
	return digest;
}

/* Uses every function of a builder. Returns the digest. */
static uint64_t build(void)
{
	struct table_builder *b;
	uint64_t digest;

	if (WITHOUT_MEMORY(table_builder_new(6000, &b)) < 0)
		ck_assert_int_eq(table_builder_new(6000, &b), 0);
	for (unsigned i = 0; i < ARRAYS; i++)
		add(b, i);
	set_attr(b, "first");
	set_attr(b, "second");
	change_attrs(b);
	digest = finish(b);
	table_builder_free(b);
	return digest;
}

START_TEST(a_failed_allocation_leaks_nothing_and_loses_no_array)
{
	const uint64_t digest = build();
	unsigned long n = 0;

	do {
		memory_left = ++n;
		ck_assert_uint_eq(build(), digest);
	} while (memory_left == 0);
	memory_left = 0;
	/* new: 2, hash: 4, entries: 5, text: 3 and more, attributes: 2 and 4, image: 1. */
	ck_assert_uint_ge(n, 19);
}
END_TEST

START_TEST(an_arena_without_memory_hands_out_nothing)
{
	struct arena a;

	memory_left = 1;
	ck_assert_int_eq(WITHOUT_MEMORY(arena_init(&a, 4096)), -ENOMEM);
	ck_assert_ptr_null(a.allocator.alloc(a.allocator.allocator_data, 1));
	arena_done(&a);
}
END_TEST

START_TEST(freeing_no_builder_does_nothing)
{
	ck_assert_ptr_null(table_builder_free(NULL));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("table_memory");

	tcase_add_checked_fixture(tc, fds_mark, fds_check);
	tcase_add_test(tc, a_failed_allocation_leaks_nothing_and_loses_no_array);
	tcase_add_test(tc, an_arena_without_memory_hands_out_nothing);
	tcase_add_test(tc, freeing_no_builder_does_nothing);
	return suite_run("table_memory", tc, NULL);
}
