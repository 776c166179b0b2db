/* SPDX-License-Identifier: MIT
 *
 * What a value is that no file gives.
 */
#ifndef GPUSHM_DAEMON_CONFIG_CONFIG_DEFAULT_H
#define GPUSHM_DAEMON_CONFIG_CONFIG_DEFAULT_H

#include "daemon/config/config.h"

/* [daemon] but for the socket and the default pool. */
void config_default_daemon(struct config *ret);

/* [limits]. */
void config_default_limits(struct limits_config *ret);

/* The socket's path for who runs the daemon; NULL where memory ran out. The caller frees it. */
char *config_default_socket(void);

/* Writes the name of the pool that serves a CREATE without one: of the configured pools "gpu0",
 * else "host", else the first; empty where no pool is configured. */
void config_default_pool(const struct config *c, char ret[POOL_NAME_MAX + 1]);

#endif
