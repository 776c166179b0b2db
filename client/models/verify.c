/* SPDX-License-Identifier: MIT
 *
 * A buffer's digest: gpushm_digest() leaves it, as gpushm_load() does, and gpushm_verify() compares
 * with it.
 */
#include "client/gpushm_load.h"
#include "client/gpushm_private.h"
#include "client/models/copy/readback.h"
#include "client/models/fail.h"
#include "client/models/files/arrays.h"
#include "client/models/load.h"

#include <stdlib.h>
#include <string.h>

static int compare(const struct gpushm_buffer *b, const char *found, const void *content,
		   size_t size)
{
	if (size == strlen(found) && memcmp(found, content, size) == 0)
		return 0;
	return gpushm_private_fail(EBADMSG,
				   "buffer \"%s\": its contents have the digest %s, and were %.*s "
				   "when it was loaded",
				   gpushm_buffer_name(b), found, (int)size, (const char *)content);
}

int load_digest(struct gpushm_buffer *b, const struct readback *back,
		struct gpushm_load_report *ret)
{
	struct digest digest = { 0 };
	struct arrays arrays = { 0 };
	struct plan plan = { 0 };
	int r = arrays_list(b, &arrays);

	if (r == 0)
		r = arrays_plan(&arrays, &plan);
	if (r == 0)
		r = readback_digest_plan(back, &plan,
					 back->buffer == b ? arrays_device(&arrays, b) : -1,
					 &digest, &ret->elapsed_ns);
	if (r == 0)
		digest_format(&digest, ret->content);
	ret->bytes = plan.bytes;
	ret->tensors = arrays.n;
	digest_clear(&digest);
	free(plan.runs);
	arrays_clear(&arrays);
	return r;
}

/* "": removes it. */
static int set_content(struct gpushm_buffer *b, const char *content)
{
	const struct gpushm_attr attr = { sizeof(attr), "gpushm.content", content,
					  strlen(content) };

	return gpushm_set_attrs(b, &attr, 1);
}

int gpushm_digest(struct gpushm_buffer *b, gpushm_load_progress_fn *progress, void *user,
		  struct gpushm_load_report *ret)
{
	const struct readback back = { .buffer = b, .progress = progress, .progress_user = user };
	struct gpushm_load_report report = { 0 };
	int r = load_check_report(ret);

	/* A buffer that is published is refused before it is read. */
	if (r == 0)
		r = set_content(b, "");
	if (r == 0)
		r = load_digest(b, &back, &report);
	if (r == 0)
		r = set_content(b, report.content);
	if (r == 0)
		load_write_report(ret, &report);
	return r;
}

int gpushm_verify(struct gpushm_buffer *b, gpushm_load_progress_fn *progress, void *user,
		  struct gpushm_load_report *ret)
{
	const struct readback back = { .buffer = b, .progress = progress, .progress_user = user };
	struct gpushm_load_report report = { 0 };
	const void *content;
	size_t size;
	int r = load_check_report(ret);

	if (r == 0)
		r = gpushm_buffer_attr(b, "gpushm.content", &content, &size);
	if (r == -ENOENT)
		return gpushm_private_fail(
			ENODATA,
			"buffer \"%s\" has no digest (attribute \"gpushm.content\"): "
			"gpushm_load() makes one, and gpushm_digest()",
			gpushm_buffer_name(b));
	if (r == 0)
		r = load_digest(b, &back, &report);
	if (r == 0)
		r = compare(b, report.content, content, size);
	if (r == 0)
		load_write_report(ret, &report);
	return r;
}
