/* SPDX-License-Identifier: MIT
 *
 * One suite and one runner. CK_VERBOSITY decides what is printed, CK_FORK whether each test is a
 * process of its own.
 */
#include "tests/lib/suite.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>

bool suite_has_tsan(void)
{
	return dlsym(RTLD_DEFAULT, "__tsan_init");
}

bool suite_is_sanitized(void)
{
	return suite_has_tsan() || dlsym(RTLD_DEFAULT, "__asan_init");
}

/* The lock ends with the process. */
void suite_alone(void)
{
	int fd = open("/tmp/gpushm-tests.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0666);

	if (fd < 0 || flock(fd, LOCK_EX) < 0)
		perror("/tmp/gpushm-tests.lock");
}

int suite_run(const char *name, ...)
{
	Suite *suite = suite_create(name);
	SRunner *runner = srunner_create(suite);
	int failed;
	va_list cases;

	va_start(cases, name);
	for (TCase *it; (it = va_arg(cases, TCase *));)
		suite_add_tcase(suite, it);
	va_end(cases);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
