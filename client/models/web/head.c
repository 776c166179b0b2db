/* SPDX-License-Identifier: MIT
 *
 * Header lines of RFC 9110, 8288 (Link) and 6249 (rel=duplicate). libcurl has taken them apart into
 * lines; a line is at most 100 KiB long.
 */
#include "client/models/web/head.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is left of a value. */
struct text {
	const char *at, *end;
};

static bool is_space(char c)
{
	return c == ' ' || c == '\t';
}

static void skip_spaces(struct text *t)
{
	while (t->at < t->end && is_space(*t->at))
		t->at++;
}

static bool take_char(struct text *t, char c)
{
	if (t->at == t->end || *t->at != c)
		return false;
	t->at++;
	return true;
}

static char small(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c | 32) : c;
}

/* Not strncasecmp(3): to a process whose language is Turkish, I is not a large i. */
static bool is_word(const char *at, const char *word, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (small(at[i]) != small(word[i]))
			return false;
	return true;
}

static bool take_word(struct text *t, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(t->end - t->at) < n || !is_word(t->at, word, n))
		return false;
	t->at += n;
	return true;
}

/* Digits alone: no sign, no spaces. HEAD_UNKNOWN is too large. */
static bool take_number(struct text *t, uint64_t *ret)
{
	const char *start = t->at;
	uint64_t n = 0;

	for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++)
		if (__builtin_mul_overflow(n, 10u, &n) ||
		    __builtin_add_overflow(n, (unsigned)(*t->at - '0'), &n))
			return false;
	*ret = n;
	return t->at > start && n != HEAD_UNKNOWN;
}

static bool is_at_end(struct text *t)
{
	skip_spaces(t);
	return t->at == t->end;
}

/* ---- values ---- */

/* "bytes 0-499/1234", "bytes 0-499/ *" and "bytes * /1234", without the spaces before a slash. */
static void read_content_range(struct head *h, struct text t)
{
	uint64_t first = 0, last = 0, total = HEAD_UNKNOWN;
	bool unsatisfied;

	if (!take_word(&t, "bytes"))
		return;
	skip_spaces(&t);
	unsatisfied = take_char(&t, '*');
	if (!unsatisfied && (!take_number(&t, &first) || !take_char(&t, '-') ||
			     !take_number(&t, &last) || last < first))
		return;
	if (!take_char(&t, '/') || (!take_char(&t, '*') && !take_number(&t, &total)) ||
	    !is_at_end(&t) || (!unsatisfied && total != HEAD_UNKNOWN && last >= total))
		return;
	h->has_range = !unsatisfied;
	h->first = first;
	h->last = last;
	h->total = total;
}

static void read_length(struct head *h, struct text t)
{
	uint64_t n;

	if (take_number(&t, &n) && is_at_end(&t))
		h->length = n;
}

/* The characters that an ETag may have, so that it can be sent back. */
static void read_etag(struct head *h, struct text t)
{
	size_t n = (size_t)(t.end - t.at);
	const char *start = t.at;

	take_word(&t, "W/");
	if (n >= sizeof(h->etag) || !take_char(&t, '"'))
		return;
	while (t.at < t.end && *t.at != '"' && (unsigned char)*t.at > ' ' && *t.at != 0x7f)
		t.at++;
	if (!take_char(&t, '"') || t.at != t.end)
		return;
	memcpy(h->etag, start, n);
	h->etag[n] = '\0';
}

/* It is sent back, and compared, but not understood. */
static void read_last_modified(struct head *h, struct text t)
{
	size_t n = (size_t)(t.end - t.at);

	if (n >= sizeof(h->last_modified))
		return;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)t.at[i]) && !strchr(" ,:+-", t.at[i]))
			return;
	memcpy(h->last_modified, t.at, n);
	h->last_modified[n] = '\0';
}

/* Those of several lines are one list (RFC 9110, 5.3). It goes into replies of a relay. */
static void read_via(struct head *h, struct text t)
{
	size_t n = (size_t)(t.end - t.at), before = strlen(h->via);

	for (size_t i = 0; i < n; i++)
		if (t.at[i] < ' ' || t.at[i] > '~')
			return;
	if (before + n + sizeof(", ") > sizeof(h->via))
		h->via[0] = '\0';
	else
		sprintf(h->via + before, "%s%.*s", before > 0 ? ", " : "", (int)n, t.at);
}

static void read_encoding(struct head *h, struct text t)
{
	if (!is_at_end(&t) && !take_word(&t, "identity"))
		h->encoded = true;
}

static void read_type(struct head *h, struct text t)
{
	if (take_word(&t, "multipart/"))
		h->encoded = true;
}

/* ---- links ---- */

/* A value of a parameter: a word, or "...". */
static bool take_value(struct text *t, struct text *ret)
{
	bool quoted = take_char(t, '"');

	ret->at = t->at;
	while (t->at < t->end && (quoted ? *t->at != '"' : !strchr(";, \t", *t->at))) {
		if (quoted && *t->at == '\\' && t->at + 1 < t->end)
			t->at++;
		t->at++;
	}
	ret->end = t->at;
	return !quoted || take_char(t, '"');
}

/* The words of a rel, separated by spaces. */
static bool has_duplicate(struct text rel)
{
	while (!is_at_end(&rel)) {
		struct text word = rel;

		while (rel.at < rel.end && !is_space(*rel.at))
			rel.at++;
		word.end = rel.at;
		if (take_word(&word, "duplicate") && word.at == word.end)
			return true;
	}
	return false;
}

/* The parameters of one link, up to the comma before the next one. *ret: rel has "duplicate". */
static bool take_parameters(struct text *t, bool *ret)
{
	bool seen = false;

	*ret = false;
	for (skip_spaces(t); take_char(t, ';'); skip_spaces(t)) {
		struct text value = { t->at, t->at };
		bool rel;

		skip_spaces(t);
		rel = take_word(t, "rel");
		while (t->at < t->end && !strchr("=;, \t", *t->at)) {
			rel = false;
			t->at++;
		}
		skip_spaces(t);
		if (take_char(t, '=')) {
			skip_spaces(t);
			if (!take_value(t, &value))
				return false;
		}
		/* The first one counts. */
		if (rel && !seen)
			*ret = has_duplicate(value);
		seen |= rel;
	}
	return t->at == t->end || *t->at == ',';
}

/* "<https://b/x>; rel=duplicate; pri=1, <https://c/x>; rel=duplicate" */
static int read_links(struct head *h, struct text t)
{
	for (;;) {
		const char *url, *end;
		bool duplicate;

		while (t.at < t.end && (is_space(*t.at) || *t.at == ','))
			t.at++;
		if (!take_char(&t, '<'))
			return 0;
		url = t.at;
		end = memchr(url, '>', (size_t)(t.end - url));
		if (!end)
			return 0;
		t.at = end + 1;
		if (!take_parameters(&t, &duplicate))
			return 0;
		if (!duplicate || h->n_duplicates == HEAD_LINKS_MAX ||
		    memchr(url, '\0', (size_t)(end - url)))
			continue;
		h->duplicates[h->n_duplicates] = strndup(url, (size_t)(end - url));
		if (!h->duplicates[h->n_duplicates])
			return -ENOMEM;
		h->n_duplicates++;
	}
}

/* ---- lines ---- */

static int read_field(struct head *h, struct text line)
{
	struct text value = line;
	const char *colon = memchr(line.at, ':', (size_t)(line.end - line.at));
	size_t n;

	if (!colon)
		return 0;
	n = (size_t)(colon - line.at);
	value.at = colon + 1;
	skip_spaces(&value);
#define IS(name) (n == strlen(name) && is_word(line.at, name, n))
	if (IS("content-range"))
		read_content_range(h, value);
	else if (IS("content-length"))
		read_length(h, value);
	else if (IS("etag"))
		read_etag(h, value);
	else if (IS("last-modified"))
		read_last_modified(h, value);
	else if (IS("content-encoding"))
		read_encoding(h, value);
	else if (IS("content-type"))
		read_type(h, value);
	else if (IS("via"))
		read_via(h, value);
	else if (IS("link"))
		return read_links(h, value);
#undef IS
	return 0;
}

/* "HTTP/1.1 206 Partial Content", "HTTP/2 206". False: not a status line. */
static bool read_status(struct head *h, struct text t)
{
	uint64_t status;

	if (!take_word(&t, "HTTP/"))
		return false;
	while (t.at < t.end && !is_space(*t.at))
		t.at++;
	skip_spaces(&t);
	head_clear(h);
	h->length = h->total = HEAD_UNKNOWN;
	if (take_number(&t, &status) && status >= 100 && status <= 999)
		h->status = (unsigned)status;
	return true;
}

int head_line(struct head *h, const char *line, size_t n)
{
	struct text t = { line, line + n };

	while (t.end > t.at && (t.end[-1] == '\n' || t.end[-1] == '\r' || is_space(t.end[-1])))
		t.end--;
	if (h->complete || h->status == 0 || h->status < 200) {
		if (read_status(h, t))
			return 0;
	}
	if (t.at == t.end) {
		h->complete = h->status >= 200;
		return 0;
	}
	/* What comes after the empty line is a trailer. */
	return h->complete || h->status == 0 ? 0 : read_field(h, t);
}

void head_clear(struct head *h)
{
	for (size_t i = 0; i < h->n_duplicates; i++)
		free(h->duplicates[i]);
	*h = (struct head){ 0 };
}

bool head_is_strong(const char *etag)
{
	return etag[0] == '"';
}
