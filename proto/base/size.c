/* SPDX-License-Identifier: MIT
 *
 * Sizes as text, for error messages, the log and the tables of gpushmctl.
 *
 * Binary units alone, written as such (IEC 80000-13: KiB, MiB, GiB), because a GPU's memory, a page
 * and a pool's granularity are multiples of them. Owns nothing; reading a size is the
 * configuration's business, since it knows percentages, too.
 */
#include "proto/base/size.h"

#include "proto/base/own.h"

#include <stdio.h>

struct size_text size_format(uint64_t bytes)
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	struct size_text ret;
	double value = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 1024) {
		snprintf(ret.text, sizeof(ret.text), "%u B", (unsigned int)bytes);
		return ret;
	}

	/* 1023.95 would be printed as "1024.0": it is the next unit's 1.0. */
	while (value >= 1023.95 && unit + 1 < array_size(units)) {
		value /= 1024;
		unit++;
	}
	snprintf(ret.text, sizeof(ret.text), "%.1f %s", value, units[unit]);
	return ret;
}
