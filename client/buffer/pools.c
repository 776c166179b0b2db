/* SPDX-License-Identifier: MIT
 *
 * gpushm_pools and gpushm_flush: the pools as they are at the moment, of the kinds that this
 * library knows. Which ordinal a pool's GPU has in this process is found by its UUID, and only
 * where there is one: a machine with host pools alone never starts the driver.
 */
#include "client/base/decode.h"
#include "client/base/error.h"
#include "client/link/hello.h"
#include "proto/base/own.h"

static int decode_pools(const Gpushm__Proto__PoolsReply *from, struct gpushm_pool *pools,
			size_t *ret_n)
{
	size_t n = 0;

	for (size_t i = 0; i < from->n_pools; i++) {
		int r = 0;

		if (decode_kind_known(from->pools[i]))
			r = decode_pool(from->pools[i], &pools[n++]);
		if (r < 0)
			return r;
	}
	*ret_n = n;
	return 0;
}

static int read_pools(struct gpushm *c, struct gpushm_pool **ret, size_t *ret_n)
{
	_cleanup_(free_ptr) struct gpushm_pool *pools = NULL;
	Gpushm__Proto__Reply *reply;
	int r = connect_ask_pools(c, &reply);

	if (r < 0)
		return r;
	pools = calloc(reply->pools->n_pools + 1, sizeof(*pools));
	r = pools ? decode_pools(reply->pools, pools, ret_n)
		  : error_set(ENOMEM, "out of memory for a list of pools");
	if (r == -EPROTO)
		return connection_violated(c);
	connection_done(c);
	if (r == 0)
		*ret = take_ptr(pools);
	return r;
}

int gpushm_pools(struct gpushm *c, struct gpushm_pool **ret, size_t *ret_n)
{
	static const unsigned char none[UUID_BYTES];
	struct gpushm_pool *pools = NULL;
	size_t n = 0;
	int r = read_pools(c, &pools, &n);

	if (r < 0)
		return r;
	/* Not before the connection is given back: the driver may take its time to start. */
	for (size_t i = 0; i < n; i++)
		if (memcmp(pools[i].device_uuid, none, sizeof(none)) != 0)
			pools[i].device = map_device_ordinal(pools[i].device_uuid);
	*ret = pools;
	*ret_n = n;
	return 0;
}

int gpushm_flush(struct gpushm *c, const char *pool)
{
	Gpushm__Proto__Flush flush = GPUSHM__PROTO__FLUSH__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;

	flush.has_pool = pool != NULL;
	flush.pool = connection_bytes(pool ? pool : "");
	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_FLUSH;
	request.flush = &flush;
	return connection_tell(c, &request);
}
