/* SPDX-License-Identifier: MIT
 *
 * The result of a builder: a memfd that no process can change, the digest, and the attributes.
 */
#include "proto/base/own.h"
#include "proto/table_image.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

static struct table_builder *builder;
static struct fault err;

static void setup(void)
{
	fds_mark();
	ck_assert_int_eq(table_builder_new(6000, &builder), 0);
}

static void teardown(void)
{
	builder = table_builder_free(builder);
	fds_check();
}

static const struct table_array sample = {
	.name = "w1",
	.name_len = 2,
	.dtype = { DTYPE_RECORD, 0, 1, 12 },
	.descr = "abc",
	.descr_len = 3,
	.ndim = 2,
	.shape = { 3, 5 },
	.has_strides = true,
	.strides = { -60, 12 },
	.offset = 128,
};

static void add(const struct table_array *a)
{
	ck_assert_msg(table_builder_add(builder, a, &err) == 0, "%s", err.text);
}

static int set(const char *key, const void *value, size_t len)
{
	struct table_attr attr = { key, strlen(key), value, len };

	return table_builder_set_attr(builder, &attr, &err);
}

static int finish(uint64_t *ret_bytes, uint64_t *ret_digest)
{
	int fd;

	ck_assert_int_eq(table_builder_finish(builder, &fd, ret_bytes, ret_digest), 0);
	return fd;
}

/* The digest of a table of one array. */
static uint64_t digest_of(struct table_array a)
{
	_cleanup_(close_fd) int fd = -1;
	uint64_t bytes, digest;

	table_builder_truncate(builder, 0);
	add(&a);
	fd = finish(&bytes, &digest);
	return digest;
}

START_TEST(the_memfd_is_read_only_and_sealed)
{
	const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	_cleanup_(close_fd) int fd = -1;
	uint64_t bytes, digest;
	struct stat st;

	add(&sample);
	fd = finish(&bytes, &digest);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(fcntl(fd, F_GET_SEALS), seals);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0400);
	ck_assert_uint_eq(st.st_size, bytes);
	ck_assert_uint_eq(bytes % TABLE_PART_ALIGN, 0);
	ck_assert_int_eq(pwrite(fd, "x", 1, 0), -1);
	ck_assert_int_eq(ftruncate(fd, 0), -1);
	ck_assert_int_eq(ftruncate(fd, bytes + 1), -1);
	ck_assert_ptr_eq(mmap(NULL, bytes, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
}
END_TEST

START_TEST(a_failed_memfd_is_reported_and_leaks_nothing)
{
	struct rlimit files, size;
	uint64_t bytes = 7, digest = 7;
	int fd = -7;

	add(&sample);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 0, files.rlim_max }), 0);
	ck_assert_int_eq(table_builder_finish(builder, &fd, &bytes, &digest), -EMFILE);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);

	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &size), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 0, size.rlim_max }), 0);
	ck_assert_int_eq(table_builder_finish(builder, &fd, &bytes, &digest), -EFBIG);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &size), 0);
	ck_assert_int_eq(fd, -7);
	ck_assert_uint_eq(bytes, 7);
	ck_assert_uint_eq(digest, 7);
}
END_TEST

/* The serialisation that table_image.h documents, by hand. */
START_TEST(the_digest_is_what_is_documented)
{
	static const unsigned char layout[] = {
		2,    0,   0,	0,   0,	  0,   0,   0,	 'w', '1', /* name */
		255,  0,   1,	0,   12,  0,   0,   0,		   /* code, bits, lanes, itemsize */
		3,    0,   0,	0,   0,	  0,   0,   0,	 'a', 'b', 'c', /* descr */
		2,    0,   0,	0,   0,	  0,   0,   0,			/* ndim */
		3,    0,   0,	0,   0,	  0,   0,   0,			/* shape */
		5,    0,   0,	0,   0,	  0,   0,   0,			/**/
		0xc4, 255, 255, 255, 255, 255, 255, 255,		/* strides: -60 */
		12,   0,   0,	0,   0,	  0,   0,   0,			/* 12 */
		128,  0,   0,	0,   0,	  0,   0,   0,			/* offset */
	};

	ck_assert_uint_eq(digest_of(sample), fnv1a(FNV1A_BASIS, layout, sizeof(layout)));
}
END_TEST

START_TEST(every_part_of_the_layout_is_in_the_digest)
{
	struct table_array variants[10];
	uint64_t digests[array_size(variants)];

	for (size_t i = 0; i < array_size(variants); i++)
		variants[i] = sample;
	variants[1].name = "w2";
	variants[2].name_len = 1;
	variants[3].dtype.itemsize = 11;
	variants[4].dtype = (struct dtype){ DTYPE_UINT, 8, 1, 0 };
	variants[4].descr_len = 0;
	variants[5].descr = "abd";
	variants[6].ndim = 1;
	variants[7].shape[1] = 4;
	variants[8].strides[0] = -48;
	variants[9].offset = 129;
	for (size_t i = 0; i < array_size(variants); i++) {
		digests[i] = digest_of(variants[i]);
		for (size_t j = 0; j < i; j++)
			ck_assert_uint_ne(digests[i], digests[j]);
	}
}
END_TEST

START_TEST(equal_layouts_have_equal_digests)
{
	struct table_array with_strides = { .name = "a",
					    .name_len = 1,
					    .dtype = { DTYPE_INT, 16, 1, 0 },
					    .ndim = 2,
					    .shape = { 3, 5 },
					    .has_strides = true,
					    .strides = { 10, 2 } };
	struct table_array left_out = with_strides;
	uint64_t one;

	left_out.has_strides = false;
	left_out.strides[0] = 77;
	one = digest_of(with_strides);
	ck_assert_uint_eq(one, digest_of(left_out));
	ck_assert_int_eq(set("key", "value", 5), 0);
	ck_assert_uint_eq(one, digest_of(with_strides));
}
END_TEST

START_TEST(the_order_of_arrays_is_in_the_digest)
{
	struct table_array other = sample;
	uint64_t digests[2], bytes;

	other.name = "w2";
	for (int i = 0; i < 2; i++) {
		_cleanup_(close_fd) int fd = -1;

		table_builder_truncate(builder, 0);
		add(i == 0 ? &sample : &other);
		add(i == 0 ? &other : &sample);
		fd = finish(&bytes, &digests[i]);
	}
	ck_assert_uint_ne(digests[0], digests[1]);
}
END_TEST

/* The attribute of that key in the finished image; the value's length, or -1. */
static int read_back(const char *key, char *value)
{
	_cleanup_(close_fd) int fd = -1;
	struct table_view v;
	struct table_attr attr;
	uint64_t bytes, digest;
	void *image;
	int n = -1;

	fd = finish(&bytes, &digest);
	image = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(image, MAP_FAILED);
	ck_assert_int_eq(table_view_init(&v, image, bytes, 6000), 0);
	for (uint32_t i = 0; i < v.attrs; i++) {
		ck_assert_int_eq(table_view_attr_at(&v, i, &attr), 0);
		if (attr.key_len != strlen(key) || memcmp(attr.key, key, attr.key_len) != 0)
			continue;
		ck_assert_int_eq(n, -1);
		n = attr.value_len;
		memcpy(value, attr.value, n);
	}
	ck_assert_int_eq(table_view_attr_at(&v, v.attrs, &attr), -ENOENT);
	munmap(image, bytes);
	return n;
}

START_TEST(each_attribute_is_kept_once_with_its_last_value)
{
	char value[ATTR_BYTES_MAX];

	add(&sample);
	ck_assert_int_eq(read_back("a", value), -1);
	ck_assert_int_eq(set("a", "first", 5), 0);
	ck_assert_int_eq(set("ab", NULL, 0), 0);
	ck_assert_int_eq(set("a", "\0\xff", 2), 0);
	ck_assert_int_eq(read_back("a", value), 2);
	ck_assert_mem_eq(value, "\0\xff", 2);
	ck_assert_int_eq(read_back("ab", value), 0);
	ck_assert_int_eq(read_back("b", value), -1);
}
END_TEST

START_TEST(attributes_stay_within_their_limit_of_bytes)
{
	static char value[ATTR_BYTES_MAX + 1];

	ck_assert_int_eq(set("k", value, ATTR_BYTES_MAX), -EDQUOT);
	ck_assert_int_eq(err.code, CODE_LIMIT);
	ck_assert_str_eq(err.text, "attribute \"k\": keys and values of a buffer may have 4096 "
				   "bytes in all; 4096 are left for this one");
	ck_assert_int_eq(set("k", value, SIZE_MAX), -EDQUOT);
	ck_assert_int_eq(set("k", value, ATTR_BYTES_MAX - 1), 0);
	ck_assert_int_eq(set("l", value, 0), -EDQUOT);
	/* Replacing a value frees its space. */
	ck_assert_int_eq(set("k", value, ATTR_BYTES_MAX - 1), 0);
	ck_assert_int_eq(read_back("k", value), ATTR_BYTES_MAX - 1);
	ck_assert_int_eq(set("k", value, 1), 0);
	ck_assert_int_eq(set("l", value, ATTR_BYTES_MAX - 3), 0);
	ck_assert_int_eq(set("m", value, 0), -EDQUOT);
}
END_TEST

START_TEST(too_many_attributes_and_bad_keys_are_refused)
{
	char key[16];

	for (unsigned i = 0; i < ATTRS_MAX; i++) {
		snprintf(key, sizeof(key), "%u", i);
		ck_assert_int_eq(set(key, "v", 1), 0);
	}
	ck_assert_int_eq(set("more", "v", 1), -EDQUOT);
	ck_assert_int_eq(err.code, CODE_LIMIT);
	ck_assert_int_eq(set("63", "new", 3), 0);
	ck_assert_int_eq(set("", "v", 1), -EINVAL);
	ck_assert_int_eq(err.code, CODE_NAME);
	ck_assert_str_eq(err.text, "attribute \"?\": its key: it is empty");
	ck_assert_int_eq(set("a\n", "v", 1), -EINVAL);
}
END_TEST

/* ---- in steps ---- */

#define STEPPED 20000

static void add_numbered(struct table_builder *b, unsigned first, unsigned n)
{
	for (unsigned i = first; i < first + n; i++) {
		char name[64];
		struct table_array a = sample;

		a.name = name;
		a.name_len = snprintf(name, sizeof(name), "model.layers.%u.weight", i);
		ck_assert_int_eq(table_builder_add(b, &a, &err), 0);
	}
}

static void check_same_image(int fd, int other, uint64_t bytes)
{
	char *a = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	char *b = mmap(NULL, bytes, PROT_READ, MAP_SHARED, other, 0);

	ck_assert(a != MAP_FAILED && b != MAP_FAILED);
	ck_assert_mem_eq(a, b, bytes);
	munmap(a, bytes);
	munmap(b, bytes);
}

/* What is added, removed or set between two steps; at last the builder is as if nothing was. */
static void change_between_steps(unsigned step)
{
	if (step % 5 != 0 || step > 60)
		return;
	add_numbered(builder, STEPPED, step);
	table_builder_truncate(builder, step % 2 ? STEPPED : STEPPED / 2);
	add_numbered(builder, table_builder_arrays(builder),
		     STEPPED - table_builder_arrays(builder));
	ck_assert_int_eq(set("k", &step, step % 3), 0);
	ck_assert_int_eq(set("k", "value", 5), 0);
}

START_TEST(a_table_made_in_steps_is_the_same)
{
	_cleanup_(close_fd) int fd = -1, whole = -1;
	uint64_t bytes = 0, digest = 0, whole_bytes, whole_digest;
	unsigned steps = 1;

	add_numbered(builder, 0, STEPPED);
	ck_assert_int_eq(set("k", "value", 5), 0);
	for (; table_builder_finish_step(builder, &fd, &bytes, &digest) == -ERESTART; steps++) {
		ck_assert_int_eq(fd, -1);
		if (_i)
			change_between_steps(steps);
	}
	ck_assert_uint_gt(steps, 10);
	whole = finish(&whole_bytes, &whole_digest);
	ck_assert_uint_eq(bytes, whole_bytes);
	ck_assert_uint_eq(digest, whole_digest);
	check_same_image(fd, whole, bytes);
}
END_TEST

START_TEST(a_builder_freed_between_steps_leaks_nothing)
{
	uint64_t bytes, digest;
	int fd = -1;

	add_numbered(builder, 0, STEPPED);
	for (int i = 0; i < 30; i++)
		ck_assert_int_eq(table_builder_finish_step(builder, &fd, &bytes, &digest),
				 -ERESTART);
	ck_assert_int_eq(table_builder_reserve_step(builder, ARRAYS_MAX), -ERESTART);
}
END_TEST

START_TEST(reserving_takes_short_steps_and_keeps_the_arrays)
{
	_cleanup_(close_fd) int fd = -1;
	struct table_builder *other;
	uint64_t bytes, digest, other_bytes, other_digest;
	struct table_array again = sample;
	unsigned steps = 1;

	add_numbered(builder, 0, STEPPED);
	while (table_builder_reserve_step(builder, STEPPED) == -ERESTART)
		steps++;
	ck_assert_uint_gt(steps, 2);
	/* Interrupted by what removes and adds arrays. */
	ck_assert_int_eq(table_builder_reserve_step(builder, 4 * STEPPED), -ERESTART);
	table_builder_truncate(builder, 100);
	add_numbered(builder, 100, STEPPED - 100);
	while (table_builder_reserve_step(builder, 4 * STEPPED) == -ERESTART)
		;
	add_numbered(builder, STEPPED, STEPPED);
	again.name = "model.layers.77.weight";
	again.name_len = strlen(again.name);
	ck_assert_int_eq(table_builder_add(builder, &again, &err), -EEXIST);
	ck_assert_int_eq(table_builder_new(6000, &other), 0);
	add_numbered(other, 0, 2 * STEPPED);
	fd = finish(&bytes, &digest);
	close_fd(&fd);
	ck_assert_int_eq(table_builder_finish(other, &fd, &other_bytes, &other_digest), 0);
	ck_assert_uint_eq(digest, other_digest);
	table_builder_free(other);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("table_image");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, the_memfd_is_read_only_and_sealed);
	tcase_add_test(tc, a_failed_memfd_is_reported_and_leaks_nothing);
	tcase_add_test(tc, the_digest_is_what_is_documented);
	tcase_add_test(tc, every_part_of_the_layout_is_in_the_digest);
	tcase_add_test(tc, equal_layouts_have_equal_digests);
	tcase_add_test(tc, the_order_of_arrays_is_in_the_digest);
	tcase_add_test(tc, each_attribute_is_kept_once_with_its_last_value);
	tcase_add_test(tc, attributes_stay_within_their_limit_of_bytes);
	tcase_add_test(tc, too_many_attributes_and_bad_keys_are_refused);
	tcase_add_loop_test(tc, a_table_made_in_steps_is_the_same, 0, 2);
	tcase_add_test(tc, a_builder_freed_between_steps_leaks_nothing);
	tcase_add_test(tc, reserving_takes_short_steps_and_keeps_the_arrays);
	return suite_run("table_image", tc, NULL);
}
