/* SPDX-License-Identifier: MIT
 *
 * Translates a client's name for a buffer to the catalog's key, and back: "~/x" is "~1001/x"
 * inside, so that each user has private names.
 */
#pragma once

#include "daemon/catalog/process.h"
#include "proto/code.h"
#include "proto/limits.h"

#define KEY_MAX (BUFFER_NAME_MAX + 11u) /* "~" becomes "~4294967294" */

/* Checks the name by the rules of proto/name.h and writes the key, terminated by a zero. 0, or
 * -errno with *f filled in: CODE_NAME, or CODE_ACCESS for another user's private name. */
int private_names_key(const struct process *p, const void *name, size_t len, char ret[KEY_MAX + 1],
		      struct fault *f);

/* Whether the process may name that key: only its user and admins may name a private one. */
bool private_names_may_say(const struct process *p, const char *key);

/* Writes the process's name for the key: its own private names start with "~/". Returns the length.
 */
size_t private_names_shown(const struct process *p, const char *key, char ret[KEY_MAX + 1]);
