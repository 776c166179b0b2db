/* SPDX-License-Identifier: MIT
 *
 * Optional fields of protobuf-c's messages.
 */
#pragma once

/* SET() sets the field, SET_SOME() only where it is not zero: readers treat a missing one as 0. */
#define SET(m, field, value) ((m)->has_##field = 1, (m)->field = (value))
#define SET_SOME(m, field, value) ((m)->has_##field = ((m)->field = (value)) != 0)
