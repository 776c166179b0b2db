/* SPDX-License-Identifier: MIT
 *
 * The bytes of handles: what they say is what was said, and no other bytes are taken for a handle.
 */
#include "client/gpushm_handle.h"
#include "client/gpushm_private.h"
#include "proto/base/fnv.h"
#include "tests/lib/suite.h"
#include "tests/unit/lib/view_fixture.h"

static unsigned char handle[GPUSHM_HANDLE_MAX];
static size_t n;
static struct gpushm_private_handle said;

static const int64_t sixteen[] = { 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1 };

static int made(const struct gpushm_array *a)
{
	n = 0;
	return gpushm_array_handle(a, handle, sizeof(handle), &n);
}

static int read_it(void)
{
	return gpushm_private_read_handle(handle, n, &said);
}

static void put_checksum(void)
{
	uint64_t hash = fnv1a(FNV1A_BASIS, handle, n - sizeof(hash));

	memcpy(handle + n - sizeof(hash), &hash, sizeof(hash));
}

/* A view with negative and other strides, of the array "w" of buffer 77. */
static struct gpushm_array *strided(void)
{
	struct gpushm_array *a = array_of(&s, "float32", 2, SHAPE(4, 3), SHAPE(-64, 16), 1024);

	s.buffer.id = 77;
	return a;
}

static void check_strided(void)
{
	ck_assert_uint_eq(said.id, 77);
	ck_assert_uint_eq(said.size, 48);
	ck_assert_str_eq(said.name, "scene");
	ck_assert_int_eq(said.access, GPUSHM_WRITE);
	ck_assert_int_eq(said.spec.ndim, 2);
	ck_assert_int_eq(said.spec.shape[0], 4);
	ck_assert_int_eq(said.spec.strides[0], -64);
	ck_assert_int_eq(said.spec.strides[1], 16);
	ck_assert_uint_eq(said.spec.offset, 1024);
	ck_assert_uint_eq(said.spec.dtype.bits, 32);
}

START_TEST(a_handle_says_what_the_array_is)
{
	struct gpushm_array *a = strided();

	ck_assert_int_eq(made(a), 0);
	ck_assert_int_eq(read_it(), 0);
	check_strided();
	ck_assert(!said.is_buffer && !*said.spec.descr);
	ck_assert_str_eq(said.socket, "");
	gpushm_array_free(a);
}
END_TEST

START_TEST(a_buffer_that_is_being_filled_is_opened_for_reading)
{
	struct gpushm_array *a = strided();

	s.buffer.state = GPUSHM_FILLING;
	ck_assert_int_eq(made(a), 0);
	ck_assert_int_eq(read_it(), 0);
	ck_assert_int_eq(said.access, GPUSHM_READ);
	gpushm_array_free(a);
}
END_TEST

START_TEST(a_packed_array_has_no_strides)
{
	struct gpushm_array *a = array_of(&s, "float4_e2m1fn", 2, SHAPE(4, 4), NULL, 8);

	ck_assert_int_eq(made(a), 0);
	ck_assert_int_eq(read_it(), 0);
	ck_assert_uint_eq(said.size, 8);
	ck_assert_ptr_null(said.spec.strides);
	gpushm_array_free(a);
}
END_TEST

START_TEST(a_socket_is_found_from_every_folder)
{
	char folder[512];
	struct gpushm_array *a = strided();

	ck_assert_ptr_nonnull(getcwd(folder, sizeof(folder)));
	s.connection->path = (char[]){ "." };
	ck_assert_int_eq(made(a), 0);
	ck_assert_int_eq(read_it(), 0);
	ck_assert_str_eq(said.socket, folder);
	s.connection->path = (char[]){ "/not/there" };
	ck_assert_int_eq(made(a), 0);
	ck_assert_int_eq(read_it(), 0);
	ck_assert_str_eq(said.socket, "/not/there");
	gpushm_array_free(a);
}
END_TEST

START_TEST(the_longest_names_and_sixteen_dimensions_fit)
{
	char name[GPUSHM_MAX_NAME + 1] = "";
	struct gpushm_array *a = array_of(&s, "int8", 16, sixteen, NULL, 0), *named = NULL;
	struct array_text text = { .name = name, .name_len = GPUSHM_MAX_NAME };

	memset(name, 'n', GPUSHM_MAX_NAME);
	s.buffer.name = name;
	ck_assert_int_eq(array_make(&s.buffer, &a->layout, &text, &named), 0);
	ck_assert_int_eq(made(named), 0);
	ck_assert_int_eq(read_it(), 0);
	ck_assert_str_eq(said.name, name);
	ck_assert_str_eq(said.spec.name, name);
	ck_assert_int_eq(said.spec.ndim, 16);
	gpushm_array_free(named);
	gpushm_array_free(a);
}
END_TEST

START_TEST(what_does_not_fit_is_refused)
{
	char fields[1000] = "";
	struct gpushm_array *a = array_of(&s, "int8", 17, sixteen, NULL, 0);

	ck_assert_int_eq(made(a), -E2BIG);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "17 dimensions"));
	gpushm_array_free(a);
	a = strided();
	ck_assert_int_eq(gpushm_array_handle(a, handle, 90, &n), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "room for 90"));
	memset(fields, 'a', sizeof(fields) - 1);
	a->descr = fields;
	ck_assert_int_eq(made(a), -E2BIG);
	ck_assert_uint_eq(n, 0);
	gpushm_array_free(a);
}
END_TEST

static void check_refused(int r, const char *what, size_t at)
{
	ck_assert_msg(r == -EINVAL || r == -EBADMSG, "%s at %zu: %d", what, at, r);
	if (!strstr(gpushm_error(), "handle of gpushm"))
		ck_abort_msg("%s at %zu: \"%s\"", what, at, gpushm_error());
}

START_TEST(a_byte_that_was_changed_is_noticed)
{
	struct gpushm_array *a = strided();

	ck_assert_int_eq(made(a), 0);
	for (size_t i = 0; i < n; i++)
		for (int bit = 0; bit < 8; bit++) {
			handle[i] ^= 1 << bit;
			check_refused(read_it(), "a flip", i);
			handle[i] ^= 1 << bit;
		}
	ck_assert_int_eq(read_it(), 0);
	gpushm_array_free(a);
}
END_TEST

START_TEST(a_part_of_a_handle_is_noticed)
{
	struct gpushm_array *a = strided();
	size_t whole;

	ck_assert_int_eq(made(a), 0);
	whole = n;
	for (n = 0; n < whole; n++)
		check_refused(read_it(), "a cut", n);
	for (n = whole + 1; n <= sizeof(handle); n++)
		check_refused(read_it(), "an addition", n);
	ck_assert_int_eq(gpushm_private_read_handle(handle, SIZE_MAX, &said), -EBADMSG);
	gpushm_array_free(a);
}
END_TEST

START_TEST(a_handle_of_a_later_version_is_refused)
{
	struct gpushm_array *a = strided();

	ck_assert_int_eq(made(a), 0);
	handle[6]++;
	put_checksum();
	ck_assert_int_eq(read_it(), -EINVAL);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "version 2"));
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "upgrade"));
	gpushm_array_free(a);
}
END_TEST

/* Whoever makes bytes can make their checksum, too. */
START_TEST(bytes_made_on_purpose_give_an_error_or_an_array_of_the_buffer)
{
	struct gpushm_array *a = strided(), *again = NULL;

	random_start();
	for (int i = 0; i < 100000; i++) {
		ck_assert(i % 1000 || made(a) == 0);
		handle[random_in(6, (int64_t)n - 9)] = (unsigned char)random_u64();
		put_checksum();
		if (read_it() < 0 || array_over(&s.buffer, &said.spec, "it", &again) < 0)
			made(a);
		again = gpushm_array_free(again);
	}
	gpushm_array_free(a);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("handle");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_handle_says_what_the_array_is);
	tcase_add_test(t, a_buffer_that_is_being_filled_is_opened_for_reading);
	tcase_add_test(t, a_packed_array_has_no_strides);
	tcase_add_test(t, a_socket_is_found_from_every_folder);
	tcase_add_test(t, the_longest_names_and_sixteen_dimensions_fit);
	tcase_add_test(t, what_does_not_fit_is_refused);
	tcase_add_test(t, a_byte_that_was_changed_is_noticed);
	tcase_add_test(t, a_part_of_a_handle_is_noticed);
	tcase_add_test(t, a_handle_of_a_later_version_is_refused);
	tcase_add_test(t, bytes_made_on_purpose_give_an_error_or_an_array_of_the_buffer);
	return suite_run("handle", t, NULL);
}
