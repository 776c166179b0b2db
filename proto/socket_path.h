/* SPDX-License-Identifier: MIT
 *
 * Where a daemon and its clients meet if nobody names a socket.
 */
#pragma once

#include <stdbool.h>

#define SOCKET_PATH_SIZE 108 /* of sun_path, the NUL included */
#define SOCKET_SYSTEM_FOLDER "/run/gpushm"
#define SOCKET_SYSTEM SOCKET_SYSTEM_FOLDER "/gpushmd.sock"

/* The socket of the daemon that this user runs for himself: in the first of
 * $XDG_RUNTIME_DIR/gpushm, /run/user/UID/gpushm and /tmp/gpushm-UID that has a socket, whatever of
 * them a later process could use; if none has one, in the first that can be used. The folders above
 * the first two must be the user's own; the third needs no session. Returns whether a socket is
 * there. */
bool socket_path_of_user(char ret[SOCKET_PATH_SIZE]);

/* The socket that this user's programs connect to: the machine's, unless the user's alone is there.
 * Returns it, which may be in buf. */
const char *socket_path_of_clients(char buf[SOCKET_PATH_SIZE]);

/* Whether the path is in /tmp/gpushm-UID of this user. Anybody could have made that: it is safe if
 * it is a folder of this user with mode 0700. */
bool socket_path_is_in_tmp(const char *path);
bool socket_path_is_safe(void);
