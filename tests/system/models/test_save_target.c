/* SPDX-License-Identifier: MIT
 *
 * What gpushm_save() is given as its path: pipes that nobody reads, links, and files of other
 * users.
 */
#include "client/gpushm_load.h"
#include "tests/lib/client.h"
#include "tests/lib/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], path[96];
static struct gpushm_buffer *b;

/* An array of 4 MB, more than a pipe takes; strides: NULL is C order. */
static struct gpushm_buffer *make(const int64_t *strides)
{
	static const int64_t shape[] = { 1000, 1000 };
	struct gpushm_array_spec spec = { .struct_size = sizeof(spec),
					  .name = "a",
					  .ndim = 2,
					  .shape = shape,
					  .strides = strides };
	struct gpushm_create_options o = { .struct_size = sizeof(o), .pool = "host" };
	struct gpushm_buffer *ret = NULL;

	ck_assert_int_eq(gpushm_dtype_parse("float32", &spec.dtype), 0);
	ck_assert_msg(gpushm_create_arrays(c, strides ? "strides" : "m", &spec, 1, &o, &ret) == 0,
		      "%s", gpushm_error());
	ck_assert_int_eq(gpushm_publish(ret, GPUSHM_SEALED), 0);
	return ret;
}

static void setup(void)
{
	strcpy(folder, "/tmp/gpushm-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/model.safetensors", folder);
	client_setup();
	b = make(NULL);
}

static void teardown(void)
{
	client_close_and_unlink(b, "m");
	unlink(path);
	ck_assert_int_eq(rmdir(folder), 0);
	client_teardown();
}

static void save(const char *name)
{
	ck_assert_msg(gpushm_save(b, name, NULL) == 0, "%s", gpushm_error());
}

/* ---- pipes ---- */

static int give_up(void *user, const struct gpushm_load_progress *p)
{
	return 1;
}

static void expect_stopped(struct gpushm_buffer *of, const char *name)
{
	struct gpushm_save_options o = { .struct_size = sizeof(o), .progress = give_up };

	ck_assert_int_eq(gpushm_save(of, name, &o), -ECANCELED);
}

/* Other processes that have it would find that their writes do not wait any more. */
static void expect_standard_output_stopped(struct gpushm_buffer *of, int pipe)
{
	int saved;

	fflush(stdout);
	saved = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	dup2(pipe, STDOUT_FILENO);
	expect_stopped(of, "-");
	ck_assert_int_eq(fcntl(STDOUT_FILENO, F_GETFL) & O_NONBLOCK, 0);
	dup2(saved, STDOUT_FILENO);
	close(saved);
}

/* It takes a part of the first save, and nothing of the second one. */
static void expect_pipe_stopped(struct gpushm_buffer *of)
{
	char name[64];
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", ends[1]);
	expect_stopped(of, name);
	expect_standard_output_stopped(of, ends[1]);
	close(ends[0]);
	close(ends[1]);
}

START_TEST(a_save_to_a_stream_that_nobody_reads_can_be_stopped)
{
	static const int64_t fortran[] = { 4, 4000 };
	struct gpushm_buffer *strides = make(fortran);

	ck_assert_int_eq(mkfifo(path, 0600), 0);
	expect_stopped(b, path);
	expect_pipe_stopped(b);
	expect_pipe_stopped(strides);
	client_close_and_unlink(strides, "strides");
}
END_TEST

/* ---- links ---- */

static bool is_link(const char *name)
{
	struct stat st;

	ck_assert_int_eq(lstat(name, &st), 0);
	return S_ISLNK(st.st_mode);
}

START_TEST(a_save_follows_a_link_that_leads_nowhere_yet)
{
	char there[96], first[96], second[128], wrong[128];

	snprintf(there, sizeof(there), "%s/there", folder);
	snprintf(first, sizeof(first), "%s/first", folder);
	snprintf(second, sizeof(second), "%s/second", there);
	snprintf(wrong, sizeof(wrong), "%s/new/", there);
	ck_assert_int_eq(mkdir(there, 0700), 0);
	ck_assert_int_eq(symlink("there/second", first), 0);
	ck_assert_int_eq(symlink("../model.safetensors", second), 0);
	save(first);
	ck_assert(is_link(first) && is_link(second) && !is_link(path));

	ck_assert_int_eq(unlink(second), 0);
	ck_assert_int_eq(symlink("../first", second), 0);
	ck_assert_int_eq(gpushm_save(b, first, NULL), -ELOOP);
	ck_assert(is_link(first) && is_link(second));
	ck_assert_int_eq(gpushm_save(b, wrong, NULL), -EISDIR);
	ck_assert_int_eq(gpushm_save(b, "", NULL), -ENOENT);
	unlink(second);
	unlink(first);
	ck_assert_int_eq(rmdir(there), 0);
}
END_TEST

/* ---- owners ---- */

START_TEST(a_save_keeps_the_owner_and_mode_of_a_file)
{
	struct stat st;

	if (geteuid() != 0) {
		puts("skipped: needs root, who may give files away");
		return;
	}
	save(path);
	ck_assert_int_eq(chown(path, 65531, 65532), 0);
	ck_assert_int_eq(chmod(path, 0640), 0);
	save(path);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_uid, 65531);
	ck_assert_uint_eq(st.st_gid, 65532);
	ck_assert_uint_eq(st.st_mode & 07777, 0640);
}
END_TEST

START_TEST(a_save_in_a_public_folder_belongs_to_the_saver)
{
	char public[96], file[128];
	mode_t before;
	struct stat st;

	if (geteuid() != 0) {
		puts("skipped: needs root, who may give files away");
		return;
	}
	snprintf(public, sizeof(public), "%s/public", folder);
	snprintf(file, sizeof(file), "%s/file", public);
	ck_assert_int_eq(mkdir(public, 0), 0);
	ck_assert_int_eq(chmod(public, 01777), 0);
	save(file);
	ck_assert_int_eq(chmod(file, 0666), 0);
	ck_assert_int_eq(chown(file, 65531, 65532), 0);
	before = umask(077);
	save(file);
	umask(before);
	ck_assert_int_eq(stat(file, &st), 0);
	ck_assert_uint_eq(st.st_uid, 0);
	ck_assert_uint_eq(st.st_gid, getegid());
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	unlink(file);
	ck_assert_int_eq(rmdir(public), 0);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("save_target");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_save_to_a_stream_that_nobody_reads_can_be_stopped);
	tcase_add_test(t, a_save_follows_a_link_that_leads_nowhere_yet);
	tcase_add_test(t, a_save_keeps_the_owner_and_mode_of_a_file);
	tcase_add_test(t, a_save_in_a_public_folder_belongs_to_the_saver);
	return suite_run("save_target", t, NULL);
}
