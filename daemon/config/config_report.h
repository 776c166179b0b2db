/* SPDX-License-Identifier: MIT
 *
 * A configuration as text, and how two of them differ.
 */
#pragma once

#include "daemon/config/config.h"

#include <stdio.h>

/* Writes every value as a line "key=value  # file:line" or "# default", in the form of the file. */
void config_dump(const struct config *c, FILE *out);

/* Compares a reloaded configuration with the one in force. Writes the names of the keys that differ
 * and need a restart, separated by ", ", to names: pools that came or went; a pool's kind, device,
 * node or size; the socket, its mode or its group. Returns their number. */
size_t config_needs_restart(const struct config *old, const struct config *fresh, char *names,
			    size_t size);
