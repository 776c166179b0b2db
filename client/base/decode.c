/* SPDX-License-Identifier: MIT
 *
 * From the fields of a reply to the structs of gpushm.h. Protobuf checks the shape of a message
 * only: its decoder accepts an absent field, an enum out of range, and bytes of any length with
 * NULs in them. Here each field is checked before it is used, so that a broken daemon is an error
 * and not a truncated name or a pool that does not exist.
 *
 * Nothing here owns memory or keeps a pointer into the reply.
 */
#include "client/base/decode.h"

#include "client/base/error.h"
#include "proto/words.h"

#include <errno.h>
#include <string.h>

static int nonsense(const char *what)
{
	return error_set(EPROTO, "the daemon's reply makes no sense: %s", what);
}

int decode_text(const char *what, protobuf_c_boolean has, ProtobufCBinaryData from, char *ret,
		size_t size)
{
	size_t n = has ? from.len : 0;

	if (n >= size || (n > 0 && memchr(from.data, '\0', n)))
		return nonsense(what);
	if (n > 0)
		memcpy(ret, from.data, n);
	ret[n] = '\0';
	return 0;
}

int decode_bytes(const char *what, protobuf_c_boolean has, ProtobufCBinaryData from,
		 unsigned char *ret, size_t n)
{
	if (!has || from.len != n)
		return nonsense(what);
	memcpy(ret, from.data, n);
	return 0;
}

int decode_state(protobuf_c_boolean has, int from, enum gpushm_state *ret)
{
	if (!has || from < GPUSHM_FILLING || from > GPUSHM_SHARED)
		return nonsense("state");
	*ret = (enum gpushm_state)from;
	return 0;
}

int decode_access(protobuf_c_boolean has, int from, enum gpushm_access *ret)
{
	if (!has || (from != GPUSHM_READ && from != GPUSHM_WRITE))
		return nonsense("access");
	*ret = (enum gpushm_access)from;
	return 0;
}

bool decode_kind_known(const Gpushm__Proto__Pool *from)
{
	return from->has_kind && from->kind > 0 && from->kind < KINDS;
}

static int decode_pool_names(const Gpushm__Proto__Pool *from, struct gpushm_pool *p)
{
	if (!from->has_id || !from->has_name || from->name.len == 0 ||
	    decode_text("pool name", true, from->name, p->name, sizeof(p->name)) < 0)
		return nonsense("pool");
	if (decode_text("", from->has_device_name, from->device_name, p->device_name,
			sizeof(p->device_name)) < 0 ||
	    decode_text("", from->has_pci_id, from->pci_id, p->pci_id, sizeof(p->pci_id)) < 0)
		return nonsense("device name");
	if (decode_text("", from->has_why, from->why, p->why, sizeof(p->why)) < 0)
		return nonsense("why a pool has failed");
	return 0;
}

int decode_pool(const Gpushm__Proto__Pool *from, struct gpushm_pool *ret)
{
	struct gpushm_pool p = { .kind = (enum gpushm_kind)from->kind,
				 .device = -1,
				 .numa_node = from->has_numa_node ? from->numa_node : -1,
				 .bytes = from->size_bytes,
				 .used_bytes = from->used_bytes,
				 .pending_bytes = from->pending_bytes,
				 .suspect_bytes = from->suspect_bytes,
				 .max_buffer_bytes = from->max_buffer_bytes,
				 .granularity = from->granularity,
				 .buffers = from->buffers,
				 .pending = from->pending,
				 .failed = from->failed,
				 .is_default = from->is_default,
				 .allowed = from->allowed };
	int r = decode_pool_names(from, &p);

	if (r < 0)
		return r;
	if (from->has_device_uuid && decode_bytes("device UUID", true, from->device_uuid,
						  p.device_uuid, sizeof(p.device_uuid)) < 0)
		return -EPROTO;
	*ret = p;
	return 0;
}
