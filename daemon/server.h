/* SPDX-License-Identifier: MIT
 *
 * The broker: the whole daemon from its configuration to its end.
 */
#ifndef GPUSHM_DAEMON_SERVER_H
#define GPUSHM_DAEMON_SERVER_H

#include "daemon/config/config.h"

/* Serves until SIGTERM or SIGINT, or until another program takes over. config_path and socket_path
 * are what the command line named, or NULL; argv is all of it; the configuration is taken over. The
 * signals are held (restart.h) when this is called. Returns the exit status of the process: 0, or 1
 * after a line in the log. */
int server_run(const char *config_path, const char *socket_path, char *const *argv,
	       struct config *config);

/* Loads the configuration with the command line's socket in place of the file's. As config_load().
 */
int server_load_config(const char *config_path, const char *socket_path, FILE *errors,
		       struct config **ret);

#endif
