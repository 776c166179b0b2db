/* SPDX-License-Identifier: MIT
 *
 * Events lie one behind the other in a ring of bytes. The rights of an event's buffer are copied
 * into it, because the buffer may be gone when somebody asks. Who may see what follows STAT: the
 * life of a buffer is for those who may read it, and its holders are for its owner.
 *
 * Requests are refused as often as a client likes to send them. So of each user and error code only
 * a few become events and lines of the log; STATUS counts them all.
 */
#include "daemon/catalog/event_log.h"

#include "daemon/catalog/private_names.h"
#include "daemon/util/log.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"

#include <string.h>

/* An event has some 80 bytes, its names and its text. */
#define LIFE_MAX 4096u
#define LIFE_BYTES (512u << 10)
#define USE_MAX 2048u
#define USE_BYTES (256u << 10)

/* ---- the rings ---- */

static int ring_init(struct event_ring *r, uint32_t max, uint32_t size)
{
	*r = (struct event_ring){ .max = max, .size = size };
	r->data = malloc(size);
	r->at = calloc(max, sizeof(*r->at));
	return r->data && r->at ? 0 : -ENOMEM;
}

int event_log_init(struct event_log *e, const struct config *const *config)
{
	int r;

	*e = (struct event_log){ .config = config };
	e->first = e->next = clock_realtime_ns() / 1000u;
	r = ring_init(&e->rings[0], LIFE_MAX, LIFE_BYTES);
	return r < 0 ? r : ring_init(&e->rings[1], USE_MAX, USE_BYTES);
}

void event_log_done(struct event_log *e)
{
	for (size_t i = 0; i < array_size(e->rings); i++) {
		free(e->rings[i].data);
		free(e->rings[i].at);
	}
}

static bool is_use(enum event_type type)
{
	return type == EVENT_OPENED || type == EVENT_CLOSED || type == EVENT_JOINED ||
	       type == EVENT_SUSPENDED || type == EVENT_RESUMED;
}

static struct event_ring *ring_of(struct event_log *e, enum event_type type)
{
	return &e->rings[is_use(type)];
}

static const struct event *at(const struct event_ring *r, uint64_t ordinal)
{
	return (const struct event *)(r->data + r->at[ordinal % r->max]);
}

static void drop_oldest(struct event_ring *r)
{
	r->first++;
	r->n--;
}

/* Space for an event of that size behind the newest one. The oldest ones go, which are the next
 * ones in the ring. */
static struct event *make_space(struct event_ring *r, uint32_t size)
{
	if (r->n == r->max)
		drop_oldest(r);
	if (r->head + size > r->size) {
		while (r->n && r->at[r->first % r->max] >= r->head)
			drop_oldest(r);
		r->head = 0;
	}
	while (r->n && r->at[r->first % r->max] >= r->head &&
	       r->at[r->first % r->max] < r->head + size)
		drop_oldest(r);
	r->at[(r->first + r->n++) % r->max] = r->head;
	r->head += size;
	return (struct event *)(r->data + r->head - size);
}

/* The ordinal of the first event with a higher number. */
static uint64_t ordinal_after(const struct event_ring *r, uint64_t number)
{
	uint64_t low = r->first, high = r->first + r->n;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (at(r, middle)->number > number)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

const struct event *event_log_after(const struct event_log *e, uint64_t number)
{
	const struct event *found = NULL;

	for (size_t i = 0; i < array_size(e->rings); i++) {
		const struct event_ring *r = &e->rings[i];
		uint64_t ordinal = ordinal_after(r, number);

		if (ordinal < r->first + r->n && (!found || at(r, ordinal)->number < found->number))
			found = at(r, ordinal);
	}
	return found;
}

uint64_t event_log_lost(const struct event_log *e, uint64_t after, uint64_t last)
{
	uint64_t lost;

	if (after < e->first)
		after = e->first - 1;
	if (after >= last)
		return 0;
	lost = last - after;
	for (size_t i = 0; i < array_size(e->rings); i++)
		lost -= ordinal_after(&e->rings[i], last) - ordinal_after(&e->rings[i], after);
	return lost;
}

/* ---- the log ---- */

static const char *const done[EVENT_TYPES] = {
	[EVENT_CREATED] = "created",	 [EVENT_PUBLISHED] = "published",
	[EVENT_OPENED] = "opened",	 [EVENT_CLOSED] = "closed",
	[EVENT_REPLACED] = "replaced",	 [EVENT_UNLINKED] = "unlinked",
	[EVENT_CLEANED] = "cleaned",	 [EVENT_JOINED] = "joined",
	[EVENT_CONTINUED] = "continued", [EVENT_SUSPENDED] = "suspended",
	[EVENT_RESUMED] = "resumed",	 [EVENT_EVICTED] = "evicted",
	[EVENT_RESTORED] = "restored",
};

/* "created buffer ...", "opened for reading buffer ..." */
static void log_by_process(const struct log_about *about, const struct happening *h)
{
	const struct process *p = h->who;
	const char *how = h->type != EVENT_OPENED && is_use(h->type) ? ""
			  : h->access == ACCESS_WRITE		     ? " for writing"
			  : h->access == ACCESS_READ		     ? " for reading"
								     : "";
	char who[64];

	snprintf(who, sizeof(who), "uid %u (process %d, %s)", p->uid, p->pid, p->command);
	if (h->type == EVENT_REFUSED)
		log_write(LOG_NOTICE, about, "%s may not %s: %s", who, h->verb, h->text);
	else if (h->type == EVENT_RENAMED)
		log_write(LOG_INFO, about, "%s renamed buffer \"%s\" to \"%s\"", who, h->former,
			  about->name);
	else if (h->type == EVENT_DIED)
		log_write(LOG_INFO, about, "%s died while it had buffer \"%s\" open%s", who,
			  about->name, how);
	else if (h->text)
		log_write(LOG_INFO, about, "buffer \"%s\" of %s is %s: %s", about->name, who,
			  done[h->type], h->text);
	else
		log_write(LOG_INFO, about, "%s %s%s buffer \"%s\"", who, done[h->type], how,
			  about->name);
}

/* Other events have a line of their own, with or without the audit. */
static bool is_audited(const struct happening *h)
{
	return h->type == EVENT_FREED || h->type == EVENT_DIED || h->type == EVENT_RENAMED ||
	       (h->type == EVENT_REFUSED && h->code == CODE_ACCESS) || done[h->type];
}

static void audit(const struct happening *h, const char *key)
{
	struct log_about about = { .message_id = LOG_ID_AUDIT,
				   .name = h->buffer ? key : NULL,
				   .buffer = h->buffer ? h->buffer->id : 0 };

	if (!is_audited(h))
		return;
	if (h->who) {
		about.pid = h->who->pid;
		about.uid = h->who->uid;
		about.of_user = true;
		log_by_process(&about, h);
	} else if (h->type == EVENT_FREED) {
		log_write(LOG_INFO, &about, "buffer \"%s\" is freed", key);
	} else {
		log_write(LOG_INFO, &about, "buffer \"%s\" is %s: %s", key, done[h->type], h->text);
	}
}

/* ---- telling ---- */

#define AUDITED(name, error) [CODE_##name] = { LOG_ID_AUDIT, "requests refused with " #name },

/* Replies that programs ask for all the time are no events. */
static bool is_routine(enum code code)
{
	return code == CODE_NOT_FOUND || code == CODE_EXISTS || code == CODE_NOT_PUBLISHED;
}

static bool passes(struct event_log *e, const struct happening *h)
{
	static const struct ratelimit_cause audited[CODE_COUNT] = { CODES(AUDITED) };
	static const struct ratelimit_cause silent[CODE_COUNT];
	bool is_logged = (*e->config)->audit && h->code == CODE_ACCESS;

	if (h->type != EVENT_REFUSED)
		return true;
	return !is_routine(h->code) &&
	       ratelimit_pass(&e->refusals, is_logged ? &audited[h->code] : &silent[h->code],
			      h->who->uid, clock_monotonic_ns());
}

static void copy_buffer(struct event *e, const struct buffer *b)
{
	e->buffer = b->id;
	e->bytes = b->bytes;
	e->rights = buffer_rights(b);
	e->state = (uint8_t)b->state;
}

static void copy_process(struct event *e, const struct process *p)
{
	e->by_process = true;
	e->uid = p->uid;
	e->pid = p->pid;
	memcpy(e->command, p->command, sizeof(e->command));
}

static const char *key_of(const struct happening *h)
{
	return h->key ? h->key : h->buffer ? buffer_name(h->buffer) : "";
}

static void keep(struct event_log *e, const struct happening *h, const char *key)
{
	const char *texts[] = { key, h->former,
				h->pool	    ? h->pool
				: h->buffer ? h->buffer->pool->config.name
					    : NULL,
				h->text };
	size_t lengths[array_size(texts)], size = sizeof(struct event), used = 0;
	uint16_t starts[array_size(texts)];
	struct event *it;

	for (size_t i = 0; i < array_size(texts); i++)
		size += lengths[i] = texts[i] ? strlen(texts[i]) + 1 : 1;
	size = (size + _Alignof(struct event) - 1) & ~(_Alignof(struct event) - 1);
	it = make_space(ring_of(e, h->type), (uint32_t)size);
	*it = (struct event){ .number = e->next++,
			      .ns = clock_realtime_ns(),
			      .verb = h->verb,
			      .type = (uint8_t)h->type,
			      .access = (uint8_t)h->access,
			      .code = (uint8_t)h->code,
			      .size = (uint16_t)size };
	for (size_t i = 0; i < array_size(texts); i++) {
		starts[i] = (uint16_t)used;
		memcpy(it->strings + used, texts[i] ? texts[i] : "", lengths[i]);
		used += lengths[i];
	}
	if (h->rights) {
		it->buffer = h->id;
		it->rights = *h->rights;
	}
	it->former = starts[1];
	it->pool = starts[2];
	it->text = starts[3];
	if (h->buffer)
		copy_buffer(it, h->buffer);
	if (h->who)
		copy_process(it, h->who);
}

void event_log_tell(struct event_log *e, const struct happening *h)
{
	const char *key = key_of(h);

	if (e->closed || !passes(e, h))
		return;
	keep(e, h, key);
	if ((*e->config)->audit)
		audit(h, key);
	if (e->on_event)
		e->on_event(e->arg);
}

/* ---- who may see what ---- */

static bool is_owner(const struct event *e, const struct process *p)
{
	return p->admin || (e->buffer && e->rights.uid == p->uid);
}

/* As catalog_visible() at the time of the event. */
static enum event_type seen_by_reader(const struct event *e, const struct process *p)
{
	const char *former = e->strings + e->former;
	bool new = private_names_may_say(p, e->strings), old = private_names_may_say(p, former);

	if (e->state == BUFFER_FILLING || !*e->strings || !rights_allow(&e->rights, p, ACCESS_READ))
		return 0;
	if (e->type != EVENT_RENAMED || (new &&old))
		return new ? e->type : 0;
	return new ? EVENT_PUBLISHED : old ? EVENT_UNLINKED : 0;
}

enum event_type event_seen_as(const struct event *e, const struct process *p)
{
	if (is_owner(e, p) || (e->by_process && e->uid == p->uid))
		return e->type;
	switch (e->type) {
	case EVENT_STARTED:
	case EVENT_POOL_FAILED:
	case EVENT_POOL_RECOVERED:
		return e->type;
	case EVENT_PUBLISHED:
	case EVENT_RENAMED:
	case EVENT_REPLACED:
	case EVENT_UNLINKED:
	case EVENT_DIRTY:
	case EVENT_CLEANED:
	case EVENT_LOST:
	case EVENT_ORPHANED:
	case EVENT_CONTINUED:
		return seen_by_reader(e, p);
	default:
		return 0;
	}
}

bool event_may_see_process(const struct event *e, const struct process *p)
{
	return is_owner(e, p) || e->uid == p->uid || e->type == EVENT_DIRTY;
}
