/* SPDX-License-Identifier: MIT
 *
 * What a reply says, as the structs that the library returns: by the tables of client/records.txt.
 */
#pragma once

#include "client/lib/base/result.h"
#include "gpushm_records.h"
#include "proto/record.h"

#include <protobuf-c/protobuf-c.h>

extern const struct record *const records_stat,
	*const records_pool, *const records_status, *const records_events,
							    *const records_stream_info,
								    *const records_metrics;

/* Reads the message into a new item of the result, with everything below it. Absent numbers are 0;
 * members that no message has are 0, and an ordinal -1. 0; -ENOMEM; -EPROTO: a field makes no
 * sense. gpushm_error() is set. */
int records_read(struct result *r, const struct record *record, const ProtobufCMessage *message,
		 void **ret);
