/* SPDX-License-Identifier: MIT
 *
 * Requests: a table of verbs. A verb checks that what it needs is there, turns messages into the
 * catalog's words, and calls it; it calls the catalog before it touches its answer, for publishing
 * answers others in between. Unpacking happens in an arena of fixed size, so a hostile frame costs
 * what an honest one does.
 */
#include "daemon/ipc/request.h"

#include "daemon/ipc/verb.h"
#include "daemon/util/log.h"

#include <string.h>

int request_bad(struct fault *f, const char *verb, const char *what)
{
	return fault(f, CODE_BAD_REQUEST, "%s: %s", verb, what);
}

int request_key(struct session *s, const char *verb, bool has, ProtobufCBinaryData name,
		char key[KEY_MAX + 1], struct fault *f)
{
	if (!has)
		return request_bad(f, verb, "a name is missing");
	return private_names_key(s->process, name.data, name.len, key, f);
}

static int hello(struct session *s, const Gpushm__Proto__Request *q, struct reply *a,
		 struct fault *f)
{
	const Gpushm__Proto__Hello *m = q->hello;

	if (!m->has_version_min || !m->has_version_max)
		return request_bad(f, "HELLO", "version_min and version_max are needed");
	if (m->version_min > PROTOCOL_VERSION || m->version_max < PROTOCOL_VERSION)
		return fault(f, CODE_VERSION,
			     "the client speaks versions %u to %u, gpushmd " GPUSHM_VERSION
			     " version %u: upgrade the older one",
			     m->version_min, m->version_max, PROTOCOL_VERSION);
	if (m->software.len > SOFTWARE_MAX)
		return request_bad(f, "HELLO", "software is longer than 63 bytes");
	s->greeted = true;
	return reply_hello(a, s, m->has_board && m->board, f);
}

static int unlink_buffer(struct session *s, const Gpushm__Proto__Request *q, struct reply *a,
			 struct fault *f)
{
	const Gpushm__Proto__Unlink *m = q->unlink;
	char key[KEY_MAX + 1];
	int r = request_key(s, "UNLINK", m->has_name, m->name, key, f);

	if (r == 0)
		r = catalog_unlink(&s->service->catalog, s->process, key, m->buffer, f);
	if (r == 0)
		reply_done(a);
	return r;
}

static int clean(struct session *s, const Gpushm__Proto__Request *q, struct reply *a,
		 struct fault *f)
{
	const Gpushm__Proto__Clean *m = q->clean;
	char key[KEY_MAX + 1];
	int r = request_key(s, "CLEAN", m->has_name, m->name, key, f);

	if (r == 0)
		r = catalog_clean(&s->service->catalog, s->process, key, m->buffer, f);
	if (r == 0)
		reply_done(a);
	return r;
}

static int list_buffers(struct session *s, const Gpushm__Proto__Request *q, struct reply *a,
			struct fault *f)
{
	const Gpushm__Proto__List *m = q->list;

	return reply_list(a, s, m->after, (const char *)m->prefix.data, m->prefix.len,
			  m->has_holders && m->holders, f);
}

static int pools(struct session *s, const Gpushm__Proto__Request *q, struct reply *a,
		 struct fault *f)
{
	return reply_pools(a, s, f);
}

static int status(struct session *s, const Gpushm__Proto__Request *q, struct reply *a,
		  struct fault *f)
{
	return reply_status(a, s, f);
}

static request_function *const verbs[] = {
	[GPUSHM__PROTO__REQUEST__VERB_HELLO] = hello,
	[GPUSHM__PROTO__REQUEST__VERB_CREATE] = request_create,
	[GPUSHM__PROTO__REQUEST__VERB_DESCRIBE] = request_describe,
	[GPUSHM__PROTO__REQUEST__VERB_PUBLISH] = request_publish,
	[GPUSHM__PROTO__REQUEST__VERB_OPEN] = request_open,
	[GPUSHM__PROTO__REQUEST__VERB_CLOSE] = request_close,
	[GPUSHM__PROTO__REQUEST__VERB_UNLINK] = unlink_buffer,
	[GPUSHM__PROTO__REQUEST__VERB_STAT] = request_stat,
	[GPUSHM__PROTO__REQUEST__VERB_LIST] = list_buffers,
	[GPUSHM__PROTO__REQUEST__VERB_POOLS] = pools,
	[GPUSHM__PROTO__REQUEST__VERB_STATUS] = status,
	[GPUSHM__PROTO__REQUEST__VERB_CLEAN] = clean,
	[GPUSHM__PROTO__REQUEST__VERB_FLUSH] = request_flush,
	[GPUSHM__PROTO__REQUEST__VERB_WATCH] = request_watch,
	[GPUSHM__PROTO__REQUEST__VERB_RESTART] = request_restart,
	[GPUSHM__PROTO__REQUEST__VERB_RECLAIM] = request_reclaim,
};

static int dispatch(struct session *s, const Gpushm__Proto__Request *q, struct reply *ret,
		    struct fault *f)
{
	if (q->verb_case == GPUSHM__PROTO__REQUEST__VERB__NOT_SET)
		return fault(f, CODE_UNKNOWN_VERB,
			     "gpushmd " GPUSHM_VERSION " does not know this verb");
	if (s->greeted == (q->verb_case == GPUSHM__PROTO__REQUEST__VERB_HELLO))
		return fault(f, CODE_BAD_REQUEST,
			     s->greeted ? "HELLO was said before" : "HELLO comes first");
	return verbs[q->verb_case](s, q, ret, f);
}

/* What --debug shows: each request, and what became of it. */
static void trace(const struct session *s, const Gpushm__Proto__Request *q, int r,
		  const struct fault *f)
{
	const ProtobufCFieldDescriptor *verb =
		protobuf_c_message_descriptor_get_field(&gpushm__proto__request__descriptor,
							q->verb_case);

	log_write(LOG_DEBUG, &(struct log_about){ .pid = s->process->pid, .uid = s->process->uid },
		  "%s: %s", verb ? verb->name : "unknown verb",
		  r == 0	      ? "done"
		  : r == -EINPROGRESS ? "waits"
				      : f->text);
}

static Gpushm__Proto__Request *unpack(struct service *service, const void *data, size_t len)
{
	service->requests++;
	arena_reset(&service->unpack);
	return gpushm__proto__request__unpack(&service->unpack.allocator, len, data);
}

int request_handle(struct session *s, const void *data, size_t len, struct reply *ret,
		   struct fault *f)
{
	struct service *service = s->service;
	Gpushm__Proto__Request *q = unpack(service, data, len);
	int r;

	if (!q) {
		fault(f, CODE_BAD_REQUEST, "a frame of %zu bytes that is no request", len);
		return -EPROTO;
	}
	r = dispatch(s, q, ret, f);
	if (log_wants(LOG_DEBUG))
		trace(s, q, r, f);
	if (r < 0 && r != -EINPROGRESS) {
		service->refused++;
		reply_fault(ret, f);
		r = 0;
	}
	return r;
}

void request_handle_quiet(struct session *s, const void *data, size_t len)
{
	const Gpushm__Proto__Request *q = unpack(s->service, data, len);
	struct reply ignored;
	struct fault f;

	reply_init(&ignored);
	if (q && q->verb_case == GPUSHM__PROTO__REQUEST__VERB_CLOSE && q->close->quiet)
		dispatch(s, q, &ignored, &f);
}
