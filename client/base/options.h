/* SPDX-License-Identifier: MIT
 *
 * The options of create and open, as this version of the library knows them.
 */
#ifndef GPUSHM_CLIENT_BASE_OPTIONS_H
#define GPUSHM_CLIENT_BASE_OPTIONS_H

#include "client/gpushm.h"

/* Copies the caller's options (NULL: the defaults), of any version of the header. 0, or -EINVAL
 * with gpushm_error() set. */
int options_read(const struct gpushm_options *from, struct gpushm_options *ret);

#endif
