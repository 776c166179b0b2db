/* SPDX-License-Identifier: MIT
 *
 * What a source may be: a file, an index with its shards, a folder, a stream; and what the files
 * of a model must agree on.
 */
#include "client/models/files/checkpoint.h"

#include "client/models/files/model.h"
#include "proto/base/own.h"
#include "tests/lib/fds.h"
#include "tests/lib/model_files.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define NO_STOP ((struct load_stop){ 0 })

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

/* The names of the files that a source stands for, without their folder: "a.safetensors
 * b.safetensors"; or the error. */
static void expect_files(const char *source, int error, const char *wanted)
{
	struct checkpoint cp = { 0 };
	char names[512] = "";
	int r = checkpoint_open(&source, 1, NULL, NULL, NO_STOP, &cp);

	ck_assert_msg(r == -error, "%s: %d: %s", source, r, gpushm_error());
	if (error) {
		model_expect_error(wanted);
		return;
	}
	for (size_t i = 0; i < cp.files.n; i++) {
		const char *path = cp.files.files[i].path;

		strcat(names, i ? " " : "");
		strcat(names, strrchr(path, '/') + 1);
	}
	ck_assert_str_eq(names, wanted);
	checkpoint_close(&cp);
}

/* ---- folders ---- */

START_TEST(a_folder_is_read_as_the_hub_means_it)
{
	expect_files(model_file(""), ENOENT, "has no file *.safetensors");
	model_write("b.safetensors", "b", "1");
	model_write("a.safetensors", "a", "1");
	model_write(".c.safetensors", "c", "1");
	model_write("d.safetensors.part", "d", "1");
	model_write_text("config.json", "{}");
	model_write_text("pytorch_model.bin.index.json", "{}");
	expect_files(model_file(""), 0, "a.safetensors b.safetensors");
	model_write("model.safetensors", "m", "1");
	expect_files(model_file(""), 0, "model.safetensors");
	model_write_text("x.safetensors.index.json", "{\"weight_map\":{\"b\":\"b.safetensors\"}}");
	expect_files(model_file(""), 0, "b.safetensors");
	model_write_text("y.safetensors.index.json", "{\"weight_map\":{\"a\":\"a.safetensors\"}}");
	expect_files(model_file(""), EINVAL, "more than one index");
	expect_files(model_file("y.safetensors.index.json"), 0, "a.safetensors");
	model_write_text("model.safetensors.index.json",
			 "{\"weight_map\":{\"m\":\"model.safetensors\"}}");
	expect_files(model_file(""), 0, "model.safetensors");
}
END_TEST

/* A snapshot of the Hub's cache is a folder of links to blobs. */
START_TEST(a_folder_of_links_can_be_loaded)
{
	ck_assert_int_eq(mkdir(model_file("blobs"), 0755), 0);
	ck_assert_int_eq(mkdir(model_file("snapshot"), 0755), 0);
	model_write("blobs/0123", "a", "1");
	ck_assert_int_eq(symlink("../blobs/0123", model_file("snapshot/model.safetensors")), 0);
	expect_files(model_file("snapshot"), 0, "model.safetensors");
	expect_files(model_file("snapshot/"), 0, "model.safetensors");
}
END_TEST

/* ---- an index ---- */

#define MAP(text) "{\"metadata\":{\"total_size\":3},\"weight_map\":{" text "}}"

static const struct {
	const char *index;
	int error;
	const char *says; /* of an error; or the files */
} indexes[] = {
	{ MAP("\"b\":\"2.safetensors\",\"a\":\"1.safetensors\",\"c\":\"2.safetensors\""), 0,
	  "1.safetensors 2.safetensors" },
	{ MAP("\"a\":\"1.safetensors\""), 0, "1.safetensors" },
	{ MAP("\"a\":\"1.safetensors\",\"b\":\"2.safetensors\""), EBADMSG,
	  "shard 2.safetensors has a tensor \"c\", which the index does not list" },
	{ MAP("\"a\":\"1.safetensors\",\"x\":\"1.safetensors\""), EBADMSG,
	  "shard 1.safetensors has no tensor \"x\"" },
	{ MAP("\"a\":\"2.safetensors\",\"b\":\"2.safetensors\",\"c\":\"1.safetensors\""), EBADMSG,
	  "tensor \"a\" is to be in shard 2.safetensors, and is in 1.safetensors" },
	{ MAP("\"a\":\"3.safetensors\""), ENOENT, "3.safetensors" },
	{ MAP("\"a\":\"../1.safetensors\""), EBADMSG, "lies in the folder of its index" },
	{ MAP("\"a\":\"x/../../1.safetensors\""), EBADMSG, "lies in the folder of its index" },
	{ MAP("\"a\":\"/etc/passwd\""), EBADMSG, "lies in the folder of its index" },
	{ MAP("\"a\":\"..\""), EBADMSG, "lies in the folder of its index" },
	{ MAP("\"a\":\"\""), EBADMSG, "lies in the folder of its index" },
	{ MAP("\"a\":\"..1.safetensors\""), ENOENT, "..1.safetensors" },
	{ MAP("\"a\":7"), EBADMSG, "the shard of tensor \"a\" is not a string" },
	{ MAP(""), EBADMSG, "no \"weight_map\" with tensors" },
	{ MAP("\"a\":\"1.safetensors\",\"a\":\"1.safetensors\""), EBADMSG, "duplicate" },
	{ "{}", EBADMSG, "no \"weight_map\"" },
	{ "[]", EBADMSG, "no \"weight_map\"" },
	{ "{\"weight_map\":[\"1.safetensors\"]}", EBADMSG, "no \"weight_map\"" },
	{ "", EBADMSG, "not valid JSON" },
};

START_TEST(an_index_must_agree_with_its_shards)
{
	model_write("1.safetensors", "a", "1");
	model_write_two("2.safetensors", "b", "1", "c", "1");
	model_write_text("m.index.json", "%s", indexes[_i].index);
	expect_files(model_file("m.index.json"), indexes[_i].error, indexes[_i].says);
}
END_TEST

START_TEST(an_index_without_a_folder_is_found_in_the_current_one)
{
	int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	const char *source = "m.index.json";
	struct checkpoint cp;

	model_write("1.safetensors", "a", "1");
	model_write_text("m.index.json", "{\"weight_map\":{\"a\":\"1.safetensors\"}}");
	ck_assert_int_eq(chdir(model_file("")), 0);
	ck_assert_msg(checkpoint_open(&source, 1, NULL, NULL, NO_STOP, &cp) == 0, "%s",
		      gpushm_error());
	ck_assert_str_eq(cp.files.files[0].path, "./1.safetensors");
	checkpoint_close(&cp);
	ck_assert_int_eq(fchdir(here), 0);
	close(here);
}
END_TEST

/* ---- files ---- */

START_TEST(a_file_of_another_format_is_refused)
{
	static const struct {
		const char *bytes;
		size_t n;
		const char *says;
	} bad[] = {
		{ "", 0, "it has 0 bytes" },
		{ "\2\0\0\0\0\0\0", 7, "it has 7 bytes" },
		{ "\3\0\0\0\0\0\0\0{}", 10, "its header has 3 bytes" },
		{ "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "18446744073709551615 bytes" },
		{ "PK\3\4\0\0\0\0\0\0\0\0", 12, "its header has 67324752 bytes" },
		{ "\x93NUMPY\1\0v\0{}", 12, "is not a safetensors file" },
		{ "\0\0\0\0\0\0\0\0", 8, "does not begin with '{'" },
	};

	for (size_t i = 0; i < array_size(bad); i++) {
		FILE *f = fopen(model_file("x.safetensors"), "we");

		ck_assert_ptr_nonnull(f);
		fwrite(bad[i].bytes, 1, bad[i].n, f);
		ck_assert_int_eq(fclose(f), 0);
		expect_files(model_file("x.safetensors"), EBADMSG, bad[i].says);
	}
}
END_TEST

START_TEST(a_source_that_is_no_file_is_refused)
{
	const char *none = NULL, *two[] = { "-", "-" };
	struct checkpoint cp;

	expect_files(model_file("none.safetensors"), ENOENT, "none.safetensors: No such file");
	expect_files("", EINVAL, "needs a path");
	ck_assert_int_eq(checkpoint_open(&none, 1, NULL, NULL, NO_STOP, &cp), -EINVAL);
	ck_assert_int_eq(checkpoint_open(NULL, 0, NULL, NULL, NO_STOP, &cp), -EINVAL);
	ck_assert_int_eq(checkpoint_open(two, 2, NULL, NULL, NO_STOP, &cp), -EINVAL);
	model_expect_error("once only");
}
END_TEST

START_TEST(a_process_with_few_descriptors_leaks_none)
{
	struct rlimit limit, few;
	char name[32], map[4096] = "";

	for (int i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "%d.safetensors", i);
		model_write(name, name, "1");
		sprintf(map + strlen(map), "%s\"%s\":\"%s\"", i ? "," : "", name, name);
	}
	model_write_text("m.index.json", "{\"weight_map\":{%s}}", map);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = (struct rlimit){ .rlim_cur = 30, .rlim_max = limit.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	expect_files(model_file("m.index.json"), EMFILE, "Too many open files");
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}
END_TEST

/* ---- keys ---- */

static void key(const char *source, const struct gpushm_load_options *load, char ret[2][65])
{
	struct checkpoint cp;

	ck_assert_msg(checkpoint_open(&source, 1, NULL, NULL, NO_STOP, &cp) == 0, "%s",
		      gpushm_error());
	model_keys(&cp, load, ret[0], ret[1]);
	checkpoint_close(&cp);
}

START_TEST(files_that_differ_have_different_keys)
{
	const char *patterns[] = { "a*" }, *path = model_write("1.safetensors", "a", "5");
	struct gpushm_load_options only = { .only = patterns, .n_only = 1 },
				   strip = { .strip = "a" }, none = { .strip = "" };
	char first[2][65], other[2][65];

	key(path, NULL, first);
	ck_assert_uint_eq(strlen(first[0]), 64);
	key(path, &none, other);
	ck_assert_str_eq(first[0], other[0]);
	ck_assert_str_eq(first[1], other[1]);
	/* What is taken of them. */
	key(path, &only, other);
	ck_assert_str_ne(first[0], other[0]);
	key(path, &strip, other);
	ck_assert_str_ne(first[0], other[0]);
	/* The same headers in another file. */
	key(model_write("2.safetensors", "a", "5"), NULL, other);
	ck_assert_str_eq(first[0], other[0]);
	ck_assert_str_ne(first[1], other[1]);
	/* Another header. */
	key(model_write("2.safetensors", "a", "6"), NULL, other);
	ck_assert_str_ne(first[0], other[0]);
	/* The same file, written to. */
	ck_assert_int_eq(utimensat(AT_FDCWD, path, (struct timespec[]){ { 1, 2 }, { 3, 4 } }, 0),
			 0);
	key(path, NULL, other);
	ck_assert_str_eq(first[0], other[0]);
	ck_assert_str_ne(first[1], other[1]);
}
END_TEST

START_TEST(a_key_needs_no_connection)
{
	const char *source = model_write("1.safetensors", "a", "5");
	struct gpushm_load_options load = { .struct_size = sizeof(load) };
	char wanted[2][65], got[65] = "";

	key(source, NULL, wanted);
	ck_assert_int_eq(gpushm_load_key(&source, 1, &load, got), 0);
	ck_assert_str_eq(got, wanted[1]);
	load.struct_size = 0;
	ck_assert_int_eq(gpushm_load_key(&source, 1, &load, got), -EINVAL);
	load = (struct gpushm_load_options){ .struct_size = sizeof(load), .flags = 1u << 31 };
	ck_assert_int_eq(gpushm_load_key(&source, 1, &load, got), -EINVAL);
}
END_TEST

START_TEST(the_key_of_a_stream_is_refused)
{
	static const char bytes[] = "\2\0\0\0\0\0\0\0{}";
	char path[32], key_of[65];
	const char *source = path;
	int fds[2];

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	ck_assert_int_eq(write(fds[1], bytes, 10), 10);
	close(fds[1]);
	snprintf(path, sizeof(path), "/dev/fd/%d", fds[0]);
	ck_assert_int_eq(gpushm_load_key(&source, 1, NULL, key_of), -ESPIPE);
	close(fds[0]);
}
END_TEST

/* ---- checksums ---- */

#define HEX "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define OTHER "0000000000000000000000000000000000000000000000000000000000000000"

static const struct {
	const char *text;
	int error;
	const char *says;
} sums[] = {
	{ HEX "  1.safetensors\n", 0, NULL },
	{ HEX " *1.safetensors\r\n", 0, NULL },
	{ "# comment\n\n" HEX "  ./1.safetensors", 0, NULL },
	{ OTHER "  other/1.safetensors\n" HEX "  1.safetensors\n", 0, NULL },
	{ HEX "  1.safetensors\n" OTHER "  other/1.safetensors\n", 0, NULL },
	{ HEX "  elsewhere/1.safetensors\n", 0, NULL },
	{ HEX "  1.safetensors\n" HEX "  1.safetensors\n", 0, NULL },
	{ HEX "  2.safetensors\n", EINVAL, "no checksum for" },
	{ OTHER "  1.safetensors\n" HEX "  1.safetensors\n", EINVAL, "more than one checksum" },
	{ OTHER "  x/1.safetensors\n" HEX "  y/1.safetensors\n", EINVAL, "more than one checksum" },
	{ "", EINVAL, "no checksum for" },
	{ HEX " 1.safetensors\n", EINVAL, "line 1 is not a checksum" },
	{ "\n" HEX "  \n", EINVAL, "line 2 is not a checksum" },
	{ "e3b0  1.safetensors\n", EINVAL, "line 1 is not a checksum" },
	{ "SHA256 (1.safetensors) = " HEX "\n", EINVAL, "line 1 is not a checksum" },
};

START_TEST(a_checksum_is_taken_for_its_own_file_only)
{
	const char *source = model_write("1.safetensors", "a", "5");
	const char *path = model_write_text("SHA256SUMS", "%s", sums[_i].text);
	struct checkpoint cp = { 0 };
	int r = checkpoint_open(&source, 1, path, NULL, NO_STOP, &cp);

	ck_assert_msg(r == -sums[_i].error, "%d: %s", r, gpushm_error());
	if (r < 0) {
		model_expect_error(sums[_i].says);
		return;
	}
	ck_assert(cp.files.files[0].has_sha256);
	ck_assert_uint_eq(cp.files.files[0].sha256[0], 0xe3);
	checkpoint_close(&cp);
}
END_TEST

START_TEST(an_escaped_name_in_a_file_of_checksums_is_found)
{
	const char *source = model_write("a\\n\nb", "a", "5");
	const char *path = model_write_text("SHA256SUMS", "\\%s  a\\\\n\\nb\n", HEX);
	struct checkpoint cp = { 0 };

	ck_assert_msg(checkpoint_open(&source, 1, path, NULL, NO_STOP, &cp) == 0, "%s",
		      gpushm_error());
	ck_assert(cp.files.files[0].has_sha256);
	checkpoint_close(&cp);
	ck_assert_int_eq(checkpoint_open(&source, 1, model_file("none"), NULL, NO_STOP, &cp),
			 -ENOENT);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("checkpoint");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_folder_is_read_as_the_hub_means_it);
	tcase_add_test(tc, a_folder_of_links_can_be_loaded);
	tcase_add_loop_test(tc, an_index_must_agree_with_its_shards, 0, array_size(indexes));
	tcase_add_test(tc, an_index_without_a_folder_is_found_in_the_current_one);
	tcase_add_test(tc, a_file_of_another_format_is_refused);
	tcase_add_test(tc, a_source_that_is_no_file_is_refused);
	tcase_add_test(tc, a_process_with_few_descriptors_leaks_none);
	tcase_add_test(tc, files_that_differ_have_different_keys);
	tcase_add_test(tc, a_key_needs_no_connection);
	tcase_add_test(tc, the_key_of_a_stream_is_refused);
	tcase_add_loop_test(tc, a_checksum_is_taken_for_its_own_file_only, 0, array_size(sums));
	tcase_add_test(tc, an_escaped_name_in_a_file_of_checksums_is_found);
	return suite_run("checkpoint", tc, NULL);
}
