/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a URL (the first line) and as the header lines of a reply. What is accepted of a URL
 * is the same when it is read again, and its host can't be another one for somebody else; what is
 * kept of a header can be sent back.
 */
#include "client/models/web/head.h"
#include "client/models/web/url.h"
#include "proto/base/own.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void check_printable(const char *text)
{
	for (; *text; text++)
		assert(*text > ' ' && *text <= '~' && *text != '\\' && *text != '"');
}

static void check_url(const struct url *u)
{
	struct url again = { 0 };

	check_printable(u->text);
	check_printable(u->origin);
	assert(strlen(u->host) > 0 && !strpbrk(u->host, "/?#@[]%"));
	assert(!strpbrk(u->name, "?#") && strncmp(u->text, u->name, strlen(u->name)) == 0);
	assert(strstr(u->text, "://") == strchr(u->text, ':'));
	assert(strcspn(strstr(u->text, "://") + 3, "@") >=
	       strcspn(strstr(u->text, "://") + 3, "/"));
	assert(url_parse(u->text, &again) == 0);
	assert(strcmp(again.text, u->text) == 0 && strcmp(again.name, u->name) == 0);
	assert(url_same_origin(u, &again) && again.here == u->here && again.tls == u->tls);
	url_clear(&again);
}

static void fuzz_url(const char *text)
{
	struct url u = { 0 };
	char *sibling = NULL;
	int r = url_parse(text, &u);

	assert(r == 0 || r == -EINVAL);
	if (r == 0) {
		check_url(&u);
		/* A name in the same folder, which what follows the URL can't leave. */
		if (url_sibling(text, "a b/%2e%2e/?c", &sibling) == 0) {
			_cleanup_(url_clear) struct url other = { 0 };

			assert(url_parse(sibling, &other) == 0 && url_same_origin(&u, &other));
			assert(strstr(other.name, "/a%20b/%252e%252e/%3Fc"));
		}
		free(sibling);
	}
	url_clear(&u);
}

static void check_head(const struct head *h)
{
	assert(h->status == 0 || (h->status >= 100 && h->status <= 999));
	assert(!h->has_range || h->first <= h->last);
	assert(!h->has_range || h->total == HEAD_UNKNOWN || h->last < h->total);
	assert(!strpbrk(h->etag, "\r\n ") && !strpbrk(h->last_modified, "\r\n\""));
	assert(!h->etag[0] || h->etag[strlen(h->etag) - 1] == '"');
	assert(strlen(h->via) < PULL_VIA_MAX && !strpbrk(h->via, "\r\n"));
	assert(h->n_duplicates <= HEAD_LINKS_MAX);
	for (size_t i = 0; i < h->n_duplicates; i++)
		assert(!strpbrk(h->duplicates[i], "\n>"));
}

static void fuzz_head(const char *text, size_t n)
{
	struct head h = { 0 };

	while (n > 0) {
		const char *end = memchr(text, '\n', n);
		size_t length = end ? (size_t)(end - text) + 1 : n;
		/* A copy of its exact size, so that ASan finds a read past its end. */
		_cleanup_(free_ptr) char *line = malloc(length);

		assert(line);
		memcpy(line, text, length);
		assert(head_line(&h, line, length) == 0);
		check_head(&h);
		text += length;
		n -= length;
	}
	head_clear(&h);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	const unsigned char *end = memchr(data, '\n', size);
	size_t length = end ? (size_t)(end - data) : size;
	_cleanup_(free_ptr) char *url = strndup((const char *)data, length);

	assert(url);
	fuzz_url(url);
	if (end)
		fuzz_head((const char *)end + 1, size - length - 1);
	return 0;
}
