/* SPDX-License-Identifier: MIT
 *
 * What tests of gpushmctl share: a daemon, a shell that finds it, and files to put.
 */
#ifndef GPUSHM_TESTS_LIB_CTL_H
#define GPUSHM_TESTS_LIB_CTL_H

#include "tests/lib/shell.h"

#include <stddef.h>

extern struct shell sh;

/* A checked fixture: a daemon with the default pools, $GPUSHM_SOCKET, a shell. At the end all
 * names are removed, and then nothing must be left. */
void ctl_setup(void);
void ctl_teardown(void);

/* A file in the shell's folder as numpy.save() writes it, with data that differ from file to
 * file. */
void ctl_write_npy(const char *name, const char *descr, const char *fortran, const char *shape,
		   size_t bytes);

/* What the last script must have printed. */
#define says(text) ck_assert_msg(strstr(sh.out, text), "no \"%s\" in: %s%s", text, sh.out, sh.err)
#define complains(text) ck_assert_msg(strstr(sh.err, text), "no \"%s\" in: %s", text, sh.err)

#endif
