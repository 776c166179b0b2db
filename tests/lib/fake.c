/* SPDX-License-Identifier: MIT
 *
 * The fake driver lets a call hang as long as a file exists; an environment variable names the
 * file.
 */
#include "tests/lib/fake.h"

#include <check.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char until[64];

bool fake_is_here(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	bool fake = library && dlsym(library, "fakecuda_calls");

	if (library)
		dlclose(library);
	if (!fake)
		puts("skipped: needs the fake driver");
	return fake;
}

void fake_hang(unsigned n, const char *call)
{
	char text[64];

	snprintf(until, sizeof(until), "/tmp/gpushm-test-hang-%d", getpid());
	snprintf(text, sizeof(text), "%u:%s", n, call);
	setenv("FAKECUDA_HANG", text, 1);
	setenv("FAKECUDA_HANG_UNTIL", until, 1);
}

void fake_let_go(void)
{
	int fd = open(until, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	close(fd);
}

void fake_forget(void)
{
	unlink(until);
}
