/* SPDX-License-Identifier: MIT
 *
 * Journals of other versions. tests/data/journal/N has what a daemon of journal version N left with
 * its supervisor when it was killed: each file is one fd, under its name. They were written by
 * "build/tests/system/test_versions record tests/data/journal/N" and are kept: a change that makes
 * version N + 1 records that one as well, and this program continues to restore both. A journal of
 * a later version is not guessed at.
 */
#include "client/gpushm.h"
#include "daemon/state/journal.h"
#include "proto/base/own.h"
#include "tests/lib/client.h"
#include "tests/lib/fds.h"
#include "tests/lib/suite.h"
#include "tests/lib/supervisor.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define DATA "tests/data/journal"
#define VERSION_AT 8 /* in a journal's header */
#define SEALED_BYTES 6u
#define SHARED_BYTES 5000u

static const char config[] = "[pool host]\nkind=host\nsize=64M\n";
static struct supervisor k;

/* ---- recording ---- */

/* A sealed buffer with an array and an attribute; a shared one that a process has open for writing;
 * one without a name, which a process has open for reading. */
static void make_all(void)
{
	const int64_t shape[] = { 2, 3 };
	struct gpushm_attr attr = { sizeof(attr), "epoch", "12", 2 };
	struct gpushm_create_options o = {
		.struct_size = sizeof(o), .mode = 0640, .attrs = &attr, .n_attrs = 1
	};
	struct gpushm_array_spec spec = {
		.struct_size = sizeof(spec), .name = "w", .ndim = 2, .shape = shape
	};
	struct gpushm_buffer *b = NULL;

	ck_assert_int_eq(gpushm_dtype_parse("uint8", &spec.dtype), 0);
	ck_assert_int_eq(gpushm_create_arrays(c, "m/sealed", &spec, 1, &o, &b), 0);
	ck_assert_int_eq(gpushm_write(b, 0, "sealed", SEALED_BYTES), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_close(b), 0);
	b = client_create("shared", SHARED_BYTES, NULL);
	ck_assert_int_eq(gpushm_write(b, SHARED_BYTES - 1, "!", 1), 0);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SHARED), 0);
	b = client_create("unlinked", 1, NULL);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	ck_assert_int_eq(gpushm_unlink(c, "unlinked"), 0);
}

/* Leaves out the zeros at the end, which are the larger part. */
static void write_out(const char *folder, const struct kept *kept)
{
	char path[PATH_MAX];
	struct stat st;
	unsigned char *map;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, kept->name);
	ck_assert_int_eq(fstat(kept->fd, &st), 0);
	n = (size_t)st.st_size;
	map = mmap(NULL, n, PROT_READ, MAP_SHARED, kept->fd, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	while (n > 1 && kept->name[0] != 't' && map[n - 1] == 0)
		n--;
	f = fopen(path, "we");
	ck_assert(f && fwrite(map, 1, n, f) == n && fclose(f) == 0);
	munmap(map, (size_t)st.st_size);
}

static const char *folder_to_record;

START_TEST(a_version_is_recorded)
{
	supervisor_init(&k, config);
	supervisor_start(&k);
	ck_assert_int_eq(gpushm_connect(k.socket, &c), 0);
	make_all();
	ck_assert_uint_eq(supervisor_count(&k, 'm'), 3);
	supervisor_end(&k, SIGKILL);
	for (size_t i = 0; i < k.n_kept; i++)
		if (strchr("jpmt", k.kept[i].name[0]))
			write_out(folder_to_record, &k.kept[i]);
	supervisor_done(&k);
}
END_TEST

/* ---- restoring ---- */

static int fd_with(const char *name, const unsigned char *bytes, size_t n)
{
	size_t size = name[0] == 't' ? n : (n + 4095) / 4096 * 4096;
	int fd = memfd_create("test-kept", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	ck_assert_int_eq(pwrite(fd, bytes, n, 0), (ssize_t)n);
	if (name[0] != 'j') {
		ck_assert_int_eq(fchmod(fd, 0400), 0);
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS,
				       F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL |
					       (name[0] == 't' ? F_SEAL_WRITE : 0)),
				 0);
	}
	return fd;
}

/* version: the version to write into the journal; 0: unchanged. */
static void keep_file(const char *folder, const char *name, uint32_t version)
{
	static unsigned char bytes[1 << 20];
	char path[PATH_MAX];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "re");
	ck_assert_msg(f, "%s", path);
	n = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	if (name[0] == 'j' && version)
		memcpy(bytes + VERSION_AT, &version, sizeof(version));
	supervisor_keep(&k, name, fd_with(name, bytes, n));
}

static void start(unsigned number, uint32_t version)
{
	char folder[64];
	struct dirent *e;
	DIR *dir;

	fds_mark();
	snprintf(folder, sizeof(folder), DATA "/%u", number);
	supervisor_init(&k, config);
	dir = opendir(folder);
	ck_assert_msg(dir, "%s: tests are run from the root of the repository", folder);
	while ((e = readdir(dir)))
		if (e->d_name[0] != '.')
			keep_file(folder, e->d_name, version);
	closedir(dir);
	supervisor_start(&k);
	ck_assert_msg(gpushm_connect(k.socket, &c) == 0, "%s", gpushm_error());
}

static void stop(void)
{
	ck_assert_uint_eq(client_used_bytes(), 0);
	c = gpushm_disconnect(c);
	ck_assert_uint_eq(supervisor_count(&k, 'm'), 0);
	ck_assert_uint_eq(supervisor_count(&k, 't'), 0);
	ck_assert_uint_eq(supervisor_count(&k, 'j'), 1);
	supervisor_end(&k, SIGTERM);
	supervisor_done(&k);
	fds_check();
}

static void check_sealed(void)
{
	struct gpushm_buffer *b = NULL;
	struct gpushm_array *a = NULL;
	struct gpushm_stat *st = NULL;
	char text[SEALED_BYTES];
	const void *value;
	size_t n;

	ck_assert_msg(gpushm_stat(c, "m/sealed", 0, 0, &st) == 0, "%s", gpushm_error());
	ck_assert_uint_eq(st->mode, 0640);
	ck_assert_int_eq(st->state, GPUSHM_SEALED);
	ck_assert_uint_eq(st->arrays, 1);
	gpushm_free(st);
	ck_assert_msg(gpushm_open(c, "m/sealed", GPUSHM_READ, 0, NULL, &b) == 0, "%s",
		      gpushm_error());
	ck_assert_int_eq(gpushm_read(b, 0, text, SEALED_BYTES), 0);
	ck_assert_mem_eq(text, "sealed", SEALED_BYTES);
	ck_assert_int_eq(gpushm_buffer_attr(b, "epoch", &value, &n), 0);
	ck_assert_mem_eq(value, "12", 2);
	ck_assert_int_eq(gpushm_array_get(b, "w", &a), 0);
	ck_assert_int_eq(gpushm_array_ndim(a), 2);
	gpushm_array_free(a);
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "m/sealed"), 0);
}

/* Its writer has long ended. */
static void check_shared(void)
{
	struct gpushm_buffer *b = NULL;
	char last;

	ck_assert_int_eq(gpushm_open(c, "shared", GPUSHM_READ, 0, NULL, &b), 0);
	ck_assert_int_eq(gpushm_buffer_dirty(b), 1);
	ck_assert_uint_eq(gpushm_buffer_bytes(b), SHARED_BYTES);
	ck_assert_int_eq(gpushm_read(b, SHARED_BYTES - 1, &last, 1), 0);
	ck_assert_int_eq(last, '!');
	ck_assert_int_eq(gpushm_close(b), 0);
	ck_assert_int_eq(gpushm_unlink(c, "shared"), 0);
}

START_TEST(a_journal_of_an_earlier_version_is_restored)
{
	struct gpushm_stat **all = NULL;
	size_t n = 0;

	start((unsigned)_i, 0);
	ck_assert_int_eq(gpushm_list(c, NULL, 0, &all, &n), 0);
	ck_assert_uint_eq(n, 2);
	gpushm_free(all);
	check_sealed();
	check_shared();
	stop();
}
END_TEST

static bool log_has(const char *text)
{
	char line[4096];
	bool found = false;
	FILE *f = fopen(k.log, "re");

	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, text) != NULL;
	if (f)
		fclose(f);
	return found;
}

static const uint32_t unread[] = { JOURNAL_VERSION + 1, UINT32_MAX };

START_TEST(a_journal_of_a_later_version_is_dropped)
{
	struct gpushm_stat **all = NULL;
	struct gpushm_buffer *b;
	char text[64];
	size_t n = 1;

	start(1, unread[_i]);
	snprintf(text, sizeof(text), "has version %u, and gpushmd", unread[_i]);
	ck_assert(log_has(text));
	ck_assert(log_has("file descriptors that were kept are dropped"));
	ck_assert_int_eq(gpushm_list(c, NULL, 0, &all, &n), 0);
	ck_assert_uint_eq(n, 0);
	gpushm_free(all);
	/* From here on it works like a first daemon. */
	b = client_create("shared", 10, NULL);
	ck_assert_int_eq(gpushm_publish(b, GPUSHM_SEALED), 0);
	client_close_and_unlink(b, "shared");
	stop();
}
END_TEST

int main(int argc, char **argv)
{
	TCase *t = tcase_create("versions");

	if (argc == 3 && strcmp(argv[1], "record") == 0)
		folder_to_record = argv[2];
	tcase_set_timeout(t, 120);
	if (folder_to_record)
		tcase_add_test(t, a_version_is_recorded);
	tcase_add_loop_test(t, a_journal_of_an_earlier_version_is_restored, JOURNAL_VERSION_OLDEST,
			    JOURNAL_VERSION + 1);
	tcase_add_loop_test(t, a_journal_of_a_later_version_is_dropped, 0, (int)array_size(unread));
	return suite_run("versions", t, NULL);
}
