/* SPDX-License-Identifier: MIT
 *
 * The options of create and open, with whichever version of the header the caller was compiled.
 */
#include "client/lib/base/error.h"
#include "client/lib/buffer/buffer.h"
#include "proto/base/sized.h"

#include <errno.h>

#define CREATE_FLAGS (GPUSHM_TRANSIENT | GPUSHM_SET_GID | GPUSHM_SET_DEVICE)
#define OPEN_FLAGS (GPUSHM_SET_DEVICE | GPUSHM_REFUSE_DIRTY | GPUSHM_COPY_ON_WRITE | GPUSHM_TABLE)

/* Checks the members that both structs have. Sets *device to GPUSHM_OWN_DEVICE if the flags choose
 * none. */
static int check_common(uint32_t flags, uint32_t known, int *device)
{
	int r = error_flags(flags, known);

	if (r < 0)
		return r;
	if (flags & GPUSHM_SET_DEVICE && *device < GPUSHM_CURRENT_DEVICE)
		return error_set(EINVAL, "options: %d is no GPU", *device);
	if (!(flags & GPUSHM_SET_DEVICE)) {
		if (*device != 0 && *device != GPUSHM_OWN_DEVICE)
			return error_set(
				EINVAL,
				"options: device is set, and GPUSHM_SET_DEVICE is not in flags");
		*device = GPUSHM_OWN_DEVICE;
	}
	return 0;
}

int buffer_create_options(const struct gpushm_create_options *from,
			  struct gpushm_create_options *ret)
{
	struct gpushm_create_options o;
	int r = error_wrong("options", sized_read(from, &o, sizeof(o)));

	if (r == 0)
		r = check_common(o.flags, CREATE_FLAGS, &o.device);
	if (r == 0 && o.n_attrs > 0 && !o.attrs)
		r = error_set(EINVAL, "options: n_attrs is %zu, and attrs is NULL", o.n_attrs);
	o.struct_size = sizeof(o);
	if (r == 0)
		*ret = o;
	return r;
}

int buffer_open_options(const struct gpushm_open_options *from, struct gpushm_open_options *ret)
{
	struct gpushm_open_options o;
	int r = error_wrong("options", sized_read(from, &o, sizeof(o)));

	if (r == 0)
		r = check_common(o.flags, OPEN_FLAGS, &o.device);
	o.struct_size = sizeof(o);
	if (r == 0)
		*ret = o;
	return r;
}

struct gpushm_open_options buffer_mapped_as(const struct gpushm_create_options *o)
{
	return (struct gpushm_open_options){ sizeof(struct gpushm_open_options),
					     o->flags & GPUSHM_SET_DEVICE, o->device };
}
