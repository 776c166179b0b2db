/* SPDX-License-Identifier: MIT
 *
 * Which types the tensors of a model have, as text: the attribute "gpushm.types".
 */
#pragma once

#include "client/models/files/model.h"

#define TYPES_MAX 512u /* bytes of the text */

/* "bfloat16 280 16060522496, float32 11 90112": a type, its tensors, their bytes; the one with the
 * most bytes first. Tied tensors have their bytes once. "" if the text would be longer than size.
 * 0; -ENOMEM with gpushm_error() set. */
int types_format(const struct model *m, char *ret, size_t size);
