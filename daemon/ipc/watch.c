/* SPDX-License-Identifier: MIT
 *
 * WATCH: the client says what it knows of names and buffers, and gets a reply as soon as something
 * differs. So it misses nothing that happens between two requests, and the daemon remembers nothing
 * about a watcher but its one request. A client that may not see a buffer gets the same reply as if
 * the buffer did not exist. The client's half is client/lib/buffer/watch.c.
 */
#include "daemon/ipc/request.h"
#include "daemon/ipc/service.h"
#include "proto/base/own.h"

#include <string.h>

/* The present state of one watched name or buffer. */
struct sight {
	uint64_t id;
	uint32_t word;
};

/* ---- reading ---- */

/* One block for the array of watched things and, behind it, their keys. A key is a little longer
 * than its name. */
static struct watched *alloc(const Gpushm__Proto__Watch *m, char **ret_keys)
{
	size_t bytes = m->n_watched * sizeof(struct watched);
	struct watched *block;

	for (size_t i = 0; i < m->n_watched; i++)
		bytes += m->watched[i]->name.len + KEY_MAX - BUFFER_NAME_MAX + 1;
	block = calloc(1, bytes);
	if (block)
		*ret_keys = (char *)(block + m->n_watched);
	return block;
}

static int read_one(struct session *s, const Gpushm__Proto__Watched *m, struct watched *ret,
		    char **keys, struct fault *f)
{
	char key[KEY_MAX + 1];
	int r;

	ret->seen = m->seen_word;
	ret->id = ret->seen_id = m->buffer;
	if (m->has_name == m->has_buffer)
		return request_bad(f, "WATCH", "each is a name or a buffer's id");
	if (!m->has_name)
		return 0;
	r = private_names_key(s->process, m->name.data, m->name.len, key, f);
	if (r < 0)
		return r;
	ret->id = 0;
	ret->seen_id = m->seen_buffer;
	ret->key = strcpy(*keys, key);
	*keys += strlen(key) + 1;
	return 0;
}

static int read_watched(struct session *s, const Gpushm__Proto__Watch *m, struct watched **ret,
			struct fault *f)
{
	_cleanup_(free_ptr) struct watched *all = NULL;
	char *keys = NULL;

	if (m->n_watched == 0)
		return request_bad(f, "WATCH", "nothing to watch");
	if (m->n_watched > WATCHED_MAX)
		return fault(f, CODE_LIMIT, "WATCH: %zu names and buffers, at most %u",
			     m->n_watched, WATCHED_MAX);
	all = alloc(m, &keys);
	if (!all)
		return fault(f, CODE_NO_MEMORY, "the daemon is out of memory");
	for (size_t i = 0; i < m->n_watched; i++) {
		int r = read_one(s, m->watched[i], &all[i], &keys, f);

		if (r < 0)
			return r;
	}
	*ret = take_ptr(all);
	return 0;
}

/* ---- looking ---- */

/* A process that holds a buffer may see it on any of its connections: the library watches on a
 * connection of its own. */
static bool may_see(const struct session *s, const struct buffer *b)
{
	const struct lease *l;

	if (catalog_visible(b, s->process))
		return true;
	list_foreach (l, &b->leases, buffer_link)
		if (process_is_same(l->process, s->process))
			return true;
	return false;
}

/* What this process has mapped and is asked to suspend: a sum of words, each of which changes when
 * that does. */
static uint32_t wanted_word(const struct session *s)
{
	const struct catalog *c = &s->service->catalog;
	const struct cached *it;
	const struct lease *l;
	uint32_t word = 0;

	if (s->process->pidfd && s->process->pidfd->park.state != PARK_NONE)
		return STATUS_PAGE_WANTED | STATUS_PAGE_PARK;
	if (c->n_wanted == 0)
		return 0;
	list_foreach (it, &c->cached, link) {
		if (!cached_is_wanted(it))
			continue;
		list_foreach (l, &it->buffer->leases, buffer_link)
			if (!l->away && process_is_same(l->process, s->process))
				word += catalog_status_word(c, it->buffer) & ~STATUS_PAGE_FLAGS;
	}
	return word | (word ? STATUS_PAGE_WANTED : 0);
}

static struct sight look(const struct session *s, const struct watched *w)
{
	const struct catalog *c = &s->service->catalog;
	const struct buffer *b = w->key ? catalog_by_key(c, w->key) : catalog_by_id(c, w->id);

	if (!w->key && w->id == 0)
		return (struct sight){ .word = wanted_word(s) };
	if (w->key && (!b || b->state == BUFFER_FILLING || !catalog_visible(b, s->process)))
		return (struct sight){ 0 };
	if (!b || !may_see(s, b))
		return (struct sight){ w->id, STATUS_PAGE_GONE };
	return (struct sight){ b->id, catalog_status_word(c, b) };
}

/* A buffer that has gone does not change any more, whatever other flags its last word had. */
static bool differs(const struct sight *now, const struct watched *w)
{
	if (now->word & w->seen & STATUS_PAGE_GONE)
		return false;
	return now->id != w->seen_id || now->word != w->seen;
}

/* ---- the reply ---- */

static int report_changes(struct session *s, struct reply *reply, struct fault *f)
{
	Gpushm__Proto__WatchReply *m = reply_build(s, reply, watched, WATCHED, watch_reply);
	const struct waiter *w = &s->pending.waiter;
	struct sight seen[WATCHED_MAX];

	reply_list(s->service, m, changed, w->n_watched);
	for (size_t i = 0; i < w->n_watched; i++) {
		Gpushm__Proto__Changed *told;

		/* Once for each name and id: a look may walk all of the buffer's leases. */
		seen[i] = w->watched[i].first < i ? seen[w->watched[i].first]
						  : look(s, &w->watched[i]);
		if (!differs(&seen[i], &w->watched[i]))
			continue;
		told = reply_append(s->service, m, changed, changed);
		if (!told)
			return reply_no_memory(f);
		SET_SOME(told, index, (uint32_t)i);
		SET_SOME(told, buffer, seen[i].id);
		SET_SOME(told, word, seen[i].word);
	}
	return m->changed ? 0 : reply_no_memory(f);
}

static void on_wake(struct waiter *w, bool timed_out)
{
	struct session *s = container_of(w, struct session, pending.waiter);
	struct reply reply = { 0 };
	struct fault f = { 0 };
	int r = report_changes(s, &reply, &f);

	if (r == 0 && !timed_out && reply.u.watched.n_changed == 0)
		return;
	if (r < 0)
		reply_fault(&reply, &f);
	s->on_reply(s, &reply);
	waiters_drop(&s->service->waiters, w);
	session_free_watched(s);
}

int request_watch(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		  struct fault *f)
{
	const Gpushm__Proto__Watch *m = q->watch;
	struct waiter *w = &s->pending.waiter;
	int r = read_watched(s, m, &w->watched, f);

	if (r < 0)
		return r;
	w->n_watched = m->n_watched;
	r = charge(&s->service->catalog.accounts, s->process->uid, ACCOUNT_WATCHED,
		   waiters_join_same(w->watched, w->n_watched), 0, &w->charge, f);
	if (r == 0)
		r = report_changes(s, reply, f);
	if (r == 0 && reply->u.watched.n_changed == 0 && m->wait_ms > 0) {
		w->key[0] = '\0';
		w->on_wake = on_wake;
		waiters_insert(&s->service->waiters, w, s->account, m->wait_ms);
		return -EINPROGRESS;
	}
	session_free_watched(s);
	return r;
}
