/* SPDX-License-Identifier: MIT
 *
 * A folder of configuration files for one test, and the result of loading them.
 */
#pragma once

#include "daemon/config/config.h"
#include "proto/base/own.h"
#include "tests/lib/fds.h"

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>

struct loaded {
	struct config *config;
	int result;
	char *errors; /* the diagnostics */
};

static char folder[64];
static char main_file[96];

static inline void folder_make(void)
{
	fds_mark();
	strcpy(folder, "/tmp/gpushm-config-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(main_file, sizeof(main_file), "%s/g.conf", folder);
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static inline void folder_drop(void)
{
	nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	fds_check();
}

/* Writes a file in the folder; a name with a '/' is that of a drop-in. */
static inline void write_bytes(const char *name, const void *bytes, size_t len)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/g.conf.d", folder);
	if (strchr(name, '/'))
		mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(bytes, 1, len, f), len);
	ck_assert_int_eq(fclose(f), 0);
}

static inline void write_file(const char *name, const char *text)
{
	write_bytes(name, text, strlen(text));
}

static inline struct loaded load_path(const char *path)
{
	struct loaded l = { 0 };
	size_t size;
	FILE *errors = open_memstream(&l.errors, &size);

	l.result = config_load(path, errors, &l.config);
	fclose(errors);
	ck_assert_msg((l.result == 0) == (l.config != NULL), "result %d, config %p", l.result,
		      (void *)l.config);
	return l;
}

static inline struct loaded load_text(const char *text)
{
	write_file("g.conf", text);
	return load_path(main_file);
}

/* Loads the files, which must be valid. */
static inline struct config *load_good(const char *text)
{
	struct loaded l = load_text(text);

	ck_assert_msg(l.result == 0, "%s:\n%s", text, l.errors);
	ck_assert_str_eq(l.errors, "");
	free(l.errors);
	return l.config;
}

static inline void loaded_done(struct loaded *l)
{
	config_free(l->config);
	free(l->errors);
}

/* The caller frees it. */
static inline char *dump(const struct config *c)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	config_dump(c, out);
	fclose(out);
	return text;
}

static inline int run_suite(Suite *suite)
{
	SRunner *sr = srunner_create(suite);
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
