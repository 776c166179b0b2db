/* SPDX-License-Identifier: MIT
 *
 * Debian has two libraries of one interface: with OpenSSL, and with GnuTLS. Either does.
 */
#include "client/models/web/curl.h"

#include "client/models/fail.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static struct curl_library library;
static char missing[256]; /* why it can't be used; "": it can */

static void *open_any(void)
{
	static const char *const names[] = { "libcurl.so.4", "libcurl-gnutls.so.4" };
	void *ret = NULL;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !ret; i++)
		ret = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	return ret;
}

/* Until the process ends: it may have threads that resolve names. */
static void open_library(void)
{
	void *opened = open_any();

	if (!opened) {
		snprintf(missing, sizeof(missing),
			 "URLs need libcurl, which is not installed (the Debian package libcurl4): "
			 "%.150s",
			 dlerror());
		return;
	}
#define X(name)                                               \
	library.name = dlsym(opened, "curl_" #name);          \
	if (!library.name && !missing[0])                     \
		snprintf(missing, sizeof(missing),            \
			 "this libcurl is too old for URLs: " \
			 "7.66 has curl_%s()",                \
			 #name);
	CURL_FUNCTIONS(X)
#undef X
	if (!missing[0] && library.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		snprintf(missing, sizeof(missing), "libcurl can't be initialized");
}

const struct curl_library *curl_library(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, open_library);
	if (!missing[0])
		return &library;
	load_fail(ENOSYS, "%s", missing);
	return NULL;
}
