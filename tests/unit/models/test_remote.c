/* SPDX-License-Identifier: MIT
 *
 * What is read of URLs, of header lines, and of credentials; and which of several servers is asked.
 */
#include "client/gpushm.h"
#include "client/models/web/credentials.h"
#include "client/models/web/head.h"
#include "client/models/web/remote_internal.h"
#include "proto/base/own.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- URLs ---- */

static const struct {
	const char *text, *sent, *shown, *origin;
	bool here;
} urls[] = {
	{ "https://h/x", "https://h/x", "https://h/x", "https://h:443", false },
	{ "HTTPS://Host:443/X?s=1#f", "https://host/X?s=1", "https://host/X", "https://host:443",
	  false },
	{ "http://h", "http://h/", "http://h/", "http://h:80", false },
	{ "http://h:/a", "http://h/a", "http://h/a", "http://h:80", false },
	{ "http://h?a=/b", "http://h/?a=/b", "http://h/", "http://h:80", false },
	{ "http://h:8080/a b\"", "http://h:8080/a%20b%22", "http://h:8080/a%20b%22",
	  "http://h:8080", false },
	{ "http://127.1.2.3/", "http://127.1.2.3/", "http://127.1.2.3/", "http://127.1.2.3:80",
	  true },
	{ "http://[::1]:81/", "http://[::1]:81/", "http://[::1]:81/", "http://[::1]:81", true },
	{ "http://a.localhost/", "http://a.localhost/", "http://a.localhost/",
	  "http://a.localhost:80", true },
	{ "http://localhost.a.com/", "http://localhost.a.com/", "http://localhost.a.com/",
	  "http://localhost.a.com:80", false },
	{ "http://h/\xc3\xa4", "http://h/%C3%A4", "http://h/%C3%A4", "http://h:80", false },
};

START_TEST(a_url_is_understood_as_libcurl_does)
{
	struct url u = { 0 };

	ck_assert(url_is(urls[_i].text));
	ck_assert_int_eq(url_parse(urls[_i].text, &u), 0);
	ck_assert_str_eq(u.text, urls[_i].sent);
	ck_assert_str_eq(u.name, urls[_i].shown);
	ck_assert_str_eq(u.origin, urls[_i].origin);
	ck_assert_int_eq(u.here, urls[_i].here);
	url_clear(&u);
}
END_TEST

/* libcurl's own parser, as curl/urlapi.h has it: it is opened at run time here, too. */
enum { PART_URL, PART_SCHEME, PART_USER, PART_PASSWORD, PART_OPTIONS, PART_HOST, PART_PORT };
enum { DEFAULT_PORT = 1 };
static struct {
	void *library;
	void *(*url)(void);
	void (*cleanup)(void *);
	int (*set)(void *, int part, const char *, unsigned flags);
	int (*get)(const void *, int part, char **, unsigned flags);
	void (*release)(void *);
} curl;

static bool has_curl(void)
{
	curl.library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
	if (!curl.library) {
		puts("skipped: needs libcurl");
		return false;
	}
	curl.url = dlsym(curl.library, "curl_url");
	curl.cleanup = dlsym(curl.library, "curl_url_cleanup");
	curl.set = dlsym(curl.library, "curl_url_set");
	curl.get = dlsym(curl.library, "curl_url_get");
	curl.release = dlsym(curl.library, "curl_free");
	return true;
}

/* "https://host:443" as libcurl understands the text, or "" if it refuses it. */
static void origin_of(const char *text, char *ret, size_t size)
{
	char *scheme = NULL, *host = NULL, *port = NULL, *user = NULL;
	void *u = curl.url();

	ret[0] = '\0';
	if (curl.set(u, PART_URL, text, 0) == 0) {
		ck_assert_int_eq(curl.get(u, PART_SCHEME, &scheme, 0), 0);
		ck_assert_int_eq(curl.get(u, PART_HOST, &host, 0), 0);
		ck_assert_int_eq(curl.get(u, PART_PORT, &port, DEFAULT_PORT), 0);
		ck_assert_msg(curl.get(u, PART_USER, &user, 0) != 0, "%s", text);
		snprintf(ret, size, "%s://%s:%s", scheme, host, port);
	}
	curl.release(scheme);
	curl.release(host);
	curl.release(port);
	curl.cleanup(u);
}

/* Credentials go to the host that we read in a URL; libcurl connects to the one that it reads. */
static void compare_hosts(const char *text)
{
	struct url u = { 0 };
	char theirs[1024];

	if (url_is(text) && url_parse(text, &u) == 0) {
		origin_of(u.text, theirs, sizeof(theirs));
		ck_assert_msg(theirs[0] == '\0' || strcmp(theirs, u.origin) == 0,
			      "\"%s\" is sent as %s: ours is %s, libcurl's %s", text, u.text,
			      u.origin, theirs);
	}
	url_clear(&u);
}

START_TEST(libcurl_connects_to_the_same_host)
{
	static const char *const parts[] = {
		"http:/", "/",	  "HTTPS://", "a",     "b.c",	"@",   ":",	     "u:p@",
		"[",	  "]",	  "::1",      "%25lo", "%2e",	"\\",  "\t",	     " ",
		"?",	  "#",	  ".",	      "..",    "0x7f",	"0X1", "0",	     "0080",
		"80",	  "1.2",  "127.1",    "017",   "256",	"-",   "xn--a",	     "\xef\xbc\x8e",
		"_",	  "[::1", "0x",	      "x0",    "65536", "443", "4294967296", "localhost",
	};
	uint32_t x = 1;

	if (!has_curl())
		return;
	for (size_t i = 0; i < array_size(urls); i++)
		compare_hosts(urls[i].text);
	for (unsigned i = 0; i < 200000; i++) {
		char text[160] = "http://";

		for (unsigned n = i % 6 + 1; n > 0; n--) {
			x = x * 1664525u + 1013904223u;
			strcat(text, parts[(x >> 16) % array_size(parts)]);
		}
		compare_hosts(text);
	}
	dlclose(curl.library);
}
END_TEST

static const char *const bad_urls[] = {
	"https://",
	"https:///x",
	"https://u:s3cret@h/x",
	"https://h\\@evil/x",
	"https://h:0/",
	"https://h:65536/",
	"https://h:1s3cret/",
	"https://h:+1/",
	"https://h h/",
	"https://h\n/",
	"https://h/\r\nX: s3cret",
	"https://h%2f/",
	"https://[::1/",
	"https://[h]/",
	"https://[::1]x/",
	"https://.h/",
	"https://a..b/",
	"https://1.2.3/",
	"https://0x7f.1/",
	"https://0x7f/",
	"https://1.2.3.0X4/",
	"https://2130706433/",
	"https://-h/",
	"https://\xc3\xa4/",
};

START_TEST(a_strange_url_is_refused_and_its_secrets_are_not_shown)
{
	struct url u = { 0 };

	ck_assert_int_eq(url_parse(bad_urls[_i], &u), -EINVAL);
	ck_assert(!strstr(gpushm_error(), "s3cret"));
	url_clear(&u);
}
END_TEST

START_TEST(what_is_no_url_is_recognised)
{
	ck_assert(!url_is("ftp://h/x"));
	ck_assert(!url_is("model.safetensors"));
	ck_assert(!url_is("/https://h/x"));
	ck_assert(!url_is("https:/h"));
	ck_assert(!url_is(""));
}
END_TEST

static const struct {
	const char *url, *name, *sibling; /* NULL: refused */
} siblings[] = {
	{ "https://h/a/index.json?s=1", "m.safetensors", "https://h/a/m.safetensors?s=1" },
	{ "https://h/a/", "m", "https://h/a/m" },
	{ "https://h", "m", "https://h/m" },
	{ "https://h/a/b", "c/d", "https://h/a/c/d" },
	{ "https://h/a/b", "x?y#z%2f \xff", "https://h/a/x%3Fy%23z%252f%20%FF" },
	{ "https://h/a/b", "../c", NULL },
	{ "https://h/a/b", "c/../../d", NULL },
	{ "https://h/a/b", "/c", NULL },
	{ "https://h/a/b", "//evil/c", NULL },
	{ "https://h/a/b", "c//d", NULL },
	{ "https://h/a/b", "./c", NULL },
	{ "https://h/a/b", "", NULL },
	{ "https://h/a/b", "https://evil/c", NULL },
};

START_TEST(a_sibling_stays_in_its_folder)
{
	char *ret = NULL;
	int r = url_sibling(siblings[_i].url, siblings[_i].name, &ret);

	if (siblings[_i].sibling) {
		ck_assert_int_eq(r, 0);
		ck_assert_str_eq(ret, siblings[_i].sibling);
	} else {
		ck_assert_int_eq(r, -EINVAL);
	}
	free(ret);
}
END_TEST

/* ---- header lines ---- */

static void read_head(struct head *h, const char *text)
{
	while (*text) {
		size_t n = strcspn(text, "\n") + 1;

		ck_assert_int_eq(head_line(h, text, n), 0);
		text += n;
	}
}

START_TEST(the_head_of_a_part_is_read_correctly)
{
	struct head h = { 0 };

	read_head(&h, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 206 Partial Content\r\n"
		      "content-RANGE:  bytes 5-9/10 \r\nContent-Length: 5\r\nETag: \"a/b\"\r\n"
		      "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n");
	ck_assert(h.complete && h.has_range && !h.encoded);
	ck_assert_uint_eq(h.status, 206);
	ck_assert_uint_eq(h.first, 5);
	ck_assert_uint_eq(h.last, 9);
	ck_assert_uint_eq(h.total, 10);
	ck_assert_uint_eq(h.length, 5);
	ck_assert_str_eq(h.etag, "\"a/b\"");
	ck_assert(head_is_strong(h.etag) && !head_is_strong("W/\"a\"") && !head_is_strong(""));
	ck_assert_str_eq(h.last_modified, "Sun, 06 Nov 1994 08:49:37 GMT");
	/* A trailer changes nothing. */
	read_head(&h, "ETag: \"other\"\r\n");
	ck_assert_str_eq(h.etag, "\"a/b\"");
	head_clear(&h);
}
END_TEST

/* Where there is no Turkish it is read in another language: tests/odd_machine.sh has it. */
START_TEST(a_field_in_capitals_is_read_in_turkish)
{
	struct head h = { 0 };

	setlocale(LC_CTYPE, "tr_TR.UTF-8");
	read_head(&h, "HTTP/1.1 200 OK\r\nLAST-MODIFIED: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n");
	setlocale(LC_CTYPE, "C");
	ck_assert_str_eq(h.last_modified, "Sun, 06 Nov 1994 08:49:37 GMT");
	head_clear(&h);
}
END_TEST

static const char *const bad_ranges[] = {
	"bytes 9-5/10",
	"bytes 0-10/10",
	"bytes -5/10",
	"bytes 0-/10",
	"bytes 0-5",
	"bytes 0-5/",
	"bytes 0-5/10x",
	"items 0-5/10",
	"bytes 0 -5/10",
	"bytes +0-5/10",
	"bytes 0-99999999999999999999/*",
	"",
};

START_TEST(a_broken_content_range_is_ignored)
{
	char text[128];
	struct head h = { 0 };

	snprintf(text, sizeof(text), "HTTP/1.1 206 x\nContent-Range: %s\n\n", bad_ranges[_i]);
	read_head(&h, text);
	ck_assert(!h.has_range);
	ck_assert_uint_eq(h.total, HEAD_UNKNOWN);
	head_clear(&h);
}
END_TEST

static const char *const bad_etags[] = {
	"a", "\"a", "a\"", "\"a\"b", "\"a b\"", "\"a\tb\"", "w/", "W/a", "\"\x01\"", "",
};

START_TEST(an_etag_that_can_not_be_sent_back_is_ignored)
{
	char text[128];
	struct head h = { 0 };

	snprintf(text, sizeof(text), "HTTP/1.1 200 x\nETag: %s\n\n", bad_etags[_i]);
	read_head(&h, text);
	ck_assert_str_eq(h.etag, "");
	head_clear(&h);
}
END_TEST

static const struct {
	const char *value, *first, *second; /* NULL: none */
} links[] = {
	{ "<https://b/x>; rel=duplicate", "https://b/x", NULL },
	{ "<https://b/x>; rel=\"duplicate\"; pri=1, <https://c/x>;rel=duplicate", "https://b/x",
	  "https://c/x" },
	{ "<https://b/x>; rel=next, <https://c/x>; rel=\"a Duplicate\"", "https://c/x", NULL },
	{ "<https://b/x>; title=\"a, <https://evil>; rel=duplicate\"; rel=duplicate", "https://b/x",
	  NULL },
	{ "<https://b/x?a,b;c>; rel=duplicate", "https://b/x?a,b;c", NULL },
	{ "<https://b/x>; rel=duplicates, <https://c/x>; xrel=duplicate", NULL, NULL },
	{ "<https://b/x>; rel=next; rel=duplicate", NULL, NULL },
	{ "<https://b/x", NULL, NULL },
	{ "https://b/x; rel=duplicate", NULL, NULL },
	{ "<https://b/x>; rel=\"duplicate", NULL, NULL },
};

START_TEST(a_link_is_read_correctly)
{
	char text[256];
	struct head h = { 0 };

	snprintf(text, sizeof(text), "HTTP/1.1 503 x\nLink: %s\n\n", links[_i].value);
	read_head(&h, text);
	ck_assert_uint_eq(h.n_duplicates, !!links[_i].first + !!links[_i].second);
	if (links[_i].first)
		ck_assert_str_eq(h.duplicates[0], links[_i].first);
	if (links[_i].second)
		ck_assert_str_eq(h.duplicates[1], links[_i].second);
	head_clear(&h);
}
END_TEST

START_TEST(the_places_that_a_server_names_are_limited)
{
	struct head h = { 0 };

	read_head(&h, "HTTP/1.1 503 x\n");
	for (int i = 0; i < 100; i++)
		read_head(&h, "Link: <https://b/x>; rel=duplicate\n");
	ck_assert_uint_eq(h.n_duplicates, HEAD_LINKS_MAX);
	head_clear(&h);
}
END_TEST

/* ---- credentials ---- */

static char folder[64];

static void setup(void)
{
	strcpy(folder, "/tmp/test-remote-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	for (const char *const *v =
		     (const char *const[]){ "GPUSHM_TOKEN", "GPUSHM_TOKEN_FILE", "HF_TOKEN",
					    "GPUSHM_TLS_CA", "GPUSHM_TLS_CERT", "GPUSHM_TLS_KEY",
					    NULL };
	     *v; v++)
		unsetenv(*v);
}

static void teardown(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", folder);
	ck_assert_int_eq(system(command), 0);
}

static const char *file_of(const char *text)
{
	static char path[96];
	FILE *out;

	snprintf(path, sizeof(path), "%s/token", folder);
	out = fopen(path, "we");
	ck_assert_ptr_nonnull(out);
	fputs(text, out);
	fclose(out);
	return path;
}

/* The token that is sent to that URL, or NULL. */
static int token_for(const char *url, const struct gpushm_remote_options *o, char *ret, size_t size)
{
	struct credentials c = { 0 };
	struct url u = { 0 };
	int r;

	ck_assert_int_eq(url_parse(url, &u), 0);
	r = credentials_read(o, &u, &c);
	snprintf(ret, size, "%s%s", c.token ? c.token : "-", c.withheld ? " withheld" : "");
	ck_assert(r < 0 || !c.token || !c.netrc);
	credentials_clear(&c);
	url_clear(&u);
	return r;
}

static void assert_token(const char *url, const struct gpushm_remote_options *o, const char *token)
{
	char got[256];

	ck_assert_int_eq(token_for(url, o, got, sizeof(got)), 0);
	ck_assert_str_eq(got, token);
}

START_TEST(a_token_is_sent_only_to_those_who_may_have_it)
{
	struct gpushm_remote_options o = { .struct_size = sizeof(o) };

	assert_token("https://h/x", NULL, "-");
	setenv("HF_TOKEN", "hub", 1);
	assert_token("https://huggingface.co/x", NULL, "hub");
	assert_token("https://hf.co/x", NULL, "hub");
	assert_token("https://huggingface.co.evil.com/x", NULL, "-");
	assert_token("https://evilhuggingface.co/x", NULL, "-");
	assert_token("http://huggingface.co/x", NULL, "- withheld");
	setenv("GPUSHM_TOKEN", "own", 1);
	assert_token("https://huggingface.co/x", NULL, "own");
	assert_token("http://h/x", NULL, "- withheld");
	assert_token("http://127.0.0.1/x", NULL, "own");
	setenv("GPUSHM_TOKEN_FILE", file_of("  in-a-file \r\nmore\n"), 1);
	assert_token("https://h/x", NULL, "in-a-file");
	o.token_file = file_of("given");
	assert_token("https://h/x", &o, "given");
	assert_token("http://h/x", &o, "- withheld");
}
END_TEST

static const char *const bad_tokens[] = { "", "\n", "  \nx", "a b", "a\tb", "a\x7f", "\xc3\xa4" };

START_TEST(what_is_no_token_is_refused)
{
	struct gpushm_remote_options o = { .struct_size = sizeof(o),
					   .token_file = file_of(bad_tokens[_i]) };
	char got[256];

	ck_assert_int_eq(token_for("https://h/x", &o, got, sizeof(got)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), folder));
}
END_TEST

START_TEST(a_token_that_is_too_long_is_refused)
{
	char *text = malloc(TOKEN_BYTES_MAX + 2);
	struct gpushm_remote_options o = { .struct_size = sizeof(o) };
	char got[16];

	memset(text, 'x', TOKEN_BYTES_MAX + 1);
	text[TOKEN_BYTES_MAX + 1] = '\0';
	o.token_file = file_of(text);
	free(text);
	ck_assert_int_eq(token_for("https://h/x", &o, got, sizeof(got)), -EINVAL);
	o.token_file = "/nonexistent/token";
	ck_assert_int_eq(token_for("https://h/x", &o, got, sizeof(got)), -ENOENT);
}
END_TEST

START_TEST(options_of_a_newer_library_are_refused)
{
	struct {
		struct gpushm_remote_options o;
		unsigned more;
	} newer = { .o.struct_size = sizeof(newer), .more = 1 };
	struct gpushm_remote_options none = { 0 };
	char got[16];

	ck_assert_int_eq(token_for("https://h/x", &newer.o, got, sizeof(got)), -EINVAL);
	newer.more = 0;
	ck_assert_int_eq(token_for("https://h/x", &newer.o, got, sizeof(got)), 0);
	ck_assert_int_eq(token_for("https://h/x", &none, got, sizeof(got)), -EINVAL);
}
END_TEST

static int wait_with(const struct gpushm_remote_options *o)
{
	return gpushm_pull_wait("https://127.0.0.1:1/v1/buffers/m", NULL, o, 0, NULL, NULL);
}

START_TEST(a_wait_for_a_buffer_checks_its_options)
{
	struct {
		struct gpushm_remote_options o;
		unsigned more;
	} newer = { .o.struct_size = sizeof(newer), .more = 1 };
	struct gpushm_remote_options none = { 0 };

	ck_assert_int_eq(wait_with(&none), -EINVAL);
	ck_assert_ptr_nonnull(strstr(gpushm_error(), "struct_size"));
	ck_assert_int_eq(wait_with(&newer.o), -EINVAL);
	newer.more = 0;
	ck_assert_int_eq(wait_with(&newer.o), -ETIMEDOUT);
	none.struct_size = offsetof(struct gpushm_remote_options, patience_s);
	ck_assert_int_eq(wait_with(&none), -ETIMEDOUT);
	ck_assert_int_eq(wait_with(NULL), -ETIMEDOUT);
}
END_TEST

/* ---- places ---- */

static void add(struct places *p, const char *text)
{
	struct url u = { 0 };

	ck_assert_int_eq(url_parse(text, &u), 0);
	ck_assert_int_eq(places_add(p, &u), 0);
}

static struct place *take(struct places *p, const struct place *avoid, char *ret)
{
	struct url u = { 0 };
	uint64_t wait_ms;
	bool fresh;
	struct place *place = places_take(p, avoid, &u, &fresh, &wait_ms);

	if (place && ret)
		strcpy(ret, u.text);
	url_clear(&u);
	return place;
}

START_TEST(readers_are_spread_over_places)
{
	struct place *a, *b, *c;
	struct places p;

	places_init(&p);
	add(&p, "https://a/x");
	add(&p, "https://b/x");
	add(&p, "https://b/x");
	add(&p, "http://c/x"); /* without TLS */
	ck_assert_uint_eq(p.n, 2);
	a = take(&p, NULL, NULL);
	b = take(&p, NULL, NULL);
	ck_assert(a && b && a != b);
	places_give(&p, b);
	ck_assert_ptr_eq(take(&p, NULL, NULL), b);
	/* One that has just failed is left out, unless it is the only one. */
	c = take(&p, a, NULL);
	ck_assert_ptr_eq(c, b);
	places_mark_bad(&p, b, -EIO);
	ck_assert_ptr_eq(take(&p, a, NULL), a);
	ck_assert_uint_eq(places_left(&p), 1);
	ck_assert(!places_drop(&p, a));
	places_clear(&p);
}
END_TEST

START_TEST(a_busy_place_is_left_alone)
{
	struct url u = { 0 };
	struct place *a;
	struct places p;
	uint64_t wait_ms;
	bool fresh;

	places_init(&p);
	add(&p, "https://a/x");
	a = take(&p, NULL, NULL);
	places_mark_busy(&p, a, 100000);
	ck_assert_ptr_null(places_take(&p, NULL, &u, &fresh, &wait_ms));
	ck_assert(wait_ms > 0 && wait_ms <= 100000);
	places_mark_bad(&p, a, -EIO);
	ck_assert_ptr_null(places_take(&p, NULL, &u, &fresh, &wait_ms));
	ck_assert_uint_eq(wait_ms, UINT64_MAX);
	places_clear(&p);
}
END_TEST

START_TEST(a_reader_that_finds_no_place_says_what_another_one_found)
{
	const struct load_stop never = { 0 };
	struct remote_reader *rr = NULL;
	struct remote *r = NULL;
	struct trial t;

	ck_assert_int_eq(remote_new("http://127.0.0.1:1/x", NULL, &r), 0);
	ck_assert_int_eq(remote_reader_new(&rr), 0);
	gpushm_private_fail(EREMOTEIO, "the reply is wrong");
	places_mark_bad(&r->places, r->places.v[0], -EREMOTEIO);
	gpushm_private_fail(ENOENT, "something else");
	trial_begin(&t, never, false);
	ck_assert_int_eq(reader_ask(rr, r, 0, 9, &t), -EREMOTEIO);
	ck_assert_str_eq(gpushm_error(), "the reply is wrong");
	ck_assert_int_eq(trial_failed(&t, r, -EREMOTEIO), -EREMOTEIO);
	remote_reader_free(rr);
	remote_close(r);
}
END_TEST

START_TEST(where_redirects_lead_to_is_remembered)
{
	struct url target = { 0 };
	struct place *a;
	struct places p;
	char text[64];

	places_init(&p);
	add(&p, "https://a/x");
	ck_assert_int_eq(url_parse("https://store/y?s=1", &target), 0);
	a = take(&p, NULL, NULL);
	places_set_target(&p, a, &target);
	take(&p, NULL, text);
	ck_assert_str_eq(text, "https://store/y?s=1");
	places_set_target(&p, a, NULL);
	take(&p, NULL, text);
	ck_assert_str_eq(text, "https://a/x");
	url_clear(&target);
	places_clear(&p);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("remote");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, a_url_is_understood_as_libcurl_does, 0, array_size(urls));
	tcase_add_test(tc, libcurl_connects_to_the_same_host);
	tcase_add_loop_test(tc, a_strange_url_is_refused_and_its_secrets_are_not_shown, 0,
			    array_size(bad_urls));
	tcase_add_test(tc, what_is_no_url_is_recognised);
	tcase_add_loop_test(tc, a_sibling_stays_in_its_folder, 0, array_size(siblings));
	tcase_add_test(tc, the_head_of_a_part_is_read_correctly);
	tcase_add_test(tc, a_field_in_capitals_is_read_in_turkish);
	tcase_add_loop_test(tc, a_broken_content_range_is_ignored, 0, array_size(bad_ranges));
	tcase_add_loop_test(tc, an_etag_that_can_not_be_sent_back_is_ignored, 0,
			    array_size(bad_etags));
	tcase_add_loop_test(tc, a_link_is_read_correctly, 0, array_size(links));
	tcase_add_test(tc, the_places_that_a_server_names_are_limited);
	tcase_add_test(tc, a_token_is_sent_only_to_those_who_may_have_it);
	tcase_add_loop_test(tc, what_is_no_token_is_refused, 0, array_size(bad_tokens));
	tcase_add_test(tc, a_token_that_is_too_long_is_refused);
	tcase_add_test(tc, options_of_a_newer_library_are_refused);
	tcase_add_test(tc, a_wait_for_a_buffer_checks_its_options);
	tcase_add_test(tc, readers_are_spread_over_places);
	tcase_add_test(tc, a_busy_place_is_left_alone);
	tcase_add_test(tc, a_reader_that_finds_no_place_says_what_another_one_found);
	tcase_add_test(tc, where_redirects_lead_to_is_remembered);
	return suite_run("remote", tc, NULL);
}
