/* SPDX-License-Identifier: MIT
 *
 * libcurl, opened at run time: its functions as a table. A program that never reads a URL neither
 * loads it nor needs it.
 */
#pragma once

#include <curl/curl.h>

/* X(name) for each curl_NAME() that is used. */
#define CURL_FUNCTIONS(X)      \
	X(global_init)         \
	X(easy_init)           \
	X(easy_cleanup)        \
	X(easy_reset)          \
	X(easy_setopt)         \
	X(easy_getinfo)        \
	X(easy_pause)          \
	X(easy_strerror)       \
	X(slist_append)        \
	X(slist_free_all)      \
	X(multi_init)          \
	X(multi_cleanup)       \
	X(multi_add_handle)    \
	X(multi_remove_handle) \
	X(multi_perform)       \
	X(multi_poll)          \
	X(multi_info_read)

struct curl_library {
#define X(name) __typeof__(curl_##name) *name;
	CURL_FUNCTIONS(X)
#undef X
};

/* Opens it the first time. NULL with gpushm_error() set: -ENOSYS. */
const struct curl_library *curl_library(void);
