/* SPDX-License-Identifier: MIT
 *
 * No series for each client or buffer: their number has no bound, and names are not for everybody.
 */
#include "client/relay/metrics.h"

#include "client/common/clients.h"
#include "client/common/exposition.h"
#include "client/relay/fleet/pulls.h"
#include "client/relay/serve/allow.h"
#include "client/relay/serve/nixl.h"
#include "client/relay/serve/tls.h"

#include <stdlib.h>
#include <string.h>

static void write_connections(struct exposition *e)
{
	struct clients_counts c;

	clients_count(&c);
	exposition_one(e, EXPOSITION_GAUGE, "gpushm_relay_connections", NULL,
		       "Connections that are open.", c.connections);
	exposition_one(e, EXPOSITION_COUNTER, "gpushm_relay_accepted", NULL,
		       "Connections that were accepted.", c.accepted);
	exposition_family(e, EXPOSITION_COUNTER, "gpushm_relay_ended", NULL,
			  "Connections that were ended because of a limit.");
	exposition_sample(e, "_total", "limit", "time", c.ended_late);
	exposition_sample(e, "_total", "limit", "min-rate", c.ended_slow);
	exposition_one(e, EXPOSITION_COUNTER, "gpushm_relay_sent_bytes", "bytes",
		       "Bytes that clients have received, with TLS and headers.", c.bytes);
}

static void write_replies(struct exposition *e)
{
	char text[8];

	exposition_family(e, EXPOSITION_COUNTER, "gpushm_relay_replies", NULL,
			  "Replies by their status.");
	for (unsigned status = 100; status < 600; status++) {
		uint64_t n = exchange_count(status);

		if (n == 0)
			continue;
		snprintf(text, sizeof(text), "%u", status);
		exposition_sample(e, "_total", "status", text, n);
	}
}

static void write_offers(struct exposition *e, struct offers *offers)
{
	uint64_t bytes = 0, pulled = 0;
	struct offer **list;
	size_t n;

	if (offers_list(offers, &list, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		struct offer_facts f;

		offer_facts(list[i], &f);
		bytes += f.bytes;
		pulled += !f.complete;
		offer_release(list[i]);
	}
	free(list);
	exposition_one(e, EXPOSITION_GAUGE, "gpushm_relay_buffers", NULL,
		       "Buffers that are offered, or would be but for their types.", n);
	exposition_one(e, EXPOSITION_GAUGE, "gpushm_relay_buffer_bytes", "bytes", "Their bytes.",
		       bytes);
	exposition_one(e, EXPOSITION_GAUGE, "gpushm_relay_pulls", NULL,
		       "Buffers that the relay is pulling.", pulled);
}

static void write_pulls(struct exposition *e)
{
	static const char *const causes[] = {
		[PULLS_DAEMON] = "daemon", [PULLS_MEMORY] = "memory",	[PULLS_MISSING] = "missing",
		[PULLS_SOURCE] = "source", [PULLS_REFUSED] = "refused", [PULLS_DAMAGED] = "damaged",
		[PULLS_OTHER] = "other"
	};
	struct pulls_counts c;

	pulls_count(&c);
	exposition_family(e, EXPOSITION_COUNTER, "gpushm_relay_pull_failures", NULL,
			  "Pulls that failed and are tried again, by the cause.");
	exposition_words(e, "_total", "cause", causes, c.failed, PULLS_CAUSES);
	exposition_one(e, EXPOSITION_GAUGE, "gpushm_relay_sources_away", NULL,
		       "Sources that do not reply, of pulls that wait for something new.", c.away);
	exposition_family(e, EXPOSITION_GAUGE, "gpushm_relay_last_pull_timestamp_seconds",
			  "seconds", "When a pull was good for the last time.");
	if (c.last_s) {
		exposition_begin(e, "");
		exposition_number(e, c.last_s);
	}
}

static void write_certificates(struct exposition *e)
{
	static const char *const files[] = { "cert", "ca" };
	uint64_t ends[2];

	tls_ends(&ends[0], &ends[1]);
	exposition_family(e, EXPOSITION_GAUGE, "gpushm_relay_certificate_end_timestamp_seconds",
			  "seconds", "When the first certificate of a file ends.");
	for (int i = 0; i < 2; i++)
		if (ends[i])
			exposition_sample(e, "", "file", files[i], ends[i]);
}

static void write_nixl(struct exposition *e)
{
	unsigned sessions, regions;

	nixl_count(&sessions, &regions);
	exposition_one(e, EXPOSITION_GAUGE, "gpushm_relay_nixl_sessions", NULL, "Sessions of NIXL.",
		       sessions);
	exposition_one(e, EXPOSITION_GAUGE, "gpushm_relay_nixl_regions", NULL,
		       "Pieces of memory that NIXL knows.", regions);
}

enum MHD_Result metrics_get(const struct exchange *x)
{
	struct exposition e = { .format = exposition_format_for(
					exchange_header(x, MHD_HTTP_HEADER_ACCEPT)) };
	char *text = NULL;
	size_t n = 0;

	if (!allow_read(x->config, x->peer, NULL))
		return exchange_error(x, MHD_HTTP_FORBIDDEN,
				      "no [allow] section of this relay has your certificate's "
				      "name (%s)",
				      x->peer->names.n ? x->peer->names.items[0] : "");
	e.out = open_memstream(&text, &n);
	if (!e.out)
		return MHD_NO;
	write_connections(&e);
	write_replies(&e);
	write_offers(&e, x->offers);
	write_pulls(&e);
	write_certificates(&e);
	write_nixl(&e);
	exposition_end(&e);
	if (fclose(e.out) != 0)
		return free(text), MHD_NO;
	return exchange_send(x, MHD_HTTP_OK,
			     exchange_text(exposition_content_type(e.format), "no-store", text));
}
