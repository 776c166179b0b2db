/* SPDX-License-Identifier: MIT
 *
 * Counts what this process has got and not given back, and checks it at exit. The check runs in a
 * destructor, after main() and atexit() handlers: nothing may use the driver after that, so what is
 * left has leaked. A forked child is not checked: its objects are its parent's.
 */
#include "tests/fakecuda/fakecuda.h"

#include "proto/base/own.h"
#include "tests/fakecuda/fake_call.h"
#include "tests/fakecuda/fake_context.h"
#include "tests/fakecuda/fake_graph.h"
#include "tests/fakecuda/fake_map.h"
#include "tests/fakecuda/fake_mempool.h"
#include "tests/fakecuda/fake_range.h"
#include "tests/fakecuda/fake_vmm.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static const char *const range_names[RANGE_KINDS] = {
	[RANGE_MAPPING] = "mappings",
	[RANGE_POINTER] = "pool pointers",
	[RANGE_ALLOCATION] = "allocations",
	[RANGE_HOST] = "registrations and allocations of host memory",
};

static unsigned long handed_out(void)
{
	unsigned long n = vmm_alive() + map_reservations() + mempool_alive() + graph_alive();

	for (int kind = 0; kind < RANGE_KINDS; kind++)
		n += range_count(kind);
	return n;
}

unsigned long fakecuda_handed_out(void)
{
	unsigned long n;

	call_lock();
	n = handed_out();
	call_unlock();
	return n;
}

static bool leaked(const char *what, unsigned long n)
{
	if (n)
		dprintf(STDERR_FILENO, "fakecuda: leaked %lu %s\n", n, what);
	return n > 0;
}

static bool leaked_objects(void)
{
	bool any = leaked("allocation handles", vmm_alive());

	any |= leaked("address reservations", map_reservations());
	any |= leaked("pools", mempool_alive());
	any |= leaked("retained contexts", context_alive());
	any |= leaked("graphs", graph_alive());
	for (int kind = 0; kind < RANGE_KINDS; kind++)
		any |= leaked(range_names[kind], range_count(kind));
	return any;
}

static bool leaked_fds(void)
{
	DIR *fds = opendir("/proc/self/fd");
	struct dirent *entry;
	bool any = false;

	while (fds && (entry = readdir(fds))) {
		char target[256];
		ssize_t n = readlinkat(dirfd(fds), entry->d_name, target, sizeof(target) - 1);

		if (n < 0)
			continue;
		target[n] = '\0';
		if (!strstr(target, "memfd:fakecuda:"))
			continue;
		dprintf(STDERR_FILENO, "fakecuda: leaked fd %s, %s\n", entry->d_name, target);
		any = true;
	}
	if (fds)
		closedir(fds);
	return any;
}

__attribute__((destructor)) static void check_leaks(void)
{
	const char *strict = getenv("FAKECUDA_STRICT");
	bool any;

	if (!strict || strcmp(strict, "1") || !call_in_own_process())
		return;
	any = leaked_objects();
	any |= leaked_fds();
	if (!any)
		return;
	fflush(NULL);
	_exit(FAKECUDA_LEAKED_STATUS);
}
