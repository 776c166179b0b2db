/* SPDX-License-Identifier: MIT
 *
 * A multi handle for each reader, with one easy handle: multi is the only interface of libcurl with
 * a wait that a caller can end, and it keeps the connections.
 *
 * HTTP/1.1: for bulk data several connections are faster than the streams of one.
 */
#include "client/models/web/fetch.h"

#include "client/gpushm_private.h"
#include "client/models/fail.h"
#include "client/models/web/curl.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define LOOK_AGAIN_MS 100
#define BUFFER_BYTES (256L << 10) /* of libcurl, for each connection */
#define CONNECT_MAX_MS 20000u
#define HOPS_MAX 10u
#define RETRY_AFTER_MAX_S 86400
/* A machine that is off says nothing, and neither does a relay that waits for a block. Only the
 * relay's kernel answers probes: so the other one is given up long before a connection stalls. */
#define PROBE_IDLE_S 3L
#define UNANSWERED_MS 8000u
#define DROP_MAX (64u << 10) /* bytes of an unwanted body that are read, to keep its connection */
#define DROP_MS 2000u

/* ---- what libcurl calls ---- */

_Static_assert(sizeof(((struct fetch *)0)->why) >= CURL_ERROR_SIZE, "CURLOPT_ERRORBUFFER");

static size_t on_header(char *line, size_t size, size_t n, void *user)
{
	struct fetch *f = user;

	f->last_ns = clock_monotonic_ns();
	if (head_line(&f->head, line, n) == 0)
		return n;
	f->refused = true;
	return 0;
}

/* Takes what there is memory for. After a pause libcurl brings the whole chunk again. */
static size_t on_body(char *data, size_t size, size_t n, void *user)
{
	struct fetch *f = user;
	size_t skip = f->eaten < n ? f->eaten : n;
	size_t take = n - skip < f->room ? n - skip : f->room;

	if (take > 0 && f->to) {
		memcpy(f->to, data + skip, take);
		f->to += take;
	}
	if (take > 0)
		f->last_ns = clock_monotonic_ns();
	f->room -= take;
	if (skip + take == n) {
		f->eaten -= skip;
		return n;
	}
	f->eaten = skip + take;
	f->paused = true;
	return CURL_WRITEFUNC_PAUSE;
}

/* A program that the application starts meanwhile gets no connection of ours. */
static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *a)
{
	return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static int on_socket(void *user, curl_socket_t fd, curlsocktype purpose)
{
	unsigned ms = UNANSWERED_MS;

	/* A kernel that does not know it waits for more probes. */
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
	return CURL_SOCKOPT_OK;
}

/* ---- signals ---- */

/* libcurl starts a thread that resolves names: a handler of the application must not run in it. And
 * a write to a connection that is closed raises SIGPIPE. */
static void mask_signals(sigset_t *ret_before)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, ret_before);
}

/* A SIGPIPE that was not blocked before is libcurl's. */
static void unmask_signals(const sigset_t *before)
{
	static const struct timespec now;
	sigset_t pipe;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	if (!sigismember(before, SIGPIPE))
		while (sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* ---- handles ---- */

int fetch_new(struct fetch **ret)
{
	const struct curl_library *curl = curl_library();
	struct fetch *f;

	if (!curl)
		return -ENOSYS;
	f = calloc(1, sizeof(*f));
	if (!f)
		return load_no_memory();
	f->curl = curl;
	f->multi = curl->multi_init();
	f->easy = curl->easy_init();
	if (!f->multi || !f->easy) {
		fetch_free(f);
		return load_no_memory();
	}
	*ret = f;
	return 0;
}

static void drop_headers(struct fetch *f)
{
	f->curl->slist_free_all(f->headers);
	f->headers = NULL;
}

void fetch_end(struct fetch *f)
{
	sigset_t before;
	int running;

	if (!f->active)
		return;
	mask_signals(&before);
	/* A reply whose last byte was taken is whole when libcurl has seen that. */
	if (!f->ended)
		f->curl->multi_perform(f->multi, &running);
	f->curl->multi_remove_handle(f->multi, f->easy);
	unmask_signals(&before);
	drop_headers(f);
	f->active = false;
}

struct fetch *fetch_free(struct fetch *f)
{
	sigset_t before;

	if (!f)
		return NULL;
	private_error_guard();
	fetch_end(f);
	mask_signals(&before);
	if (f->easy)
		f->curl->easy_cleanup(f->easy);
	if (f->multi)
		f->curl->multi_cleanup(f->multi);
	unmask_signals(&before);
	head_clear(&f->head);
	url_clear(&f->at);
	free(f);
	return NULL;
}

/* ---- the request ---- */

static int add_header(struct fetch *f, const char *name, const char *value)
{
	_cleanup_(free_ptr) char *line = NULL;
	struct curl_slist *longer;

	if (load_format(&line, "%s%s", name, value) < 0)
		return -ENOMEM;
	longer = f->curl->slist_append(f->headers, line);
	explicit_bzero(line, strlen(line));
	if (!longer)
		return load_no_memory();
	f->headers = longer;
	return 0;
}

/* Who asks for a whole body compressed would count other bytes than the file has. */
static int add_headers(struct fetch *f, const struct ask *a, bool at_home)
{
	int r = add_header(f, "Accept-Encoding: ", "identity");
	char text[64];

	if (r == 0 && a->ranged) {
		snprintf(text, sizeof(text), "bytes=%" PRIu64 "-%" PRIu64, a->first, a->last);
		r = add_header(f, "Range: ", text);
		if (r == 0 && a->if_range && a->if_range[0])
			r = add_header(f, "If-Range: ", a->if_range);
	}
	if (r == 0 && a->wait_s) {
		snprintf(text, sizeof(text), "%u", a->wait_s);
		r = add_header(f, "Prefer: wait=", text);
	}
	if (r == 0 && a->if_none_match)
		r = add_header(f, "If-None-Match: ", a->if_none_match);
	if (r == 0 && a->relay)
		r = add_header(f, RELAY_HEADER ": ", a->relay);
	if (r == 0 && a->body)
		r = add_header(f, "Content-Type: ", "application/json");
	if (r == 0 && a->body) /* no wait for 100 Continue */
		r = add_header(f, "Expect:", "");
	if (r == 0 && at_home && a->credentials->token)
		r = add_header(f, "Authorization: Bearer ", a->credentials->token);
	return r;
}

#define SET(option, value) f->curl->easy_setopt(f->easy, option, value)

static void set_tls(struct fetch *f, const struct credentials *c)
{
	f->certified = c->cert;
	SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	if (c->ca)
		SET(CURLOPT_CAINFO, c->ca);
	if (!c->cert)
		return;
	SET(CURLOPT_SSLCERT, c->cert);
	SET(CURLOPT_SSLKEY, c->key ? c->key : c->cert);
	SET(CURLOPT_KEYPASSWD, ""); /* or it would be asked for at the terminal */
}

static void set_options(struct fetch *f, const struct ask *a, const struct url *u, bool at_home)
{
	SET(CURLOPT_URL, u->text);
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_NOPROGRESS, 1L);
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	SET(CURLOPT_USERAGENT, "gpushm/" GPUSHM_VERSION);
	SET(CURLOPT_HTTPHEADER, f->headers);
	SET(CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE); /* a proxy gets none of them */
	SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	SET(CURLOPT_ERRORBUFFER, f->why);
	SET(CURLOPT_HEADERFUNCTION, on_header);
	SET(CURLOPT_HEADERDATA, f);
	SET(CURLOPT_WRITEFUNCTION, on_body);
	SET(CURLOPT_WRITEDATA, f);
	SET(CURLOPT_BUFFERSIZE, BUFFER_BYTES);
	SET(CURLOPT_CONNECTTIMEOUT_MS,
	    (long)(a->stall_ms < CONNECT_MAX_MS ? a->stall_ms : CONNECT_MAX_MS));
	SET(CURLOPT_TCP_KEEPALIVE, 1L);
	SET(CURLOPT_TCP_KEEPIDLE, PROBE_IDLE_S);
	SET(CURLOPT_TCP_KEEPINTVL, 1L);
	SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
	SET(CURLOPT_SOCKOPTFUNCTION, on_socket);
#if LIBCURL_VERSION_NUM >= 0x075700
	SET(CURLOPT_QUICK_EXIT, 1L); /* without a wait for a name that is still resolved */
#endif
	if (u->here) /* or a proxy would be this machine, and get the token */
		SET(CURLOPT_NOPROXY, "*");
	if (at_home && a->credentials->netrc)
		SET(CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
	set_tls(f, a->credentials);
	if (a->body) {
		SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)a->n_body);
		SET(CURLOPT_POSTFIELDS, a->body);
	}
	if (a->method)
		SET(CURLOPT_CUSTOMREQUEST, a->method);
}

static int start(struct fetch *f, const struct ask *a, const struct url *u)
{
	bool at_home = a->home && url_same_origin(u, a->home);
	int r;

	fetch_end(f);
	head_clear(&f->head);
	f->curl->easy_reset(f->easy);
	r = add_headers(f, a, at_home);
	if (r < 0) {
		drop_headers(f);
		return r;
	}
	set_options(f, a, u, at_home);
	f->why[0] = '\0';
	f->ended = f->paused = f->refused = false;
	f->room = f->eaten = 0;
	f->to = NULL;
	f->stall_ms = a->stall_ms;
	f->until_ns = 0;
	f->last_ns = clock_monotonic_ns();
	if (f->curl->multi_add_handle(f->multi, f->easy) != CURLM_OK) {
		drop_headers(f);
		return load_no_memory();
	}
	f->active = true;
	return 0;
}

/* ---- what goes wrong ---- */

static bool says(const struct fetch *f, const char *word)
{
	return strcasestr(f->why, word) != NULL;
}

struct failure {
	int number;
	enum fate fate;
};

/* A refused certificate of ours comes as an alert, which is an error of a read in TLS 1.3. */
static struct failure classify(const struct fetch *f)
{
	switch (f->result) {
	case CURLE_OUT_OF_MEMORY:
		return (struct failure){ ENOMEM, FATE_NEVER };
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_COULDNT_CONNECT:
		return (struct failure){ EHOSTUNREACH, FATE_AGAIN };
	case CURLE_OPERATION_TIMEDOUT:
		return (struct failure){ ETIMEDOUT, FATE_AGAIN };
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
	case CURLE_SSL_CIPHER:
	case CURLE_USE_SSL_FAILED:
		return (struct failure){ EACCES, FATE_ELSEWHERE };
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
		return says(f, "alert") || says(f, "certificate")
			       ? (struct failure){ EACCES, FATE_ELSEWHERE }
		       : says(f, "wrong version") || says(f, "unsupported protocol")
			       ? (struct failure){ EREMOTEIO, FATE_ELSEWHERE }
			       : (struct failure){ ENETRESET, FATE_AGAIN };
	case CURLE_PARTIAL_FILE:
	case CURLE_GOT_NOTHING:
		return (struct failure){ ENETRESET, FATE_AGAIN };
	default:
		return (struct failure){ EREMOTEIO, FATE_ELSEWHERE };
	}
}

/* A server that refuses us closes behind its alert, which a reset connection never brings. */
static bool may_want_certificate(const struct fetch *f)
{
	return f->at.tls && !f->certified && !f->head.status;
}

static const char *hint(const struct fetch *f)
{
	switch (f->result) {
	case CURLE_PEER_FAILED_VERIFICATION:
		return "; if an authority of your own has signed it, name its file, or set "
		       "$GPUSHM_TLS_CA";
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_GOT_NOTHING:
		if (says(f, "wrong version"))
			return "; it speaks no TLS: use a URL of http:// if you trust the network";
		if (says(f, "certificate required"))
			return "; it wants a certificate: name one and its key, or set "
			       "$GPUSHM_TLS_CERT";
		return may_want_certificate(f) ? "; if it wants a certificate, name one and its "
						 "key, or set $GPUSHM_TLS_CERT"
					       : "";
	default:
		return "";
	}
}

/* Why there is no connection, which not every libcurl says. */
static const char *system_error(const struct fetch *f)
{
	long number = 0;

	if (f->result != CURLE_COULDNT_CONNECT ||
	    f->curl->easy_getinfo(f->easy, CURLINFO_OS_ERRNO, &number) != CURLE_OK || number <= 0)
		return "";
	return strerror((int)number);
}

/* libcurl's text has no query of ours in it, or it is not shown. */
static int fail_transfer(struct fetch *f, enum fate *ret)
{
	struct failure w = classify(f);
	const char *system = system_error(f), *query = strchr(f->at.text, '?');
	bool tells = f->why[0] && !(query && query[1] && strstr(f->why, query + 1));

	*ret = f->refused ? FATE_NEVER : w.fate;
	if (f->refused)
		return load_no_memory();
	return load_fail(w.number, "%s: %s%s%s%s", f->at.name,
			 tells ? f->why : f->curl->easy_strerror((CURLcode)f->result),
			 *system ? ": " : "", system, hint(f));
}

static int fail_stalled(struct fetch *f, enum fate *ret)
{
	*ret = FATE_AGAIN;
	return load_fail(ETIMEDOUT, "%s: nothing has come for %u.%u s", f->at.name,
			 f->stall_ms / 1000, f->stall_ms % 1000 / 100);
}

static int canceled(enum fate *ret)
{
	*ret = FATE_NEVER;
	return load_fail(ECANCELED, "reading was stopped");
}

/* ---- the reply ---- */

static void look_for_end(struct fetch *f)
{
	int left;

	for (const CURLMsg *m; (m = f->curl->multi_info_read(f->multi, &left));)
		if (m->msg == CURLMSG_DONE && m->easy_handle == f->easy) {
			f->ended = true;
			f->result = m->data.result;
		}
}

static int perform(struct fetch *f)
{
	sigset_t before;
	CURLMcode r;
	int running;

	mask_signals(&before);
	r = f->curl->multi_perform(f->multi, &running);
	unmask_signals(&before);
	if (r != CURLM_OK)
		return load_fail(ENOMEM, "libcurl: error %d of a transfer", (int)r);
	look_for_end(f);
	return 0;
}

static bool has_head(const struct fetch *f)
{
	return f->head.complete;
}

static bool has_body(const struct fetch *f)
{
	return f->room == 0;
}

static bool is_late(const struct fetch *f)
{
	uint64_t now = clock_monotonic_ns();

	return now - f->last_ns > (uint64_t)f->stall_ms * 1000000u ||
	       (f->until_ns && now > f->until_ns);
}

static bool is_slow(const struct fetch *f)
{
	uint64_t ms = (clock_monotonic_ns() - f->begun_ns) / 1000000u;

	return f->leave && ms > f->stall_ms && f->asked - f->room < FETCH_LEAST * ms / 1000;
}

static int fail_slow(struct fetch *f, enum fate *ret)
{
	*ret = FATE_BUSY;
	return load_fail(EBUSY, "%s: less than %u KiB have come in a second", f->at.name,
			 FETCH_LEAST >> 10);
}

/* Until there is what is wanted, or the reply has ended. */
static int drive(struct fetch *f, bool (*enough)(const struct fetch *f), struct load_stop stop,
		 enum fate *ret)
{
	for (;;) {
		int r = perform(f);

		*ret = FATE_NEVER;
		if (r < 0)
			return r;
		if (enough(f) || (f->ended && f->result == CURLE_OK))
			return 0;
		if (f->ended)
			return fail_transfer(f, ret);
		if (load_stopped(stop))
			return canceled(ret);
		if (is_late(f))
			return fail_stalled(f, ret);
		if (is_slow(f))
			return fail_slow(f, ret);
		f->curl->multi_poll(f->multi, NULL, 0, LOOK_AGAIN_MS, NULL);
	}
}

void fetch_hurry(struct fetch *f, unsigned ms)
{
	f->until_ns = clock_monotonic_ns() + ms * (uint64_t)1000000;
}

int fetch_body(struct fetch *f, void *to, size_t n, size_t *ret_got, struct load_stop stop,
	       enum fate *ret)
{
	sigset_t before;
	int r = 0;

	f->to = to;
	f->room = f->asked = n;
	/* Time that passed while the caller was busy does not count. */
	f->last_ns = f->begun_ns = clock_monotonic_ns();
	if (f->paused) {
		f->paused = false;
		mask_signals(&before);
		f->result = f->curl->easy_pause(f->easy, CURLPAUSE_CONT);
		unmask_signals(&before);
		/* What it had kept meanwhile is lost then. */
		f->ended |= f->result != CURLE_OK;
	}
	if (f->room > 0)
		r = f->ended ? (f->result == CURLE_OK ? 0 : fail_transfer(f, ret))
			     : drive(f, has_body, stop, ret);
	*ret_got = n - f->room;
	f->to = NULL;
	f->room = 0;
	f->leave = false;
	return r;
}

/* ---- redirects ---- */

static bool is_redirect(unsigned status)
{
	return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* Reads what is left of a short body, so that the connection can be used again. */
static int drop_body(struct fetch *f, struct load_stop stop, enum fate *ret)
{
	size_t got;
	int r;

	if (f->head.length != HEAD_UNKNOWN && f->head.length > DROP_MAX)
		return 0;
	fetch_hurry(f, DROP_MS);
	r = fetch_body(f, NULL, DROP_MAX, &got, stop, ret);
	return r == -ECANCELED ? r : 0;
}

/* Where it leads to. */
static int find_target(struct fetch *f, struct url *ret)
{
	char *text = NULL;
	int r;

	f->curl->easy_getinfo(f->easy, CURLINFO_REDIRECT_URL, &text);
	if (!text)
		return load_fail(EREMOTEIO, "%s: status %u leads nowhere: it has no Location",
				 f->at.name, f->head.status);
	r = url_parse(text, ret);
	if (r == -EINVAL)
		return load_fail(EREMOTEIO,
				 "%s redirects to something that is not an http:// or https:// URL",
				 f->at.name);
	if (r == 0 && f->at.tls && !ret->tls)
		return load_fail(EACCES,
				 "%s leads to %s, without TLS: what comes from there could be "
				 "anybody's",
				 f->at.name, ret->name);
	return r;
}

static int follow(struct fetch *f, struct load_stop stop, enum fate *ret)
{
	struct url next = { 0 };
	int r = find_target(f, &next);

	*ret = FATE_ELSEWHERE;
	if (r == 0 && ++f->hops > HOPS_MAX)
		r = load_fail(EREMOTEIO, "%s: more than %u redirects", f->at.name, HOPS_MAX);
	if (r == 0)
		r = drop_body(f, stop, ret);
	if (r < 0) {
		url_clear(&next);
		return r;
	}
	url_clear(&f->at);
	f->at = next;
	return 0;
}

static uint64_t retry_after_ms(struct fetch *f)
{
	curl_off_t s = 0;

	f->curl->easy_getinfo(f->easy, CURLINFO_RETRY_AFTER, &s);
	return s < 0 ? 0 : (s < RETRY_AFTER_MAX_S ? (uint64_t)s : RETRY_AFTER_MAX_S) * 1000u;
}

static int set_target(struct fetch *f, const struct url *u)
{
	url_clear(&f->at);
	f->hops = 0;
	return url_copy(u, &f->at) < 0 ? load_no_memory() : 0;
}

int fetch_begin(struct fetch *f, const struct ask *a, const struct url *u, struct load_stop stop,
		enum fate *ret)
{
	int r = set_target(f, u);

	*ret = FATE_NEVER;
	while (r == 0) {
		r = start(f, a, &f->at);
		if (r == 0)
			r = drive(f, has_head, stop, ret);
		if (r < 0)
			break;
		if (!has_head(f)) {
			*ret = FATE_ELSEWHERE;
			r = load_fail(EREMOTEIO, "%s: the reply is not HTTP", f->at.name);
			break;
		}
		f->retry_after_ms = retry_after_ms(f);
		if (!is_redirect(f->head.status))
			return 0;
		r = follow(f, stop, ret);
	}
	fetch_end(f);
	return r;
}
