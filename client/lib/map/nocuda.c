/* SPDX-License-Identifier: MIT
 *
 * Stands in for the files that need cuda.h, where the library is built without the CUDA Toolkit: an
 * attach to a kind of pool that needs a GPU fails and says why. No device has an ordinal, and
 * nothing is ever copied to one.
 */
#include "client/gpushm_handle.h"
#include "client/lib/base/error.h"
#include "client/lib/map/map.h"
#include "client/lib/map/order.h"

#include <errno.h>

static int refuse(void)
{
	return error_set(ENODEV, "this libgpushm was built without CUDA: host pools only");
}

static int refuse_prepare(const struct map_request *r, int *ret_owner, int *ret_device)
{
	return refuse();
}

/* prepare() comes first and fails: no other function of these kinds is ever called. */
#define REFUSE_MAP(name, ...) const struct map_kind map_##name = { .prepare = refuse_prepare };
DRIVER_KINDS(REFUSE_MAP)

int context_synchronize(int device)
{
	return 0;
}

void context_release_all(void)
{
}

int context_check_peer(int owner, int device)
{
	return refuse();
}

void map_pool_done(struct map_pool *pool)
{
}

int map_device_ordinal(const unsigned char uuid[UUID_BYTES])
{
	return -1;
}

int gpushm_current_device(void)
{
	return -1;
}

uint64_t map_device_bytes(int device)
{
	return 0;
}

int map_enter(int device, struct map_entered *ret)
{
	*ret = (struct map_entered){ 0 };
	return 0;
}

void map_leave(struct map_entered *e)
{
}

int map_copy(const struct map_copy *copy, void *stream)
{
	return refuse();
}

int map_wait(void *stream)
{
	return refuse();
}

int gpushm_pin(void *memory, size_t size, uint32_t flags, void **ret_device_ptr)
{
	return refuse();
}

int gpushm_unpin(void *memory)
{
	return refuse();
}

int order_check(int device)
{
	return refuse();
}

int order_register(struct order_page *p, int device)
{
	return refuse();
}

int order_unregister(struct order_page *p, int device)
{
	return 0;
}

uint64_t order_stream_id(int device, void *stream)
{
	return 0;
}

int order_check_stream(int device, void *stream)
{
	return refuse();
}

int order_enqueue(int device, void *stream, const struct order_op *ops, size_t n)
{
	return refuse();
}

int order_capture(int device, void *stream, const struct order_op *ops, size_t n, void **ret_node)
{
	return refuse();
}

int order_set_node(int device, void *graph_exec, void *node, const struct order_op *ops, size_t n)
{
	return refuse();
}
