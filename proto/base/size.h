/* SPDX-License-Identifier: MIT
 *
 * A number of bytes as people read it: binary units, one decimal.
 */
#ifndef GPUSHM_PROTO_BASE_SIZE_H
#define GPUSHM_PROTO_BASE_SIZE_H

#include <stdint.h>

struct size_text {
	char text[16];
};

/* "512 B", "12.3 GiB", "16.0 EiB"; by value, so that it stands in a printf's arguments:
 * printf("%s", size_format(n).text). */
struct size_text size_format(uint64_t bytes);

#endif
