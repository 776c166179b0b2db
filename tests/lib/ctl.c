/* SPDX-License-Identifier: MIT
 *
 * The fixture of gpushmctl's tests. It writes files byte by byte, not by the code under test: a
 * header that reader and writer get wrong in the same way is found, too.
 */
#include "tests/lib/ctl.h"

#include "tests/lib/daemon.h"
#include "tests/lib/fds.h"

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct daemon d;
struct shell sh;

void ctl_setup(void)
{
	fds_mark();
	daemon_start(&d, "", NULL);
	setenv("GPUSHM_SOCKET", d.socket, 1);
	shell_open(&sh);
}

/* After the names are removed no memory is used: no command has left a lease or a buffer behind. */
void ctl_teardown(void)
{
	shell_expect(&sh, 0,
		     "mapfile -t names < <($ctl ls --names-only); "
		     "((${#names[@]} == 0)) || $ctl rm \"${names[@]}\" || exit; "
		     "[[ $($ctl ls --json) == '[]' ]]");
	shell_close(&sh);
	daemon_stop(&d);
	fds_check();
}

void ctl_write_npy(const char *name, const char *descr, const char *fortran, const char *shape,
		   size_t bytes)
{
	static uint32_t x = 1;
	char path[128], dict[512];
	int n = snprintf(dict, sizeof(dict), "{'descr': %s, 'fortran_order': %s, 'shape': %s, }",
			 descr, fortran, shape);
	int len = (10 + n + 1 + 63) / 64 * 64 - 10;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", sh.folder, name);
	f = fopen(path, "we");
	ck_assert_ptr_nonnull(f);
	fwrite("\x93NUMPY\x01\x00", 1, 8, f);
	fputc(len & 0xff, f);
	fputc(len >> 8, f);
	fprintf(f, "%-*s\n", len - 1, dict);
	for (size_t i = 0; i < bytes; i++) {
		x = x * 1664525 + 1013904223;
		fputc((int)(x >> 24), f);
	}
	ck_assert_int_eq(fclose(f), 0);
}
