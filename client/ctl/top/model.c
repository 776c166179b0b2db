/* SPDX-License-Identifier: MIT
 *
 * Differences of two samples, and the rows of a view. Nothing here knows a terminal or the daemon.
 *
 * A daemon that restarted counts from 0 again. Its uptime is then shorter than before, and nothing
 * can be said about the time between.
 */
#include "client/ctl/top/model.h"

#include "client/ctl/output.h"
#include "client/ctl/pattern.h"
#include "proto/base/own.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rates ---- */

static bool is_comparable(const struct sample *before, const struct sample *now)
{
	return before && now->taken_ns > before->taken_ns &&
	       now->status->uptime_ms >= before->status->uptime_ms &&
	       !memcmp(now->status->daemon, before->status->daemon, sizeof(now->status->daemon));
}

/* How fast a number grew, or shrank. */
static double rate(const struct model *m, uint64_t before, uint64_t now)
{
	return ((double)now - (double)before) / m->seconds;
}

static void compare_status(struct model *m, const struct sample *before, const struct sample *now)
{
	m->requests = rate(m, before->status->requests, now->status->requests);
	m->refused = rate(m, before->status->refused, now->status->refused);
	m->creates = rate(m, before->creates, now->creates);
	m->opens = rate(m, before->opens, now->opens);
	if (before->memory_bytes && now->cpu_ns >= before->cpu_ns)
		m->cpu = rate(m, before->cpu_ns, now->cpu_ns) / 1e7;
}

/* Both lists are in the order of ids. A buffer that is new has been opened by others only since. */
static void compare_buffers(struct model *m, const struct sample *before)
{
	size_t k = 0;

	for (size_t i = 0; i < m->n[TOP_BUFFERS]; i++) {
		const struct gpushm_stat *s = m->buffers[i].stat;
		bool known;

		while (k < before->n_buffers && before->buffers[k]->id < s->id)
			k++;
		known = k < before->n_buffers && before->buffers[k]->id == s->id;
		/* The count wraps. */
		m->buffers[i].opens =
			(uint32_t)(s->opens - (known ? before->buffers[k]->opens : 0)) / m->seconds;
	}
}

static void compare_pools(struct model *m, const struct sample *before)
{
	for (size_t i = 0; i < m->n[TOP_POOLS]; i++)
		for (size_t k = 0; k < before->n_pools; k++)
			if (!strcmp(m->pools[i].pool->name, before->pools[k]->name))
				m->pools[i].bytes = rate(m, before->pools[k]->used_bytes,
							 m->pools[i].pool->used_bytes);
}

/* A user who had nothing then is not in the sample before. */
static void compare_users(struct model *m, const struct sample *before)
{
	for (size_t i = 0; i < m->n[TOP_USERS]; i++) {
		const struct gpushm_usage *u = m->users[i].usage;
		uint64_t bytes = 0;

		for (size_t k = 0; k < before->status->n_usage; k++)
			if (before->status->usage[k]->uid == u->uid)
				bytes = before->status->usage[k]->bytes;
		m->users[i].bytes = rate(m, bytes, u->bytes);
	}
}

static void compare(struct model *m, const struct sample *before, const struct sample *now)
{
	m->seconds = (double)(now->taken_ns - before->taken_ns) / 1e9;
	compare_status(m, before, now);
	compare_buffers(m, before);
	compare_pools(m, before);
	compare_users(m, before);
}

/* ---- processes ---- */

static int by_process(const void *a, const void *b)
{
	const struct top_process *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	if (x->uid != y->uid)
		return x->uid < y->uid ? -1 : 1;
	return strcmp(x->command, y->command);
}

/* A process may have several leases of a buffer, which counts once. */
static size_t add_holders(struct top_process *list, size_t n, const struct gpushm_stat *s)
{
	size_t first = n;

	for (size_t i = 0; i < s->n_holders; i++) {
		const struct gpushm_holder *h = s->holders[i];
		struct top_process p = { .pid = h->pid,
					 .uid = h->uid,
					 .ending = h->suspect,
					 .buffers = 1,
					 .writes = h->access == GPUSHM_WRITE,
					 .bytes = s->bytes,
					 .since_ns = h->since_ns };
		size_t k = first;

		memcpy(p.command, h->command, sizeof(p.command));
		while (k < n && by_process(&list[k], &p) != 0)
			k++;
		if (k == n)
			list[n++] = p;
		else if (p.writes)
			list[k].writes = 1;
	}
	return n;
}

/* Joins neighbours of one process. */
static size_t join(struct top_process *list, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		struct top_process *last = kept ? &list[kept - 1] : NULL;

		if (!last || by_process(last, &list[i]) != 0) {
			list[kept++] = list[i];
			continue;
		}
		last->buffers += list[i].buffers;
		last->writes += list[i].writes;
		last->bytes += list[i].bytes;
		last->ending |= list[i].ending;
		if (list[i].since_ns < last->since_ns)
			last->since_ns = list[i].since_ns;
	}
	return kept;
}

static int list_processes(struct model *m, const struct sample *now)
{
	size_t n = 0;

	for (size_t i = 0; i < now->n_buffers; i++)
		n += now->buffers[i]->n_holders;
	m->processes = calloc(n + 1, sizeof(*m->processes));
	if (!m->processes)
		return -ENOMEM;
	n = 0;
	for (size_t i = 0; i < now->n_buffers; i++)
		n = add_holders(m->processes, n, now->buffers[i]);
	qsort(m->processes, n, sizeof(*m->processes), by_process);
	m->n[TOP_PROCESSES] = join(m->processes, n);
	return 0;
}

/* ---- the model ---- */

static int list_all(struct model *m, const struct sample *now)
{
	m->buffers = calloc(now->n_buffers + 1, sizeof(*m->buffers));
	m->pools = calloc(now->n_pools + 1, sizeof(*m->pools));
	m->users = calloc(now->status->n_usage + 1, sizeof(*m->users));
	if (!m->buffers || !m->pools || !m->users)
		return -ENOMEM;
	m->n[TOP_BUFFERS] = now->n_buffers;
	m->n[TOP_POOLS] = now->n_pools;
	m->n[TOP_USERS] = now->status->n_usage;
	for (size_t i = 0; i < now->n_buffers; i++)
		m->buffers[i] = (struct top_buffer){ now->buffers[i], NAN };
	for (size_t i = 0; i < now->n_pools; i++)
		m->pools[i] = (struct top_pool){ now->pools[i], NAN };
	for (size_t i = 0; i < now->status->n_usage; i++)
		m->users[i] = (struct top_user){ now->status->usage[i], NAN };
	return list_processes(m, now);
}

static int list_events(struct model *m, const struct history *h)
{
	m->events = calloc(h->n + 1, sizeof(*m->events));
	if (!m->events)
		return -ENOMEM;
	for (size_t i = 0; i < h->n_batches; i++)
		for (size_t k = 0; k < h->batches[i]->n_events; k++)
			m->events[m->n[TOP_EVENTS]++] = h->batches[i]->events[k];
	return 0;
}

int model_make(const struct sample *before, const struct sample *now, const struct history *events,
	       struct model *ret)
{
	*ret = (struct model){ .sample = now,
			       .seconds = NAN,
			       .requests = NAN,
			       .refused = NAN,
			       .creates = NAN,
			       .opens = NAN,
			       .cpu = NAN };
	if (list_all(ret, now) < 0 || list_events(ret, events) < 0) {
		model_done(ret);
		return -ENOMEM;
	}
	if (is_comparable(before, now))
		compare(ret, before, now);
	return 0;
}

void model_done(struct model *m)
{
	free(m->buffers);
	free(m->processes);
	free(m->users);
	free(m->pools);
	free(m->events);
	*m = (struct model){ 0 };
}

/* ---- rows ---- */

/* What a row is sorted by. Users are in the order of their numbers: output_user() keeps a name only
 * until it was asked for some others. */
struct key {
	size_t at;
	const char *text; /* compared first; NULL: none */
	double number;	  /* the larger one is first */
	const char *name; /* compared last, with the index */
};

struct row {
	const char *name;
	uid_t uid;
	bool has_user;
	double numbers[TOP_SORTS]; /* 0 where the view has no such number */
};

static struct row buffer_row(const struct model *m, size_t i)
{
	const struct gpushm_stat *s = m->buffers[i].stat;

	return (struct row){ s->name,
			     s->uid,
			     true,
			     { [TOP_SIZE] = (double)s->bytes,
			       [TOP_RATE] = m->buffers[i].opens,
			       [TOP_HOLDERS] = (double)s->readers + s->writers,
			       [TOP_AGE] = -(double)s->created_ns } };
}

static struct row process_row(const struct model *m, size_t i)
{
	const struct top_process *p = &m->processes[i];

	return (struct row){ p->command,
			     p->uid,
			     true,
			     { [TOP_SIZE] = (double)p->bytes,
			       [TOP_RATE] = (double)p->bytes,
			       [TOP_HOLDERS] = p->buffers,
			       [TOP_AGE] = -(double)p->since_ns } };
}

static struct row user_row(const struct model *m, size_t i)
{
	const struct gpushm_usage *u = m->users[i].usage;

	return (struct row){ NULL,
			     u->uid,
			     true,
			     { [TOP_SIZE] = (double)u->bytes,
			       [TOP_RATE] = m->users[i].bytes,
			       [TOP_HOLDERS] = u->leases,
			       [TOP_AGE] = (double)u->bytes } };
}

static struct row pool_row(const struct model *m, size_t i)
{
	const struct gpushm_pool *p = m->pools[i].pool;

	return (struct row){ p->name,
			     0,
			     false,
			     { [TOP_SIZE] = (double)p->used_bytes,
			       [TOP_RATE] = m->pools[i].bytes,
			       [TOP_HOLDERS] = p->buffers,
			       [TOP_AGE] = (double)p->used_bytes } };
}

/* In any order but by name or user, the last one is first. What no process did, is its owner's. */
static struct row event_row(const struct model *m, size_t i)
{
	const struct gpushm_logged_event *e = m->events[i];
	double at = (double)i;

	return (struct row){ *e->name ? e->name : e->pool,
			     e->uid == (uid_t)-1 ? e->owner : e->uid,
			     true,
			     { at, at, at, at, at, at } };
}

static struct row row_of(const struct model *m, enum top_view view, size_t i)
{
	static struct row (*const rows[])(const struct model *, size_t) = {
		[TOP_BUFFERS] = buffer_row, [TOP_PROCESSES] = process_row, [TOP_USERS] = user_row,
		[TOP_POOLS] = pool_row,	    [TOP_EVENTS] = event_row,
	};
	struct row r = rows[view](m, i);

	if (!r.name)
		r.name = output_user(r.uid);
	return r;
}

static bool contains(const char *name, const char *filter)
{
	return pattern_is(filter) && !pattern_is_folder(filter) ? pattern_matches(filter, name)
								: strcasestr(name, filter) != NULL;
}

static bool is_chosen(const struct choice *c, const struct row *r)
{
	if (c->by_user && r->has_user && r->uid != c->user)
		return false;
	if ((c->view == TOP_BUFFERS || c->view == TOP_EVENTS) && c->word &&
	    strncmp(r->name, c->word, strlen(c->word)) != 0 && !pattern_matches(c->word, r->name))
		return false;
	return !c->filter || !*c->filter || contains(r->name, c->filter);
}

static int by_key(const void *a, const void *b)
{
	const struct key *x = a, *y = b;
	int d = x->text ? strcmp(x->text, y->text) : 0;

	if (d)
		return d;
	if (x->number != y->number)
		return x->number > y->number ? -1 : 1;
	d = strcmp(x->name, y->name);
	return d ? d : (x->at > y->at) - (x->at < y->at);
}

static struct key key_of(const struct choice *c, const struct row *r, size_t at)
{
	bool by_user = c->sort == TOP_USER || (c->view == TOP_USERS && c->sort == TOP_NAME);
	struct key k = { .at = at, .name = c->view == TOP_USERS ? "" : r->name };

	if (by_user)
		k.number = -(double)r->uid;
	else if (c->sort == TOP_NAME)
		k.text = r->name;
	else
		k.number = isnan(r->numbers[c->sort]) ? 0 : r->numbers[c->sort];
	return k;
}

int model_choose(const struct model *m, const struct choice *c, struct rows *ret)
{
	size_t n = 0, all = m->n[c->view];
	_cleanup_(free_ptr) struct key *keys = calloc(all + 1, sizeof(*keys));
	size_t *at = calloc(all + 1, sizeof(*at));

	if (!keys || !at) {
		free(at);
		return -ENOMEM;
	}
	for (size_t i = 0; i < all; i++) {
		struct row r = row_of(m, c->view, i);

		if (is_chosen(c, &r))
			keys[n++] = key_of(c, &r, i);
	}
	qsort(keys, n, sizeof(*keys), by_key);
	for (size_t i = 0; i < n; i++)
		at[i] = keys[c->reversed ? n - 1 - i : i].at;
	*ret = (struct rows){ at, n };
	return 0;
}
