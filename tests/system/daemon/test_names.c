/* SPDX-License-Identifier: MIT
 *
 * Names, states and descriptions of buffers, on the default pool: host, or a GPU's if there is one.
 */
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/suite.h"

#include <stdio.h>
#include <string.h>

START_TEST(a_taken_name_is_refused_until_it_is_unlinked)
{
	struct gpushm_buffer *a = client_create("x", 100, NULL), *b = NULL;
	uint64_t id = gpushm_buffer_id(a);

	ck_assert_int_eq(gpushm_create(c, "x", 100, NULL, &b), -EEXIST);
	ck_assert_str_eq(gpushm_error_code(), "EXISTS");
	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_create(c, "x", 100, NULL, &b), -EEXIST);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	b = client_create("x", 100, NULL);
	ck_assert_uint_ne(gpushm_buffer_id(b), id);
	ck_assert_int_eq(gpushm_close(a), 0);
	ck_assert_int_eq(gpushm_discard(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "x"), -ENOENT);
}
END_TEST

START_TEST(a_bad_name_is_refused)
{
	static const char *const bad[] = {
		"", "/", "a//b", "../x", "a/.", "~bob/x", "a\nb", "\xff"
	};
	struct gpushm_buffer *b = NULL;

	for (size_t i = 0; i < array_size(bad); i++) {
		ck_assert_int_eq(gpushm_create(c, bad[i], 100, NULL, &b), -EINVAL);
		ck_assert_str_ne(gpushm_error(), "");
	}
}
END_TEST

START_TEST(an_unpublished_buffer_can_not_be_opened)
{
	struct gpushm_buffer *a = client_create("x", 100, NULL), *b = NULL;

	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), -EAGAIN);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 20, NULL, &b), -ETIMEDOUT);
	ck_assert_int_eq(gpushm_wait(c, "x", 20), -ETIMEDOUT);
	ck_assert_int_eq(gpushm_wait(c, "never", 20), -ETIMEDOUT);
	ck_assert_int_eq(gpushm_open(c, "never", GPUSHM_READ, 0, NULL, &b), -ENOENT);
	ck_assert_int_eq(gpushm_discard(a), 0);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), -ENOENT);
}
END_TEST

START_TEST(a_sealed_buffer_is_read_only)
{
	struct gpushm_buffer *a = client_create("x", 100, NULL), *b = NULL, *w = NULL;

	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_buffer_access(a), GPUSHM_READ);
	ck_assert_int_eq(gpushm_write(a, 0, "x", 1), -EROFS);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_WRITE, 0, NULL, &w), -EROFS);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), 0);
	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SHARED), -EBUSY);
	ck_assert_int_eq(gpushm_close(b), 0);
	client_close_and_unlink(a, "x");
}
END_TEST

START_TEST(memory_lasts_until_the_last_lease_ends)
{
	struct gpushm_buffer *a = client_create("x", 100, NULL), *b = NULL;
	char got[4];

	ck_assert_int_eq(gpushm_write(a, 50, "abc", 4), 0);
	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), 0);
	client_close_and_unlink(a, "x");
	ck_assert_uint_ne(client_used_bytes(), 0);
	ck_assert_int_eq(gpushm_read(b, 50, got, 4), 0);
	ck_assert_str_eq(got, "abc");
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_uint_eq(client_used_bytes(), 0);
}
END_TEST

START_TEST(a_transient_buffer_ends_with_its_last_lease)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .flags = GPUSHM_TRANSIENT };
	struct gpushm_buffer *a = client_create("x", 100, &o), *b = NULL;

	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SHARED), 0);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_WRITE, 0, NULL, &b), 0);
	ck_assert_int_eq(gpushm_close(a), 0);
	ck_assert_int_eq(gpushm_wait(c, "x", 0), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_wait(c, "x", 0), -ENOENT);
}
END_TEST

START_TEST(a_private_name_is_short_for_one_with_the_uid)
{
	struct gpushm_buffer *a = client_create("~/x", 100, NULL), *b = NULL;
	struct gpushm_stat *st = NULL;
	char full[32];

	snprintf(full, sizeof(full), "~%u/x", getuid());
	ck_assert_int_eq(gpushm_create(c, full, 100, NULL, &b), -EEXIST);
	ck_assert_int_eq(gpushm_stat(c, full, 0, 0, &st), 0);
	ck_assert_str_eq(st->name, "~/x");
	gpushm_free(st);
	ck_assert_int_eq(gpushm_discard(a), 0);
}
END_TEST

START_TEST(attributes_and_the_digest_reach_a_reader)
{
	static const struct gpushm_attr attrs[] = { { sizeof(*attrs), "step", "1200", 4 },
						    { sizeof(*attrs), "nul", "\0x", 2 } };
	struct gpushm_create_options o = { .struct_size = sizeof(o), .attrs = attrs, .n_attrs = 2 };
	const int64_t shape[] = { 3, 4 };
	struct gpushm_array_spec spec = {
		.struct_size = sizeof(spec), .name = "", .ndim = 2, .shape = shape
	};
	struct gpushm_buffer *a = NULL, *b = NULL;
	struct gpushm_stat *st = NULL;
	const void *value;
	size_t size;

	ck_assert_int_eq(gpushm_dtype_parse("bfloat16", &spec.dtype), 0);
	ck_assert_int_eq(gpushm_create_arrays(c, "x", &spec, 1, &o, &a), 0);
	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), 0);
	ck_assert_int_eq(gpushm_buffer_attr(b, "step", &value, &size), 0);
	ck_assert(size == 4 && memcmp(value, "1200", 4) == 0);
	ck_assert_int_eq(gpushm_buffer_attr(b, "nul", &value, &size), 0);
	ck_assert(size == 2 && memcmp(value, "\0x", 2) == 0);
	ck_assert_int_eq(gpushm_stat(c, "x", 0, 0, &st), 0);
	ck_assert_uint_eq(st->n_attrs, 2);
	ck_assert_uint_eq(st->digest, gpushm_buffer_digest(b));
	ck_assert_uint_eq(gpushm_buffer_digest(a), gpushm_buffer_digest(b));
	ck_assert_uint_eq(st->arrays, 1);
	gpushm_free(st);
	ck_assert_int_eq(gpushm_close(b), 0);
	client_close_and_unlink(a, "x");
}
END_TEST

/* The creator read the last value, and all others the first one. */
START_TEST(a_key_that_is_given_twice_has_its_last_value)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o) };
	struct gpushm_buffer *a = NULL, *b = NULL;
	struct gpushm_attr attrs[65];
	char keys[65][8];
	const void *value;
	size_t size;

	for (int i = 0; i < 65; i++) {
		snprintf(keys[i], sizeof(keys[i]), "k%d", i % 63);
		attrs[i] = (struct gpushm_attr){ sizeof(struct gpushm_attr), keys[i],
						 i < 63 ? "first" : "last", 4 };
	}
	o.attrs = attrs;
	o.n_attrs = 65;
	ck_assert_int_eq(gpushm_create(c, "x", 1, &o, &a), -EDQUOT);
	o.n_attrs = 64;
	ck_assert_msg(gpushm_create(c, "x", 1, &o, &a) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), 0);
	ck_assert_int_eq(gpushm_buffer_attr(a, "k0", &value, &size), 0);
	ck_assert(size == 4 && memcmp(value, "last", 4) == 0);
	ck_assert_int_eq(gpushm_buffer_attr(b, "k0", &value, &size), 0);
	ck_assert(size == 4 && memcmp(value, "last", 4) == 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	client_close_and_unlink(a, "x");
}
END_TEST

static void expect_attr(struct gpushm_buffer *b, const char *key, const char *wanted)
{
	const void *value = NULL;
	size_t size = 0;

	ck_assert_int_eq(gpushm_buffer_attr(b, key, &value, &size), wanted ? 0 : -ENOENT);
	ck_assert(!wanted || (size == strlen(wanted) && memcmp(value, wanted, size) == 0));
}

START_TEST(attributes_can_be_set_until_publication)
{
	static char large[4096];
	const struct gpushm_attr at_create[] = { { sizeof(*at_create), "step", "1200", 4 },
						 { sizeof(*at_create), "note", "x", 1 } };
	const struct gpushm_attr later[] = { { sizeof(*later), "step", "1300", 4 },
					     { sizeof(*later), "note", NULL, 0 },
					     { sizeof(*later), "new", "y", 1 } };
	const struct gpushm_attr too_much[] = { { sizeof(*too_much), "step", "1400", 4 },
						{ sizeof(*too_much), "big", large, 4096 } };
	const struct gpushm_attr no_key[] = { { sizeof(*no_key), "step", "1400", 4 },
					      { sizeof(*no_key), NULL, "x", 1 } };
	const struct gpushm_attr no_value[] = { { sizeof(*no_value), "step", "1400", 4 },
						{ sizeof(*no_value), "v", NULL, 3 } };
	struct gpushm_create_options o = { .struct_size = sizeof(o),
					   .attrs = at_create,
					   .n_attrs = 2 };
	struct gpushm_array_spec spec = { .struct_size = sizeof(spec), .name = "w" };
	struct gpushm_buffer *a = client_create("x", 100, &o), *b = NULL;
	struct gpushm_attr many[65];

	ck_assert_int_eq(gpushm_dtype_parse("uint8", &spec.dtype), 0);
	ck_assert_int_eq(gpushm_describe(a, &spec, 1), 0);
	ck_assert_int_eq(gpushm_set_attrs(a, later, 3), 0);
	ck_assert_int_eq(gpushm_set_attrs(a, NULL, 0), 0);
	ck_assert_int_eq(gpushm_set_attrs(a, NULL, 1), -EINVAL);
	ck_assert_int_eq(gpushm_set_attrs(a, too_much, 2), -EDQUOT);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "\"big\""));
	ck_assert_int_eq(gpushm_set_attrs(a, no_key, 2), -EINVAL);
	ck_assert_int_eq(gpushm_set_attrs(a, no_value, 2), -EINVAL);
	for (int i = 0; i < 65; i++)
		many[i] = (struct gpushm_attr){ sizeof(struct gpushm_attr), "k", "v", 1 };
	ck_assert_int_eq(gpushm_set_attrs(a, many, 65), -EDQUOT);
	expect_attr(a, "step", "1300");
	expect_attr(a, "note", NULL);
	expect_attr(a, "new", "y");
	ck_assert_uint_eq(gpushm_buffer_arrays(a), 1);
	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_set_attrs(a, later, 3), -EBUSY);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), 0);
	ck_assert_int_eq(gpushm_set_attrs(b, later, 3), -EBUSY);
	for (int i = 0; i < 2; i++) {
		expect_attr(i ? a : b, "step", "1300");
		expect_attr(i ? a : b, "note", NULL);
		expect_attr(i ? a : b, "new", "y");
	}
	ck_assert_uint_eq(gpushm_buffer_arrays(b), 1);
	ck_assert_int_eq(gpushm_close(b), 0);
	client_close_and_unlink(a, "x");
}
END_TEST

/* Without attributes and arrays it has no table. */
START_TEST(the_last_attribute_can_be_removed)
{
	const struct gpushm_attr one = { sizeof(one), "k", "v", 1 };
	const struct gpushm_attr none = { sizeof(none), "k", NULL, 0 };
	struct gpushm_buffer *a = client_create("x", 100, NULL), *b = NULL;

	ck_assert_int_eq(gpushm_set_attrs(a, &none, 1), 0);
	ck_assert_int_eq(gpushm_set_attrs(a, &one, 1), 0);
	ck_assert_int_eq(gpushm_set_attrs(a, &none, 1), 0);
	expect_attr(a, "k", NULL);
	ck_assert_int_eq(gpushm_publish(a, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &b), 0);
	expect_attr(b, "k", NULL);
	ck_assert_uint_eq(gpushm_buffer_arrays(b), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	client_close_and_unlink(a, "x");
}
END_TEST

START_TEST(a_list_has_each_name_once)
{
	enum { N = 1500 };
	static struct gpushm_buffer *all[N];
	struct gpushm_stat **stats = NULL;
	size_t n = 0;
	char name[32];

	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "list/%04d", i);
		all[i] = client_create(name, 1, NULL);
	}
	ck_assert_int_eq(gpushm_list(c, "list/", 0, &stats, &n), 0);
	ck_assert_uint_eq(n, N);
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "list/%04d", i);
		ck_assert_str_eq(stats[i]->name, name);
	}
	stats = gpushm_free(stats);
	ck_assert_int_eq(gpushm_list(c, "list/12", 0, &stats, &n), 0);
	ck_assert_uint_eq(n, 100);
	stats = gpushm_free(stats);
	for (int i = 0; i < N; i++)
		ck_assert_int_eq(gpushm_discard(all[i]), 0);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("names and states");

	tcase_add_checked_fixture(t, client_setup, client_teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_taken_name_is_refused_until_it_is_unlinked);
	tcase_add_test(t, a_bad_name_is_refused);
	tcase_add_test(t, an_unpublished_buffer_can_not_be_opened);
	tcase_add_test(t, a_sealed_buffer_is_read_only);
	tcase_add_test(t, memory_lasts_until_the_last_lease_ends);
	tcase_add_test(t, a_transient_buffer_ends_with_its_last_lease);
	tcase_add_test(t, a_private_name_is_short_for_one_with_the_uid);
	tcase_add_test(t, attributes_and_the_digest_reach_a_reader);
	tcase_add_test(t, a_key_that_is_given_twice_has_its_last_value);
	tcase_add_test(t, attributes_can_be_set_until_publication);
	tcase_add_test(t, the_last_attribute_can_be_removed);
	tcase_add_test(t, a_list_has_each_name_once);
	return suite_run("names", t, NULL);
}
