/* SPDX-License-Identifier: MIT
 *
 * Runs a function in a forked child and brings back its result through a shared page.
 */
#include "tests/lib/forked.h"

#include <check.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NO_RESULT 0x7fffffff

int forked(int (*fn)(void *arg), void *arg)
{
	int *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status, result;
	pid_t child;

	ck_assert_ptr_ne(shared, MAP_FAILED);
	*shared = NO_RESULT;
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would print a report */
		alarm(10);
		*shared = fn(arg);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	result = WIFSIGNALED(status) ? -WTERMSIG(status) : *shared;
	munmap(shared, sizeof(*shared));
	ck_assert_int_ne(result, NO_RESULT);
	return result;
}
