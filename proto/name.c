/* SPDX-License-Identifier: MIT
 *
 * The rule for names, in one place for both sides. Nothing here allocates or owns; a name is bytes
 * and a length, never a C string, so that a NUL can't hide what follows it.
 *
 * Two names are the same if their bytes are equal: there is no Unicode normalisation, as no file
 * system of Linux does it.
 */
#include "proto/name.h"

#include "proto/base/utf8.h"
#include "proto/limits.h"

#include <stdint.h>
#include <string.h>

const char *name_check_text(const void *text, size_t len)
{
	const char *p = text;
	uint32_t point;
	size_t n;

	for (size_t i = 0; i < len; i += n) {
		n = 1;
		if (p[i] >= 0x20 && p[i] < 0x7f) /* most are */
			continue;
		n = utf8_next(p + i, len - i, &point);
		if (n == 0)
			return "it is not valid UTF-8";
		if (utf8_is_control(point))
			return "it has a control character";
	}
	return NULL;
}

size_t name_cut(const char *text, size_t len)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t start = len;
	uint32_t point;

	/* Goes back to the last byte that starts a sequence, at most three bytes. */
	while (start > 0 && len - start < 4 && p[start - 1] >> 6 == 2)
		start--;
	if (start == 0 || p[start - 1] < 0x80)
		return len;
	return utf8_next(text + start - 1, len - start + 1, &point) ? len : start - 1;
}

static const char *component_check(const char *c, size_t len)
{
	if (len == 0)
		return "it has an empty component: a '/' at the start, at the end or doubled";
	if ((len == 1 && c[0] == '.') || (len == 2 && c[0] == '.' && c[1] == '.'))
		return "it has a component \".\" or \"..\"";
	return NULL;
}

/* The rule that names of buffers, arrays and attributes share. */
static const char *name_check(const char *name, size_t len)
{
	const char *wrong = name_check_text(name, len);
	const char *slash;

	for (; !wrong; len -= slash + 1 - name, name = slash + 1) {
		slash = memchr(name, '/', len);
		if (!slash)
			return component_check(name, len);
		wrong = component_check(name, slash - name);
	}
	return wrong;
}

/* Checks "~/..." or "~UID/..."; UID is decimal, and (uid_t)-1 is no user. */
static const char *private_check(const char *name, size_t len)
{
	const char *slash = memchr(name, '/', len);
	uint64_t uid = 0;

	if (!slash)
		return "a private name is written \"~/name\"";
	if (slash - name > 2 && name[1] == '0')
		return "the user id after '~' starts with a 0";
	for (const char *p = name + 1; p < slash; p++) {
		if (*p < '0' || *p > '9')
			return "only \"~/\", or '~', a user id in decimal and '/', can start a "
			       "name with '~'";
		uid = uid * 10 + (*p - '0');
		if (uid >= UINT32_MAX)
			return "the user id after '~' is too large";
	}
	return NULL;
}

const char *name_check_buffer(const void *name, size_t len)
{
	const char *bytes = name;
	const char *wrong;

	_Static_assert(BUFFER_NAME_MAX == 255, "the text below says so");
	if (len == 0)
		return "it is empty";
	if (len > BUFFER_NAME_MAX)
		return "it is longer than 255 bytes";

	wrong = name_check(bytes, len);
	if (!wrong && bytes[0] == '~')
		wrong = private_check(bytes, len);
	return wrong;
}

const char *name_check_array(const void *name, size_t len)
{
	_Static_assert(ARRAY_NAME_MAX == 255, "the text below says so");
	if (len == 0)
		return NULL;
	if (len > ARRAY_NAME_MAX)
		return "it is longer than 255 bytes";
	return name_check(name, len);
}

const char *name_check_attr(const void *name, size_t len)
{
	return len == 0 ? "it is empty" : name_check_array(name, len);
}

const char *name_check_pool(const void *name, size_t len)
{
	const char *bytes = name;

	_Static_assert(POOL_NAME_MAX == 63, "the text below says so");
	if (len == 0)
		return "it is empty";
	if (len > POOL_NAME_MAX)
		return "it is longer than 63 bytes";

	for (size_t i = 0; i < len; i++) {
		char c = bytes[i];

		if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
		      c == '.' || c == '_' || c == '-'))
			return "it has something else than A-Z, a-z, 0-9, '.', '_' and '-'";
	}
	return NULL;
}
