/* SPDX-License-Identifier: MIT
 *
 * The fixture that tests of gpushmctl share: a daemon, a shell that finds it, and files to put.
 */
#pragma once

#include "tests/lib/shell.h"

#include <stddef.h>

extern struct shell sh;

/* A checked fixture: a daemon with the default pools, $GPUSHM_SOCKET, a shell. The teardown removes
 * all names and expects that nothing is left. */
void ctl_setup(void);
void ctl_teardown(void);

/* Writes a file into the shell's folder, as numpy.save() does; each file has other data. */
void ctl_write_npy(const char *name, const char *descr, const char *fortran, const char *shape,
		   size_t bytes);

/* Fails if the last script did not print this text. */
#define says(text) ck_assert_msg(strstr(sh.out, text), "no \"%s\" in: %s%s", text, sh.out, sh.err)
#define complains(text) ck_assert_msg(strstr(sh.err, text), "no \"%s\" in: %s", text, sh.err)
