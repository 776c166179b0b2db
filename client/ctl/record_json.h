/* SPDX-License-Identifier: MIT
 *
 * libgpushm's structs as members of a JSON object, by the tables of client/records.txt.
 */
#pragma once

#include "client/ctl/json.h"
#include "proto/record.h"

extern const struct record *const json_holder,
	*const json_stat, *const json_pool, *const json_status, *const json_event,
									*const json_reader,
										*const json_stream;

/* Writes the members that have a name in JSON. What is missing is null; with omit it is left out.
 * Of users and groups the names are written, too. */
void json_record(struct json *j, const struct record *r, const void *s, bool omit);
