/* SPDX-License-Identifier: MIT
 *
 * Names and attributes come from other users, so this file decodes them itself: mbrtowc() depends
 * on a locale that a cron job does not have, and accepts the C1 control characters that some
 * terminals obey. User and group names are kept from call to call: a list of thousands of buffers
 * has few owners, and each look-up may read /etc/passwd or ask a server.
 */
#include "client/ctl/output.h"

#include "proto/base/clock.h"
#include "proto/base/number.h"
#include "proto/base/own.h"
#include "proto/base/size.h"
#include "proto/base/text.h"
#include "proto/base/utf8.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <poll.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#define SECOND 1000000000u
#define KNOWN_MAX 64u /* users, and groups, whose names are kept */

static struct output_text number(uint64_t n, const char *unit)
{
	struct output_text t;

	snprintf(t.text, sizeof(t.text), "%" PRIu64 "%s", n, unit);
	return t;
}

struct output_text output_size(uint64_t bytes, bool exact)
{
	struct output_text t;

	if (exact)
		return number(bytes, "");
	snprintf(t.text, sizeof(t.text), "%s", size_format(bytes).text);
	return t;
}

struct output_text output_age(uint64_t ns)
{
	uint64_t s = ns / SECOND;

	return s < 120	       ? number(s, "s")
	       : s < 120 * 60  ? number(s / 60, "m")
	       : s < 48 * 3600 ? number(s / 3600, "h")
			       : number(s / 86400, "d");
}

struct output_text output_since(uint64_t stamp_ns)
{
	uint64_t now = clock_realtime_ns();

	return output_age(now > stamp_ns ? now - stamp_ns : 0);
}

struct output_text output_time(uint64_t ns)
{
	time_t s = (time_t)(ns / SECOND);
	struct output_text t;
	struct tm tm = { 0 };
	char date[24];

	gmtime_r(&s, &tm);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(t.text, sizeof(t.text), "%s.%09uZ", date, (unsigned)(ns % SECOND));
	return t;
}

struct output_text output_dtype(struct gpushm_dtype t)
{
	struct output_text ret = { "?" };

	gpushm_dtype_format(t, ret.text, sizeof(ret.text));
	return ret;
}

struct output_shape output_shape(const struct gpushm_array *a)
{
	int ndim = gpushm_array_ndim(a);
	struct output_shape ret = { "(" };

	for (int i = 0; i < ndim; i++)
		text_append(ret.text, sizeof(ret.text), "%s%" PRId64, i ? ", " : "",
			    gpushm_array_dim(a, i));
	text_append(ret.text, sizeof(ret.text), "%s", ndim == 1 ? ",)" : ")");
	return ret;
}

struct known_name {
	bool known;
	uint32_t id;
	struct output_text name;
};

/* The place of this id in a table of KNOWN_MAX; *ret_new: it holds another id, or none. */
static struct known_name *find_name(struct known_name *table, uint32_t id, bool *ret_new)
{
	struct known_name *k = &table[id % KNOWN_MAX];

	*ret_new = !k->known || k->id != id;
	if (*ret_new)
		*k = (struct known_name){ true, id, number(id, "") };
	return k;
}

const char *output_user(uid_t uid)
{
	static struct known_name users[KNOWN_MAX];
	bool is_new;
	struct known_name *k = find_name(users, uid, &is_new);
	const struct passwd *p = is_new ? getpwuid(uid) : NULL;

	if (p)
		snprintf(k->name.text, sizeof(k->name.text), "%s", p->pw_name);
	return k->name.text;
}

const char *output_group(gid_t gid)
{
	static struct known_name groups[KNOWN_MAX];
	bool is_new;
	struct known_name *k = find_name(groups, gid, &is_new);
	const struct group *g = is_new ? getgrgid(gid) : NULL;

	if (g)
		snprintf(k->name.text, sizeof(k->name.text), "%s", g->gr_name);
	return k->name.text;
}

bool output_find_user(const char *word, uid_t *ret)
{
	const struct passwd *p = getpwnam(word);
	uint64_t number;

	if (!p && !number_read(word, UINT32_MAX - 1, &number))
		return false;
	*ret = p ? p->pw_uid : (uid_t)number;
	return true;
}

struct output_shape output_ending(unsigned n)
{
	struct output_shape t;

	snprintf(t.text, sizeof(t.text),
		 n == 1 ? "%u process is ending: it has closed its socket but still runs"
			: "%u processes are ending: they have closed their sockets but still run",
		 n);
	return t;
}

struct output_text output_mode(unsigned mode)
{
	struct output_text t;
	char *c = t.text + snprintf(t.text, sizeof(t.text), "%04o (---------)", mode) - 10;

	for (unsigned i = 0; i < 9; i++)
		if (mode & 0400u >> i)
			c[i] = "rwx"[i % 3];
	return t;
}

char *output_name_users(const char *text)
{
	_cleanup_(free_ptr) char *all = NULL;
	bool quoted = false;
	size_t size;
	FILE *out = open_memstream(&all, &size);

	if (!out)
		return NULL;
	for (const char *c = text, *end; *c; c = end) {
		unsigned uid;
		int n = 0;

		end = c + 1;
		quoted ^= *c == '"';
		if (!quoted && sscanf(c, "uid %u%n", &uid, &n) == 1 && n > 4)
			end = c + n;
		fwrite(c, 1, (size_t)(end - c), out);
		if (n && getpwuid(uid))
			fprintf(out, " (%s)", output_user(uid));
	}
	return fclose(out) == 0 ? take_ptr(all) : NULL;
}

char *output_escape(const char *s, size_t len)
{
	char *out = malloc(4 * len + 1), *o = out;
	uint32_t point = 0;

	if (!out)
		return NULL;
	for (size_t i = 0; i < len;) {
		size_t n = utf8_next(s + i, len - i, &point);
		bool raw = n && !utf8_is_unsafe(point);

		for (size_t end = i + (n ? n : 1); i < end; i++)
			if (raw)
				*o++ = s[i];
			else
				o += sprintf(o, "\\x%02x", (unsigned char)s[i]);
	}
	*o = '\0';
	return out;
}

/* The next character with the marks that are drawn over it: its bytes, and its columns. */
static size_t next_character(const char *text, size_t *ret_columns)
{
	size_t len = strlen(text), n = 0, more;
	uint32_t point;
	int width;

	*ret_columns = 0;
	while (n < len) {
		more = utf8_next(text + n, len - n, &point);
		width = more ? wcwidth((wchar_t)point) : 1;
		if (n && width != 0)
			break;
		*ret_columns += width < 0 ? 1 : (size_t)width;
		n += more ? more : 1;
	}
	return n;
}

size_t output_columns(const char *text)
{
	size_t sum = 0, columns;

	for (; *text; sum += columns)
		text += next_character(text, &columns);
	return sum;
}

size_t output_fit(const char *text, size_t columns)
{
	size_t len, width, used = 0;
	const char *end = text;

	do {
		len = next_character(end, &width);
		used += width;
		if (end > text && used > columns)
			break;
		end += len;
	} while (len > 0);
	return (size_t)(end - text);
}

char *output_shorten(const char *text, size_t columns)
{
	size_t left = output_columns(text), head = (columns - 1) / 2, used = 0, n, width;
	const char *tail = text;
	char *all = NULL;

	if (left <= columns)
		return strdup(text);
	for (n = next_character(text, &width); used + width <= head; used += width) {
		tail += n;
		left -= width;
		n = next_character(tail, &width);
	}
	head = (size_t)(tail - text);
	for (; left > columns - 1 - (columns - 1) / 2; left -= width)
		tail += next_character(tail, &width);
	return asprintf(&all, "%.*s\xe2\x80\xa6%s", (int)head, text, tail) < 0 ? NULL : all;
}

char *output_format(const char *format, va_list ap)
{
	_cleanup_(free_ptr) char *text = NULL;
	int n = vasprintf(&text, format, ap);

	if (n >= 0)
		return output_escape(text, (size_t)n);
	text = NULL;
	return NULL;
}

bool output_is_file(const char *file)
{
	struct stat st, out;

	if (!file)
		return false;
	if (strcmp(file, "-") == 0)
		return true;
	return stat(file, &st) == 0 && fstat(STDOUT_FILENO, &out) == 0 && st.st_dev == out.st_dev &&
	       st.st_ino == out.st_ino;
}

void output_line(FILE *out, const char *format, ...)
{
	_cleanup_(free_ptr) char *escaped = NULL;
	va_list ap;

	va_start(ap, format);
	escaped = output_format(format, ap);
	va_end(ap);
	fprintf(out, "%s\n", escaped ? escaped : "out of memory");
}

static int flush_error;

void output_flush(void)
{
	if (fflush(stdout) != 0 && !flush_error)
		flush_error = errno;
}

int output_flush_error(void)
{
	return flush_error;
}

bool output_terminal(int fd)
{
	const char *term = getenv("TERM");

	return isatty(fd) && term && *term && strcmp(term, "dumb") != 0;
}

bool output_colour(int fd)
{
	const char *no_color = getenv("NO_COLOR"); /* no-color.org: set, and not empty */

	return output_terminal(fd) && !(no_color && *no_color);
}

bool output_is_closed(int fd)
{
	struct pollfd p = { .fd = fd };

	return poll(&p, 1, 0) > 0 && p.revents & (POLLERR | POLLHUP);
}
