/* SPDX-License-Identifier: MIT
 *
 * gpushm_status: the daemon's own counts, and what each user holds of it. The status owns the list
 * of users, and is freed as one.
 */
#include "client/base/decode.h"
#include "client/base/error.h"
#include "client/link/connection.h"
#include "proto/base/own.h"

struct gpushm_status *gpushm_status_free(struct gpushm_status *s)
{
	if (s)
		free(s->usage);
	free(s);
	return NULL;
}

static int decode_usage(const Gpushm__Proto__StatusReply *from, struct gpushm_status *s)
{
	s->usage = calloc(from->n_usage + 1, sizeof(*s->usage));
	if (!s->usage)
		return error_set(ENOMEM, "out of memory for the daemon's status");
	for (; s->n_usage < from->n_usage; s->n_usage++) {
		const Gpushm__Proto__Usage *u = from->usage[s->n_usage];

		s->usage[s->n_usage] = (struct gpushm_usage){ .uid = u->uid,
							      .bytes = u->bytes,
							      .bytes_max = u->bytes_max,
							      .buffers = u->buffers,
							      .buffers_max = u->buffers_max,
							      .leases = u->leases,
							      .leases_max = u->leases_max,
							      .peers = u->peers,
							      .peers_max = u->peers_max };
	}
	return 0;
}

static int decode_status(const Gpushm__Proto__StatusReply *from, struct gpushm_status *s)
{
	*s = (struct gpushm_status){ .pid = from->pid,
				     .uptime_ms = from->uptime_ms,
				     .peers = from->peers,
				     .buffers = from->buffers,
				     .leases = from->leases,
				     .suspects = from->suspects,
				     .waiting = from->waiting,
				     .requests = from->requests,
				     .refused = from->refused,
				     .violations = from->violations,
				     .fds = from->fds,
				     .fds_max = from->fds_max,
				     .pools_failed = from->pools_failed };
	if (decode_text("software", from->has_software, from->software, s->software,
			sizeof(s->software)) < 0 ||
	    decode_bytes("daemon id", from->has_daemon, from->daemon, s->daemon,
			 sizeof(s->daemon)) < 0)
		return -EPROTO;
	return decode_usage(from, s);
}

int gpushm_status(struct gpushm *c, struct gpushm_status **ret)
{
	Gpushm__Proto__Status none = GPUSHM__PROTO__STATUS__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;
	Gpushm__Proto__Reply *reply;
	struct gpushm_status *s;
	int r;

	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_STATUS;
	request.status = &none;
	r = connection_call(c, &request, GPUSHM__PROTO__REPLY__RESULT_STATUS, &reply);
	if (r < 0)
		return r;
	s = calloc(1, sizeof(*s));
	r = s ? decode_status(reply->status, s)
	      : error_set(ENOMEM, "out of memory for the daemon's status");
	if (r < 0)
		gpushm_status_free(s);
	else
		*ret = s;
	if (r == -EPROTO)
		return connection_violated(c);
	connection_done(c);
	return r;
}
