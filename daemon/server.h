/* SPDX-License-Identifier: MIT
 *
 * The server: the whole daemon, from its configuration to its end.
 */
#pragma once

#include "daemon/config/config.h"

#include <stdio.h>

/* Serves until SIGTERM or SIGINT, or until another program takes over. config_path and socket_path
 * come from the command line and may be NULL; argv is main()'s. Takes the configuration over. The
 * caller has blocked the signals (reexec.h). Returns the exit status of the process: 0, or 1 after
 * a line in the log. */
int server_run(const char *config_path, const char *socket_path, char *const *argv,
	       struct config *config);

/* Loads the configuration; a socket_path replaces the path of the file. Returns as config_load().
 */
int server_load_config(const char *config_path, const char *socket_path, FILE *errors,
		       struct config **ret);
