/* SPDX-License-Identifier: MIT
 *
 * The relay, and hubs, say in JSON what is wrong: {"error": "..."}.
 */

#include "client/models/fail.h"
#include "client/models/web/remote_internal.h"
#include "proto/base/own.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define BODY_MAX 4096u
#define BODY_WAIT_MS 2000u

static const struct status {
	unsigned status;
	int number;
	enum fate fate;
	const char *means;
} statuses[] = {
	{ 401, EACCES, FATE_ELSEWHERE, "Unauthorized" },
	{ 403, EACCES, FATE_ELSEWHERE, "Forbidden" },
	{ 404, ENOENT, FATE_ELSEWHERE, "Not Found" },
	{ 407, EACCES, FATE_ELSEWHERE, "the proxy wants a password" },
	{ 408, ETIMEDOUT, FATE_BUSY, "Request Timeout" },
	{ 409, ENOTSUP, FATE_ELSEWHERE, "Conflict" },
	{ 410, ENOENT, FATE_ELSEWHERE, "Gone" },
	{ 412, ESTALE, FATE_ELSEWHERE, "the file has changed" },
	{ 415, ENOTSUP, FATE_ELSEWHERE, "Unsupported Media Type" },
	{ 425, EBUSY, FATE_BUSY, "Too Early" },
	{ 429, EBUSY, FATE_BUSY, "Too Many Requests" },
	{ 500, EREMOTEIO, FATE_AGAIN, "Internal Server Error" },
	{ 501, ENOTSUP, FATE_ELSEWHERE, "Not Implemented" },
	{ 502, EREMOTEIO, FATE_AGAIN, "Bad Gateway" },
	{ 503, EBUSY, FATE_BUSY, "Service Unavailable" },
	{ 504, ETIMEDOUT, FATE_AGAIN, "Gateway Timeout" },
	{ 505, EREMOTEIO, FATE_ELSEWHERE, "HTTP Version Not Supported" },
};

static const struct status *find(unsigned status)
{
	static const struct status refused = { 0, EREMOTEIO, FATE_ELSEWHERE, "" };
	static const struct status broken = { 0, EREMOTEIO, FATE_AGAIN, "" };

	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].status == status)
			return &statuses[i];
	return status >= 500 ? &broken : &refused;
}

/* What the body says, or "". */
static void read_error(struct fetch *f, struct load_stop stop, char *ret, size_t size)
{
	char body[BODY_MAX];
	const char *text;
	enum fate fate;
	size_t got = 0;
	_cleanup_(json_decrefp) json_t *json = NULL;

	fetch_hurry(f, BODY_WAIT_MS);
	fetch_body(f, body, sizeof(body), &got, stop, &fate);
	json = json_loadb(body, got, JSON_DISABLE_EOF_CHECK, NULL);
	text = json_string_value(json_object_get(json, "error"));
	snprintf(ret, size, "%s%.300s", text ? ": " : "", text ? text : "");
}

static const char *hint(const struct fetch *f, const struct credentials *c, unsigned status)
{
	if (status != 401 && status != 403)
		return "";
	if (c->withheld)
		return "; a token or password is sent by https:// only";
	if (status == 401 && !c->token)
		return "; it may want a token: name its file, or set $GPUSHM_TOKEN_FILE";
	return strchr(f->at.text, '?') ? "; if this is a link that was signed, it may have expired"
				       : "";
}

int status_error(struct fetch *f, const struct credentials *c, struct load_stop stop,
		 enum fate *ret)
{
	unsigned status = f->head.status;
	const struct status *s = find(status);
	char says[320];

	read_error(f, stop, says, sizeof(says));
	*ret = s->fate;
	return load_fail(s->number, "%s: the server answers %u%s%s%s%s%s", f->at.name, status,
			 s->means[0] ? " (" : "", s->means, s->means[0] ? ")" : "", says,
			 hint(f, c, status));
}
