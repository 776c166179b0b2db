/* SPDX-License-Identifier: MIT */
#include "proto/socket_path.h"

#include "proto/base/own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IN_TMP "/tmp/gpushm-%u/"

/* Empty for a folder that another user owns, as su(1) leaves it in $XDG_RUNTIME_DIR, and for a
 * relative one, which the XDG Base Directory Specification says to ignore. */
static void in_runtime(const char *folder, char ret[SOCKET_PATH_SIZE])
{
	struct stat st;

	if (!folder || folder[0] != '/' || stat(folder, &st) < 0 || st.st_uid != geteuid() ||
	    snprintf(ret, SOCKET_PATH_SIZE, "%s/gpushm/gpushmd.sock", folder) >= SOCKET_PATH_SIZE)
		ret[0] = '\0';
}

bool socket_path_is_in_tmp(const char *path)
{
	char folder[32];

	snprintf(folder, sizeof(folder), IN_TMP, (unsigned)geteuid());
	return strncmp(path, folder, strlen(folder)) == 0;
}

bool socket_path_is_safe(void)
{
	char folder[32];
	struct stat st;

	folder[snprintf(folder, sizeof(folder), IN_TMP, (unsigned)geteuid()) - 1] = '\0';
	return lstat(folder, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       (st.st_mode & 07777) == 0700;
}

bool socket_path_of_user(char ret[SOCKET_PATH_SIZE])
{
	char places[3][SOCKET_PATH_SIZE], session[32];
	size_t first = array_size(places);

	snprintf(session, sizeof(session), "/run/user/%u", (unsigned)geteuid());
	in_runtime(secure_getenv("XDG_RUNTIME_DIR"), places[0]);
	in_runtime(session, places[1]);
	snprintf(places[2], sizeof(places[2]), IN_TMP "gpushmd.sock", (unsigned)geteuid());
	for (size_t i = array_size(places); i-- > 0;)
		if (places[i][0])
			first = i;
	for (size_t i = first; i < array_size(places); i++)
		if (places[i][0] && access(places[i], F_OK) == 0 &&
		    (i < 2 || socket_path_is_safe())) {
			strcpy(ret, places[i]);
			return true;
		}
	strcpy(ret, places[first]);
	return false;
}
