/* SPDX-License-Identifier: MIT
 *
 * Mutations of protobuf messages that remain messages: most byte mutations of a fuzzer do not
 * unpack.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

/* libFuzzer's own mutation of bytes (FuzzerInterface.h). */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* The source of all choices: the same seed gives the same mutations. */
struct dice {
	uint64_t state;
};

/* 0 to n - 1; n is not 0. */
uint32_t dice_roll(struct dice *d, uint32_t n);

/* Sets, changes or drops one field of the message in `data`, or of a message within it; without
 * bytes it is a message without fields. Returns the new size; 0 if the bytes are no such message or
 * the result is larger than max. */
size_t mutate_message(struct dice *d, const ProtobufCMessageDescriptor *type, uint8_t *data,
		      size_t size, size_t max);
