/* SPDX-License-Identifier: MIT
 *
 * EVENTS: gpushm_events().
 */
#include "client/gpushm_events.h"
#include "client/lib/base/error.h"
#include "client/lib/link/records.h"
#include "client/lib/link/request.h"
#include "proto/base/sized.h"
#include "proto/words.h"

/* Numbers grow: a daemon whose `last` did not would be asked for the same events for ever. */
static int read_events(struct gpushm *c, const Gpushm__Proto__Reply *reply, void *to)
{
	const Gpushm__Proto__EventsReply *m = reply->events;
	uint64_t before = 0;
	void *events;

	for (size_t i = 0; i < m->n_events; i++) {
		if (m->events[i]->number <= before || m->events[i]->number > m->last)
			return error_set(EPROTO, "the daemon's events are not in order");
		before = m->events[i]->number;
	}
	return records_read(to, records_events, &m->base, &events);
}

/* "created,refused": a bit for each. */
static int parse_types(const char *types, uint64_t *ret)
{
	const char *unknown = event_word(0);
	uint64_t found = 0;

	for (const char *word = types; word && *word;) {
		size_t len = strcspn(word, ",");
		unsigned int type = 1;

		while (event_word(type) != unknown && (strlen(event_word(type)) != len ||
						       strncmp(event_word(type), word, len) != 0))
			type++;
		if (event_word(type) == unknown)
			return error_set(EINVAL,
					 "no event has the type \"%.*s\"; gpushmctl(1) has a list",
					 (int)len, word);
		found |= 1ull << type;
		word += len + (word[len] == ',');
	}
	*ret = found;
	return 0;
}

int gpushm_events(struct gpushm *c, const struct gpushm_events_options *options,
		  struct gpushm_events **ret)
{
	Gpushm__Proto__Events m = GPUSHM__PROTO__EVENTS__INIT;
	struct gpushm_events_options o;
	struct gpushm_events *before = NULL;
	int r = error_wrong("options", sized_read(options, &o, sizeof(o)));

	if (r < 0)
		return r;
	r = parse_types(o.types, &m.types);
	m.has_types = m.types != 0;
	SET(&m, after, o.after);
	/* If the daemon dies while we wait, its successor's first events are new ones, too. */
	if (r == 0 && o.after == GPUSHM_EVENTS_NEW && o.timeout_ms > 0) {
		r = request_one(c, request_with(EVENTS, events, &m), read_events, &before);
		m.after = r == 0 ? before->last : 0;
		gpushm_free(before);
	}
	SET_SOME(&m, wait_ms, o.timeout_ms);
	return r < 0 ? r : request_one(c, request_with(EVENTS, events, &m), read_events, ret);
}
