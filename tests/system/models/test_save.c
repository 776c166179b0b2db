/* SPDX-License-Identifier: MIT
 *
 * gpushm_save() on every pool of the machine: the bytes of the file, its header, and what is left
 * after an error. tests/python/test_safetensors_save.py has the format's own library read such
 * files.
 */
#include "client/gpushm_load.h"
#include "proto/base/own.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/lib/client.h"
#include "tests/lib/fds.h"
#include "tests/lib/safetensors.h"
#include "tests/lib/suite.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define MIB (1u << 20)

static char folder[64], path[96];
static struct gpushm_pool **pools;
static size_t n_pools;

static void setup(void)
{
	strcpy(folder, "/tmp/gpushm-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/model.safetensors", folder);
	client_setup();
	ck_assert_int_eq(gpushm_pools(c, &pools, &n_pools), 0);
}

static unsigned count_files(void)
{
	DIR *dir = opendir(folder);
	unsigned n = 0;

	ck_assert_ptr_nonnull(dir);
	for (struct dirent *e; (e = readdir(dir));)
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	closedir(dir);
	return n;
}

static void teardown(void)
{
	pools = gpushm_free(pools);
	unlink(path);
	ck_assert_int_eq(rmdir(folder), 0);
	client_teardown();
}

/* ---- buffers ---- */

#define MAX_ARRAYS 32
static struct gpushm_array_spec specs[MAX_ARRAYS];
static size_t n_specs;

static struct gpushm_array_spec *add(const char *name, const char *dtype, int ndim,
				     const int64_t *shape)
{
	struct gpushm_array_spec *s = &specs[n_specs++];

	*s = (struct gpushm_array_spec){ sizeof(*s), name, .ndim = ndim, .shape = shape };
	ck_assert_int_eq(gpushm_dtype_parse(dtype, &s->dtype), 0);
	return s;
}

/* Fills each array with the bytes of its name. */
static void fill(struct gpushm_buffer *b)
{
	for (size_t i = 0; i < n_specs; i++) {
		struct gpushm_array *a;
		uint64_t n;
		void *bytes;

		ck_assert_int_eq(gpushm_array_at(b, i, &a), 0);
		n = gpushm_array_nbytes(a);
		bytes = malloc(n + 1);
		safetensors_fill(gpushm_array_name(a), bytes, n);
		ck_assert_int_eq(gpushm_copy_from_host(a, bytes, NULL), 0);
		free(bytes);
		gpushm_array_free(a);
	}
}

/* bytes: 0 lays the arrays out one after the other. */
static struct gpushm_buffer *make(const char *pool, uint64_t bytes, const char *metadata)
{
	size_t length = metadata ? strlen(metadata) : 0;
	struct gpushm_attr attr = { sizeof(attr), "gpushm.metadata", metadata, length };
	struct gpushm_create_options o = { sizeof(o), pool, .attrs = &attr, .n_attrs = length > 0 };
	struct gpushm_buffer *b = NULL;
	int r = bytes > 0 ? gpushm_create(c, "m", bytes, &o, &b)
			  : gpushm_create_arrays(c, "m", specs, n_specs, &o, &b);

	if (r == 0 && bytes > 0)
		r = gpushm_describe(b, specs, n_specs);
	ck_assert_msg(r == 0, "%s: %s", pool, gpushm_error());
	fill(b);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	return b;
}

static void drop(struct gpushm_buffer *b)
{
	n_specs = 0;
	client_close_and_unlink(b, "m");
}

static void save(struct gpushm_buffer *b)
{
	ck_assert_msg(gpushm_save(b, path, NULL) == 0, "%s", gpushm_error());
}

/* ---- files ---- */

static char *file; /* of the last read_file(); its header has a NUL at its end */
static size_t file_bytes;
static uint64_t header_bytes;

static void read_file(const char *name)
{
	FILE *f = fopen(name, "re");
	struct stat st;

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fstat(fileno(f), &st), 0);
	free(file);
	file_bytes = (size_t)st.st_size;
	file = malloc(file_bytes + 1);
	ck_assert_uint_eq(fread(file, 1, file_bytes, f), file_bytes);
	fclose(f);
	memcpy(&header_bytes, file, 8);
	ck_assert_uint_eq(header_bytes % 8, 0);
	ck_assert_uint_le(8 + header_bytes, file_bytes);
}

static bool header_has(const char *text)
{
	_cleanup_(free_ptr) char *header = strndup(file + 8, header_bytes);

	return strstr(header, text) != NULL;
}

/* The bytes of a tensor in the file. */
static const char *find(const char *name, uint64_t *ret_bytes)
{
	_cleanup_(free_ptr) char *header = strndup(file + 8, header_bytes);
	char key[300];
	unsigned long long begin, end;
	const char *at;

	snprintf(key, sizeof(key), "\"%s\":{", name);
	at = strstr(header, key);
	ck_assert_msg(at != NULL, "%s is not in %s", key, header);
	at = strstr(at, "\"data_offsets\":[");
	ck_assert_int_eq(sscanf(at, "\"data_offsets\":[%llu,%llu]", &begin, &end), 2);
	ck_assert_uint_le(8 + header_bytes + end, file_bytes);
	*ret_bytes = end - begin;
	return file + 8 + header_bytes + begin;
}

static void expect_tensor(const char *name)
{
	uint64_t n;
	const char *at = find(name, &n);
	_cleanup_(free_ptr) char *expected = malloc(n + 1);

	safetensors_fill(name, expected, n);
	ck_assert_msg(memcmp(at, expected, n) == 0, "tensor %s differs", name);
}

static void on_every_pool(void (*test)(const char *pool))
{
	for (size_t i = 0; i < n_pools; i++)
		if (!pools[i]->failed)
			test(pools[i]->name);
	free(take_ptr(file));
}

/* ---- tests ---- */

static const char *const dtypes[] = {
	"bool",	       "uint8",		 "int8",	  "uint16",	  "int16",
	"uint32",      "int32",		 "uint64",	  "int64",	  "float16",
	"bfloat16",    "float32",	 "float64",	  "complex64",	  "float8_e4m3fn",
	"float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn", "float6_e2m3fn"
};

static void save_dtypes(const char *pool)
{
	static const int64_t shape[] = { 4, 6 };

	for (size_t i = 0; i < array_size(dtypes); i++)
		add(dtypes[i], dtypes[i], 2, shape);
	{
		struct gpushm_buffer *b = make(pool, 0, NULL);

		save(b);
		read_file(path);
		for (size_t i = 0; i < array_size(dtypes); i++)
			expect_tensor(dtypes[i]);
		ck_assert(header_has("\"bfloat16\":{\"dtype\":\"BF16\",\"shape\":[4,6],"));
		drop(b);
	}
}

START_TEST(each_dtype_is_saved_as_itself)
{
	on_every_pool(save_dtypes);
}
END_TEST

static const int64_t odd[] = { 4 * MIB + 3 }, one[] = { 1 }, none[] = { 3, 0 }, two[] = { 4 * MIB },
		     just[] = { 256 }, less[] = { 255 };

static void save_sizes(const char *pool)
{
	struct gpushm_buffer *b;

	add("odd", "uint8", 1, odd);
	add("none", "float32", 2, none);
	add("scalar", "uint8", 0, NULL);
	add("two", "uint8", 1, two);
	add("just", "uint8", 1, just);
	add("less", "uint8", 1, less);
	add("one", "uint8", 1, one);
	add("last", "uint8", 1, odd);
	b = make(pool, 0, NULL);
	save(b);
	read_file(path);
	for (size_t i = 0; i < n_specs; i++)
		expect_tensor(specs[i].name);
	ck_assert_uint_eq(file_bytes - header_bytes - 8, 12 * MIB + 3 + 1 + 256 + 255 + 1 + 3);
	drop(b);
}

START_TEST(all_bytes_at_the_edge_of_a_block_are_saved)
{
	on_every_pool(save_sizes);
}
END_TEST

static void save_unaligned(const char *pool)
{
	static const int64_t three[] = { 3 };
	struct gpushm_buffer *b;
	uint64_t n;

	add("bytes", "uint8", 1, three);
	add("doubles", "float64", 1, three);
	add("halves", "float16", 1, three);
	b = make(pool, 0, NULL);
	save(b);
	read_file(path);
	ck_assert_uint_eq((uintptr_t)(find("doubles", &n) - file) % 8, 0);
	ck_assert_uint_eq((uintptr_t)(find("halves", &n) - file) % 2, 0);
	expect_tensor("bytes");
	expect_tensor("doubles");
	expect_tensor("halves");
	drop(b);
}

START_TEST(each_tensor_begins_at_its_elements_alignment)
{
	on_every_pool(save_unaligned);
}
END_TEST

static void save_tied(const char *pool)
{
	static const int64_t shape[] = { 4, 8 }, flat[] = { 32 };
	struct gpushm_buffer *b;

	add("model.embed", "float32", 2, shape)->offset = 0;
	add("lm_head", "float32", 2, shape)->offset = 0;
	add("other", "float32", 1, flat)->offset = 256;
	add("model.flat", "float32", 1, flat)->offset = 0;
	b = make(pool, 512, NULL);
	save(b);
	read_file(path);
	/* "lm_head" comes first, and "model.embed" is the same tensor. */
	ck_assert(header_has("\"__metadata__\":{\"model.embed\":\"lm_head\"}"));
	ck_assert(!header_has("\"model.embed\":{"));
	ck_assert(header_has("\"model.flat\":{"));
	expect_tensor("other");
	expect_tensor("model.flat"); /* was filled last */
	ck_assert_uint_eq(file_bytes - header_bytes - 8, 3 * 128);
	drop(b);

	add("b", "float32", 2, shape)->offset = 0;
	add("a", "float32", 2, shape)->offset = 0;
	b = make(pool, 512, "{\"a\":\"b\",\"format\":\"pt\"}");
	save(b);
	read_file(path);
	ck_assert(header_has("\"__metadata__\":{\"a\":\"b\",\"format\":\"pt\"}"));
	ck_assert(header_has("\"b\":{") && !header_has("\"a\":{"));
	drop(b);

	/* No reader takes these keys for names of tensors. */
	add("taken", "float32", 2, shape)->offset = 0;
	add("format", "float32", 2, shape)->offset = 0;
	add("a", "float32", 2, shape)->offset = 0;
	b = make(pool, 512, "{\"taken\":\"a text\"}");
	save(b);
	read_file(path);
	ck_assert(header_has("\"__metadata__\":{\"taken\":\"a text\"}"));
	ck_assert(header_has("\"a\":{") && header_has("\"taken\":{") && header_has("\"format\":{"));
	drop(b);
}

START_TEST(tied_arrays_are_written_once)
{
	on_every_pool(save_tied);
}
END_TEST

static void save_strided(const char *pool)
{
	static const int64_t shape[] = { 3, 1000 }, fortran[] = { 4, 12 }, gaps[] = { 8000, 8 };
	static const int64_t plain[] = { 10 };
	struct gpushm_array_spec *s;
	struct gpushm_buffer *b;

	add("first", "float32", 1, plain)->offset = 0;
	s = add("fortran", "float32", 2, shape);
	s->strides = fortran;
	s->offset = 256;
	add("between", "float32", 1, plain)->offset = 16384;
	s = add("gaps", "float32", 2, shape);
	s->strides = gaps;
	s->offset = 20480;
	add("last", "float32", 1, plain)->offset = 65536;
	b = make(pool, 70000, NULL);
	save(b);
	read_file(path);
	for (size_t i = 0; i < n_specs; i++)
		expect_tensor(specs[i].name);
	drop(b);
}

static void save_transposed(const char *pool)
{
	static const int64_t shape[] = { 4, 4 }, strides[] = { 4, 16 };
	struct gpushm_array_spec *s;
	struct gpushm_buffer *b;
	const char *square, *turned;
	uint64_t n;

	add("square", "float32", 2, shape)->offset = 0;
	s = add("turned", "float32", 2, shape);
	s->strides = strides;
	s->offset = 0;
	b = make(pool, 64, NULL);
	save(b);
	read_file(path);
	expect_tensor("turned"); /* was filled last */
	square = find("square", &n);
	turned = find("turned", &n);
	for (unsigned i = 0; i < 4; i++)
		for (unsigned j = 0; j < 4; j++)
			ck_assert_mem_eq(square + 4 * (4 * i + j), turned + 4 * (4 * j + i), 4);
	drop(b);
}

START_TEST(a_transposed_array_is_a_tensor_of_its_own)
{
	on_every_pool(save_transposed);
}
END_TEST

START_TEST(an_array_with_strides_is_saved_in_c_order)
{
	on_every_pool(save_strided);
}
END_TEST

/* Each plain array has a block more than the one before it, and an array with strides after it. */
static void save_growing(const char *pool)
{
	static const int64_t sizes[] = { 4 * MIB, 8 * MIB, 12 * MIB, 16 * MIB, 20 * MIB };
	static const int64_t square[] = { 2, 2 }, fortran[] = { 1, 2 };
	static const char *const names[] = { "a0", "a1", "b0", "b1", "c0",
					     "c1", "d0", "d1", "e0", "e1" };
	struct gpushm_save_options o = { .struct_size = sizeof(o), .threads = 8 };
	struct gpushm_array_spec *s;
	struct gpushm_buffer *b;
	uint64_t end = 0;

	for (size_t i = 0; i < array_size(sizes); i++) {
		add(names[2 * i], "uint8", 1, &sizes[i])->offset = end;
		end += (uint64_t)sizes[i];
		s = add(names[2 * i + 1], "uint8", 2, square);
		s->strides = fortran;
		s->offset = end;
		end += 256;
	}
	b = make(pool, end, NULL);
	ck_assert_msg(gpushm_save(b, path, &o) == 0, "%s: %s", pool, gpushm_error());
	read_file(path);
	for (size_t i = 0; i < n_specs; i++)
		expect_tensor(specs[i].name);
	drop(b);
}

START_TEST(many_parts_of_a_file_share_the_slots)
{
	on_every_pool(save_growing);
}
END_TEST

START_TEST(metadata_are_saved)
{
	static const char large[] = "{\"k\":\"in an array\"}";
	static const int64_t shape[] = { sizeof(large) - 1 };
	struct gpushm_save_options o = { .struct_size = sizeof(o), .metadata = "{\"mine\":\"1\"}" };
	struct gpushm_buffer *b;

	add("x", "uint8", 1, one);
	b = make(pools[0]->name, 0, "{\"format\":\"pt\"}");
	save(b);
	read_file(path);
	ck_assert(header_has("{\"__metadata__\":{\"format\":\"pt\"},\"x\":"));
	ck_assert_int_eq(gpushm_save(b, path, &o), 0);
	read_file(path);
	ck_assert(header_has("{\"__metadata__\":{\"mine\":\"1\"},\"x\":"));
	o.metadata = "{\"mine\":1}";
	ck_assert_int_eq(gpushm_save(b, path, &o), -EINVAL);
	o.metadata = "[]";
	ck_assert_int_eq(gpushm_save(b, path, &o), -EINVAL);
	o.metadata = "{\"a\":\"1\"} x";
	ck_assert_int_eq(gpushm_save(b, path, &o), -EINVAL);
	drop(b);

	add("x", "uint8", 1, one);
	add("__metadata__", "uint8", 1, shape);
	{
		struct gpushm_create_options co = { .struct_size = sizeof(co) };

		ck_assert_int_eq(gpushm_create_arrays(c, "m", specs, n_specs, &co, &b), 0);
		ck_assert_int_eq(gpushm_write(b, specs[1].offset, large, sizeof(large) - 1), 0);
		ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	}
	save(b);
	read_file(path);
	ck_assert(header_has("{\"__metadata__\":{\"k\":\"in an array\"},\"x\":"));
	drop(b);
	free(take_ptr(file));
}
END_TEST

START_TEST(a_name_is_escaped_in_the_header)
{
	struct gpushm_buffer *b;

	add("a\"b\\c/\xc3\xa9", "uint8", 1, one);
	b = make(pools[0]->name, 0, NULL);
	save(b);
	read_file(path);
	ck_assert(header_has("\"a\\\"b\\\\c/\xc3\xa9\":{"));
	drop(b);
	free(take_ptr(file));
}
END_TEST

START_TEST(a_type_that_the_format_lacks_is_refused)
{
	struct gpushm_buffer *b;

	add("fine", "uint8", 1, one);
	add("wrong", "float8_e3m4", 1, one);
	b = make(pools[0]->name, 0, NULL);
	ck_assert_int_eq(gpushm_save(b, path, NULL), -ENOTSUP);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "\"wrong\""));
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "float8_e3m4"));
	ck_assert_uint_eq(count_files(), 0);
	drop(b);
}
END_TEST

START_TEST(a_buffer_without_arrays_can_be_saved)
{
	struct gpushm_buffer *b = client_create("m", 100, NULL);

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	save(b);
	read_file(path);
	ck_assert_uint_eq(file_bytes, 16);
	ck_assert_mem_eq(file + 8, "{}      ", 8);
	drop(b);
	free(take_ptr(file));
}
END_TEST

/* ---- errors ---- */

static int cancel(void *user, const struct gpushm_load_progress *p)
{
	ck_assert_str_eq(p->file, path);
	ck_assert_uint_eq(p->total, 4 * MIB);
	return 1;
}

/* A tmpfs is written through a mapping. */
START_TEST(a_save_to_a_tmpfs_has_the_same_bytes)
{
	static const int64_t shape[] = { 3, 1000 }, fortran[] = { 4, 12 };
	char there[64] = "/dev/shm/gpushm-test-XXXXXX";
	struct gpushm_array_spec *s;
	struct gpushm_buffer *b;
	int fd = mkstemp(there);

	ck_assert_int_ge(fd, 0);
	close(fd);
	add("first", "uint8", 1, odd)->offset = 0;
	s = add("fortran", "float32", 2, shape);
	s->strides = fortran;
	s->offset = 5 * MIB;
	add("last", "uint8", 1, odd)->offset = 6 * MIB;
	b = make(pools[0]->name, 12 * MIB, NULL);
	ck_assert_msg(gpushm_save(b, there, NULL) == 0, "%s", gpushm_error());
	read_file(there);
	for (size_t i = 0; i < n_specs; i++)
		expect_tensor(specs[i].name);
	ck_assert_int_eq(unlink(there), 0);
	drop(b);
	free(take_ptr(file));
}
END_TEST

/* A mapping of a file that finds no space is a SIGBUS for who stores to it. */
START_TEST(a_full_tmpfs_is_an_error_and_leaves_no_file)
{
	char there[128], name[160];
	struct gpushm_buffer *b;

	snprintf(there, sizeof(there), "%s/tmpfs", folder);
	snprintf(name, sizeof(name), "%s/x", there);
	ck_assert_int_eq(mkdir(there, 0700), 0);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", there, "tmpfs", 0, "size=1M") < 0) {
		puts("skipped: this process may not mount a tmpfs");
	} else {
		add("two", "uint8", 1, two);
		b = make(pools[0]->name, 0, NULL);
		ck_assert_int_eq(gpushm_save(b, name, NULL), -ENOSPC);
		ck_assert_ptr_nonnull(strstr(gpushm_error(), name));
		ck_assert_int_eq(access(name, F_OK), -1);
		drop(b);
		ck_assert_int_eq(umount(there), 0);
	}
	ck_assert_int_eq(rmdir(there), 0);
}
END_TEST

START_TEST(an_error_leaves_no_file_and_keeps_the_old_one)
{
	struct gpushm_save_options o = { .struct_size = sizeof(o), .progress = cancel };
	struct gpushm_buffer *b;
	char wrong[160];

	add("two", "uint8", 1, two);
	b = make(pools[0]->name, 0, NULL);
	ck_assert_int_eq(gpushm_save(b, path, &o), -ECANCELED);
	ck_assert_uint_eq(count_files(), 0);

	save(b);
	ck_assert_int_eq(gpushm_save(b, path, &o), -ECANCELED);
	ck_assert_uint_eq(count_files(), 1);
	read_file(path);
	expect_tensor("two");

	snprintf(wrong, sizeof(wrong), "%s/no/folder", folder);
	ck_assert_int_eq(gpushm_save(b, wrong, NULL), -ENOENT);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), wrong));
	ck_assert_int_eq(gpushm_save(b, folder, NULL), -EISDIR);
	ck_assert_int_eq(gpushm_save(b, "/dev/full", NULL), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "/dev/full"));
	o = (struct gpushm_save_options){ 0 };
	ck_assert_int_eq(gpushm_save(b, path, &o), -EINVAL);
	ck_assert_int_eq(gpushm_save(NULL, path, NULL), -EINVAL);
	ck_assert_int_eq(gpushm_save(b, NULL, NULL), -EINVAL);
	drop(b);
	free(take_ptr(file));
}
END_TEST

/* As a program that was compiled with a later or an earlier version. */
START_TEST(options_of_another_version_are_understood_or_refused)
{
	struct {
		struct gpushm_save_options o;
		uint64_t later;
	} new = { .o = { .struct_size = sizeof(new) } };
	struct gpushm_save_options old = { .struct_size =
						   offsetof(struct gpushm_save_options, progress),
					   .progress = cancel };
	struct gpushm_buffer *b;

	add("two", "uint8", 1, two);
	b = make(pools[0]->name, 0, NULL);
	ck_assert_int_eq(gpushm_save(b, path, &new.o), 0);
	new.later = 1;
	ck_assert_int_eq(gpushm_save(b, path, &new.o), -EINVAL);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "newer"));
	ck_assert_int_eq(gpushm_save(b, path, &old), 0);
	drop(b);
}
END_TEST

START_TEST(a_save_follows_a_link_and_obeys_the_umask)
{
	char link[96];
	struct gpushm_buffer *b;
	struct stat st;
	mode_t before = umask(027);

	snprintf(link, sizeof(link), "%s/link", folder);
	add("one", "uint8", 1, one);
	b = make(pools[0]->name, 0, NULL);
	save(b);
	ck_assert_int_eq(symlink("model.safetensors", link), 0);
	ck_assert_int_eq(gpushm_save(b, link, NULL), 0);
	ck_assert_int_eq(lstat(link, &st), 0);
	ck_assert(S_ISLNK(st.st_mode));
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0640);
	ck_assert_uint_eq(count_files(), 2);
	umask(before);
	unlink(link);
	drop(b);
}
END_TEST

/* ---- streams ---- */

struct drain {
	int fd;
	char *bytes;
	size_t n;
};

static void *drain_pipe(void *arg)
{
	struct drain *it = arg;
	ssize_t r;

	for (it->bytes = malloc(64 * MIB); (r = read(it->fd, it->bytes + it->n, MIB)) > 0;)
		it->n += (size_t)r;
	return NULL;
}

static void save_stream(const char *pool)
{
	static const int64_t shape[] = { 3, 1000 }, fortran[] = { 4, 12 };
	struct gpushm_array_spec *s;
	struct gpushm_buffer *b;
	struct drain it = { 0 };
	pthread_t thread;
	int ends[2];
	char name[64];

	add("first", "uint8", 1, odd)->offset = 0;
	s = add("fortran", "float32", 2, shape);
	s->strides = fortran;
	s->offset = 5 * MIB;
	add("last", "uint8", 1, odd)->offset = 6 * MIB;
	b = make(pool, 12 * MIB, NULL);
	save(b);
	read_file(path);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	it.fd = ends[0];
	ck_assert_int_eq(pthread_create(&thread, NULL, drain_pipe, &it), 0);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", ends[1]);
	ck_assert_msg(gpushm_save(b, name, NULL) == 0, "%s", gpushm_error());
	close(ends[1]);
	pthread_join(thread, NULL);
	close(ends[0]);
	ck_assert_uint_eq(it.n, file_bytes);
	ck_assert_mem_eq(it.bytes, file, it.n);
	free(it.bytes);
	drop(b);
}

START_TEST(a_stream_gets_the_same_bytes_as_a_file)
{
	on_every_pool(save_stream);
}
END_TEST

START_TEST(a_stream_that_was_closed_is_an_error)
{
	struct gpushm_buffer *b;
	int ends[2];
	char name[64];

	signal(SIGPIPE, SIG_IGN);
	add("two", "uint8", 1, two);
	b = make(pools[0]->name, 0, NULL);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", ends[1]);
	close(ends[0]);
	ck_assert_int_eq(gpushm_save(b, name, NULL), -EPIPE);
	close(ends[1]);
	drop(b);
}
END_TEST

/* ---- a driver that fails ---- */

static void *driver_symbol(const char *name)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	return driver ? dlsym(driver, name) : NULL;
}

START_TEST(a_driver_that_fails_is_named_and_leaves_nothing)
{
	fakecuda_reset_fail_fn *reset_fail = driver_symbol("fakecuda_reset_fail");
	fakecuda_calls_fn *calls = driver_symbol("fakecuda_calls");
	fakecuda_handed_out_fn *handed_out = driver_symbol("fakecuda_handed_out");
	unsigned long before, alive, failed = 0;
	struct gpushm_buffer *b;

	if (!reset_fail) {
		puts("skipped: needs the fake driver");
		return;
	}
	add("odd", "uint8", 1, odd);
	add("last", "uint8", 1, odd);
	b = make("gpu0", 0, NULL);
	save(b);
	unlink(path);
	alive = handed_out();
	for (unsigned n = 1;; n++) {
		int r;

		before = calls(NULL);
		reset_fail(n);
		r = gpushm_save(b, path, NULL);
		reset_fail(0);
		failed += r < 0;
		ck_assert_uint_eq(count_files(), r == 0);
		ck_assert_uint_eq(handed_out(), alive);
		ck_assert(r == 0 || strstr(gpushm_error(), "CUDA_ERROR_UNKNOWN"));
		if (r == 0) {
			read_file(path);
			expect_tensor("odd");
			unlink(path);
		}
		if (calls(NULL) - before < n)
			break;
	}
	ck_assert_uint_gt(failed, 12);
	drop(b);
	free(take_ptr(file));
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("save"), *driver = tcase_create("driver");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, each_dtype_is_saved_as_itself);
	tcase_add_test(t, all_bytes_at_the_edge_of_a_block_are_saved);
	tcase_add_test(t, each_tensor_begins_at_its_elements_alignment);
	tcase_add_test(t, tied_arrays_are_written_once);
	tcase_add_test(t, a_transposed_array_is_a_tensor_of_its_own);
	tcase_add_test(t, an_array_with_strides_is_saved_in_c_order);
	tcase_add_test(t, many_parts_of_a_file_share_the_slots);
	tcase_add_test(t, metadata_are_saved);
	tcase_add_test(t, a_name_is_escaped_in_the_header);
	tcase_add_test(t, a_type_that_the_format_lacks_is_refused);
	tcase_add_test(t, a_buffer_without_arrays_can_be_saved);
	tcase_add_test(t, a_save_to_a_tmpfs_has_the_same_bytes);
	tcase_add_test(t, a_full_tmpfs_is_an_error_and_leaves_no_file);
	tcase_add_test(t, an_error_leaves_no_file_and_keeps_the_old_one);
	tcase_add_test(t, options_of_another_version_are_understood_or_refused);
	tcase_add_test(t, a_save_follows_a_link_and_obeys_the_umask);
	tcase_add_test(t, a_stream_gets_the_same_bytes_as_a_file);
	tcase_add_test(t, a_stream_that_was_closed_is_an_error);
	tcase_set_timeout(driver, 60);
	tcase_add_checked_fixture(driver, setup, teardown);
	tcase_add_test(driver, a_driver_that_fails_is_named_and_leaves_nothing);
	return suite_run("save", t, driver, NULL);
}
