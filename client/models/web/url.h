/* SPDX-License-Identifier: MIT
 *
 * A URL, taken apart strictly: what is unusual is refused, so that libcurl, which gets the text,
 * can't understand another host than the one that credentials are chosen for.
 */
#pragma once

#include <stdbool.h>
#include <strings.h>

#define URL_BYTES_MAX 16384u

struct url {
	char *text;   /* owned: as it is sent; without a fragment */
	char *name;   /* owned: what may be shown; without a query, which may be a secret */
	char *origin; /* owned: "https://host:443", in lower case, always with a port */
	char *host;   /* owned: in lower case, without brackets */
	bool tls;
	bool here; /* this machine: localhost, 127.x.x.x or [::1] */
};

/* Whether it is "https://..." or "http://...". Without libcurl, or in a build without it, a request
 * says what to install. */
static inline bool url_is(const char *text)
{
	return strncasecmp(text, "https://", 8) == 0 || strncasecmp(text, "http://", 7) == 0;
}

/* Whether a path, or a URL, ends with that and has something before it. */
bool url_ends_with(const char *text, const char *suffix);

/* What follows the last '/'. */
const char *url_last(const char *path);

/* 0; -EINVAL, -ENOMEM with gpushm_error() set. Clear *ret in any case. */
int url_parse(const char *text, struct url *ret);

/* 0 or -ENOMEM, with *ret cleared. */
int url_copy(const struct url *u, struct url *ret);

/* May be called on a zeroed URL and twice. */
void url_clear(struct url *u);

bool url_same_origin(const struct url *a, const struct url *b);

/* Whether it is a relative path without empty components, "." and "..". */
bool url_is_inside(const char *name);

/* The URL of another file in the same folder, with the same query. free() releases *ret. -EINVAL if
 * the name would leave the folder, or is not a file's name; -ENOMEM. */
int url_sibling(const char *url, const char *name, char **ret);
