/* SPDX-License-Identifier: MIT
 *
 * The daemon's process, for people: what an error says of a daemon that does not reply.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* Writes "its process 4711 is stopped (state T): ..." to ret. socket: a connection to it. told: the
 * pid that the daemon says it has; 0: it says none. */
void daemon_process_describe(int socket, pid_t told, char *ret, size_t size);
