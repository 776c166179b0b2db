/* SPDX-License-Identifier: MIT
 *
 * SO_PEERCRED names the process that called listen(): that may be systemd, or an earlier daemon. So
 * the daemon says its own pid. That is one of the daemon's PID namespace, and here it may be
 * another process's: it is the daemon's if SO_PEERCRED has the same, or if the process has the
 * program's name. Where it is not, the listener may be the daemon. SO_PEERCRED has pid 0 if the
 * listener is outside of our namespace.
 */
#include "client/lib/base/daemon_process.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define PROGRAM "gpushmd"

/* "4711 (gpushmd) S ...", proc_pid_stat(5). The name may have any characters. */
static bool read_state(pid_t pid, char *ret_state, bool *ret_named)
{
	char path[32], text[128];
	const char *end;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	end = strrchr(text, ')');
	if (!end || end[1] != ' ' || end[2] == '\0')
		return false;
	*ret_state = end[2];
	*ret_named = strstr(text, "(" PROGRAM) != NULL;
	return true;
}

/* Whether there is such a process, and it is the daemon's. */
static bool is_daemon(pid_t pid, bool sure, char *ret_state)
{
	bool named;

	return pid > 0 && read_state(pid, ret_state, &named) && (named || sure);
}

static const char *explain(char state)
{
	switch (state) {
	case 'T':
		return "is stopped (state T): kill -CONT lets it go on";
	case 't':
		return "is stopped by a debugger (state t)";
	case 'D':
		return "is in a system call that does not return (state D): see dmesg";
	case 'Z':
	case 'X':
		return "has ended";
	default:
		return "runs, and is busy or waits for something: see systemctl status gpushmd";
	}
}

void daemon_process_describe(int socket, pid_t told, char *ret, size_t size)
{
	struct ucred listener = { 0 };
	socklen_t length = sizeof(listener);
	char state;

	getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &listener, &length);
	if (listener.pid > 0 && is_daemon(told, told == listener.pid, &state))
		snprintf(ret, size, "its process %d %s", (int)told, explain(state));
	else if (listener.pid > 0 && is_daemon(listener.pid, false, &state))
		snprintf(ret, size, "its process %d %s", (int)listener.pid, explain(state));
	else if (told > 0 && told != listener.pid)
		snprintf(ret, size,
			 "its process has the number %d in another PID namespace: look at it there",
			 (int)told);
	else
		snprintf(ret, size, "its process can't be seen: see systemctl status gpushmd");
}
