/* SPDX-License-Identifier: MIT
 *
 * The thread's last error, behind gpushm_error().
 */
#ifndef GPUSHM_CLIENT_BASE_ERROR_H
#define GPUSHM_CLIENT_BASE_ERROR_H

/* Keeps the text for this thread and returns -number, so that a check is one line. */
int error_set(int number, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts `about "name": ` before the text that is there, and keeps its code. Returns -number. */
int error_set_about(int number, const char *about, const char *name);

/* Likewise for an error that the daemon told: code is enum code; the text is not terminated.
 * Returns -code_to_errno(code). */
int error_set_remote(int code, const void *text, unsigned long len);

/* The thread's error set aside, while something is undone that may fail with another. */
#define ERROR_TEXT_MAX 768u
struct error {
	char text[ERROR_TEXT_MAX];
	const char *code; /* static; NULL: the library's own finding */
};
void error_keep(struct error *ret);
void error_put_back(const struct error *e);

#endif
