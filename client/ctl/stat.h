/* SPDX-License-Identifier: MIT
 *
 * A buffer as the daemon describes it, in the form that ls and stat share.
 */
#pragma once

#include "client/ctl/ctl.h"

/* All facts, as an object. key is as for json_open(). */
void stat_json(struct json *j, const char *key, const struct gpushm_stat *s, bool with_holders);

/* The colour of a buffer's state. */
enum table_style stat_style(const struct gpushm_stat *s);
