/* SPDX-License-Identifier: MIT
 *
 * scheme "://" host [":" port] ["/" path] ["?" query] ["#" fragment], of RFC 3986 with fewer
 * characters. Characters that a URL must not have, but that people write, are percent-encoded.
 */
#include "client/models/web/url.h"

#include "client/gpushm_private.h"
#include "client/models/fail.h"
#include "proto/base/own.h"
#include "proto/base/uri.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

/* It names nothing but the scheme: the rest may have a password. */
static int invalid(bool tls, const char *why)
{
	return gpushm_private_fail(EINVAL, "the URL %s://... is not valid: %s",
				   tls ? "https" : "http", why);
}

static const char *after_scheme(const char *text, bool *ret_tls)
{
	*ret_tls = strncasecmp(text, "https://", 8) == 0;
	if (*ret_tls)
		return text + 8;
	return strncasecmp(text, "http://", 7) == 0 ? text + 7 : NULL;
}

/* ---- the host ---- */

static bool is_host_name(const char *host)
{
	size_t n = strlen(host);

	for (size_t i = 0; i < n; i++) {
		char c = host[i];
		bool inner = c == '.' || c == '-' || c == '_';

		if (!inner && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9'))
			return false;
		if (c == '.' && (i == 0 || host[i - 1] == '.'))
			return false;
	}
	return n > 0 && n <= 253 && host[0] != '-';
}

bool url_ends_with(const char *text, const char *suffix)
{
	size_t n = strlen(text), m = strlen(suffix);

	return n > m && strcmp(text + n - m, suffix) == 0;
}

const char *url_last(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool is_here(const char *host)
{
	struct in6_addr v6;
	struct in_addr v4;

	if (inet_pton(AF_INET, host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, host, &v6) == 1)
		return IN6_IS_ADDR_LOOPBACK(&v6);
	return strcmp(host, "localhost") == 0 || url_ends_with(host, ".localhost");
}

/* A name that ends in a number, also a hexadecimal one, is an address for some, libcurl among them,
 * and a name for others. */
static bool is_strange_number(const char *host)
{
	const char *last = strrchr(host, '.');
	struct in_addr v4;
	bool hex;

	last = last ? last + 1 : host;
	hex = last[0] == '0' && last[1] == 'x';
	last += hex ? 2 : 0;
	return last[strspn(last, hex ? "0123456789abcdef" : "0123456789")] == '\0' &&
	       inet_pton(AF_INET, host, &v4) != 1;
}

static const char *check_host(const struct url *u, bool brackets)
{
	struct in6_addr v6;

	if (brackets)
		return inet_pton(AF_INET6, u->host, &v6) == 1
			       ? NULL
			       : "between the brackets is no IPv6 address";
	if (!is_host_name(u->host))
		return "a host's name has letters, digits, '-', '_' and '.' (write others as "
		       "xn--...)";
	return is_strange_number(u->host) ? "its host is no name and no IPv4 address" : NULL;
}

/* host [":" port]; n: bytes of both. */
static int parse_authority(struct url *u, const char *at, size_t n)
{
	bool brackets = n > 0 && at[0] == '[';
	const char *close = brackets ? memchr(at, ']', n) : NULL;
	const char *colon = brackets ? (close ? close + 1 : NULL) : memchr(at, ':', n);
	unsigned long port = u->tls ? 443 : 80;
	const char *wrong;
	char *end = NULL;

	if (memchr(at, '@', n))
		return invalid(u->tls, "it has a password or a user, which others can see in the "
				       "list of processes: put both into ~/.netrc");
	if (brackets && !close)
		return invalid(u->tls, "there is no ']' after '['");
	if (!colon || colon >= at + n)
		colon = at + n;
	if (colon < at + n && *colon != ':')
		return invalid(u->tls, "there is something behind the ']'");
	if (colon + 1 < at + n) {
		port = colon[1] >= '0' && colon[1] <= '9' ? strtoul(colon + 1, &end, 10) : 0;
		if (end != at + n || port == 0 || port > 65535)
			return invalid(u->tls, "its port is not a number from 1 to 65535");
	}
	u->host = strndup(at + brackets, (size_t)((brackets ? close : colon) - at) - brackets);
	if (!u->host)
		return load_no_memory();
	for (char *c = u->host; *c; c++)
		*c = (char)(*c >= 'A' && *c <= 'Z' ? *c + 32 : *c);
	wrong = check_host(u, brackets);
	if (wrong)
		return invalid(u->tls, wrong);
	u->here = is_here(u->host);
	return load_format(&u->origin, "%s://%s%s%s:%lu", u->tls ? "https" : "http",
			   brackets ? "[" : "", u->host, brackets ? "]" : "", port);
}

/* ---- the whole ---- */

/* Path and query, with an encoded copy of what a URL must not have. */
static char *encode(const char *text, size_t n)
{
	char *ret = malloc(3 * n + 2), *to = ret;

	if (!ret)
		return NULL;
	if (n == 0 || text[0] != '/')
		*to++ = '/';
	uri_encode(text, n, "!#$%&'()*+,-./:;=?@[]_~", to);
	return ret;
}

/* The port is shown unless it is the usual one. */
static int shown_origin(const struct url *u)
{
	size_t n = strlen(u->origin);

	if (url_ends_with(u->origin, u->tls ? ":443" : ":80"))
		n -= u->tls ? 4 : 3;
	return (int)n;
}

static int make_texts(struct url *u, const char *path, size_t n)
{
	_cleanup_(free_ptr) char *encoded = encode(path, n);

	if (!encoded || load_format(&u->text, "%.*s%s", shown_origin(u), u->origin, encoded) < 0)
		return load_no_memory();
	u->name = strndup(u->text, strcspn(u->text, "?"));
	return u->name ? 0 : load_no_memory();
}

int url_parse(const char *text, struct url *ret)
{
	const char *at = after_scheme(text, &ret->tls);
	bool tls = ret->tls;
	size_t n;
	int r;

	*ret = (struct url){ .tls = tls };
	if (!at)
		return gpushm_private_fail(EINVAL, "a URL begins with https:// or http://");
	if (strlen(text) > URL_BYTES_MAX)
		return invalid(tls, "it is longer than 16384 bytes");
	for (const char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			return invalid(tls, "it has a control character");
	n = strcspn(at, "/?#\\");
	if (at[n] == '\\')
		return invalid(tls, "there is a '\\' behind its host");
	r = parse_authority(ret, at, n);
	return r < 0 ? r : make_texts(ret, at + n, strcspn(at + n, "#"));
}

int url_copy(const struct url *u, struct url *ret)
{
	*ret = (struct url){ .text = strdup(u->text),
			     .name = strdup(u->name),
			     .origin = strdup(u->origin),
			     .host = strdup(u->host),
			     .tls = u->tls,
			     .here = u->here };
	if (ret->text && ret->name && ret->origin && ret->host)
		return 0;
	url_clear(ret);
	return -ENOMEM;
}

void url_clear(struct url *u)
{
	free(u->text);
	free(u->name);
	free(u->origin);
	free(u->host);
	*u = (struct url){ 0 };
}

bool url_same_origin(const struct url *a, const struct url *b)
{
	return strcmp(a->origin, b->origin) == 0;
}

/* ---- siblings ---- */

bool url_is_inside(const char *name)
{
	if (name[0] == '\0' || name[0] == '/')
		return false;
	for (const char *c = name; c; c = strchr(c, '/'), c = c ? c + 1 : NULL) {
		size_t n = strcspn(c, "/");

		if (n == 0 || (n == 1 && c[0] == '.') || (n == 2 && c[0] == '.' && c[1] == '.'))
			return false;
	}
	return true;
}

int url_sibling(const char *url, const char *name, char **ret)
{
	_cleanup_(url_clear) struct url u = { 0 };
	_cleanup_(free_ptr) char *encoded = NULL;
	int r = url_parse(url, &u);
	size_t folder;

	if (r < 0)
		return r;
	if (!url_is_inside(name))
		return gpushm_private_fail(EINVAL,
					   "%s: a file of the same folder can't be "
					   "named \"%.100s\"",
					   u.name, name);
	encoded = malloc(3 * strlen(name) + 1);
	if (!encoded)
		return load_no_memory();
	/* '?', '#' and '%' would mean something else. */
	uri_encode(name, strlen(name), URI_PATH, encoded);
	folder = (size_t)(strrchr(u.name, '/') - u.name) + 1;
	return load_format(ret, "%.*s%s%s", (int)folder, u.name, encoded, u.text + strlen(u.name));
}
