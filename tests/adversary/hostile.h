/* SPDX-License-Identifier: MIT
 *
 * A hostile user: one process with many connections that all send requests as fast as the daemon
 * replies to them. Each attack is a line of a table: a kind of request that is cheap to send and
 * dear to serve.
 */
#pragma once

#include <stddef.h>

/* For a program's table of roles: { "hostile", hostile_role }. args: socket, uid, the attack's
 * name, the number of connections, the processor to run on or -1. It prints a line when all
 * connections are open, and attacks until it is killed. */
int hostile_role(char **args);

/* The names of all attacks, and what each does. */
size_t hostile_attacks(void);
const char *hostile_name(size_t i);
const char *hostile_text(size_t i);
