/* SPDX-License-Identifier: MIT
 *
 * From the path of a configuration file to a struct config.
 */
#pragma once

#include "daemon/config/config.h"

#include <stdio.h>

/* Reads path and its drop-ins PATH.d/ *.conf in the order of their names. path NULL means
 * /etc/gpushm/gpushmd.conf, which may be missing; a named file must exist. Returns 0, and the
 * caller frees *ret; else -errno (-EINVAL for a wrong file), with every fault written to `errors`
 * as "FILE:LINE: what is wrong; what is allowed". */
int config_load(const char *path, FILE *errors, struct config **ret);
