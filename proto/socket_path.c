/* SPDX-License-Identifier: MIT */
#include "proto/socket_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void in_tmp(const char *file, char ret[SOCKET_PATH_SIZE])
{
	snprintf(ret, SOCKET_PATH_SIZE, "/tmp/gpushm-%u%s", (unsigned)geteuid(), file);
}

bool socket_path_is_in_tmp(const char *path)
{
	char folder[SOCKET_PATH_SIZE];

	in_tmp("/", folder);
	return strncmp(path, folder, strlen(folder)) == 0;
}

bool socket_path_is_safe(void)
{
	char folder[SOCKET_PATH_SIZE];
	struct stat st;

	in_tmp("", folder);
	return lstat(folder, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       (st.st_mode & 07777) == 0700;
}

/* Not in a folder that another user owns, as su(1) leaves it in $XDG_RUNTIME_DIR, and not in a
 * relative one, which the XDG Base Directory Specification says to ignore. */
static bool in_runtime(const char *folder, char ret[SOCKET_PATH_SIZE])
{
	struct stat st;

	return folder && folder[0] == '/' && stat(folder, &st) == 0 && st.st_uid == geteuid() &&
	       snprintf(ret, SOCKET_PATH_SIZE, "%s/gpushm/gpushmd.sock", folder) < SOCKET_PATH_SIZE;
}

bool socket_path_of_user(char ret[SOCKET_PATH_SIZE])
{
	char session[32], path[SOCKET_PATH_SIZE];
	const char *const folders[] = { secure_getenv("XDG_RUNTIME_DIR"), session };

	snprintf(session, sizeof(session), "/run/user/%u", (unsigned)geteuid());
	in_tmp("/gpushmd.sock", ret);
	for (int i = 1; i >= 0; i--)
		if (in_runtime(folders[i], path))
			strcpy(ret, path);
	for (int i = 0; i < 2; i++)
		if (in_runtime(folders[i], path) && access(path, F_OK) == 0)
			return strcpy(ret, path);
	in_tmp("/gpushmd.sock", path);
	return access(path, F_OK) == 0 && socket_path_is_safe() && strcpy(ret, path);
}

const char *socket_path_of_clients(char buf[SOCKET_PATH_SIZE])
{
	return access(SOCKET_SYSTEM, F_OK) < 0 && socket_path_of_user(buf) ? buf : SOCKET_SYSTEM;
}
