/* SPDX-License-Identifier: MIT
 *
 * How protobuf-c lays fields out in memory.
 */
#include "tests/fuzz/fields.h"

#include <stdint.h>

size_t field_size(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(ProtobufCMessage *);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_SINT64:
		return sizeof(uint64_t);
	default:
		return sizeof(uint32_t);
	}
}

size_t field_values(const ProtobufCFieldDescriptor *f, const void *m, char **ret)
{
	char *at = (char *)m + f->offset;
	/* Of a repeated field the count, of a oneof the number of the member that is there. */
	const char *quantifier = (const char *)m + f->quantifier_offset;

	if (f->label == PROTOBUF_C_LABEL_REPEATED) {
		*ret = *(char **)at;
		return *(const size_t *)quantifier;
	}
	*ret = at;
	if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
		return *(const uint32_t *)quantifier == f->id;
	return 1;
}
