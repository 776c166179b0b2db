/* SPDX-License-Identifier: MIT
 *
 * What the daemon tells of a buffer, as text and as JSON: the same words in every subcommand.
 */
#ifndef GPUSHM_CLIENT_CTL_ENTRY_H
#define GPUSHM_CLIENT_CTL_ENTRY_H

#include "client/ctl/grid.h"
#include "client/ctl/json.h"
#include "client/gpushm.h"
#include "proto/dtype.h"

const char *entry_kind(enum gpushm_kind kind);	  /* "host", "pinned", "vmm", "mempool" */
const char *entry_state(enum gpushm_state state); /* "filling", "sealed", "shared" */
enum grid_style entry_state_style(const struct gpushm_stat *s);
const char *entry_access(enum gpushm_access access); /* "read", "write" */

/* The user's or group's name, or its number. Valid until the next call. */
const char *entry_user(uid_t uid);
const char *entry_group(gid_t gid);

/* ns since a CLOCK_REALTIME stamp; 0 for one in the future. */
uint64_t entry_age(uint64_t since_ns);

/* All that is known, as an object. key as for json_open(). */
void entry_json(struct json *j, const char *key, const struct gpushm_stat *s, bool with_holders);

/* The same type in the library's words and in the protocol's. */
struct dtype entry_dtype(struct gpushm_dtype t);
struct gpushm_dtype entry_public_dtype(struct dtype t);

/* "(8, 1080)"; "()" for no dimension. Cut at size. Returns buf. */
char *entry_shape(const struct gpushm_array *a, char *buf, size_t size);

#endif
