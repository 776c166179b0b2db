/* SPDX-License-Identifier: MIT
 *
 * One thread serves all clients, so a slow one delays nobody. Requests are bounded by
 * libmicrohttpd's memory for a connection: it refuses a longer URL or header itself.
 */
#include "client/ctl/exporter/exporter.h"

#include "client/common/clients.h"
#include "client/common/listen.h"

#include <errno.h>
#include <microhttpd.h>
#include <string.h>

#define CLIENTS_MAX 512u
#define CLIENTS_S 5u	   /* for a request, and for its reply */
#define MEMORY (16u << 10) /* of a connection: its request's line and headers */

static const char index_page[] =
	"<!DOCTYPE html>\n<title>gpushm-exporter</title>\n"
	"<h1>gpushm-exporter " GPUSHM_VERSION "</h1>\n<p><a href=\"/metrics\">Metrics</a></p>\n";

static enum MHD_Result reply(struct MHD_Connection *c, unsigned status, const char *type,
			     struct MHD_Response *response)
{
	enum MHD_Result r;

	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, MHD_HTTP_METHOD_GET);
	r = MHD_queue_response(c, status, response);
	MHD_destroy_response(response);
	return r;
}

static enum MHD_Result reply_text(struct MHD_Connection *c, unsigned status, const char *type,
				  const char *text)
{
	return reply(c, status, type,
		     MHD_create_response_from_buffer(strlen(text), (void *)text,
						     MHD_RESPMEM_PERSISTENT));
}

static enum MHD_Result reply_metrics(struct MHD_Connection *c, struct collector *collector)
{
	enum exposition_format format = exposition_format_for(
		MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT));
	size_t len = 0;
	char *text = collector_text(collector, format, &len);

	if (!text)
		return reply_text(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "text/plain",
				  "out of memory\n");
	return reply(c, MHD_HTTP_OK, exposition_content_type(format),
		     MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE));
}

/* The first call comes before the body, if there is one. libmicrohttpd closes a connection whose
 * reply is queued then, which is right for what is not GET. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_size, void **request)
{
	/* A GET with a body: it is not read. */
	if (*upload_size) {
		*upload_size = 0;
		return MHD_YES;
	}
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0)
		return reply_text(c, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain",
				  "only GET is served\n");
	if (!*request) {
		*request = c;
		clients_reply(c);
		return MHD_YES;
	}
	if (strcmp(url, "/metrics") == 0)
		return reply_metrics(c, arg);
	if (strcmp(url, "/") == 0)
		return reply_text(c, MHD_HTTP_OK, "text/html; charset=utf-8", index_page);
	return reply_text(c, MHD_HTTP_NOT_FOUND, "text/plain", "there is only /metrics\n");
}

int metrics_server_start(const char *address, struct collector *c)
{
	const struct clients_limits limits = { .idle_s = CLIENTS_S,
					       .request_s = CLIENTS_S,
					       .reply_s = CLIENTS_S };
	const struct MHD_Daemon *http;
	struct listen_place at;
	int socket = listen_open("gpushm-exporter", address, &at);

	if (socket < 0)
		return -1;
	fprintf(stderr, "gpushm-exporter: serves http://%s/metrics\n", at.text);
	if (!at.loopback)
		fprintf(stderr, "gpushm-exporter: everybody who reaches this address may read the "
				"metrics; it has no TLS and no password\n");
	clients_limit(&limits);
	http = MHD_start_daemon(MHD_USE_AUTO_INTERNAL_THREAD | MHD_USE_ERROR_LOG, 0, NULL, NULL,
				on_request, c, MHD_OPTION_EXTERNAL_LOGGER, clients_drop_line, NULL,
				MHD_OPTION_LISTEN_SOCKET, socket, MHD_OPTION_CONNECTION_LIMIT,
				CLIENTS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, CLIENTS_S,
				MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY,
				MHD_OPTION_NOTIFY_CONNECTION, clients_on_connection, NULL,
				MHD_OPTION_NOTIFY_COMPLETED, clients_on_completed, NULL,
				MHD_OPTION_END);

	if (http)
		return 0;
	fprintf(stderr, "gpushm-exporter: the HTTP server can't be started: %s\n", strerror(errno));
	return -1;
}
