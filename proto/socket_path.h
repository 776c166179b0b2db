/* SPDX-License-Identifier: MIT
 *
 * Where a daemon and its clients meet if nobody names a socket.
 */
#pragma once

#include <stdbool.h>

#define SOCKET_PATH_SIZE 108 /* of sun_path, the NUL included */
#define SOCKET_SYSTEM_FOLDER "/run/gpushm"
#define SOCKET_SYSTEM SOCKET_SYSTEM_FOLDER "/gpushmd.sock"

/* The socket of the daemon that this user runs for himself. Of the folders $XDG_RUNTIME_DIR/gpushm,
 * /run/user/UID/gpushm and /tmp/gpushm-UID, it is in the first that has a socket, so that it makes
 * no difference which of them a later process could use; if none has one, in the first that can be
 * used. The folders above the first two must be the user's own. The third one needs no session, and
 * is used only if socket_path_is_safe(). Returns whether a socket is there. */
bool socket_path_of_user(char ret[SOCKET_PATH_SIZE]);

/* Whether the path is in /tmp/gpushm-UID of this user. */
bool socket_path_is_in_tmp(const char *path);

/* Whether /tmp/gpushm-UID is a folder of this user with mode 0700: anybody could have made it. */
bool socket_path_is_safe(void);
