/* SPDX-License-Identifier: MIT
 *
 * gpushm_load(), on every pool of the machine: what is in the buffer afterwards, and that nothing
 * is there after an error: not the buffer, not its name, no descriptor, no thread.
 */
#include "client/gpushm_load.h"
#include "client/gpushm_metrics.h"
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/fds.h"
#include "tests/lib/model_files.h"
#include "tests/lib/suite.h"

#include <stdio.h>
#include <string.h>

static struct gpushm_pool **pools;
static size_t n_pools;

static void setup(void)
{
	model_files_open();
	client_setup();
}

static void teardown(void)
{
	model_files_close();
	client_teardown();
}

/* A driver opens fds when it is first used, and keeps them: this must happen before fds are
 * counted. */
static void setup_pools(void)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o) };

	model_files_open();
	daemon_start(&d, "", NULL);
	ck_assert_msg(gpushm_connect(d.socket, &c) == 0, "%s", gpushm_error());
	ck_assert_int_eq(gpushm_pools(c, &pools, &n_pools), 0);
	for (size_t i = 0; i < n_pools; i++) {
		const char *source = model_write("warm.safetensors", "w", "1");

		o.pool = pools[i]->name;
		if (pools[i]->failed)
			continue;
		ck_assert_msg(gpushm_load(c, &source, 1, "~/warm", &o, NULL, NULL) == 0, "%s: %s",
			      o.pool, gpushm_error());
		ck_assert_int_eq(gpushm_unlink(c, "~/warm"), 0);
	}
	fds_mark();
}

static void teardown_pools(void)
{
	pools = gpushm_free(pools);
	fds_check();
	model_files_close();
	client_teardown();
}

/* There is no buffer of that name, and none is being filled. */
static void expect_nothing(const char *name)
{
	struct gpushm_stat **stats = NULL;
	size_t n;

	ck_assert_int_eq(gpushm_list(c, NULL, 0, &stats, &n), 0);
	ck_assert_msg(n == 0, "%zu buffers are left: %s", n, n ? stats[0]->name : "");
	gpushm_free(stats);
	ck_assert_uint_eq(client_used_bytes(), 0);
}

static void drop(struct gpushm_buffer *b, const char *name)
{
	client_close_and_unlink(b, name);
	expect_nothing(name);
}

static const char *attr(struct gpushm_buffer *b, const char *key)
{
	static char text[2048];
	const void *value;
	size_t size;

	if (gpushm_buffer_attr(b, key, &value, &size) < 0)
		return NULL;
	snprintf(text, sizeof(text), "%.*s", (int)size, (const char *)value);
	return text;
}

/* ---- contents ---- */

static const struct safetensors_tensor tensors[] = {
	{ "model.embed", "BF16", "300,1001" }, /* not a multiple of 256 bytes */
	{ "model.norm", "F32", "64" },
	{ "model.scale", "F64", "" },
	{ "model.big", "F16", "1024,5000" }, /* more than two blocks */
	{ "model.mask", "BOOL", "7,1" },
	{ "model.none", "I32", "0,4" },
	{ "model.fp4", "F4", "3,34" },
	{ "model.fp8", "F8_E4M3", "16,16" },
	{ "inv_freq", "C64", "5" },
};

static void expect_tensors(struct gpushm_buffer *b)
{
	ck_assert_uint_eq(gpushm_buffer_arrays(b), array_size(tensors));
	for (size_t i = 0; i < array_size(tensors); i++) {
		struct gpushm_array *a = NULL;

		ck_assert_int_eq(gpushm_array_at(b, i, &a), 0);
		ck_assert_str_eq(gpushm_array_name(a), tensors[i].name);
		ck_assert_uint_eq(gpushm_array_offset(a) % 256, 0);
		gpushm_array_free(a);
		model_expect(b, tensors[i].name, tensors[i].name);
	}
}

START_TEST(each_array_equals_its_tensor)
{
	const char *source = model_file("m.safetensors"), *said;
	struct gpushm_create_options o = { .struct_size = sizeof(o), .mode = 0640 };
	struct gpushm_load_report report = { .struct_size = sizeof(report) };
	struct gpushm_load_options load = { .struct_size = sizeof(load), .report = &report };
	struct gpushm_buffer *b = NULL;

	safetensors_write(source, tensors, array_size(tensors), "{\"format\":\"pt\"}");
	for (size_t i = 0; i < n_pools; i++) {
		if (pools[i]->failed)
			continue;
		o.pool = pools[i]->name;
		ck_assert_msg(gpushm_load(c, &source, 1, "m/x", &o, &load, &b) == 0, "%s: %s",
			      o.pool, gpushm_error());
		ck_assert_str_eq(gpushm_buffer_name(b), "m/x");
		ck_assert_str_eq(gpushm_buffer_pool(b), o.pool);
		ck_assert_int_eq(gpushm_buffer_state(b), GPUSHM_SEALED);
		ck_assert_int_eq(gpushm_buffer_access(b), GPUSHM_READ);
		expect_tensors(b);
		ck_assert_uint_eq(report.tensors, array_size(tensors));
		ck_assert_uint_eq(strlen(attr(b, "gpushm.source")), 64);
		ck_assert_uint_eq(strlen(attr(b, "gpushm.files")), 64);
		ck_assert_str_eq(attr(b, "gpushm.path"), source);
		said = attr(b, "gpushm.metadata");
		ck_assert_str_eq(said, "{\"format\":\"pt\"}");
		ck_assert_str_eq(attr(b, "gpushm.content"), report.content);
		ck_assert_msg(gpushm_verify(b, NULL, NULL, NULL) == 0, "%s", gpushm_error());
		drop(b, "m/x");
	}
}
END_TEST

/* Requests for the list of pools that the daemon has had. */
static uint64_t asked_for_pools(void)
{
	struct gpushm_metrics *m = NULL;
	uint64_t n = 0;

	ck_assert_msg(gpushm_metrics(c, &m) == 0, "%s", gpushm_error());
	for (size_t i = 0; i < m->n_verbs; i++)
		if (strcmp(m->verbs[i]->verb, "pools") == 0)
			n = m->verbs[i]->results[0]->count;
	gpushm_free(m);
	return n;
}

START_TEST(a_load_into_host_memory_does_not_ask_for_the_pools)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "host" };
	const char *source = model_write("m.safetensors", "w", "1");
	uint64_t before = asked_for_pools();

	ck_assert_msg(gpushm_load(c, &source, 1, "m", &o, NULL, NULL) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(asked_for_pools(), before);
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
}
END_TEST

START_TEST(shards_are_loaded_as_one_model)
{
	struct gpushm_buffer *b = NULL;
	const char *both[2];

	both[0] = model_write_two("1.safetensors", "a", "100000", "b", "3");
	both[1] = model_write_two("2.safetensors", "c", "5", "d", "5000000");
	model_write_text("model.safetensors.index.json",
			 "{\"weight_map\":{\"d\":\"2.safetensors\",\"c\":\"2.safetensors\","
			 "\"a\":\"1.safetensors\",\"b\":\"1.safetensors\"}}");
	for (int how = 0; how < 3; how++) {
		const char *one = model_file(how == 1 ? "model.safetensors.index.json" : "");

		ck_assert_msg(gpushm_load(c, how == 0 ? both : &one, how == 0 ? 2 : 1, "m", NULL,
					  NULL, &b) == 0,
			      "%s", gpushm_error());
		ck_assert_uint_eq(gpushm_buffer_arrays(b), 4);
		for (const char *name = "a\0b\0c\0d\0"; *name; name += 2)
			model_expect(b, name, name);
		drop(b, "m");
	}
}
END_TEST

START_TEST(tied_weights_are_copied_once)
{
	static const struct safetensors_tensor t[] = { { "embed", "F32", "1000" },
						       { "norm", "F32", "10" } };
	const char *source = model_file("m.safetensors");
	struct gpushm_load_report report = { .struct_size = sizeof(report) };
	const char *patterns[] = { "lm_*", "x*" };
	struct gpushm_load_options load = { .struct_size = sizeof(load), .report = &report };
	struct gpushm_array *embed = NULL, *head = NULL;
	struct gpushm_buffer *b = NULL;

	safetensors_write(source, t, 2, "{\"lm_head\":\"embed\",\"format\":\"pt\"}");
	ck_assert_msg(gpushm_load(c, &source, 1, "m", NULL, &load, &b) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(report.tensors, 3);
	ck_assert_uint_eq(report.bytes, 4040);
	ck_assert_int_eq(gpushm_array_get(b, "embed", &embed), 0);
	ck_assert_int_eq(gpushm_array_get(b, "lm_head", &head), 0);
	ck_assert_uint_eq(gpushm_array_offset(embed), gpushm_array_offset(head));
	ck_assert_int_eq(gpushm_array_dim(head, 0), 1000);
	gpushm_array_free(embed);
	gpushm_array_free(head);
	model_expect(b, "lm_head", "embed");
	drop(b, "m");
	/* The second name alone. */
	load.only = patterns;
	load.n_only = 2;
	ck_assert_msg(gpushm_load(c, &source, 1, "m", NULL, &load, &b) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(gpushm_buffer_arrays(b), 1);
	model_expect(b, "lm_head", "embed");
	drop(b, "m");
}
END_TEST

START_TEST(only_and_strip_choose_tensors_and_names)
{
	const char *source = model_file("m.safetensors");
	const char *patterns[] = { "model.[a-m]*", "inv_freq" }, *none[] = { "layer.*" };
	struct gpushm_load_options load = {
		.struct_size = sizeof(load), .only = patterns, .n_only = 2, .strip = "model."
	};
	struct gpushm_buffer *b = NULL;

	safetensors_write(source, tensors, array_size(tensors), NULL);
	ck_assert_msg(gpushm_load(c, &source, 1, "m", NULL, &load, &b) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(gpushm_buffer_arrays(b), 6);
	model_expect(b, "embed", "model.embed");
	model_expect(b, "big", "model.big");
	model_expect(b, "fp8", "model.fp8");
	model_expect(b, "inv_freq", "inv_freq");
	drop(b, "m");
	load.only = none;
	load.n_only = 1;
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, &b), -ENODATA);
	model_expect_error("\"layer.*\"");
	/* Names that are the same, or none, afterwards. */
	source = model_write_two("two.safetensors", "model.a", "2", "a", "2");
	load = (struct gpushm_load_options){ .struct_size = sizeof(load), .strip = "model." };
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, &b), -EEXIST);
	model_expect_error("\"a\"");
	load.strip = "model";
	source = model_write_two("two.safetensors", "model./a", "2", "b", "2");
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, &b), -EINVAL);
	source = model_write("two.safetensors", "model", "2");
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, &b), 0);
	model_expect(b, "", "model");
	drop(b, "m");
	load.strip = "model.";
	source = model_write("two.safetensors", "model.__metadata__", "2");
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, &b), -EINVAL);
	model_expect_error("the metadata's name");
}
END_TEST

START_TEST(tensors_without_bytes_are_loaded)
{
	static const struct safetensors_tensor t[] = { { "a", "F32", "0" }, { "b", "I8", "7,0" } };
	struct gpushm_buffer *b = NULL;
	const char *source = model_file("m.safetensors");

	safetensors_write(source, t, 2, NULL);
	ck_assert_msg(gpushm_load(c, &source, 1, "m", NULL, NULL, &b) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(gpushm_buffer_arrays(b), 2);
	ck_assert_msg(gpushm_verify(b, NULL, NULL, NULL) == 0, "%s", gpushm_error());
	drop(b, "m");
	safetensors_write(source, t, 0, "{\"a\":\"b\"}");
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, NULL, &b), -ENODATA);
	expect_nothing("m");
}
END_TEST

/* As many as DeepSeek-V3 has, and more than a buffer can have. */
START_TEST(a_model_of_very_many_tensors_is_loaded_up_to_the_limit)
{
	const size_t n = _i == 0 ? 90000 : 270000;
	struct safetensors_tensor *many = calloc(n, sizeof(*many));
	char *names = malloc(n * 16);
	const char *source = model_file("m.safetensors");
	struct gpushm_buffer *b = NULL;

	ck_assert(many && names);
	for (size_t i = 0; i < n; i++) {
		sprintf(names + 16 * i, "layer.%zu.w", i);
		many[i] = (struct safetensors_tensor){ names + 16 * i, "U8", i % 3 ? "2" : "" };
	}
	safetensors_write(source, many, n, NULL);
	if (_i == 0) {
		ck_assert_msg(model_load(c, source, "m", 0, &b) == 0, "%s", gpushm_error());
		ck_assert_uint_eq(gpushm_buffer_arrays(b), n);
		for (size_t i = 0; i < n; i += 4999)
			model_expect(b, many[i].name, many[i].name);
		drop(b, "m");
	} else {
		ck_assert_int_eq(model_load(c, source, "m", 0, &b), -EDQUOT);
		model_expect_error("270000 tensors: a buffer has at most 262144");
		expect_nothing("m");
	}
	free(names);
	free(many);
}
END_TEST

/* ---- attributes ---- */

START_TEST(large_metadata_are_kept_in_an_array)
{
	static const struct safetensors_tensor t = { "a", "F32", "70" };
	char metadata[3000] = "{\"x\":\"";
	struct gpushm_array *a = NULL;
	struct gpushm_buffer *b = NULL;
	const char *source = model_file("m.safetensors");
	char got[3000] = "";

	memset(metadata + 6, 'y', 2000);
	strcpy(metadata + 2006, "\"}");
	safetensors_write(source, &t, 1, metadata);
	ck_assert_msg(gpushm_load(c, &source, 1, "m", NULL, NULL, &b) == 0, "%s", gpushm_error());
	ck_assert_ptr_null(attr(b, "gpushm.metadata"));
	ck_assert_int_eq(gpushm_array_get(b, "__metadata__", &a), 0);
	ck_assert_uint_eq(gpushm_array_nbytes(a), strlen(metadata));
	ck_assert_int_eq(gpushm_copy_to_host(a, got, NULL), 0);
	ck_assert_str_eq(got, metadata);
	gpushm_array_free(a);
	model_expect(b, "a", "a");
	ck_assert_msg(gpushm_verify(b, NULL, NULL, NULL) == 0, "%s", gpushm_error());
	drop(b, "m");
}
END_TEST

START_TEST(attributes_of_the_caller_are_kept)
{
	static char long_value[4000];
	struct gpushm_attr attrs = { sizeof(attrs), "note", "mine", 4 };
	struct gpushm_create_options o = { .struct_size = sizeof(o),
					   .attrs = &attrs,
					   .n_attrs = 1 };
	const char *source = model_write("m.safetensors", "a", "5");
	struct gpushm_buffer *b = NULL;

	ck_assert_msg(gpushm_load(c, &source, 1, "m", &o, NULL, &b) == 0, "%s", gpushm_error());
	ck_assert_str_eq(attr(b, "note"), "mine");
	ck_assert_ptr_null(attr(b, "gpushm.metadata"));
	drop(b, "m");
	attrs = (struct gpushm_attr){ sizeof(struct gpushm_attr), "note", long_value,
				      sizeof(long_value) };
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", &o, NULL, &b), -EDQUOT);
	model_expect_error("4096");
	expect_nothing("m");
}
END_TEST

/* ---- checksums ---- */

static void write_sums(void)
{
	char command[256];

	snprintf(command, sizeof(command), "cd %s && sha256sum m.safetensors >SHA256SUMS",
		 model_file(""));
	ck_assert_int_eq(system(command), 0);
}

START_TEST(a_file_with_another_checksum_is_refused)
{
	const char *source = model_write("m.safetensors", "a", "3000000");
	struct gpushm_load_options load = { .struct_size = sizeof(load),
					    .sha256 = model_file("SHA256SUMS") };
	struct gpushm_buffer *b = NULL;

	write_sums();
	ck_assert_msg(gpushm_load(c, &source, 1, "m", NULL, &load, &b) == 0, "%s", gpushm_error());
	model_expect(b, "a", "a");
	ck_assert_int_eq(gpushm_close(b), 0);
	load.flags = GPUSHM_LOAD_IF_MISSING;
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, NULL), GPUSHM_LOAD_ATTACHED);
	model_write_text("SHA256SUMS", "%064d  m.safetensors\n", 0);
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, NULL), -EBADMSG);
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, NULL), -EBADMSG);
	model_expect_error("SHA-256");
	expect_nothing("m");
}
END_TEST

/* ---- arguments ---- */

START_TEST(a_wrong_argument_is_refused)
{
	const char *source = model_write("m.safetensors", "a", "5");
	struct gpushm_load_options load = { .struct_size = sizeof(load),
					    .flags = GPUSHM_LOAD_CACHED | GPUSHM_LOAD_DIRECT };
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "none" };
	const char *nothing = NULL;
	char key[65];

	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, NULL), -EINVAL);
	load.flags = GPUSHM_TRANSIENT;
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, NULL), -EINVAL);
	load = (struct gpushm_load_options){ .struct_size = sizeof(load), .n_only = 1 };
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, NULL), -EINVAL);
	load.only = &nothing;
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, NULL), -EINVAL);
	ck_assert_int_eq(gpushm_load_key(&source, 1, &load, key), -EINVAL);
	ck_assert_int_eq(gpushm_load_key(NULL, 1, NULL, key), -EINVAL);
	ck_assert_int_eq(gpushm_load(c, NULL, 1, "m", NULL, NULL, NULL), -EINVAL);
	load = (struct gpushm_load_options){ .struct_size = 0 };
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, NULL), -EINVAL);
	ck_assert_int_eq(gpushm_load(NULL, &source, 1, "m", NULL, NULL, NULL), -EINVAL);
	ck_assert_int_eq(gpushm_load(c, &source, 1, NULL, NULL, NULL, NULL), -EINVAL);
	ck_assert_int_eq(gpushm_load(c, &source, 0, "m", NULL, NULL, NULL), -EINVAL);
	ck_assert_int_eq(gpushm_load(c, &source, 1, "a//b", NULL, NULL, NULL), -EINVAL);
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", &o, NULL, NULL), -ENOENT);
	model_expect_error("none");
	o = (struct gpushm_create_options){ .struct_size = 0 };
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", &o, NULL, NULL), -EINVAL);
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, NULL, NULL), 0);
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, NULL, NULL), -EEXIST);
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
	expect_nothing("m");
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("load"), *on_pools = tcase_create("pools");

	tcase_set_timeout(tc, 60);
	tcase_set_timeout(on_pools, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_checked_fixture(on_pools, setup_pools, teardown_pools);
	tcase_add_test(on_pools, each_array_equals_its_tensor);
	tcase_add_test(tc, a_load_into_host_memory_does_not_ask_for_the_pools);
	tcase_add_test(tc, shards_are_loaded_as_one_model);
	tcase_add_test(tc, tied_weights_are_copied_once);
	tcase_add_test(tc, only_and_strip_choose_tensors_and_names);
	tcase_add_test(tc, tensors_without_bytes_are_loaded);
	tcase_add_loop_test(tc, a_model_of_very_many_tensors_is_loaded_up_to_the_limit, 0, 2);
	tcase_add_test(tc, large_metadata_are_kept_in_an_array);
	tcase_add_test(tc, attributes_of_the_caller_are_kept);
	tcase_add_test(tc, a_file_with_another_checksum_is_refused);
	tcase_add_test(tc, a_wrong_argument_is_refused);
	return suite_run("load", tc, on_pools, NULL);
}
