/* SPDX-License-Identifier: MIT
 *
 * Buffers with as many arrays as a checkpoint of a mixture of experts has, 90,000, and with as many
 * as are allowed: what they cost the daemon and its other clients, and what a client is told that
 * reads fewer.
 */
#include "proto/base/own.h"
#include "proto/limits.h"
#include "tests/lib/census.h"
#include "tests/lib/kept.h"
#include "tests/lib/raw.h"
#include "tests/lib/suite.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define NAME_BYTES 96
#define GROWTH_KIB 2048 /* of the daemon: the arena of requests alone has 1 MiB */

static const size_t counts[] = { 90000, ARRAYS_MAX };

static struct gpushm_array_spec *specs;
static char *names;

static struct gpushm_array_spec *name_arrays(size_t n)
{
	static const int64_t shape[] = { 2, 3 };
	static const char *const parts[] = { "gate_proj", "up_proj", "down_proj" };

	specs = calloc(n, sizeof(*specs));
	names = calloc(n, NAME_BYTES);
	ck_assert(specs && names);
	for (size_t i = 0; i < n; i++) {
		snprintf(names + i * NAME_BYTES, NAME_BYTES,
			 "model.layers.%zu.mlp.experts.%zu.%s.weight%s", i / 1536, i / 6 % 256,
			 parts[i / 2 % 3], i % 2 ? "_scale_inv" : "");
		specs[i] = (struct gpushm_array_spec){
			.struct_size = sizeof(struct gpushm_array_spec),
			.name = names + i * NAME_BYTES,
			.dtype = { .code = 1, .bits = 8, .lanes = 1 },
			.ndim = 2,
			.shape = shape,
		};
	}
	return specs;
}

static void setup(void)
{
	client_setup_with(CENSUS_CONFIG);
}

static void teardown(void)
{
	client_teardown();
	free(specs);
	free(names);
}

static struct gpushm_buffer *filled(const char *name, size_t n)
{
	struct gpushm_buffer *b = NULL;

	name_arrays(n);
	ck_assert_msg(gpushm_create_arrays(c, name, specs, n, NULL, &b) == 0, "%s", gpushm_error());
	return b;
}

/* Entries, slots, shapes and strides, names. */
static long table_kib(struct gpushm_buffer *b)
{
	long bytes = 0;

	for (size_t i = 0; i < gpushm_buffer_arrays(b); i++)
		bytes += 64 + 16 + 32 + (long)(strlen(specs[i].name) + 7) / 8 * 8;
	return bytes / 1024;
}

static void find_all(struct gpushm_buffer *b, size_t n)
{
	struct gpushm_array *a = NULL;

	ck_assert_uint_eq(gpushm_buffer_arrays(b), n);
	for (size_t i = 0; i < n; i++) {
		ck_assert_msg(gpushm_array_get(b, specs[i].name, &a) == 0, "%s", gpushm_error());
		ck_assert_uint_eq(gpushm_array_offset(a), specs[i].offset);
		gpushm_array_free(a);
	}
	ck_assert_int_eq(gpushm_array_get(b, "model.layers.9.mlp.bias", &a), -ENOENT);
}

/* The table is a file, which the daemon does not map: census_rss() does not count it either. */
START_TEST(many_arrays_cost_the_daemon_only_their_table)
{
	size_t n = counts[_i];
	struct gpushm_array_spec more = { .struct_size = sizeof(more),
					  .name = "more",
					  .dtype = { 1, 8, 1, 0 } };
	struct gpushm_buffer *b;
	long before, filling, after;

	if (suite_is_sanitized())
		return; /* a sanitizer keeps freed memory */
	name_arrays(n);
	before = census_rss(&d);
	/* After this one malloc would make large blocks in its heap, and copy them as they grow. */
	ck_assert_int_eq(gpushm_create_arrays(c, "first", specs, n / 4 * 3, NULL, &b), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	client_close_and_unlink(b, "first");
	ck_assert_int_eq(gpushm_create_arrays(c, "m", specs, n, NULL, &b), 0);
	filling = census_rss(&d);
	if (n == ARRAYS_MAX)
		ck_assert_int_eq(gpushm_describe(b, &more, 1), -EDQUOT);
	ck_assert_msg(gpushm_publish(b, GPUSHM_SEALED) == 0, "%s", gpushm_error());
	after = census_rss(&d);
	ck_assert_int_gt(filling - before, table_kib(b) / 2);
	ck_assert_int_lt(filling - before, table_kib(b) * 3 / 2);
	ck_assert_int_lt(after - before, GROWTH_KIB);
	client_close_and_unlink(b, "m");
	ck_assert_int_lt(census_rss(&d) - before, GROWTH_KIB);
}
END_TEST

START_TEST(opening_many_arrays_takes_one_request)
{
	size_t n = counts[_i];
	struct gpushm_buffer *b = filled("m", n);
	uint64_t before;

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	before = client_status().requests;
	ck_assert_msg(gpushm_open(c, "m", GPUSHM_READ, 0, NULL, &b) == 0, "%s", gpushm_error());
	find_all(b, n);
	ck_assert_uint_eq(client_status().requests - before, 2);
	client_close_and_unlink(b, "m");
}
END_TEST

/* ---- others have their turn ---- */

static void await_stopped(pid_t pid)
{
	char path[64], state = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	while (state != 'T') {
		FILE *f = fopen(path, "r");

		ck_assert(f && fscanf(f, "%*d %*s %c", &state) == 1);
		fclose(f);
	}
}

/* Does not wait for the reply. */
static void begin_to_publish(struct raw *r, uint64_t lease)
{
	ck_assert_int_eq(raw_request(r, REQUEST(PUBLISH, Publish, publish, SET(lease, lease),
						SET(state, GPUSHM__PROTO__STATE__STATE_SEALED))),
			 0);
}

/* Describes them by a client without the library, so that it can send PUBLISH and not wait. */
static uint64_t described(struct raw *r, const char *name, size_t n)
{
	static Gpushm__Proto__Array arrays[500], *list[500];
	uint64_t lease = raw_create(r, name, 100);
	char numbered[500][64];
	Gpushm__Proto__Dtype bytes = MESSAGE(Dtype, dtype, SET(code, 1), SET(bits, 8));

	for (size_t first = 0; first < n; first += array_size(arrays)) {
		for (size_t i = 0; i < array_size(arrays); i++) {
			snprintf(numbered[i], sizeof(numbered[i]), "model.layers.mlp.experts.%zu",
				 first + i);
			arrays[i] =
				MESSAGE(Array, array, BYTES(name, numbered[i]), .dtype = &bytes);
			list[i] = &arrays[i];
		}
		ck_assert_int_eq(raw_call(r,
					  REQUEST(DESCRIBE, Describe, describe, SET(lease, lease),
						  .n_arrays = array_size(arrays), .arrays = list)),
				 0);
	}
	return lease;
}

static int state_of(struct raw *r, const char *name)
{
	ck_assert_int_eq(raw_call(r, REQUEST(STAT, Stat, stat, BYTES(name, name))), 0);
	return r->reply->stat->state;
}

/* The stopped daemon gets both requests at once, and the publication takes many turns. */
START_TEST(others_are_served_while_a_large_table_is_published)
{
	struct raw publisher, other;
	uint64_t lease;

	raw_greet(&publisher, d.socket);
	raw_greet(&other, d.socket);
	lease = described(&publisher, "m", 50000);
	kill(d.pid, SIGSTOP);
	await_stopped(d.pid);
	begin_to_publish(&publisher, lease);
	raw_request(&other, REQUEST(STAT, Stat, stat, BYTES(name, "m")));
	kill(d.pid, SIGCONT);
	ck_assert_int_eq(raw_receive(&other), 0);
	ck_assert_int_eq(other.reply->stat->state, GPUSHM__PROTO__STATE__STATE_FILLING);
	ck_assert_int_eq(raw_receive(&publisher), 0);
	ck_assert_int_eq(state_of(&other, "m"), GPUSHM__PROTO__STATE__STATE_SEALED);
	ck_assert_int_eq(gpushm_unlink(c, "m"), 0);
	ck_assert_int_eq(raw_call(&publisher, REQUEST(CLOSE, Close, close, SET(lease, lease))), 0);
	raw_close(&publisher);
	raw_close(&other);
}
END_TEST

START_TEST(a_client_that_dies_while_it_publishes_leaves_nothing)
{
	struct census before, now;
	pid_t pid;

	census_take(&d, c, &before);
	pid = fork();
	if (pid == 0) {
		struct raw r;
		uint64_t lease;

		raw_greet(&r, d.socket);
		lease = described(&r, "m", 50000);
		kill(d.pid, SIGSTOP);
		await_stopped(d.pid);
		begin_to_publish(&r, lease);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	kill(d.pid, SIGCONT);
	client_await(client_status().peers == before.peers && client_status().suspects == 0);
	gpushm_unlink(c, "m"); /* if it was published first */
	census_await(&d, c, &before);
	census_take(&d, c, &now);
	ck_assert_uint_eq(now.buffers, before.buffers);
}
END_TEST

/* ---- a client that reads fewer ---- */

static void greet_without_arrays(struct raw *r)
{
	raw_connect(r, d.socket);
	ck_assert_int_eq(raw_call(r, REQUEST(HELLO, Hello, hello, SET(version_min, 1),
					     SET(version_max, 1))),
			 0);
}

static int open_with(struct raw *r, const char *name)
{
	int code = raw_call(r, REQUEST(OPEN, Open, open, BYTES(name, name)));

	if (code == 0)
		raw_call(r, REQUEST(CLOSE, Close, close, SET(lease, r->reply->attach->lease)));
	return code;
}

START_TEST(an_older_client_is_refused_a_table_that_it_cant_read)
{
	struct gpushm_buffer *most = filled("most", ARRAYS_READ_DEFAULT), *more = NULL;
	struct raw r;

	ck_assert_int_eq(gpushm_publish(most, GPUSHM_SEALED), 0);
	free(specs);
	free(names);
	more = filled("more", ARRAYS_READ_DEFAULT + 1);
	ck_assert_int_eq(gpushm_publish(more, GPUSHM_SEALED), 0);
	greet_without_arrays(&r);
	ck_assert_int_eq(open_with(&r, "most"), 0);
	ck_assert_int_eq(open_with(&r, "more"), CODE_VERSION);
	ck_assert_ptr_nonnull(strstr(r.text, "65537 arrays"));
	ck_assert_ptr_nonnull(strstr(r.text, "upgrade it"));
	/* All else of it works, and the connection goes on. */
	ck_assert_int_eq(state_of(&r, "more"), GPUSHM__PROTO__STATE__STATE_SEALED);
	raw_close(&r);
	client_close_and_unlink(most, "most");
	client_close_and_unlink(more, "more");
}
END_TEST

START_TEST(many_arrays_survive_a_crash)
{
	struct gpushm_buffer *b = filled("m", ARRAYS_MAX);

	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	kept_crash();
	ck_assert_msg(gpushm_open(c, "m", GPUSHM_READ, 0, NULL, &b) == 0, "%s", gpushm_error());
	find_all(b, ARRAYS_MAX);
	client_close_and_unlink(b, "m");
	free(specs);
	free(names);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("many_arrays"), *kept = tcase_create("kept");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_checked_fixture(kept, kept_setup, kept_teardown);
	tcase_set_timeout(t, 300);
	tcase_set_timeout(kept, 300);
	tcase_add_loop_test(t, many_arrays_cost_the_daemon_only_their_table, 0, array_size(counts));
	tcase_add_loop_test(t, opening_many_arrays_takes_one_request, 0, array_size(counts));
	tcase_add_test(t, others_are_served_while_a_large_table_is_published);
	tcase_add_test(t, a_client_that_dies_while_it_publishes_leaves_nothing);
	tcase_add_test(t, an_older_client_is_refused_a_table_that_it_cant_read);
	tcase_add_test(kept, many_arrays_survive_a_crash);
	return suite_run("many_arrays", t, kept, NULL);
}
