/* SPDX-License-Identifier: MIT
 *
 * Scripts for a test: bash in a folder of its own, with what it printed and how it ended.
 */
#ifndef GPUSHM_TESTS_LIB_SHELL_H
#define GPUSHM_TESTS_LIB_SHELL_H

struct shell {
	char folder[64]; /* made by us, removed at the end; where scripts run */
	char *out, *err; /* owned; of the last script */
};

void shell_open(struct shell *s);
void shell_close(struct shell *s);

/* Runs a script under `set -u` with $ctl, the path of gpushmctl, and $source, the folder that the
 * test was started in. Its exit status; a signal is 128 and its number. */
int shell_run(struct shell *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* As shell_run(), and it must exit with that status. */
void shell_expect(struct shell *s, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
