/* SPDX-License-Identifier: MIT */
#include "client/models/caller.h"

#include "client/models/fail.h"
#include "proto/base/sized.h"

int caller_read(const char *what, const void *from, void *ret, size_t known)
{
	const char *wrong = sized_read(from, ret, known);

	return wrong ? load_fail(EINVAL, "%s: %s", what, wrong) : 0;
}

int caller_check_report(const struct gpushm_load_report *report)
{
	if (!report || (report->struct_size >= SIZED_MIN && report->struct_size <= SIZED_MAX))
		return 0;
	return load_fail(EINVAL, "the report: struct_size is not set");
}

void caller_write_report(struct gpushm_load_report *ret, const struct gpushm_load_report *report)
{
	if (ret)
		sized_write(ret, report, sizeof(*report));
}
