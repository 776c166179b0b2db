/* SPDX-License-Identifier: MIT
 *
 * The fields of any protobuf message, found through protobuf-c's descriptors: a new field or
 * message is covered at once.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

/* The size of a value of the field in memory. */
size_t field_size(const ProtobufCFieldDescriptor *f);

/* The number of the field's values in the message at m, and where the first one is: 1 for a field
 * that is not repeated, 0 for a member of a oneof that has another case. */
size_t field_values(const ProtobufCFieldDescriptor *f, const void *m, char **ret);
