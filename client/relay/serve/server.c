/* SPDX-License-Identifier: MIT
 *
 * Each connection has a thread, so that a slow client delays nobody else. Requests are bounded by
 * libmicrohttpd's memory for a connection: it refuses a longer URL or header itself.
 */
#include "client/relay/serve/server.h"

#include "client/common/clients.h"
#include "client/relay/metrics.h"
#include "client/relay/serve/files.h"
#include "client/relay/serve/manifests.h"
#include "client/relay/serve/nixl.h"
#include "client/relay/serve/tls.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/base/uri.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define MEMORY (32u << 10) /* of a connection: its request's line and headers, and a reply's */
#define STACK (256u << 10)
#define IDLE_S 60u		  /* between two requests */
#define REQUEST_S 10u		  /* for a whole request */
#define MIN_RATE (16u << 10)	  /* bytes a second that a client must read */
#define RECHECK_NS 60000000000ull /* a certificate may expire while its connection lasts */

/* Who a connection's client is. */
struct session {
	struct peer peer;
	bool accepted;
	char why[256];	     /* not */
	uint64_t checked_ns; /* CLOCK_MONOTONIC */
	unsigned generation; /* tls_generation() then */
};

/* A request while it is received. */
struct request {
	char *body; /* owned */
	size_t n_body;
	bool too_large;
};

/* Nothing is decoded twice, or before the path is taken apart. */
static size_t keep_escapes(void *arg, struct MHD_Connection *c, char *text)
{
	return strlen(text);
}

/* ---- resources ---- */

struct resource {
	const char *path; /* with '/' at its end: a name follows */
	bool post;
	enum MHD_Result (*reply)(const struct exchange *x);
};

static enum MHD_Result reply_index(const struct exchange *x)
{
	static const char page[] =
		"<!DOCTYPE html>\n<title>gpushm-relay</title>\n<h1>gpushm-relay " GPUSHM_VERSION
		"</h1>\n<p><a href=\"/v1/buffers\">Buffers</a>, <a href=\"/metrics\">metrics</a>"
		"</p>\n";
	struct MHD_Response *r =
		MHD_create_response_from_buffer(strlen(page), (void *)page, MHD_RESPMEM_PERSISTENT);

	exchange_add(r, MHD_HTTP_HEADER_CONTENT_TYPE, "text/html; charset=utf-8");
	return exchange_send(x, MHD_HTTP_OK, r);
}

static const struct resource resources[] = {
	{ "/", false, reply_index },
	{ "/metrics", false, metrics_get },
	{ "/v1/buffers", false, files_list },
	{ "/v1/buffers/", false, files_get },
	{ "/v1/manifests/", false, manifests_get },
	{ "/v1/nixl/", true, nixl_post },
};

static bool is_path(const struct resource *r, const char *url)
{
	size_t n = strlen(r->path);

	if (n > 1 && r->path[n - 1] == '/')
		return strncmp(url, r->path, n) == 0 && url[n];
	return strcmp(url, r->path) == 0;
}

static enum MHD_Result route(struct exchange *x, const char *url, const char *method)
{
	const struct resource *found = NULL;
	char name[OFFER_NAME_MAX] = "";
	bool post = strcmp(method, MHD_HTTP_METHOD_POST) == 0;
	size_t n;

	for (size_t i = 0; i < array_size(resources); i++)
		if (is_path(&resources[i], url))
			found = &resources[i];
	if (!found)
		return exchange_error(x, MHD_HTTP_NOT_FOUND,
				      "there are /v1/buffers, /v1/buffers/NAME, "
				      "/v1/manifests/NAME and /metrics");
	n = strlen(found->path);
	x->allow = found->post ? MHD_HTTP_METHOD_POST : "GET, HEAD";
	if (post != found->post || (!post && !x->head && strcmp(method, MHD_HTTP_METHOD_GET) != 0))
		return exchange_error(x, MHD_HTTP_METHOD_NOT_ALLOWED, "allowed: %s", x->allow);
	if (!x->body)
		return exchange_error(x, MHD_HTTP_CONTENT_TOO_LARGE, "a body has at most %u bytes",
				      EXCHANGE_BODY_MAX);
	if (!uri_decode(url + (n < strlen(url) ? n : strlen(url)), name, sizeof(name)))
		return exchange_error(x, MHD_HTTP_BAD_REQUEST,
				      "a name has at most %u bytes, and two hexadecimal digits "
				      "that are not 00 behind each %%",
				      GPUSHM_MAX_NAME);
	x->name = name;
	return found->reply(x);
}

/* ---- requests ---- */

static void find_address(struct MHD_Connection *c, char *ret, size_t size)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	const struct sockaddr *at = info ? info->client_addr : NULL;
	socklen_t n = at && at->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
						      : sizeof(struct sockaddr_in);

	*ret = '\0';
	if (at)
		getnameinfo(at, n, ret, (socklen_t)size, NULL, 0, NI_NUMERICHOST);
	/* A socket of all addresses: ipv6(7). Others know this one as that of IPv4. */
	if (strncmp(ret, "::ffff:", 7) == 0 && strchr(ret, '.'))
		memmove(ret, ret + 7, strlen(ret + 7) + 1);
}

static void free_session(void *arg)
{
	struct session *s = arg;

	strings_clear(&s->peer.names);
	free(s);
}

/* NULL: out of memory. */
static const struct session *session_of(const struct config *config, struct MHD_Connection *c)
{
	struct session *s = clients_kept(c);
	unsigned generation = tls_generation();

	if (s && s->generation == generation && clock_monotonic_ns() - s->checked_ns < RECHECK_NS)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->checked_ns = clock_monotonic_ns();
	s->generation = generation;
	find_address(c, s->peer.address, sizeof(s->peer.address));
	s->accepted = tls_check_peer(config, c, &s->peer, s->why, sizeof(s->why));
	return clients_keep(c, s, free_session) ? s : NULL;
}

static enum MHD_Result take_body(struct request *q, const char *bytes, size_t *n)
{
	char *grown = q->too_large || q->n_body + *n > EXCHANGE_BODY_MAX
			      ? NULL
			      : realloc(q->body, q->n_body + *n + 1);

	q->too_large |= !grown;
	if (grown) {
		q->body = grown;
		memcpy(grown + q->n_body, bytes, *n);
		q->n_body += *n;
		grown[q->n_body] = '\0';
	}
	*n = 0;
	return MHD_YES;
}

/* A name with a blank counts as two. */
static enum MHD_Result count_hosts(void *arg, enum MHD_ValueKind kind, const char *name,
				   const char *value)
{
	unsigned *n = arg;

	*n += name[strcspn(name, " \t")] ? 2 : strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0;
	return MHD_YES;
}

/* False: RFC 9112 has a server refuse it (3.2, 5.1), as a proxy may read it in another way. */
static bool is_clear(struct MHD_Connection *c, const char *version)
{
	unsigned hosts = 0;

	MHD_get_connection_values(c, MHD_HEADER_KIND, count_hosts, &hosts);
	return hosts == 1 || (hosts == 0 && strcmp(version, MHD_HTTP_VERSION_1_1) != 0);
}

static enum MHD_Result reply(struct exchange *x, struct request *q, const char *url,
			     const char *method, const char *version, const char *upload,
			     size_t *upload_size)
{
	const struct session *session = session_of(x->config, x->http);

	if (!session)
		return MHD_NO;
	if (*upload_size) {
		/* Nothing is kept for a stranger. */
		q->too_large |= !session->accepted;
		return take_body(q, upload, upload_size);
	}
	/* The time of a request covers its body. */
	clients_reply(x->http);
	x->peer = &session->peer;
	x->body = q->too_large ? NULL : q->body ? q->body : "";
	x->n_body = q->n_body;
	if (!session->accepted)
		return exchange_error(x, MHD_HTTP_FORBIDDEN, "%s", session->why);
	if (!is_clear(x->http, version))
		return exchange_error(x, MHD_HTTP_BAD_REQUEST,
				      "a request has one Host, and no blank before a colon");
	return route(x, url, method);
}

/* The first call comes before the body, if there is one. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_size, void **context)
{
	struct request *q = *context;
	struct exchange x = { .http = c,
			      .offers = arg,
			      .name = "",
			      .head = strcmp(method, MHD_HTTP_METHOD_HEAD) == 0 };
	struct config *config;
	enum MHD_Result ret;

	if (!q) {
		*context = calloc(1, sizeof(*q));
		return *context ? MHD_YES : MHD_NO;
	}
	x.config = config = config_current();
	ret = reply(&x, q, url, method, version, upload, upload_size);
	config_release(config);
	return ret;
}

static void on_completed(void *arg, struct MHD_Connection *c, void **context,
			 enum MHD_RequestTerminationCode code)
{
	struct request *q = *context;

	if (q)
		free(q->body);
	free(q);
	*context = NULL;
	clients_on_completed(NULL, c, context, code);
}

bool server_is_safe(const struct config *c, bool loopback)
{
	if (loopback || c->insecure || (c->cert && c->ca))
		return true;
	fprintf(stderr, "gpushm-relay: other machines can reach this address: give the "
			"configuration cert=, key= and ca=, or insecure=yes, which lets everybody "
			"who connects read all that is offered\n");
	return false;
}

void server_limit(const struct config *c)
{
	const struct clients_limits limits = { .idle_s = IDLE_S,
					       .request_s = REQUEST_S,
					       .min_rate = MIN_RATE,
					       .max_rate = c->max_rate };

	clients_limit(&limits);
}

static const struct MHD_Daemon *start(struct offers *offers, int socket, const struct config *c)
{
	const struct MHD_OptionItem plain[] = { { MHD_OPTION_END, 0, NULL } };
	const struct MHD_OptionItem secure[] = {
		{ MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)tls_retrieve },
		{ MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)TLS_PRIORITIES },
		{ c->ca ? MHD_OPTION_HTTPS_MEM_TRUST : MHD_OPTION_END, 0, (void *)tls_ca() },
		{ MHD_OPTION_END, 0, NULL }
	};

	return MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
					MHD_USE_POLL | MHD_USE_ERROR_LOG |
					(c->cert ? MHD_USE_TLS : 0u),
				0, NULL, NULL, on_request, offers, MHD_OPTION_EXTERNAL_LOGGER,
				clients_drop_line, NULL, MHD_OPTION_LISTEN_SOCKET, socket,
				MHD_OPTION_CONNECTION_LIMIT, c->max_connections,
				MHD_OPTION_PER_IP_CONNECTION_LIMIT, c->max_connections_per_address,
				MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY,
				MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK,
				MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL,
				MHD_OPTION_NOTIFY_CONNECTION, clients_on_connection, NULL,
				MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_ARRAY,
				c->cert ? secure : plain, MHD_OPTION_END);
}

int server_start(int socket, bool loopback, const struct config *config, struct offers *offers)
{
	if (!server_is_safe(config, loopback))
		return -1;
	server_limit(config);
	if (start(offers, socket, config))
		return 0;
	fprintf(stderr, "gpushm-relay: the HTTP server can't be started: %s\n", strerror(errno));
	return -1;
}
