/* SPDX-License-Identifier: MIT
 *
 * DESCRIBE against a canned server: batches that fit a frame, undoing a refused batch, and pointers
 * that must stay valid while a buffer's table grows.
 */
#include "tests/lib/suite.h"
#include "tests/unit/lib/buffer_fixture.h"

#define MANY 3000
#define NAME 24

/* n arrays "0", "1", ...; free both. */
static struct gpushm_array_spec *many_specs(size_t n, char **ret_names)
{
	struct gpushm_array_spec *specs = calloc(n, sizeof(*specs));
	char *names = calloc(n, NAME);

	ck_assert(specs && names);
	for (size_t i = 0; i < n; i++) {
		snprintf(names + NAME * i, NAME, "%zu", i);
		specs[i] = float_spec(names + NAME * i);
	}
	*ret_names = names;
	return specs;
}

START_TEST(all_arrays_are_sent_in_batches_that_fit_a_frame)
{
	_cleanup_(free_ptr) struct gpushm_array_spec *specs = NULL;
	_cleanup_(free_ptr) char *names = NULL, *descr = calloc(1, DESCR_MAX + 1);
	size_t seen = 0;

	/* Records with the longest descr at the end: fifteen of them fill a frame. */
	memset(descr, 'd', DESCR_MAX);
	specs = many_specs(MANY, &names);
	for (size_t i = MANY - 50; i < MANY; i++) {
		specs[i].dtype = (struct gpushm_dtype){ .code = 255, .lanes = 1, .itemsize = 8 };
		specs[i].descr = descr;
	}
	canned_hello(server);
	reply_to_create();
	canned_respond(server, count_arrays, 40);
	created(NULL);
	ck_assert_msg(gpushm_describe(b, specs, MANY) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(gpushm_buffer_arrays(b), MANY);
	c = gpushm_disconnect(c);
	closed();
	canned_join(server);
	for (size_t i = 2; i < canned_requests(server) - 1; i++) {
		const Gpushm__Proto__Describe *d = canned_request(server, i)->describe;

		ck_assert_uint_le(canned_request_bytes(server, i), FRAME_MAX);
		for (size_t k = 0; k < d->n_arrays; k++, seen++)
			ck_assert_mem_eq(d->arrays[k]->name.data, specs[seen].name,
					 strlen(specs[seen].name));
	}
	ck_assert_uint_eq(seen, MANY);
}
END_TEST

START_TEST(a_refused_batch_is_removed_from_the_clients_table)
{
	_cleanup_(free_ptr) struct gpushm_array_spec *specs = NULL;
	_cleanup_(free_ptr) char *names = NULL;
	struct gpushm_array *a = NULL;

	specs = many_specs(MANY, &names);
	canned_hello(server);
	reply_to_create();
	canned_respond(server, count_arrays, 1);
	canned_error(server, CODE_LIMIT, "too many");
	canned_done(server);
	created(NULL);
	ck_assert_int_eq(gpushm_describe(b, specs, MANY), -EDQUOT);
	ck_assert_str_eq(gpushm_error_code(), "LIMIT");
	ck_assert_uint_eq(gpushm_buffer_arrays(b), described);
	ck_assert_uint_gt(described, 0);
	ck_assert_int_eq(gpushm_array_get(b, "0", &a), 0);
	gpushm_array_free(a);
	ck_assert_int_eq(gpushm_array_get(b, names + NAME * (MANY - 1), &a), -ENOENT);
	closed();
}
END_TEST

START_TEST(an_invalid_array_is_found_before_any_is_sent)
{
	struct gpushm_array_spec specs[] = { float_spec("good"), float_spec("far") };

	specs[1].offset = SIZE;
	canned_hello(server);
	reply_to_create();
	canned_done(server);
	created(NULL);
	ck_assert_int_eq(gpushm_describe(b, specs, 2), -ERANGE);
	says("spec 1");
	says("far");
	specs[1] = float_spec("good");
	ck_assert_int_eq(gpushm_describe(b, specs, 2), -EEXIST);
	ck_assert_uint_eq(gpushm_buffer_arrays(b), 0);
	closed();
	c = gpushm_disconnect(c);
	canned_join(server);
	ck_assert_uint_eq(canned_requests(server), 3); /* HELLO, CREATE, CLOSE */
}
END_TEST

START_TEST(a_wrong_count_of_arrays_in_a_reply_is_refused)
{
	struct gpushm_array_spec spec = float_spec("x");

	described = 5;
	canned_hello(server);
	reply_to_create();
	canned_respond(server, count_arrays, 1);
	created(NULL);
	refuses_for_good(gpushm_describe(b, &spec, 1), EPROTO, "counts");
	ck_assert_uint_eq(gpushm_buffer_arrays(b), 0);
	closed();
}
END_TEST

START_TEST(an_attribute_stays_in_place_when_the_table_grows)
{
	const struct gpushm_attr attr = {
		.struct_size = sizeof(attr), .key = "k", .value = "value", .size = 5
	};
	const struct gpushm_create_options o = { .struct_size = sizeof(o),
						 .attrs = &attr,
						 .n_attrs = 1 };
	struct gpushm_array_spec specs[] = { float_spec("x"), float_spec("y") };
	const void *before, *after;
	struct gpushm_array *a = NULL;
	size_t size;

	canned_hello(server);
	reply_to_create();
	canned_respond(server, count_arrays, 2);
	canned_done(server);
	created(&o);
	ck_assert_int_eq(gpushm_buffer_attr(b, "k", &before, &size), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(gpushm_describe(b, &specs[i], 1), 0);
		ck_assert_int_eq(gpushm_array_get(b, specs[i].name, &a), 0);
		gpushm_array_free(a);
	}
	ck_assert_int_eq(gpushm_buffer_attr(b, "k", &after, &size), 0);
	ck_assert_ptr_eq(before, after);
	ck_assert_uint_eq(size, 5);
	ck_assert_mem_eq(after, "value", 5);
	closed();
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("describe");

	tcase_add_checked_fixture(tc, setup_buffer, teardown_buffer);
	tcase_add_test(tc, all_arrays_are_sent_in_batches_that_fit_a_frame);
	tcase_add_test(tc, a_refused_batch_is_removed_from_the_clients_table);
	tcase_add_test(tc, an_invalid_array_is_found_before_any_is_sent);
	tcase_add_test(tc, a_wrong_count_of_arrays_in_a_reply_is_refused);
	tcase_add_test(tc, an_attribute_stays_in_place_when_the_table_grows);
	return suite_run("describe", tc, NULL);
}
