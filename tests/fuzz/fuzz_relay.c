/* SPDX-License-Identifier: MIT
 *
 * Any text as what a relay reads by code of its own: its configuration, with the names of a
 * client's certificate behind a NUL; and of requests Range, If-Match, Prefer and Via. The first
 * byte says which.
 */
#include "client/relay/fleet/route.h"
#include "client/relay/serve/allow.h"
#include "client/relay/serve/range.h"
#include "proto/base/own.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

/* ---- certificates ---- */

static bool is_plain(const char *glob)
{
	return !strpbrk(glob, "*?[\\");
}

/* What the patterns say, as far as that is plain: is it a reason to allow, or to refuse? */
static void check_allowed(const struct config *c, const struct peer *p, const char *name)
{
	bool allowed = allow_read(c, p, name), sure = true, found = false;

	for (size_t i = 0; i < c->n_allows; i++) {
		const struct config_allow *a = &c->allows[i];
		bool named = false, offered = false;

		sure &= is_plain(a->certificate);
		for (size_t k = 0; k < p->names.n; k++)
			named |= strcasecmp(a->certificate, p->names.items[k]) == 0;
		for (size_t k = 0; k < a->offer.n; k++) {
			sure &= is_plain(a->offer.items[k]);
			offered |= strcmp(a->offer.items[k], name) == 0;
		}
		found |= is_plain(a->certificate) && named && offered;
	}
	assert(c->n_allows > 0 || allowed);
	assert(!sure || c->n_allows == 0 || allowed == found);
	assert(p->names.n > 0 || c->n_allows == 0 || !allowed);
}

/* Lines: names of the certificate, and as the last one that of a buffer. */
static void fuzz_names(const struct config *c, char *lines)
{
	char *items[8], *name = lines;
	struct peer p = { .names.items = items };

	for (char *end; (end = strchr(name, '\n')); name = end + 1) {
		*end = '\0';
		if (p.names.n < array_size(items))
			items[p.names.n++] = name;
	}
	check_allowed(c, &p, name);
	config_offers(c, name);
}

/* ---- the configuration ---- */

static void check_config(const struct config *c)
{
	assert(c->found && c->listen.n > 0 && c->offer.n > 0);
	assert(!c->cert == !c->key && (c->n_allows == 0 || (c->ca && c->cert)));
	assert(c->max_connections >= 1 && c->max_connections <= 16384);
	assert(c->max_connections_per_address >= 1 && c->max_connections_per_address <= 16384);
	assert(c->max_transfers <= 16384 && c->fan_out <= 16384);
	assert(c->gpu_memory >= 16u << 20);
	assert(!c->advertise || !strpbrk(c->advertise, " \"<>\\,;\r\n"));
	for (size_t i = 0; i < c->n_pulls; i++) {
		assert(c->pulls[i].source && c->pulls[i].mode <= 0777);
		for (size_t k = 0; k < i; k++)
			assert(strcmp(c->pulls[i].name, c->pulls[k].name) != 0);
	}
}

/* config_read() opens a file. */
static int read_config(const char *text, size_t n, FILE *errors, struct config **ret)
{
	_cleanup_(close_fd) int fd = memfd_create("fuzz", MFD_CLOEXEC);
	char path[32];

	assert(fd >= 0 && write(fd, text, n) == (ssize_t)n);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return config_read(path, NULL, errors, ret);
}

static void fuzz_config(char *text, size_t n)
{
	_cleanup_(free_ptr) char *errors = NULL;
	size_t length = strlen(text), n_errors = 0;
	FILE *out = open_memstream(&errors, &n_errors);
	struct config *c = NULL;
	int e;

	assert(out);
	e = read_config(text, length, out, &c);
	fflush(out);
	assert(e == 0 || e == -ENOMEM || (e == -EINVAL && n_errors > 0));
	if (e == 0) {
		check_config(c);
		assert(config_check_reload(c, c, out) == 0);
		if (length < n)
			fuzz_names(c, text + length + 1);
		config_release(c);
	}
	fclose(out);
}

/* ---- headers ---- */

static void fuzz_range(char *text, size_t n)
{
	static const uint64_t sizes[] = { 0, 1, 10, 1ull << 32, UINT64_MAX };
	char again[64];

	for (size_t i = 0; i < array_size(sizes); i++) {
		uint64_t begin = 7, bytes = 7, begin2, bytes2;
		enum range_what what = range_parse(text, sizes[i], &begin, &bytes);

		assert(what == RANGE_PART || (begin == 7 && bytes == 7));
		if (what != RANGE_PART)
			continue;
		assert(strncasecmp(text, "bytes=", 6) == 0 && bytes > 0);
		assert(bytes <= sizes[i] && begin <= sizes[i] - bytes);
		snprintf(again, sizeof(again), "bytes=%llu-%llu", (unsigned long long)begin,
			 (unsigned long long)(begin + bytes - 1));
		assert(range_parse(again, sizes[i], &begin2, &bytes2) == RANGE_PART);
		assert(begin2 == begin && bytes2 == bytes);
	}
}

static void fuzz_match(char *text, size_t n)
{
	static const char etag[] = "\"x3-0123\"";
	char list[64];

	assert(!range_has_etag(text, etag, false) || range_has_etag(text, etag, true));
	assert(!range_has_etag(text, etag, true) || strchr(text, '*') || strstr(text, etag));
	/* A list that begins with it has it, whatever follows. */
	snprintf(list, sizeof(list), "%s, %s", etag, text);
	assert(range_has_etag(list, etag, false) && range_has_etag(list, etag, true));
}

static void fuzz_prefer(char *text, size_t n)
{
	unsigned wait = range_wait(text);
	char more[64];

	assert(wait <= RANGE_WAIT_MAX && (wait == 0 || strcasestr(text, "wait=")));
	snprintf(more, sizeof(more), "wait=%u, %s", wait, text);
	assert(range_wait(more) == wait);
}

static size_t count(const char *text, const char *part)
{
	size_t n = 0;

	for (; (text = strstr(text, part)); text++)
		n++;
	return n;
}

/* A byte 1 stands for the name that this relay has given itself. */
static char *with_own_name(const char *text, size_t n, const char *self)
{
	size_t room = n * (strlen(self) + 1) + 1, used = 0;
	char *via = malloc(room);

	assert(via);
	for (; *text; text++)
		used += (size_t)snprintf(via + used, room - used, "%.*s",
					 *text == 1 ? (int)strlen(self) : 1,
					 *text == 1 ? self : text);
	via[used] = '\0';
	return via;
}

/* What a relay says comes back to it from a circle: it is not once more in the list. */
static void fuzz_via(char *text, size_t n)
{
	char heard[PULL_VIA_MAX], out[PULL_VIA_MAX], again[PULL_VIA_MAX], self[PULL_VIA_MAX];
	_cleanup_(free_ptr) char *via = NULL;

	route_append("", out);
	assert(strncmp(out, "1.1 ", 4) == 0);
	strcpy(self, out + 4);
	via = with_own_name(text, n, self);
	assert(route_hear(via, heard) == (strstr(via, self) != NULL));
	route_append(heard, out);
	assert(strlen(out) < PULL_VIA_MAX);
	assert(out[0] == '\0' || strcmp(out + strlen(out) - strlen(self), self) == 0);
	assert(count(out, self) <= count(via, self) + 1);
	if (out[0]) {
		assert(route_hear(out, heard));
		route_append(heard, again);
		assert(count(again, self) <= count(out, self));
	}
}

/* ---- which ---- */

static const struct {
	char letter;
	void (*run)(char *text, size_t n);
} kinds[] = {
	{ 'c', fuzz_config }, { 'r', fuzz_range }, { 'm', fuzz_match },
	{ 'p', fuzz_prefer }, { 'v', fuzz_via },
};

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	_cleanup_(free_ptr) char *text = NULL;

	if (size == 0)
		return 0;
	/* A copy of its exact size, so that ASan finds a read past its end. */
	text = malloc(size);
	assert(text);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	for (size_t i = 0; i < array_size(kinds); i++)
		if (data[0] == kinds[i].letter)
			kinds[i].run(text, size - 1);
	return 0;
}
