/* SPDX-License-Identifier: MIT
 *
 * Runs scripts for a test: bash in a folder of its own; keeps what it printed and how it ended.
 */
#pragma once

struct shell {
	char folder[64]; /* scripts run here; created and removed by shell.c */
	char *out, *err; /* owned; the output of the last script */
};

void shell_open(struct shell *s);
void shell_close(struct shell *s);

/* Runs a script under `set -u`. $ctl is the path of gpushmctl, $source the folder in which the test
 * was started. Returns the exit status; after a signal, 128 and its number. */
int shell_run(struct shell *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* As shell_run(); the script must exit with this status. */
void shell_expect(struct shell *s, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
