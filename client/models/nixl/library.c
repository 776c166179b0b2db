/* SPDX-License-Identifier: MIT
 *
 * Finds NIXL. The wheel of PyPI has the library in a hidden folder beside its package,
 * ".nixl_cu12.mesonpy.libs", and finds the rest (UCX, its plug-ins) relative to it. Nothing but the
 * name of the wheel's folder of metadata says which version it is.
 */
#include "client/models/nixl/library.h"

#include "client/gpushm_load_private.h"
#include "client/gpushm_private.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SONAME "libnixl_capi.so"
#define IN_PACKAGES "/.nixl_cu[0-9]*.mesonpy.libs/" SONAME

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct nixl_library library;
static void *opened;
static char why[512]; /* it could not be opened */
static bool missing;

/* ---- looking ---- */

/* Opens a file that is there. What is found first and does not work is an error: to take another
 * one would hide it. */
static bool open_path(const char *path)
{
	opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!opened)
		snprintf(why, sizeof(why), "%s", dlerror());
	return true;
}

/* The last of the matches is that of the newest CUDA. False: there is no match. */
static bool open_match(const char *pattern)
{
	glob_t found;
	bool any = false;

	if (glob(pattern, 0, NULL, &found) == 0) {
		any = open_path(found.gl_pathv[found.gl_pathc - 1]);
		globfree(&found);
	}
	return any;
}

/* `folder` may be a pattern itself; NULL and "" have nothing. */
static bool open_in(const char *folder, const char *below)
{
	char pattern[PATH_MAX];
	int n;

	if (!folder || !*folder)
		return false;
	n = snprintf(pattern, sizeof(pattern), "%s%s" IN_PACKAGES, folder, below);
	return n > 0 && (size_t)n < sizeof(pattern) && open_match(pattern);
}

static bool open_named(const char *named)
{
	struct stat st;

	if (stat(named, &st) < 0) {
		snprintf(why, sizeof(why), "%s (GPUSHM_NIXL): %s", named, strerror(errno));
		return true;
	}
	if (!S_ISDIR(st.st_mode))
		return open_path(named);
	if (!open_in(named, "") && !open_in(named, "/lib/python3*/site-packages"))
		snprintf(why, sizeof(why),
			 "%s (GPUSHM_NIXL) is neither " SONAME ", nor a folder of Python packages "
			 "or a virtual environment that has nixl-cu12 or nixl-cu13",
			 named);
	return true;
}

/* In a wheel this code lies in site-packages/gpushm/. */
static bool open_beside(void)
{
	char path[PATH_MAX];
	Dl_info own;

	if (!dladdr(&library, &own) || !own.dli_fname || strlen(own.dli_fname) >= sizeof(path))
		return false;
	strcpy(path, own.dli_fname);
	for (int up = 0; up < 2; up++) {
		char *slash = strrchr(path, '/');

		if (!slash)
			return false;
		*slash = '\0';
	}
	return open_in(path, "");
}

static bool look(void)
{
	const char *named = secure_getenv("GPUSHM_NIXL");

	if (named && *named)
		return open_named(named);
	opened = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
	return opened || open_beside() ||
	       open_in(secure_getenv("VIRTUAL_ENV"), "/lib/python3*/site-packages") ||
	       open_in(secure_getenv("HOME"), "/.local/lib/python3*/site-packages") ||
	       open_in("/usr/local/lib", "/python3*/*-packages") ||
	       open_in("/usr/lib", "/python3*/*-packages");
}

/* ---- what was found ---- */

/* "site-packages/nixl_cu12-1.5.1.dist-info" */
static void read_version(const char *path)
{
	char pattern[PATH_MAX];
	const char *libs = strstr(path, "/.nixl_cu");
	const char *end = libs ? strstr(libs, ".mesonpy.libs/") : NULL;
	glob_t found;

	if (!end || snprintf(pattern, sizeof(pattern), "%.*s/%.*s-*.dist-info", (int)(libs - path),
			     path, (int)(end - libs - 2), libs + 2) >= (int)sizeof(pattern))
		return;
	if (glob(pattern, 0, NULL, &found) == 0) {
		const char *version = strchr(strrchr(found.gl_pathv[0], '/'), '-') + 1;

		snprintf(library.version, sizeof(library.version), "%.*s",
			 (int)(strlen(version) - strlen(".dist-info")), version);
		globfree(&found);
	}
}

static bool resolve(void **function, const char *name)
{
	*function = dlsym(opened, name);
	if (!*function)
		snprintf(why, sizeof(why), "%.400s has no %s: gpushm needs NIXL 1.0 or later",
			 library.path, name);
	return *function != NULL;
}

static bool resolve_all(void)
{
	bool (*is_stub)(void) = (bool (*)(void))dlsym(opened, "nixl_capi_is_stub");
	Dl_info info;

	strcpy(library.path, SONAME);
	if (is_stub && dladdr((void *)is_stub, &info) && info.dli_fname)
		snprintf(library.path, sizeof(library.path), "%s", info.dli_fname);
	/* A stub calls the library that it finds by itself, or aborts. */
	if (is_stub && is_stub()) {
		snprintf(why, sizeof(why), SONAME " was found as a stub, without NIXL");
		return false;
	}
#define NIXL_FUNCTION(name, ...)                                  \
	if (!resolve((void **)&library.name, "nixl_capi_" #name)) \
		return false;
	NIXL_FUNCTIONS(NIXL_FUNCTION)
#undef NIXL_FUNCTION
	read_version(library.path);
	return true;
}

static void open_once(void)
{
	missing = !look();
	if (missing)
		snprintf(why, sizeof(why),
			 "no " SONAME " in the system's libraries, in Python's packages, or as "
			 "$GPUSHM_NIXL: pip install nixl-cu12, or nixl-cu13");
	if (opened && !resolve_all())
		opened = NULL;
}

int nixl_library(const struct nixl_library **ret)
{
	pthread_once(&once, open_once);
	if (!opened)
		return gpushm_private_fail(ENOSYS, "NIXL: %s", why);
	*ret = &library;
	return 0;
}

/* Whether this machine has a network card that reads memory by itself. */
static bool has_rdma(void)
{
	glob_t found;
	bool has = glob("/sys/class/infiniband/*", GLOB_NOSORT, NULL, &found) == 0;

	if (has)
		globfree(&found);
	return has;
}

int gpushm_private_nixl_find(struct nixl_found *ret)
{
	const struct nixl_library *found;
	int r = nixl_library(&found);

	*ret = (struct nixl_found){ .path = library.path,
				    .version = library.version,
				    .rdma = r == 0 && has_rdma(),
				    .missing = missing };
	return r;
}

const char *nixl_status_word(int status)
{
	static const char *const words[] = {
		"NIXL_CAPI_SUCCESS",	     "NIXL_CAPI_ERROR_INVALID_PARAM",
		"NIXL_CAPI_ERROR_BACKEND",   "NIXL_CAPI_ERROR_INVALID_STATE",
		"NIXL_CAPI_ERROR_EXCEPTION", "NIXL_CAPI_ERROR_NO_TELEMETRY",
		"NIXL_CAPI_ERROR_NOT_FOUND",
	};
	unsigned at = status < 0 ? -(unsigned)status : 0;

	return at < sizeof(words) / sizeof(words[0]) ? words[at] : "an unknown status";
}
