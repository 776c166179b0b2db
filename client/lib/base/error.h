/* SPDX-License-Identifier: MIT
 *
 * The thread's last error, behind gpushm_error().
 */
#pragma once

#include <errno.h>
#include <stdint.h>

/* Stores the text for this thread. Returns -number, so that a check is one line. */
int error_set(int number, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a text without arguments, at a tenth of the time. */
int error_set_text(int number, const char *text);

/* The same with `about "name": ` before the text. */
#define error_of(about, name, number, format, ...) \
	error_set(number, about " \"%s\": " format, name, ##__VA_ARGS__)

/* Puts `about "name": ` before the stored text; keeps its code. Returns -number. */
int error_set_about(int number, const char *about, const char *name);

/* 0 if wrong is NULL; else -EINVAL, with "what: wrong" as the text. For proto/base/sized.h. */
static inline int error_wrong(const char *what, const char *wrong)
{
	return wrong ? error_set(EINVAL, "%s: %s", what, wrong) : 0;
}

/* 0, or -EINVAL with gpushm_error() set: flags that a function does not take. */
int error_flags(uint32_t flags, uint32_t known);

/* 0, or -EINVAL with the thread's error set where the caller passed NULL for a connection, buffer,
 * array or watch: `noun` says which. */
static inline int error_null(const void *handle, const char *noun)
{
	return handle ? 0 : error_set(EINVAL, "the %s is NULL", noun);
}

/* The stored error is that of a request without a reply: gpushm_error_code() is "NO_REPLY". Returns
 * r. */
int error_no_reply(int r);

/* Stores an error that the daemon sent: code is enum code; the text is not terminated. Returns
 * -code_to_errno(code). */
int error_set_remote(int code, const void *text, unsigned long len);

/* Saves the thread's error while an undo runs that may fail with another one. */
#define ERROR_TEXT_MAX 768u
struct error {
	char text[ERROR_TEXT_MAX];
	const char *code; /* static; NULL: the library found it */
};
void error_keep(struct error *ret);
void error_put_back(const struct error *e);

/* The same until the end of the block. */
#define error_guard()                                                      \
	__attribute__((cleanup(error_put_back))) struct error kept_error_; \
	error_keep(&kept_error_)
