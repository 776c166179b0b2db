/* SPDX-License-Identifier: MIT
 *
 * Differences of two samples, and the rows of each view. Nothing here knows a terminal or the
 * daemon.
 *
 * A daemon that restarted counts from 0 again. Its uptime is then shorter than before, and nothing
 * can be said about the time between.
 */
#include "client/ctl/top/top.h"

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

/* How fast a number grew, or shrank; NAN if the time is not known. */
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

/* ---- lists ---- */

static void add_row(struct top_list *l, bool chosen, struct top_row row)
{
	if (chosen)
		l->rows[l->n++] = row;
}

static bool is_chosen(const struct choice *c, uid_t uid)
{
	return !c->by_user || uid == c->user;
}

static const struct gpushm_stream_info *find_stream(const struct sample *s, uint64_t id)
{
	for (size_t i = 0; i < s->n_streams; i++)
		if (s->streams[i]->buffer == id)
			return s->streams[i];
	return NULL;
}

/* A stream that is new has published all of its frames since. */
static double frame_rate(const struct model *m, const struct sample *before,
			 const struct gpushm_stat *s)
{
	const struct gpushm_stream_info *stream = s->stream ? find_stream(m->sample, s->id) : NULL;
	const struct gpushm_stream_info *earlier = stream ? find_stream(before, s->id) : NULL;

	return stream ? rate(m, earlier ? earlier->newest : 0, stream->newest) : NAN;
}

/* Both samples are in the order of ids. A new buffer has been opened by others only since. */
static void list_buffers(struct model *m, const struct sample *before, const struct choice *c)
{
	size_t k = 0;

	for (size_t i = 0; i < m->sample->n_buffers; i++) {
		const struct gpushm_stat *s = m->sample->buffers[i];
		uint32_t opens = s->opens;

		while (k < before->n_buffers && before->buffers[k]->id < s->id)
			k++;
		/* The count wraps. */
		if (k < before->n_buffers && before->buffers[k]->id == s->id)
			opens -= before->buffers[k]->opens;
		add_row(&m->lists[TOP_BUFFERS],
			is_chosen(c, s->uid) && pattern_lists(c->word, s->name),
			(struct top_row){ .buffer = s,
					  .name = s->name,
					  .bytes = s->bytes,
					  .rate = opens / m->seconds,
					  .frames = frame_rate(m, before, s) });
	}
}

static void list_processes(struct model *m, const struct choice *c)
{
	const struct sample *now = m->sample;
	size_t n = 0;

	for (size_t i = 0; i < now->n_buffers; i++)
		n = add_holders(m->processes, n, now->buffers[i]);
	qsort(m->processes, n, sizeof(*m->processes), by_process);
	n = join(m->processes, n);
	for (size_t i = 0; i < n; i++)
		add_row(&m->lists[TOP_PROCESSES], is_chosen(c, m->processes[i].uid),
			(struct top_row){ .process = &m->processes[i],
					  .name = m->processes[i].command,
					  .bytes = m->processes[i].bytes });
}

/* A user who had nothing then is not in the sample before. */
static void list_users(struct model *m, const struct sample *before, const struct choice *c)
{
	for (size_t i = 0; i < m->sample->status->n_usage; i++) {
		const struct gpushm_usage *u = m->sample->status->usage[i];
		uint64_t bytes = 0;

		for (size_t k = 0; k < before->status->n_usage; k++)
			if (before->status->usage[k]->uid == u->uid)
				bytes = before->status->usage[k]->bytes;
		add_row(&m->lists[TOP_USERS], is_chosen(c, u->uid),
			(struct top_row){ .user = u,
					  .name = "",
					  .bytes = u->bytes,
					  .rate = rate(m, bytes, u->bytes) });
	}
}

static void list_pools(struct model *m, const struct sample *before)
{
	for (size_t i = 0; i < m->sample->n_pools; i++) {
		const struct gpushm_pool *p = m->sample->pools[i];
		double change = NAN;

		for (size_t k = 0; k < before->n_pools; k++)
			if (!strcmp(p->name, before->pools[k]->name))
				change = rate(m, before->pools[k]->used_bytes, p->used_bytes);
		add_row(&m->lists[TOP_POOLS], true,
			(struct top_row){ .pool = p,
					  .name = p->name,
					  .bytes = p->used_bytes,
					  .rate = change });
	}
}

/* ---- the order ---- */

static int by_size(const void *a, const void *b)
{
	const struct top_row *x = a, *y = b;

	return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1) : strcmp(x->name, y->name);
}

/* ---- the model ---- */

static int allocate(struct model *m)
{
	const struct sample *now = m->sample;
	size_t holders = 0;

	for (size_t i = 0; i < now->n_buffers; i++)
		holders += now->buffers[i]->n_holders;
	m->processes = calloc(holders + 1, sizeof(*m->processes));
	m->lists[TOP_BUFFERS].rows = calloc(now->n_buffers + 1, sizeof(struct top_row));
	m->lists[TOP_PROCESSES].rows = calloc(holders + 1, sizeof(struct top_row));
	m->lists[TOP_USERS].rows = calloc(now->status->n_usage + 1, sizeof(struct top_row));
	m->lists[TOP_POOLS].rows = calloc(now->n_pools + 1, sizeof(struct top_row));
	for (size_t i = 0; i < TOP_VIEWS; i++)
		if (!m->lists[i].rows)
			return -ENOMEM;
	return m->processes ? 0 : -ENOMEM;
}

int model_make(const struct sample *before, const struct sample *now, const struct choice *c,
	       struct model *ret)
{
	*ret = (struct model){ .sample = now, .seconds = NAN };
	if (allocate(ret) < 0) {
		model_done(ret);
		return -ENOMEM;
	}
	if (is_comparable(before, now))
		ret->seconds = (double)(now->taken_ns - before->taken_ns) / 1e9;
	else
		before = now;
	compare_status(ret, before, now);
	list_buffers(ret, before, c);
	list_processes(ret, c);
	list_users(ret, before, c);
	list_pools(ret, before);
	for (size_t i = 0; i < TOP_VIEWS; i++)
		qsort(ret->lists[i].rows, ret->lists[i].n, sizeof(*ret->lists[i].rows), by_size);
	return 0;
}

void model_done(struct model *m)
{
	free(m->processes);
	for (size_t i = 0; i < TOP_VIEWS; i++)
		free(m->lists[i].rows);
	*m = (struct model){ 0 };
}
