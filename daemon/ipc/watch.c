/* SPDX-License-Identifier: MIT
 *
 * WATCH: the client says what it knows of names and buffers, and is answered as soon as something
 * is otherwise. So nothing that happens between two requests is missed, and the daemon remembers
 * nothing of a watcher but its one request. Who may not see a buffer is told what it would be told
 * if there were none.
 */
#include "daemon/ipc/verb.h"
#include "proto/base/own.h"

#include <string.h>

/* What there is to say of one thing now. */
struct sight {
	uint64_t id;
	uint32_t word;
};

/* ---- reading ---- */

/* The watched, and the keys behind them, in one block: a key is a little longer than its name. */
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
	if (m->has_name == (m->has_buffer && m->buffer != 0))
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

/* Whoever holds a buffer may know of it, on whichever connection: a watcher has one of its own. */
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

static struct sight look(const struct session *s, const struct watched *w)
{
	const struct catalog *c = &s->service->catalog;
	const struct buffer *b = w->key ? catalog_by_key(c, w->key) : catalog_by_id(c, w->id);

	if (w->key && (!b || b->state == BUFFER_FILLING || !catalog_visible(b, s->process)))
		return (struct sight){ 0 };
	if (!b || !may_see(s, b))
		return (struct sight){ w->id, STATUS_PAGE_GONE };
	return (struct sight){ b->id, catalog_word(c, b) };
}

/* The same buffer is looked at once, however often it is named: that may take as long as it has
 * leases. seen: of those before it. */
static struct sight look_once(const struct session *s, const struct watched *all, size_t i,
			      const struct sight *seen)
{
	for (size_t j = 0; j < i && !all[i].key; j++)
		if (!all[j].key && all[j].id == all[i].id)
			return seen[j];
	return look(s, &all[i]);
}

/* What has gone has gone, whatever else its last word said. */
static bool differs(const struct sight *now, const struct watched *w)
{
	if (now->word & w->seen & STATUS_PAGE_GONE)
		return false;
	return now->id != w->seen_id || now->word != w->seen;
}

/* ---- telling ---- */

static int tell(struct session *s, struct reply *a, struct fault *f)
{
	Gpushm__Proto__WatchReply *m = &a->u.watched;
	const struct waiter *w = &s->waiter;
	struct sight seen[WATCHED_MAX];

	arena_reset(&s->service->build);
	gpushm__proto__reply__init(&a->reply);
	gpushm__proto__watch_reply__init(m);
	a->reply.result_case = GPUSHM__PROTO__REPLY__RESULT_WATCHED;
	a->reply.watched = m;
	m->changed = reply_build(s->service, w->n_watched * sizeof(*m->changed));
	for (size_t i = 0; m->changed && i < w->n_watched; i++) {
		Gpushm__Proto__Changed *told;

		seen[i] = look_once(s, w->watched, i, seen);
		if (!differs(&seen[i], &w->watched[i]))
			continue;
		told = reply_build(s->service, sizeof(*told));
		if (!told)
			return reply_no_memory(f);
		gpushm__proto__changed__init(told);
		TELL(told, index, (uint32_t)i);
		TELL(told, buffer, seen[i].id);
		TELL(told, word, seen[i].word);
		m->changed[m->n_changed++] = told;
	}
	return m->changed ? 0 : reply_no_memory(f);
}

static void on_wake(struct waiter *w, bool timed_out)
{
	struct session *s = container_of(w, struct session, waiter);
	struct reply a = { 0 };
	struct fault f = { 0 };
	int r = tell(s, &a, &f);

	if (r == 0 && !timed_out && a.u.watched.n_changed == 0) {
		waiters_resume(&s->service->waiters, w);
		return;
	}
	session_forget_watched(s);
	if (r < 0)
		reply_fault(&a, &f);
	s->on_answer(s, &a);
}

int request_watch(struct session *s, const Gpushm__Proto__Request *q, struct reply *a,
		  struct fault *f)
{
	const Gpushm__Proto__Watch *m = q->watch;
	struct waiter *w = &s->waiter;
	int r = read_watched(s, m, &w->watched, f);

	if (r < 0)
		return r;
	w->n_watched = m->n_watched;
	r = tell(s, a, f);
	if (r == 0 && a->u.watched.n_changed == 0 && m->has_wait_ms && m->wait_ms > 0) {
		w->key[0] = '\0';
		w->on_wake = on_wake;
		waiters_insert(&s->service->waiters, w, m->wait_ms);
		return -EINPROGRESS;
	}
	session_forget_watched(s);
	return r;
}
