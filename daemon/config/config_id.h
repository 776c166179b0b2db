/* SPDX-License-Identifier: MIT
 *
 * Users and groups as a configuration file names them.
 */
#ifndef GPUSHM_DAEMON_CONFIG_CONFIG_ID_H
#define GPUSHM_DAEMON_CONFIG_CONFIG_ID_H

#include "daemon/config/config_value.h"

/* A user's name or number. 0; -EINVAL with *wrong said; -ENOMEM. May ask the network, as
 * nsswitch.conf(5) says. */
int config_id_user(const char *text, uid_t *ret, char wrong[WRONG_MAX]);

/* The user's name, if it is a word that config_id_user() reads as the same user; else the number.
 */
void config_id_format_user(uid_t uid, FILE *out);

#endif
