/* SPDX-License-Identifier: MIT
 *
 * Files that can be read once only, and files that change while they are read. Where a load does
 * not see all that its headers promised, as it was, nothing is published.
 */
#include "client/gpushm_load.h"
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/model_files.h"
#include "tests/lib/suite.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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

/* There is no buffer of any name, and none is being filled. */
static void expect_nothing(void)
{
	struct gpushm_stat **stats = NULL;
	size_t n;

	ck_assert_int_eq(gpushm_list(c, NULL, 0, &stats, &n), 0);
	ck_assert_msg(n == 0, "%zu buffers are left: %s", n, n ? stats[0]->name : "");
	gpushm_free(stats);
	ck_assert_uint_eq(client_used_bytes(), 0);
}

static void drop(struct gpushm_buffer *b)
{
	client_close_and_unlink(b, "m");
	expect_nothing();
}

static bool has_attr(struct gpushm_buffer *b, const char *key)
{
	const void *value;
	size_t size;

	return gpushm_buffer_attr(b, key, &value, &size) == 0;
}

/* ---- streams ---- */

struct writer {
	pthread_t thread;
	int fd;
	const char *bytes;
	size_t n, at_a_time;
	const char *truncate; /* this file when all but the last byte has been read or is in the
				 pipe */
};

static void *write_stream(void *arg)
{
	struct writer *w = arg;

	for (size_t done = 0; done < w->n;) {
		size_t n = w->n - done < w->at_a_time ? w->n - done : w->at_a_time;
		ssize_t r;

		if (done + 1 == w->n && w->truncate)
			ck_assert_int_eq(truncate(w->truncate, 1000), 0);
		else if (w->truncate && n == w->n - done)
			n--;
		r = write(w->fd, w->bytes + done, n);
		if (r < 0)
			break;
		done += (size_t)r;
	}
	close(w->fd);
	return NULL;
}

/* Starts to write bytes into a new pipe. Returns its path. */
static const char *begin_stream(struct writer *w, char path[32], int *ret_fd)
{
	int fds[2];

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	w->fd = fds[1];
	*ret_fd = fds[0];
	snprintf(path, 32, "/dev/fd/%d", fds[0]);
	ck_assert_int_eq(pthread_create(&w->thread, NULL, write_stream, w), 0);
	return path;
}

static void end_stream(struct writer *w, int fd)
{
	close(fd);
	pthread_join(w->thread, NULL);
}

static char *slurp(const char *path, size_t *ret_n)
{
	FILE *f = fopen(path, "re");
	char *bytes = malloc(16 << 20);

	ck_assert(f && bytes);
	*ret_n = fread(bytes, 1, 16 << 20, f);
	fclose(f);
	return bytes;
}

/* Loads the bytes through a pipe. */
static int load_stream(const char *bytes, size_t n, const struct gpushm_load_options *load,
		       struct gpushm_buffer **ret)
{
	struct writer w = { .bytes = bytes, .n = n, .at_a_time = 70001 };
	char path[32];
	int fd, r;
	const char *source = begin_stream(&w, path, &fd);

	r = gpushm_load(c, &source, 1, "m", NULL, load, ret);
	end_stream(&w, fd);
	return r;
}

static const struct safetensors_tensor tensors[] = {
	{ "model.embed", "BF16", "300,1001" },
	{ "model.norm", "F32", "64" },
	{ "model.big", "F16", "1024,5000" },
	{ "model.none", "I32", "0,4" },
	{ "model.fp4", "F4", "3,34" },
	{ "model.fp8", "F8_E4M3", "16,16" },
	{ "inv_freq", "C64", "5" },
};

START_TEST(a_stream_is_loaded_with_the_right_bytes)
{
	const char *patterns[] = { "model.norm", "model.fp*" };
	struct gpushm_load_options only = { .struct_size = sizeof(only),
					    .only = patterns,
					    .n_only = 2 };
	_cleanup_(free_ptr) char *bytes = NULL;
	struct gpushm_buffer *b = NULL;
	size_t n;

	safetensors_write(model_file("m"), tensors, array_size(tensors), NULL);
	bytes = slurp(model_file("m"), &n);
	ck_assert_msg(load_stream(bytes, n, NULL, &b) == 0, "%s", gpushm_error());
	for (size_t i = 0; i < array_size(tensors); i++)
		model_expect(b, tensors[i].name, tensors[i].name);
	ck_assert(!has_attr(b, "gpushm.files"));
	drop(b);
	ck_assert_msg(load_stream(bytes, n, &only, &b) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(gpushm_buffer_arrays(b), 3);
	model_expect(b, "model.norm", "model.norm");
	model_expect(b, "model.fp8", "model.fp8");
	drop(b);
}
END_TEST

START_TEST(a_stream_of_the_wrong_length_is_refused)
{
	_cleanup_(free_ptr) char *bytes = NULL;
	struct gpushm_buffer *b = NULL;
	size_t n, cut[] = { 0, 7, 8, 100, 0, 0 };

	model_write("m", "a", "300000");
	bytes = slurp(model_file("m"), &n);
	cut[4] = n - 1;
	for (size_t i = 0; i < 5; i++) {
		ck_assert_int_eq(load_stream(bytes, cut[i], NULL, &b), -EBADMSG);
		model_expect_error("ends after");
	}
	bytes[n] = 'x';
	ck_assert_int_eq(load_stream(bytes, n + 1, NULL, &b), -EBADMSG);
	model_expect_error("goes on");
	expect_nothing();
}
END_TEST

static int give_up(void *user, const struct gpushm_load_progress *p)
{
	return 1;
}

START_TEST(a_load_from_a_stream_that_stands_still_can_be_stopped)
{
	struct gpushm_load_options load = { .struct_size = sizeof(load), .progress = give_up };
	_cleanup_(free_ptr) char *bytes = NULL;
	const char *source;
	char path[32];
	int fds[2];
	size_t n;

	source = path;
	model_write("m", "a", "300000");
	bytes = slurp(model_file("m"), &n);
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	ck_assert_int_eq(write(fds[1], bytes, 20000), 20000);
	snprintf(path, sizeof(path), "/dev/fd/%d", fds[0]);
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, NULL), -ECANCELED);
	close(fds[0]);
	close(fds[1]);
	expect_nothing();
}
END_TEST

/* Runs a load with the file as its standard input, at that position. */
static int load_standard_input(const char *path, off_t position, struct gpushm_buffer **ret)
{
	int saved = fcntl(0, F_DUPFD_CLOEXEC, 3), fd = open(path, O_RDONLY | O_CLOEXEC), r;

	ck_assert_int_eq(lseek(fd, position, SEEK_SET), position);
	dup2(fd, 0);
	close(fd);
	r = model_load(c, "-", "m", 0, ret);
	dup2(saved, 0);
	close(saved);
	return r;
}

START_TEST(a_dash_loads_standard_input_from_its_position)
{
	_cleanup_(free_ptr) char *bytes = NULL;
	struct gpushm_buffer *b = NULL;
	size_t n;
	FILE *f;

	model_write("m", "a", "300000");
	ck_assert_msg(load_standard_input(model_file("m"), 0, &b) == 0, "%s", gpushm_error());
	model_expect(b, "a", "a");
	ck_assert(has_attr(b, "gpushm.files"));
	drop(b);
	/* Something before it has been read already. */
	bytes = slurp(model_file("m"), &n);
	f = fopen(model_file("later"), "we");
	fwrite("abc", 1, 3, f);
	fwrite(bytes, 1, n, f);
	fclose(f);
	ck_assert_msg(load_standard_input(model_file("later"), 3, &b) == 0, "%s", gpushm_error());
	model_expect(b, "a", "a");
	drop(b);
}
END_TEST

/* ---- files that change ---- */

/* What happens to the file when all has been copied, and is not published yet. */
static int append(void *path, const struct gpushm_load_progress *p)
{
	FILE *f = p->done == p->total ? fopen(path, "ae") : NULL;

	if (f && (fputc('x', f) == EOF || fclose(f) != 0))
		abort();
	return 0;
}

static int overwrite(void *path, const struct gpushm_load_progress *p)
{
	FILE *f = p->done == p->total ? fopen(path, "r+e") : NULL;

	if (f && (fseek(f, -1, SEEK_END) != 0 || fputc('x', f) == EOF || fclose(f) != 0))
		abort();
	return 0;
}

static int replace(void *path, const struct gpushm_load_progress *p)
{
	if (p->done == p->total && rename(model_file("other"), path) != 0)
		abort();
	return 0;
}

static int take_away(void *path, const struct gpushm_load_progress *p)
{
	if (p->done == p->total && unlink(path) != 0)
		abort();
	return 0;
}

static int shorten(void *path, const struct gpushm_load_progress *p)
{
	if (p->done == p->total && truncate(path, 1000) != 0)
		abort();
	return 0;
}

static int stop(void *path, const struct gpushm_load_progress *p)
{
	return 1;
}

static const struct {
	gpushm_load_progress_fn *happens;
	int error;
	const char *says;
} changes[] = {
	{ append, ESTALE, "it had 300072 bytes and has 300073" },
	{ shorten, ESTALE, "and has 1000" },
	{ overwrite, ESTALE, "was written to" },
	{ replace, ESTALE, "was replaced" },
	{ take_away, ESTALE, "was removed" },
	{ stop, ECANCELED, "" },
};

/* The calling thread's progress may be called more than once with all bytes done. */
static bool happened;
static gpushm_load_progress_fn *happens;

static int once(void *path, const struct gpushm_load_progress *p)
{
	if (happened)
		return 0;
	happened = p->done == p->total;
	return happens(path, p);
}

START_TEST(a_file_that_changed_is_refused)
{
	const char *source = model_write("m.safetensors", "a", "300000");
	struct gpushm_load_options load = { .struct_size = sizeof(load),
					    .progress = once,
					    .user = (void *)source };
	struct gpushm_buffer *b = NULL;
	const struct timespec past[] = { { 1, 0 }, { 1, 0 } };

	/* The clock of a file system may stand still for some milliseconds. */
	ck_assert_int_eq(utimensat(AT_FDCWD, source, past, 0), 0);
	model_write("other", "a", "300000");
	happens = changes[_i].happens;
	ck_assert_int_eq(gpushm_load(c, &source, 1, "m", NULL, &load, &b), -changes[_i].error);
	model_expect_error(changes[_i].says);
	expect_nothing();
}
END_TEST

/* The stream's last byte is written after the file behind it was truncated. */
START_TEST(a_file_that_is_truncated_while_it_is_read_is_refused)
{
	_cleanup_(free_ptr) char *bytes = NULL;
	struct writer w = { .at_a_time = 1 << 20 };
	const char *sources[2];
	char path[32];
	int fd;

	model_write("first", "a", "1000000");
	sources[1] = w.truncate = model_write("second", "b", "3000000");
	w.bytes = bytes = slurp(model_file("first"), &w.n);
	sources[0] = begin_stream(&w, path, &fd);
	ck_assert_int_eq(gpushm_load(c, sources, 2, "m", NULL, NULL, NULL), -ESTALE);
	end_stream(&w, fd);
	model_expect_error("was truncated while it was read");
	expect_nothing();
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("load_changes");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_stream_is_loaded_with_the_right_bytes);
	tcase_add_test(tc, a_stream_of_the_wrong_length_is_refused);
	tcase_add_test(tc, a_load_from_a_stream_that_stands_still_can_be_stopped);
	tcase_add_test(tc, a_dash_loads_standard_input_from_its_position);
	tcase_add_loop_test(tc, a_file_that_changed_is_refused, 0, array_size(changes));
	tcase_add_test(tc, a_file_that_is_truncated_while_it_is_read_is_refused);
	return suite_run("load_changes", tc, NULL);
}
