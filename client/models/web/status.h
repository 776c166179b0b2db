/* SPDX-License-Identifier: MIT
 *
 * Statuses from 400 on, as errors.
 */
#pragma once

#include "client/models/web/fetch.h"

/* Sets gpushm_error(), with the text of a JSON body's "error", for which it reads the body. Returns
 * the errno of remote.h; *ret says what to do. */
int status_error(struct fetch *f, const struct credentials *c, struct load_stop stop,
		 enum fate *ret);
