/* SPDX-License-Identifier: MIT
 *
 * Handles between processes, and what they do when the buffer is gone, or another one has its name.
 */
#include "client/gpushm_handle.h"
#include "proto/base/fnv.h"
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/role.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BYTES (1 << 16)

static unsigned char handle[GPUSHM_HANDLE_MAX];
static size_t n;

/* ---- the other process: reads handles in hexadecimal, and says what it has found ---- */

#define LINE_MAX_ (2 * GPUSHM_HANDLE_MAX + 2)

static void describe(const struct gpushm_array *a, char *line, size_t size)
{
	static unsigned char bytes[BYTES];
	char dtype[32];
	const char *descr = gpushm_array_descr(a);
	int used;

	gpushm_dtype_format(gpushm_array_dtype(a), dtype, sizeof(dtype));
	used = snprintf(line, size, "%s %s %d %d %llu", gpushm_array_name(a), dtype,
			gpushm_array_read_only(a), gpushm_array_ndim(a),
			(unsigned long long)gpushm_array_offset(a));
	for (int i = 0; i < gpushm_array_ndim(a); i++)
		used += snprintf(line + used, size - used, " %lld:%lld",
				 (long long)gpushm_array_dim(a, i),
				 (long long)gpushm_array_strides(a)[i]);
	if (gpushm_copy_to_host(a, bytes, NULL) < 0)
		snprintf(line + used, size - used, " %s", gpushm_error());
	else
		snprintf(line + used, size - used, " %llx %llx",
			 (unsigned long long)fnv1a(FNV1A_BASIS, bytes, gpushm_array_nbytes(a)),
			 (unsigned long long)fnv1a(FNV1A_BASIS, descr ? descr : "",
						   descr ? strlen(descr) : 0));
}

/* socket */
static int opener_role(char **args)
{
	char line[LINE_MAX_];
	struct gpushm_array *a;
	struct gpushm *conn = NULL;

	if (gpushm_connect(args[0], &conn) < 0)
		return 1;
	while (fgets(line, sizeof(line), stdin)) {
		unsigned char bytes[GPUSHM_HANDLE_MAX];
		size_t len = strcspn(line, "\n") / 2;

		for (size_t i = 0; i < len; i++)
			sscanf(line + 2 * i, "%2hhx", &bytes[i]);
		a = NULL;
		if (gpushm_open_handle(conn, bytes, len, NULL, &a) < 0)
			snprintf(line, sizeof(line), "%s", gpushm_error());
		else
			describe(a, line, sizeof(line));
		gpushm_array_free(a);
		puts(line);
		fflush(stdout);
	}
	gpushm_disconnect(conn);
	return 0;
}

static const struct role roles[] = { { "opener", opener_role } };

static void send_to(struct role_process *p)
{
	char line[LINE_MAX_];

	for (size_t i = 0; i < n; i++)
		sprintf(line + 2 * i, "%02x", handle[i]);
	role_write_line(p, line);
}

static void arrives(const struct gpushm_array *a)
{
	struct role_process p;
	char wanted[LINE_MAX_], line[LINE_MAX_];

	role_start(&p, "opener", (const char *[]){ d.socket, NULL });
	describe(a, wanted, sizeof(wanted));
	ck_assert_msg(gpushm_array_handle(a, handle, sizeof(handle), &n) == 0, "%s",
		      gpushm_error());
	for (int i = 0; i < 2; i++) {
		send_to(&p);
		role_read_line(&p, line, sizeof(line));
		line[strcspn(line, "\n")] = '\0';
		ck_assert_str_eq(line, wanted);
	}
	role_finish(&p);
}

/* ---- here ---- */

static struct gpushm_buffer *made(const char *pool, struct gpushm_array_spec spec)
{
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = pool };
	struct gpushm_buffer *b = NULL;
	unsigned char bytes[4096];

	spec.struct_size = sizeof(spec);
	if (!spec.name)
		spec.name = "w";
	ck_assert_msg(gpushm_create_arrays(c, "x", &spec, 1, &o, &b) == 0, "%s", gpushm_error());
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * 7 + i / 256);
	for (uint64_t at = 0; at < gpushm_buffer_bytes(b); at += sizeof(bytes)) {
		uint64_t left = gpushm_buffer_bytes(b) - at;

		ck_assert_int_eq(gpushm_write(b, at, bytes,
					      left < sizeof(bytes) ? left : sizeof(bytes)),
				 0);
	}
	return b;
}

static struct gpushm_dtype dtype_of(const char *name)
{
	struct gpushm_dtype t;

	ck_assert_int_eq(gpushm_dtype_parse(name, &t), 0);
	return t;
}

/* A published buffer of 16 times 8 numbers. */
static struct gpushm_buffer *plain(const char *pool)
{
	const int64_t shape[] = { 16, 8 };
	struct gpushm_buffer *b =
		made(pool, (struct gpushm_array_spec){
				   .dtype = dtype_of("float32"), .ndim = 2, .shape = shape });

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	return b;
}

static struct gpushm_array *array_in(struct gpushm_buffer *b)
{
	struct gpushm_array *a = NULL;

	ck_assert_int_eq(gpushm_array_get(b, "w", &a), 0);
	return a;
}

static void handle_of(struct gpushm_buffer *b)
{
	struct gpushm_array *a = array_in(b);

	ck_assert_int_eq(gpushm_array_handle(a, handle, sizeof(handle), &n), 0);
	gpushm_array_free(a);
}

static int open_it(const struct gpushm_handle_options *o, struct gpushm_array **ret)
{
	*ret = NULL;
	return gpushm_open_handle(c, handle, n, o, ret);
}

static void says(const char *text)
{
	ck_assert_msg(strstr(gpushm_error(), text) != NULL, "%s", gpushm_error());
}

static bool has_pool(const char *name)
{
	struct gpushm_pool **pools = NULL;
	size_t n_pools = 0;
	bool has = false;

	ck_assert_int_eq(gpushm_pools(c, &pools, &n_pools), 0);
	for (size_t i = 0; i < n_pools; i++)
		has |= strcmp(pools[i]->name, name) == 0;
	gpushm_free(pools);
	return has;
}

/* ---- round trips ---- */

START_TEST(an_array_and_its_views_arrive_in_another_process)
{
	static const char *const pools[] = { "host", "pinned", "gpu0", "gpu0-mempool" };

	for (size_t i = 0; i < array_size(pools); i++) {
		struct gpushm_array *a, *rows = NULL, *v = NULL;
		struct gpushm_buffer *b;

		if (!has_pool(pools[i]))
			continue;
		b = plain(pools[i]);
		a = array_in(b);
		arrives(a);
		ck_assert_int_eq(gpushm_array_slice(a, 0, GPUSHM_SLICE_NONE, 2, -3, &rows), 0);
		ck_assert_int_eq(gpushm_array_slice(rows, 1, 1, GPUSHM_SLICE_NONE, 2, &v), 0);
		arrives(v);
		gpushm_array_free(v);
		ck_assert_int_eq(gpushm_array_transpose(rows, NULL, &v), 0);
		arrives(v);
		gpushm_array_free(v);
		ck_assert_int_eq(gpushm_array_index(a, 0, 3, &v), 0);
		arrives(v);
		gpushm_array_free(v);
		gpushm_array_free(rows);
		gpushm_array_free(a);
		client_close_and_unlink(b, "x");
	}
}
END_TEST

START_TEST(sixteen_dimensions_arrive)
{
	const int64_t shape[] = { 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2 };
	struct gpushm_array *a, *v = NULL;
	struct gpushm_buffer *b =
		made("host", (struct gpushm_array_spec){
				     .dtype = dtype_of("int8"), .ndim = 17, .shape = shape });

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	a = array_in(b);
	ck_assert_int_eq(gpushm_array_handle(a, handle, sizeof(handle), &n), -E2BIG);
	ck_assert_int_eq(gpushm_array_slice(a, 0, 1, 0, -1, &v), 0);
	a = gpushm_array_free(a);
	ck_assert_int_eq(gpushm_array_index(v, 0, 0, &a), 0);
	arrives(a);
	gpushm_array_free(v);
	gpushm_array_free(a);
	client_close_and_unlink(b, "x");
}
END_TEST

/* Of n fields of 8 bytes. */
static void fields(char *descr, int n_fields, const char *name)
{
	int used = sprintf(descr, "[");

	for (int i = 0; i < n_fields; i++)
		used += sprintf(descr + used, "('%s%d', '<f8'), ", name, i);
	strcpy(descr + used - 2, "]");
}

START_TEST(a_record_arrives_by_its_fields_or_by_its_arrays_name)
{
	static char descr[4096], other[4096];
	const int64_t shape[] = { 4 };
	struct gpushm_array *a;
	struct gpushm_buffer *b;

	for (int n_fields = 2; n_fields <= 100; n_fields += 98) {
		struct gpushm_array_spec spec = { .dtype = { 255, 0, 1, 8 * (unsigned)n_fields },
						  .ndim = 1,
						  .shape = shape,
						  .descr = descr };

		fields(descr, n_fields, "f");
		b = made("host", spec);
		ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
		a = array_in(b);
		arrives(a);
		gpushm_array_free(a);
		fields(other, n_fields, "other");
		spec.struct_size = sizeof(spec);
		spec.descr = other;
		ck_assert_int_eq(gpushm_array_over(b, &spec, &a), 0);
		if (n_fields == 2) {
			arrives(a);
		} else {
			ck_assert_int_eq(gpushm_array_handle(a, handle, sizeof(handle), &n),
					 -E2BIG);
			says("fields of a record");
		}
		gpushm_array_free(a);
		client_close_and_unlink(b, "x");
	}
}
END_TEST

START_TEST(a_buffer_arrives_with_its_arrays)
{
	struct gpushm_buffer *b = plain("host"), *again = NULL;
	struct gpushm_array *a = NULL;

	ck_assert_int_eq(gpushm_buffer_handle(b, handle, sizeof(handle), &n), 0);
	ck_assert_int_eq(open_it(NULL, &a), -EINVAL);
	says("gpushm_open_buffer_handle()");
	ck_assert_int_eq(gpushm_open_buffer_handle(c, handle, n, NULL, &again), 0);
	ck_assert_uint_eq(gpushm_buffer_id(again), gpushm_buffer_id(b));
	ck_assert_uint_eq(gpushm_buffer_arrays(again), 1);
	ck_assert_int_eq(gpushm_close(again), 0);
	handle_of(b);
	ck_assert_int_eq(gpushm_open_buffer_handle(c, handle, n, NULL, &again), 0);
	ck_assert_int_eq(gpushm_close(again), 0);
	client_close_and_unlink(b, "x");
}
END_TEST

/* ---- lives ---- */

START_TEST(the_last_array_of_a_handle_closes_its_buffer)
{
	struct gpushm_buffer *b = plain("host");
	struct gpushm_array *a = NULL, *v = NULL;
	struct gpushm *other = NULL;

	handle_of(b);
	ck_assert_int_eq(gpushm_connect(d.socket, &other), 0);
	ck_assert_int_eq(gpushm_open_handle(other, handle, n, NULL, &a), 0);
	gpushm_disconnect(other);
	ck_assert_int_eq(gpushm_close(gpushm_array_buffer(a)), -EBUSY);
	client_close_and_unlink(b, "x");
	ck_assert_int_eq(gpushm_array_dup(a, &v), 0);
	gpushm_array_free(a);
	ck_assert_uint_gt(client_used_bytes(), 0);
	ck_assert_int_eq(((unsigned char *)gpushm_array_host_ptr(v))[1], 7);
	gpushm_array_free(v);
	client_await(client_used_bytes() == 0);
}
END_TEST

START_TEST(another_buffer_of_the_name_is_not_opened)
{
	struct gpushm_buffer *b = plain("host");
	struct gpushm_array *a = NULL;
	uint32_t leases = client_status().leases;

	handle_of(b);
	ck_assert_int_eq(gpushm_unlink(c, "x"), 0);
	ck_assert_int_eq(open_it(NULL, &a), -ENOENT);
	ck_assert_int_eq(gpushm_close(b), 0);
	b = plain("host");
	ck_assert_int_eq(open_it(NULL, &a), -ESTALE);
	says("buffer \"x\" is another one by now");
	ck_assert_uint_eq(client_status().leases, leases);
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(a_handle_can_be_made_before_the_buffer_is_published)
{
	struct gpushm_handle_options o = { .struct_size = sizeof(o), .timeout_ms = 1 };
	const int64_t shape[] = { 4 };
	struct gpushm_buffer *b =
		made("host", (struct gpushm_array_spec){
				     .dtype = dtype_of("int8"), .ndim = 1, .shape = shape });
	struct gpushm_array *a = NULL;

	handle_of(b);
	ck_assert_int_eq(open_it(NULL, &a), -EAGAIN);
	ck_assert_int_eq(open_it(&o, &a), -ETIMEDOUT);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	ck_assert_int_eq(open_it(&o, &a), 0);
	gpushm_array_free(a);
	client_close_and_unlink(b, "x");
}
END_TEST

/* ---- access ---- */

static int is_read_only(const struct gpushm_handle_options *o)
{
	struct gpushm_array *a = NULL;
	int result;

	ck_assert_msg(open_it(o, &a) == 0, "%s", gpushm_error());
	result = gpushm_array_read_only(a);
	gpushm_array_free(a);
	return result;
}

START_TEST(a_handle_asks_for_its_makers_access_or_for_that_of_the_options)
{
	struct gpushm_handle_options o = { .struct_size = sizeof(o), .access = GPUSHM_READ };
	struct gpushm_open_options private = { .struct_size = sizeof(private),
					       .flags = GPUSHM_COPY_ON_WRITE };
	struct gpushm_buffer *b = plain("host"), *reader = NULL;
	struct gpushm_array *a = NULL;

	handle_of(b);
	ck_assert_int_eq(is_read_only(NULL), 0);
	ck_assert_int_eq(is_read_only(&o), 1);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, NULL, &reader), 0);
	handle_of(reader);
	ck_assert_int_eq(gpushm_close(reader), 0);
	ck_assert_int_eq(is_read_only(NULL), 1);
	o.access = GPUSHM_WRITE;
	ck_assert_int_eq(is_read_only(&o), 0);
	ck_assert_int_eq(gpushm_open(c, "x", GPUSHM_READ, 0, &private, &reader), 0);
	handle_of(reader);
	ck_assert_int_eq(gpushm_close(reader), 0);
	ck_assert_int_eq(open_it(NULL, &a), 0);
	ck_assert_int_eq(gpushm_buffer_copy_on_write(gpushm_array_buffer(a)), 1);
	gpushm_array_free(a);
	o.access = 7;
	ck_assert_int_eq(open_it(&o, &a), -EINVAL);
	o.access = 0;
	o.flags = GPUSHM_REPLACE;
	ck_assert_int_eq(open_it(&o, &a), -EINVAL);
	client_close_and_unlink(b, "x");
}
END_TEST

/* ---- other bytes ---- */

START_TEST(other_bytes_are_refused)
{
	struct gpushm_buffer *b = plain("host"), *again = NULL;
	struct gpushm_array *a = NULL;

	handle_of(b);
	ck_assert_int_eq(gpushm_open_handle(c, "{\"name\": \"x\"}", 13, NULL, &a), -EINVAL);
	says("no handle of gpushm");
	ck_assert_int_eq(gpushm_open_handle(c, handle, n - 1, NULL, &a), -EBADMSG);
	says("checksum");
	handle[20]++;
	ck_assert_int_eq(gpushm_open_buffer_handle(c, handle, n, NULL, &again), -EBADMSG);
	ck_assert_int_eq(gpushm_open_handle(c, NULL, 0, NULL, &a), -EINVAL);
	client_close_and_unlink(b, "x");
}
END_TEST

START_TEST(a_layout_that_does_not_fit_the_buffer_is_refused)
{
	struct gpushm_buffer *b = plain("host");
	struct gpushm_array *a = NULL;
	uint64_t offset = BYTES, hash;

	handle_of(b);
	memcpy(handle + 24, &offset, sizeof(offset));
	hash = fnv1a(FNV1A_BASIS, handle, n - sizeof(hash));
	memcpy(handle + n - sizeof(hash), &hash, sizeof(hash));
	ck_assert_int_eq(open_it(NULL, &a), -ERANGE);
	says("the handle");
	client_close_and_unlink(b, "x");
}
END_TEST

int main(int argc, char **argv)
{
	TCase *t = tcase_create("handles");

	role_dispatch(argc, argv, roles, array_size(roles));
	tcase_add_checked_fixture(t, client_setup, client_teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, an_array_and_its_views_arrive_in_another_process);
	tcase_add_test(t, sixteen_dimensions_arrive);
	tcase_add_test(t, a_record_arrives_by_its_fields_or_by_its_arrays_name);
	tcase_add_test(t, a_buffer_arrives_with_its_arrays);
	tcase_add_test(t, the_last_array_of_a_handle_closes_its_buffer);
	tcase_add_test(t, another_buffer_of_the_name_is_not_opened);
	tcase_add_test(t, a_handle_can_be_made_before_the_buffer_is_published);
	tcase_add_test(t, a_handle_asks_for_its_makers_access_or_for_that_of_the_options);
	tcase_add_test(t, other_bytes_are_refused);
	tcase_add_test(t, a_layout_that_does_not_fit_the_buffer_is_refused);
	return suite_run("handles", t, NULL);
}
