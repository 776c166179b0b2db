/* SPDX-License-Identifier: MIT
 *
 * EVENTS: gpushm_events(). A batch is one block of memory: the list, the events, and their texts.
 */
#include "client/lib/base/error.h"
#include "client/lib/link/request.h"
#include "proto/base/own.h"
#include "proto/code.h"
#include "proto/words.h"

#define TEXTS 6u /* of an event; each has a NUL */

/* A batch, and how much of its block is used. */
struct batch {
	struct gpushm_events events;
	const struct gpushm_logged_event **list;
	struct gpushm_logged_event *next;
	char *text;
};

static size_t texts_bytes(const Gpushm__Proto__Event *m)
{
	return m->command.len + m->name.len + m->former.len + m->pool.len + m->verb.len +
	       m->text.len + TEXTS;
}

static struct batch *batch_new(const Gpushm__Proto__EventsReply *m)
{
	size_t n = m->n_events, texts = 0, lists;
	struct batch *b;

	for (size_t i = 0; i < n; i++)
		texts += texts_bytes(m->events[i]);
	lists = n * (sizeof(*b->list) + sizeof(*b->next));
	b = calloc(1, sizeof(*b) + lists + texts);
	if (!b)
		return NULL;
	b->next = (struct gpushm_logged_event *)(b + 1);
	b->list = (const struct gpushm_logged_event **)(b->next + n);
	b->text = (char *)(b->list + n);
	b->events.events = b->list;
	return b;
}

static int take_text(struct batch *b, const char *what, protobuf_c_boolean has,
		     ProtobufCBinaryData from, const char **ret)
{
	size_t n = has ? from.len : 0;
	int r = decode_text(what, has, from, b->text, n + 1);

	*ret = b->text;
	b->text += n + 1;
	return r;
}

static int decode_texts(struct batch *b, const Gpushm__Proto__Event *m,
			struct gpushm_logged_event *e)
{
	/* An absent one would be the first value of its enum. */
	e->access = m->has_access ? (enum gpushm_access)m->access : 0;
	e->state = m->has_state ? (enum gpushm_state)m->state : 0;
	if (take_text(b, "an event's command", m->has_command, m->command, &e->command) < 0 ||
	    take_text(b, "an event's name", m->has_name, m->name, &e->name) < 0 ||
	    take_text(b, "an event's former name", m->has_former, m->former, &e->former) < 0 ||
	    take_text(b, "an event's pool", m->has_pool, m->pool, &e->pool) < 0 ||
	    take_text(b, "an event's verb", m->has_verb, m->verb, &e->verb) < 0 ||
	    take_text(b, "an event's text", m->has_text, m->text, &e->text) < 0)
		return -EPROTO;
	return 0;
}

static int decode_event(struct batch *b, const Gpushm__Proto__Event *m)
{
	struct gpushm_logged_event *e = b->next++;

	*e = (struct gpushm_logged_event){ .number = m->number,
					   .type = event_word(m->type),
					   .time_ns = m->time_ns,
					   .uid = m->has_uid ? m->uid : (uid_t)-1,
					   .pid = m->pid,
					   .buffer = m->buffer,
					   .owner = m->has_owner ? m->owner : (uid_t)-1,
					   .bytes = m->size_bytes,
					   .code = m->has_code ? code_name((int)m->code) : "" };
	b->list[b->events.n++] = e;
	return decode_texts(b, m, e);
}

/* Numbers grow: a daemon whose `last` did not would be asked for the same events for ever. */
static int read_events(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	const Gpushm__Proto__EventsReply *m = reply->events;
	struct batch *b = batch_new(m), **ret = to;
	uint64_t before = 0;
	int r = b ? 0 : error_set(ENOMEM, "out of memory for events");

	for (size_t i = 0; r == 0 && i < m->n_events; i++) {
		if (m->events[i]->number <= before || m->events[i]->number > m->last)
			r = error_set(EPROTO, "the daemon's events are not in order");
		else
			r = decode_event(b, m->events[i]);
		before = m->events[i]->number;
	}
	if (r < 0) {
		free(b);
		return r;
	}
	b->events.last = m->last;
	b->events.lost = m->lost;
	b->events.first = m->first;
	b->events.more = m->more;
	*ret = b;
	return 0;
}

/* "created,refused": a bit for each. */
static int parse_types(const char *types, uint64_t *ret)
{
	uint64_t found = 0;

	for (const char *word = types; word && *word;) {
		size_t len = strcspn(word, ",");
		unsigned int type = 1;

		while (type < EVENT_WORDS && (strlen(event_word(type)) != len ||
					      strncmp(event_word(type), word, len) != 0))
			type++;
		if (type == EVENT_WORDS)
			return error_set(EINVAL,
					 "no event has the type \"%.*s\"; gpushmctl(1) has a list",
					 (int)len, word);
		found |= 1ull << type;
		word += len + (word[len] == ',');
	}
	*ret = found;
	return 0;
}

struct gpushm_events *gpushm_events_free(struct gpushm_events *e)
{
	if (e)
		free(container_of(e, struct batch, events));
	return NULL;
}

static int call(struct gpushm *c, Gpushm__Proto__Events *m, struct batch **ret)
{
	return request_read(c, request_with(EVENTS, events, m), read_events, ret);
}

/* The struct may grow at its end; struct_size says what the caller has of it. */
static int read_options(const struct gpushm_events_options *from, struct gpushm_events_options *ret)
{
	const char *bytes = (const char *)from;

	*ret = (struct gpushm_events_options){ 0 };
	if (!from)
		return 0;
	if (from->struct_size < sizeof(*ret))
		return error_set(EINVAL, "options: struct_size is not set");
	for (size_t i = sizeof(*ret); i < from->struct_size; i++)
		if (bytes[i])
			return error_set(EINVAL, "options: made for a newer libgpushm than %s",
					 gpushm_version());
	*ret = *from;
	return 0;
}

int gpushm_events(struct gpushm *c, const struct gpushm_events_options *options,
		  struct gpushm_events **ret)
{
	Gpushm__Proto__Events m = GPUSHM__PROTO__EVENTS__INIT;
	struct gpushm_events_options o;
	struct batch *b = NULL;
	int r = read_options(options, &o);

	if (r < 0)
		return r;
	r = parse_types(o.types, &m.types);
	m.has_types = m.types != 0;
	m.has_after = true;
	m.after = o.after;
	/* If the daemon dies while we wait, its successor's first events are new ones, too. */
	if (r == 0 && o.after == GPUSHM_EVENTS_NEW && o.timeout_ms > 0) {
		r = call(c, &m, &b);
		m.after = r == 0 ? b->events.last : 0;
		free(take_ptr(b));
	}
	m.has_wait_ms = o.timeout_ms > 0;
	m.wait_ms = o.timeout_ms;
	if (r == 0)
		r = call(c, &m, &b);
	if (r < 0)
		return r;
	*ret = &b->events;
	return 0;
}
