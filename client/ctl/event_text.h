/* SPDX-License-Identifier: MIT
 *
 * An event of the daemon as people read it.
 */
#pragma once

#include "client/ctl/output.h"
#include "gpushm_records.h"

#include <stdbool.h>

/* What happened, without the time and the type: "model/w for reading by alice (process 7,
 * python3)". exact: sizes as numbers of bytes. malloc'd, not escaped; NULL without memory. */
char *event_text(const struct gpushm_logged_event *e, bool exact);

/* Its time of day here, "12:00:01.123". */
struct output_text event_time(const struct gpushm_logged_event *e);
