/* SPDX-License-Identifier: MIT
 *
 * UUIDs as text.
 */
#pragma once

#include <stdio.h>

#define UUID_TEXT 37 /* bytes, with the NUL */

/* Writes "00112233-4455-6677-8899-aabbccddeeff". */
static inline void uuid_format(const unsigned char uuid[16], char ret[UUID_TEXT])
{
	for (int i = 0; i < 16; i++)
		ret += sprintf(ret, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
			       uuid[i]);
}
