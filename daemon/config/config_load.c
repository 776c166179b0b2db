/* SPDX-License-Identifier: MIT
 *
 * Finds gpushmd.conf and its drop-ins and reads each. All files are read even if the first one is
 * wrong, so that one run shows every fault.
 */
#include "daemon/config/config_reader.h"
#include "proto/base/own.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#define DEFAULT_PATH GPUSHM_SYSCONFDIR "/gpushm/gpushmd.conf"

/* Reads one file. If it can't be read, a diagnostic says so and the errno is returned; the caller
 * still reads the other files. */
static int load_file(struct config_reader *r, const char *path)
{
	_cleanup_(free_ptr) char *text = NULL;
	size_t len = 0;
	int e = keyfile_load(&r->keys.diagnostics, path, &text, &len);

	return e < 0 ? e : config_reader_text(r, path, text, len);
}

static int is_dropin(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name);

	return entry->d_name[0] != '.' && len > strlen(".conf") &&
	       strcmp(entry->d_name + len - strlen(".conf"), ".conf") == 0;
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* Reads each drop-in; *result keeps the first error. Only -ENOMEM stops it. */
static int load_names(struct config_reader *r, const char *folder, struct dirent **names, int n,
		      int *result)
{
	for (int i = 0; i < n; i++) {
		_cleanup_(free_ptr) char *path = NULL;
		int e = asprintf(&path, "%s/%s", folder, names[i]->d_name);

		if (e < 0)
			return -ENOMEM;
		e = load_file(r, path);
		if (e == -ENOMEM)
			return e;
		if (*result == 0)
			*result = e;
	}
	return 0;
}

/* Reads PATH.d/ *.conf in the order of their names; the folder may be missing. */
static int load_dropins(struct config_reader *r, const char *path, int *result)
{
	_cleanup_(free_ptr) char *folder = NULL;
	struct dirent **names = NULL;
	int n, e;

	if (asprintf(&folder, "%s.d", path) < 0)
		return -ENOMEM;
	n = scandir(folder, &names, is_dropin, compare_names);
	if (n < 0 && (errno == ENOENT || errno == ENOTDIR))
		return 0;
	if (n < 0) {
		e = -errno;
		r->keys.diagnostics.file = folder;
		diagnostics_add(&r->keys.diagnostics, 0,
				"can't be read: %s; allowed: a folder of files", strerror(-e));
		return e;
	}
	e = load_names(r, folder, names, n, result);
	for (int i = 0; i < n; i++)
		free(names[i]);
	free(names);
	return e;
}

static int load_all(struct config_reader *r, const char *path)
{
	int result = 0, e = 0;

	if (path || access(DEFAULT_PATH, F_OK) == 0 || errno != ENOENT)
		result = load_file(r, path ? path : DEFAULT_PATH);
	if (result != -ENOMEM)
		e = load_dropins(r, path ? path : DEFAULT_PATH, &result);
	return result < 0 ? result : e;
}

int config_load(const char *path, FILE *errors, struct config **ret)
{
	_cleanup_(config_reader_done) struct config_reader r = { 0 };
	struct config *c;
	int e = config_reader_init(&r, errors), checked;

	if (e < 0)
		return e;
	e = load_all(&r, path);
	if (e == -ENOMEM)
		return e;
	checked = config_reader_finish(&r, &c);
	if (checked < 0)
		return e < 0 ? e : checked;
	*ret = c;
	return 0;
}
