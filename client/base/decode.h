/* SPDX-License-Identifier: MIT
 *
 * Checks of the fields of a reply. Each returns 0, or -EPROTO with gpushm_error() set where the
 * field makes no sense; results are written on success only.
 */
#ifndef GPUSHM_CLIENT_BASE_DECODE_H
#define GPUSHM_CLIENT_BASE_DECODE_H

#include "client/gpushm.h"
#include "gpushm.pb-c.h"

#include <stdbool.h>

/* Text of at most size - 1 bytes without a NUL inside, terminated in ret. Absent: "". */
int decode_text(const char *what, protobuf_c_boolean has, ProtobufCBinaryData from, char *ret,
		size_t size);

/* Exactly n bytes. */
int decode_bytes(const char *what, protobuf_c_boolean has, ProtobufCBinaryData from,
		 unsigned char *ret, size_t n);

int decode_state(protobuf_c_boolean has, int from, enum gpushm_state *ret);
int decode_access(protobuf_c_boolean has, int from, enum gpushm_access *ret);

/* Whether this library knows the kind of pool; a later daemon may have others. */
bool decode_kind_known(const Gpushm__Proto__Pool *from);

/* For a pool of a known kind. ret->device is -1: the caller looks it up. */
int decode_pool(const Gpushm__Proto__Pool *from, struct gpushm_pool *ret);

#endif
