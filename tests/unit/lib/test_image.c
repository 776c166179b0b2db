/* SPDX-License-Identifier: MIT
 *
 * A table that arrives as an fd: copied, read from its file, or mapped. No reader crashes, whatever
 * happens to the file in the meantime.
 */
#include "client/lib/buffer/image.h"

#include "client/gpushm.h"
#include "proto/base/own.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES 65536u /* of the buffer */
#define SMALL 8u     /* arrays */
#define LARGE 1000u

static struct image image;

static void setup(void)
{
	fds_mark();
	image = IMAGE_NONE;
}

static void teardown(void)
{
	image_done(&image);
	fds_check();
}

static struct table_array nth(unsigned i, char name[32])
{
	struct table_array a = { .name = name, .dtype = { DTYPE_UINT, 8, 1, 0 }, .offset = i };

	a.name_len = (size_t)snprintf(name, 32, "layer/%u", i);
	return a;
}

static int sealed_table(unsigned arrays, uint64_t *ret_bytes)
{
	struct table_attr attr = { "key", 3, "value", 5 };
	struct table_array record = { .name = "record",
				      .name_len = 6,
				      .dtype = { DTYPE_RECORD, 0, 1, 4 },
				      .descr = "abc",
				      .descr_len = 3 };
	struct table_builder *b = NULL;
	struct fault err;
	uint64_t digest;
	char name[32];
	int fd;

	ck_assert_int_eq(table_builder_new(BYTES, &b), 0);
	ck_assert_int_eq(table_builder_set_attr(b, &attr, &err), 0);
	ck_assert_int_eq(table_builder_add(b, &record, &err), 0);
	for (unsigned i = 0; i < arrays; i++) {
		struct table_array a = nth(i, name);

		ck_assert_int_eq(table_builder_add(b, &a, &err), 0);
	}
	ck_assert_int_eq(table_builder_finish(b, &fd, ret_bytes, &digest), 0);
	table_builder_free(b);
	return fd;
}

/* The same bytes in a file that other processes can write, shrink and grow. */
static int unsealed_table(unsigned arrays, uint64_t *ret_bytes)
{
	_cleanup_(close_fd) int sealed = sealed_table(arrays, ret_bytes);
	_cleanup_(free_ptr) void *bytes = malloc(*ret_bytes);
	int fd = memfd_create("table", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_eq(pread(sealed, bytes, *ret_bytes, 0), (int)*ret_bytes);
	ck_assert_int_eq(write(fd, bytes, *ret_bytes), (int)*ret_bytes);
	return fd;
}

static void opened(int *fd, uint64_t bytes)
{
	ck_assert_msg(image_open(fd, bytes, BYTES, geteuid(), &image) == 0, "%s", gpushm_error());
}

static int find(unsigned i)
{
	char name[32];
	struct table_array wanted = nth(i, name), a;
	int r = table_view_find(&image.view, wanted.name, wanted.name_len, &a);

	ck_assert(r < 0 || a.offset == i);
	return r;
}

START_TEST(a_small_table_is_copied_and_keeps_no_fd)
{
	uint64_t bytes;
	_cleanup_(close_fd) int fd = unsealed_table(SMALL, &bytes);

	opened(&fd, bytes);
	ck_assert_int_ge(fd, 0);
	ck_assert_ptr_nonnull(image.memory);
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	for (unsigned i = 0; i < SMALL; i++)
		ck_assert_int_eq(find(i), 0);
	ck_assert_int_eq(find(SMALL), -ENOENT);
}
END_TEST

START_TEST(a_large_table_is_mapped_after_a_few_lookups)
{
	struct table_array a;
	unsigned looks = 0;
	uint64_t bytes;
	int fd = sealed_table(LARGE, &bytes);

	opened(&fd, bytes);
	ck_assert_int_eq(fd, -1);
	ck_assert_uint_eq(image.view.arrays, LARGE + 1);
	ck_assert_int_eq(table_view_at(&image.view, 1, &a), -EAGAIN);
	ck_assert_int_eq(table_view_find(&image.view, "record", 6, &a), -EAGAIN);
	while (!image.memory) {
		ck_assert_int_eq(image_lookup(&image), 0);
		ck_assert_int_eq(find(looks), 0);
		ck_assert_uint_lt(looks++, LARGE);
	}
	ck_assert_uint_gt(looks, 1);
	ck_assert_int_eq(image.fd, -1);
	for (unsigned i = 0; i < LARGE; i++)
		ck_assert_int_eq(find(i), 0);
	ck_assert_int_eq(find(LARGE), -ENOENT);
	ck_assert_int_eq(table_view_find(&image.view, "record", 6, &a), 0);
	ck_assert_mem_eq(a.descr, "abc", 3);
}
END_TEST

START_TEST(a_table_that_can_change_is_read_but_not_mapped)
{
	uint64_t bytes;
	int fd = unsealed_table(LARGE, &bytes);

	opened(&fd, bytes);
	ck_assert_int_eq(find(7), 0);
	ck_assert_int_eq(image_load(&image), -EPROTO);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "not sealed"));
	ck_assert_int_eq(find(7), 0);
	ck_assert_int_eq(ftruncate(image.fd, 4096), 0);
	ck_assert_int_eq(find(7), -EBADMSG);
	ck_assert_int_eq(image_load(&image), -EPROTO);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "size"));
}
END_TEST

START_TEST(mapping_a_table_of_another_user_is_refused)
{
	uint64_t bytes;
	int fd = sealed_table(LARGE, &bytes);

	if (geteuid() != 0) {
		close_fd(&fd);
		return;
	}
	ck_assert_int_eq(fchown(fd, 4242, 4242), 0);
	opened(&fd, bytes);
	ck_assert_int_eq(image_load(&image), -EPROTO);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "4242"));
}
END_TEST

START_TEST(many_tables_keep_a_limited_number_of_fds)
{
	enum { N = 200 };
	static struct image all[N];
	unsigned kept[2] = { 0 };

	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < N; i++) {
			uint64_t bytes;
			_cleanup_(close_fd) int fd = sealed_table(LARGE, &bytes);

			opened(&fd, bytes);
			all[i] = image;
			image = IMAGE_NONE;
			kept[round] += all[i].fd >= 0;
		}
		for (unsigned i = 0; i < N; i++)
			image_done(&all[i]);
	}
	ck_assert_uint_gt(kept[0], 0);
	ck_assert_uint_lt(kept[0], N / 2);
	ck_assert_uint_eq(kept[0], kept[1]);
}
END_TEST

START_TEST(an_invalid_table_is_refused)
{
	static const uint64_t sizes[] = { 1, 4096, 1u << 20 };

	for (size_t i = 0; i < array_size(sizes); i++) {
		_cleanup_(close_fd) int fd = memfd_create("table", MFD_CLOEXEC);

		ck_assert_int_eq(ftruncate(fd, (off_t)sizes[i]), 0);
		ck_assert_int_eq(image_open(&fd, sizes[i], BYTES, geteuid(), &image), -EPROTO);
		ck_assert_int_ge(fd, 0);
		/* A file that is shorter than announced is not mapped either. */
		ck_assert_int_eq(image_open(&fd, 2 * sizes[i], BYTES, geteuid(), &image), -EPROTO);
		ck_assert(!image_is(&image));
	}
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("image");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_small_table_is_copied_and_keeps_no_fd);
	tcase_add_test(tc, a_large_table_is_mapped_after_a_few_lookups);
	tcase_add_test(tc, a_table_that_can_change_is_read_but_not_mapped);
	tcase_add_test(tc, mapping_a_table_of_another_user_is_refused);
	tcase_add_test(tc, many_tables_keep_a_limited_number_of_fds);
	tcase_add_test(tc, an_invalid_table_is_refused);
	return suite_run("image", tc, NULL);
}
