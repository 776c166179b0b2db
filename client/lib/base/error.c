/* SPDX-License-Identifier: MIT
 *
 * The thread's last error: a text for people, and the daemon's code for it if the daemon sent it.
 * Each thread has its own. The library never logs: this is the only place for its words. A text
 * from the wire is made printable first, so that a buffer's name can't control a terminal.
 */
#include "client/lib/base/error.h"

#include "client/gpushm.h"
#include "client/gpushm_private.h"
#include "proto/code.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static __thread struct error last;

void error_keep(struct error *ret)
{
	*ret = last;
}

void error_put_back(const struct error *e)
{
	last = *e;
}

int error_set(int number, const char *format, ...)
{
	char text[ERROR_TEXT_MAX]; /* an argument may be gpushm_error() itself */
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	memcpy(last.text, text, sizeof(last.text));
	last.code = NULL;
	return -number;
}

int error_no_reply(int r)
{
	last.code = "NO_REPLY";
	return r;
}

int error_set_text(int number, const char *text)
{
	size_t n = strnlen(text, sizeof(last.text) - 1);

	memmove(last.text, text, n);
	last.text[n] = '\0';
	last.code = NULL;
	return -number;
}

int error_set_about(int number, const char *about, const char *name)
{
	const char *code = last.code;

	error_set(number, "%s \"%s\": %s", about, name, last.text);
	last.code = code;
	return -number;
}

int error_set_remote(int code, const void *text, unsigned long len)
{
	const unsigned char *from = text;
	size_t n = 0;

	for (; n < len && n < sizeof(last.text) - 1; n++)
		last.text[n] = from[n] < 0x20 || from[n] == 0x7f ? '?' : (char)from[n];
	last.text[n] = '\0';
	last.code = code_name(code);
	if (n == 0)
		snprintf(last.text, sizeof(last.text), "the daemon refused: %s", last.code);
	/* A reply with an error but no code is still an error. */
	return code_to_errno(code) ? -code_to_errno(code) : -EIO;
}

const char *gpushm_error(void)
{
	return last.text;
}

const char *gpushm_error_code(void)
{
	return last.code ? last.code : "";
}

const char *gpushm_version(void)
{
	return GPUSHM_VERSION;
}

/* ---- for libgpushm-load ---- */

_Static_assert(sizeof(struct gpushm_private_error) == sizeof(struct error), "one holds the other");

int gpushm_private_fail(int number, const char *format, ...) __attribute__((alias("error_set")));

void gpushm_private_keep(struct gpushm_private_error *ret)
{
	memcpy(ret, &last, sizeof(last));
}

void gpushm_private_put_back(const struct gpushm_private_error *e)
{
	memcpy(&last, e, sizeof(last));
}

int error_flags(uint32_t flags, uint32_t known)
{
	if (!(flags & ~known))
		return 0;
	return error_set(EINVAL,
			 "the flags 0x%x are of another function, or of a newer libgpushm than "
			 "this one",
			 flags & ~known);
}
