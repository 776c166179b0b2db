/* SPDX-License-Identifier: MIT
 *
 * Requests: a table of handlers, and what they share. A handler checks that the fields it needs are
 * there, translates the message for the catalog, and calls it. It calls the catalog before it
 * touches its reply, because a publication sends other sessions' replies in between. Messages are
 * unpacked into an arena of fixed size, so that a hostile frame costs no more than an honest one.
 */
#include "daemon/ipc/request.h"

#include "daemon/ipc/service.h"
#include "daemon/util/log.h"
#include "proto/base/own.h"

#include <string.h>

static request_function *const handlers[] = {
	[GPUSHM__PROTO__REQUEST__VERB_HELLO] = request_hello,
	[GPUSHM__PROTO__REQUEST__VERB_CREATE] = request_create,
	[GPUSHM__PROTO__REQUEST__VERB_DESCRIBE] = request_describe,
	[GPUSHM__PROTO__REQUEST__VERB_PUBLISH] = request_publish,
	[GPUSHM__PROTO__REQUEST__VERB_OPEN] = request_open,
	[GPUSHM__PROTO__REQUEST__VERB_CLOSE] = request_close,
	[GPUSHM__PROTO__REQUEST__VERB_UNLINK] = request_unlink,
	[GPUSHM__PROTO__REQUEST__VERB_STAT] = request_stat,
	[GPUSHM__PROTO__REQUEST__VERB_LIST] = request_list,
	[GPUSHM__PROTO__REQUEST__VERB_POOLS] = request_pools,
	[GPUSHM__PROTO__REQUEST__VERB_STATUS] = request_status,
	[GPUSHM__PROTO__REQUEST__VERB_CLEAN] = request_clean,
	[GPUSHM__PROTO__REQUEST__VERB_FLUSH] = request_flush,
	[GPUSHM__PROTO__REQUEST__VERB_WATCH] = request_watch,
	[GPUSHM__PROTO__REQUEST__VERB_RESTART] = request_restart,
	[GPUSHM__PROTO__REQUEST__VERB_RECLAIM] = request_reclaim,
	[GPUSHM__PROTO__REQUEST__VERB_RENAME] = request_rename,
	[GPUSHM__PROTO__REQUEST__VERB_METRICS] = request_metrics,
	[GPUSHM__PROTO__REQUEST__VERB_EVENTS] = request_events,
	[GPUSHM__PROTO__REQUEST__VERB_STREAM] = request_stream,
	[GPUSHM__PROTO__REQUEST__VERB_JOIN] = request_join,
	[GPUSHM__PROTO__REQUEST__VERB_PAGE] = request_page,
	[GPUSHM__PROTO__REQUEST__VERB_DROP] = request_drop,
	[GPUSHM__PROTO__REQUEST__VERB_STREAMS] = request_streams,
	[GPUSHM__PROTO__REQUEST__VERB_SUSPEND] = request_suspend,
	[GPUSHM__PROTO__REQUEST__VERB_RESUME] = request_resume,
	[GPUSHM__PROTO__REQUEST__VERB_EVICT] = request_evict,
	[GPUSHM__PROTO__REQUEST__VERB_KEEP] = request_keep,
	[GPUSHM__PROTO__REQUEST__VERB_USE] = request_use,
	[GPUSHM__PROTO__REQUEST__VERB_ASK] = request_ask,
	[GPUSHM__PROTO__REQUEST__VERB_PARK] = request_park,
};
_Static_assert(array_size(handlers) <= VERBS_MAX, "each verb has its counts");

/* ---- what handlers share ---- */

int request_bad(struct fault *f, const char *request, const char *what)
{
	return fault(f, CODE_BAD_REQUEST, "%s: %s", request, what);
}

int request_key(struct session *s, const char *request, bool has, ProtobufCBinaryData name,
		char key[KEY_MAX + 1], struct fault *f)
{
	if (!has)
		return request_bad(f, request, "a name is missing");
	return private_names_key(s->process, name.data, name.len, key, f);
}

int request_lease(struct session *s, const char *request, bool has, uint64_t id, struct lease **ret,
		  struct fault *f)
{
	if (!has)
		return request_bad(f, request, "a lease is missing");
	return catalog_lookup_lease(&s->service->catalog, s->process, id, ret, f);
}

/* ---- waiting for a name ---- */

/* Whether it is worth while to wait for a change of what was refused with that code. */
static bool may_change(const struct session *s, enum code code)
{
	return (code == CODE_NOT_FOUND && !s->pending.waiter.while_filling) ||
	       code == CODE_NOT_PUBLISHED || code == CODE_DIRTY || code == CODE_EVICTED ||
	       (code == CODE_STATE && s->pending.waits_for_producer);
}

static void refuse_late(const struct session *s, const char *key, struct fault *f)
{
	const char *what = f->code == CODE_DIRTY ? "cleaned" : "published";
	bool missing = f->code == CODE_NOT_FOUND;
	char why[256];

	if (missing && lost_explain(&s->service->catalog.lost, s->process, key, why, sizeof(why)))
		fault(f, CODE_TIMED_OUT, "buffer \"%s\" was not %s in time: %s", key, what, why);
	else
		fault(f, CODE_TIMED_OUT, "buffer \"%s\" was not %s in time", key, what);
}

static void on_wake(struct waiter *w, bool timed_out)
{
	struct session *s = container_of(w, struct session, pending.waiter);
	struct reply reply = { 0 };
	struct fault f = { 0 };
	int r = s->pending.attempt(s, w->key, &reply, &f);

	if (r < 0 && !timed_out && may_change(s, f.code))
		return;
	if (r < 0 && f.code != CODE_STATE && f.code != CODE_EVICTED && may_change(s, f.code))
		refuse_late(s, w->key, &f);
	if (r < 0)
		reply_fault(&reply, &f);
	s->on_reply(s, &reply);
	waiters_drop(&s->service->waiters, w);
}

int request_attempt_or_wait(struct session *s, const char *key, uint64_t wait_ms,
			    bool while_filling, request_attempt *attempt, struct reply *reply,
			    struct fault *f)
{
	int r = attempt(s, key, reply, f);

	s->pending.waiter.while_filling = while_filling;
	if (r == 0 || wait_ms == 0 || !may_change(s, f->code))
		return r;
	strcpy(s->pending.waiter.key, key);
	s->pending.waiter.on_wake = on_wake;
	s->pending.attempt = attempt;
	waiters_insert(&s->service->waiters, &s->pending.waiter, s->account, wait_ms);
	return -EINPROGRESS;
}

/* ---- from a frame to its handler ---- */

static int dispatch(struct session *s, const Gpushm__Proto__Request *q, struct reply *ret,
		    struct fault *f)
{
	if (q->verb_case >= array_size(handlers) || !handlers[q->verb_case])
		return fault(f, CODE_UNKNOWN_VERB,
			     "gpushmd " GPUSHM_VERSION " does not know this verb");
	if (s->greeted == (q->verb_case == GPUSHM__PROTO__REQUEST__VERB_HELLO))
		return fault(f, CODE_BAD_REQUEST,
			     s->greeted ? "HELLO was said before" : "HELLO comes first");
	return handlers[q->verb_case](s, q, ret, f);
}

const char *request_verb(unsigned verb)
{
	const ProtobufCFieldDescriptor *field =
		protobuf_c_message_descriptor_get_field(&gpushm__proto__request__descriptor, verb);

	return field ? field->name : verb ? "unknown verb" : "connect";
}

/* What --debug shows: each request and its result. */
static void trace(const struct session *s, int r, const struct fault *f)
{
	log_write(LOG_DEBUG, &(struct log_about){ .pid = s->process->pid, .uid = s->process->uid },
		  "%s: %s", request_verb(s->pending.verb),
		  r == 0	      ? "done"
		  : r == -EINPROGRESS ? "waits"
				      : f->text);
}

static Gpushm__Proto__Request *unpack(struct service *service, const void *data, size_t len)
{
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
		service->requests++;
		fault(f, CODE_BAD_REQUEST, "a frame of %zu bytes that is no request", len);
		return -EPROTO;
	}
	s->pending.verb = q->verb_case;
	r = dispatch(s, q, ret, f);
	if (r == -ERESTART)
		return r;
	service->requests++;
	if (log_wants(LOG_DEBUG))
		trace(s, r, f);
	if (r < 0 && r != -EINPROGRESS) {
		reply_fault(ret, f);
		r = 0;
	}
	return r;
}

void request_handle_quiet_close(struct session *s, const void *data, size_t len)
{
	const Gpushm__Proto__Request *q = unpack(s->service, data, len);
	struct reply unused;
	struct fault f;

	reply_init(&unused);
	s->service->requests++;
	if (q && q->verb_case == GPUSHM__PROTO__REQUEST__VERB_CLOSE && q->close->quiet)
		dispatch(s, q, &unused, &f);
}

bool request_lists(const struct session *s, const struct buffer *b, ProtobufCBinaryData prefix)
{
	char shown[KEY_MAX + 1];

	if (!catalog_visible(b, s->process))
		return false;
	if (prefix.len == 0)
		return true;
	return b->key && private_names_shown(s->process, b->key, shown) >= prefix.len &&
	       memcmp(shown, prefix.data, prefix.len) == 0;
}
