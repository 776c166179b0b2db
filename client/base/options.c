/* SPDX-License-Identifier: MIT
 *
 * struct gpushm_options grows at its end from version to version, and struct_size says with which
 * version a caller was compiled. A field that an older caller lacks has its default. A field that
 * this library does not know is refused, unless it is zero.
 */
#include "client/base/options.h"

#include "client/base/error.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define STRUCT_SIZE_MAX 4096u /* a larger one is a mistake */

#define FLAGS_KNOWN (GPUSHM_TRANSIENT | GPUSHM_SET_GID | GPUSHM_SET_DEVICE | GPUSHM_REFUSE_DIRTY)

static int check(const struct gpushm_options *o)
{
	if (o->flags & ~FLAGS_KNOWN)
		return error_set(EINVAL, "options: this libgpushm does not know the flags 0x%x",
				 o->flags & ~FLAGS_KNOWN);
	if (o->n_attrs > 0 && !o->attrs)
		return error_set(EINVAL, "options: n_attrs is %zu, and attrs is NULL", o->n_attrs);
	if (o->flags & GPUSHM_SET_DEVICE && o->device < GPUSHM_OWN_DEVICE)
		return error_set(EINVAL, "options: %d is no GPU", o->device);
	if (!(o->flags & GPUSHM_SET_DEVICE) && o->device != 0 && o->device != GPUSHM_OWN_DEVICE)
		return error_set(EINVAL,
				 "options: device is set, and GPUSHM_SET_DEVICE is not in flags");
	return 0;
}

/* Whether all fields that this library does not know are zero. */
static bool is_known(const struct gpushm_options *from)
{
	const char *bytes = (const char *)from;

	if (from->struct_size > STRUCT_SIZE_MAX)
		return false;
	for (size_t i = sizeof(*from); i < from->struct_size; i++)
		if (bytes[i])
			return false;
	return true;
}

int options_read(const struct gpushm_options *from, struct gpushm_options *ret)
{
	struct gpushm_options o = { 0 };
	int r;

	if (from && from->struct_size < offsetof(struct gpushm_options, pool))
		return error_set(EINVAL, "options: struct_size is not set");
	if (from && !is_known(from))
		return error_set(EINVAL, "options: made for a newer libgpushm than %s",
				 gpushm_version());
	if (from)
		memcpy(&o, from, from->struct_size < sizeof(o) ? from->struct_size : sizeof(o));
	r = check(&o);
	if (r < 0)
		return r;
	if (!(o.flags & GPUSHM_SET_DEVICE))
		o.device = GPUSHM_OWN_DEVICE;
	*ret = o;
	return 0;
}
