/* SPDX-License-Identifier: MIT
 *
 * Requests come from strangers: an announcement is short, has one form, and what is not of that
 * form is no announcement. Whether the host is the stranger's own is for the caller to check.
 */
#include "client/relay/fleet/announcement.h"

#include "client/gpushm.h"
#include "proto/base/number.h"
#include "proto/base/uri.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PATH "/v1/buffers/"

/* The URL goes into headers and JSON of ours as it is. */
static bool is_plain(const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (text[i] <= ' ' || text[i] > '~' || strchr("\"<>\\,;", text[i]))
			return false;
	return true;
}

static const char *skip_scheme(const char *url)
{
	if (strncmp(url, "https://", 8) == 0)
		return url + 8;
	return strncmp(url, "http://", 7) == 0 ? url + 7 : NULL;
}

/* Leaves brackets out. Returns what follows the host, or NULL. In "https://b#.example.com/" the
 * host is b, whatever a certificate of example.com allows. */
static const char *take_host(const char *at, char *ret)
{
	static const char name[] =
		"-._0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	bool bracket = *at == '[';
	size_t n = bracket ? strspn(++at, "0123456789abcdefABCDEF:.") : strspn(at, name);

	if (n == 0)
		return NULL;
	memcpy(ret, at, n);
	ret[n] = '\0';
	at += n;
	if (bracket && *at++ != ']')
		return NULL;
	return at;
}

static int parse_url(const char *text, size_t n, struct announcement *ret)
{
	const char *at;

	if (n == 0 || n >= sizeof(ret->url) || !is_plain(text, n))
		return -EBADMSG;
	memcpy(ret->url, text, n);
	ret->url[n] = '\0';
	at = skip_scheme(ret->url);
	if (at)
		at = take_host(at, ret->host);
	if (at && *at == ':')
		at += 1 + strspn(at + 1, "0123456789");
	if (!at || strncmp(at, PATH, strlen(PATH)) != 0 || !at[strlen(PATH)])
		return -EBADMSG;
	return 0;
}

static int parse_since(const char *text, uint64_t *ret)
{
	text += strspn(text, " \t");
	return strncmp(text, "since=", 6) == 0 && number_read(text + 6, UINT64_MAX, ret) ? 0
											 : -EBADMSG;
}

int announcement_parse(const char *text, struct announcement *ret)
{
	size_t n = strcspn(text, ";");

	ret->since = 0;
	ret->address[0] = '\0';
	if (text[n] == ';' && parse_since(text + n + 1, &ret->since) < 0)
		return -EBADMSG;
	return parse_url(text, n, ret);
}

int announcement_format(const char *base, const char *name, uint64_t since,
			char ret[ANNOUNCEMENT_MAX])
{
	char encoded[3 * GPUSHM_MAX_NAME + 1];
	int n;

	if (strlen(name) > GPUSHM_MAX_NAME)
		return -ENAMETOOLONG;
	uri_encode(name, strlen(name), URI_PATH, encoded);
	n = snprintf(ret, ANNOUNCEMENT_MAX, "%s" PATH "%s; since=%llu", base, encoded,
		     (unsigned long long)since);
	return n < 0 || (size_t)n >= ANNOUNCEMENT_MAX ? -ENAMETOOLONG : 0;
}

bool announcement_before(const struct announcement *a, const struct announcement *b)
{
	if (a->since != b->since)
		return a->since < b->since;
	return a->since == 0 || strcmp(a->url, b->url) < 0;
}
