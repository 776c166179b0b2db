/* SPDX-License-Identifier: MIT
 *
 * From the name that a client says to the key that the catalog knows, and back: "~/x" is
 * "~1001/x" inside, so that each user has names of their own.
 */
#ifndef GPUSHM_DAEMON_CATALOG_PRIVATE_NAMES_H
#define GPUSHM_DAEMON_CATALOG_PRIVATE_NAMES_H

#include "daemon/catalog/process.h"
#include "proto/fault.h"
#include "proto/limits.h"

#define KEY_MAX (BUFFER_NAME_MAX + 11u) /* "~" becomes "~4294967294" */

/* Checks the name by the rule of proto/name.h and writes the key, terminated. 0, or -errno with *f
 * filled in: CODE_NAME, and CODE_ACCESS for another user's private name. */
int private_names_key(const struct process *p, const void *name, size_t len, char ret[KEY_MAX + 1],
		      struct fault *f);

/* Whether the process has a name for that key: a private one is its user's and admins' alone. */
bool private_names_may_say(const struct process *p, const char *key);

/* The key as that process calls it: its own private names start with "~/". Returns the length. */
size_t private_names_shown(const struct process *p, const char *key, char ret[KEY_MAX + 1]);

#endif
