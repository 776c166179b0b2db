/* SPDX-License-Identifier: MIT
 *
 * One suite and one runner. CK_VERBOSITY decides what is printed, CK_FORK whether each test is a
 * process of its own.
 */
#include "tests/lib/suite.h"

#include <stdarg.h>

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
