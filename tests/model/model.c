/* SPDX-License-Identifier: MIT
 *
 * Users and rights, and the lives of buffers and leases: when a name is taken and free, when a
 * lease ends, and what ends with it.
 */
#include "tests/model/model.h"

#include <stdio.h>
#include <string.h>

void model_init(struct model *m)
{
	*m = (struct model){ 0 };
	list_init(&m->processes);
	list_init(&m->sessions);
	list_init(&m->buffers);
	list_init(&m->pools);
	list_init(&m->waiters);
}

void model_done(struct model *m)
{
	struct model_process *p;
	struct model_session *s;
	struct model_buffer *b;
	struct model_lease *l;
	struct model_pool *pool;

	list_foreach (b, &m->buffers, link) {
		list_foreach (l, &b->leases, buffer_link)
			free(l);
		free(b);
	}
	list_foreach (s, &m->sessions, link)
		free(s);
	list_foreach (p, &m->processes, link)
		free(p);
	list_foreach (pool, &m->pools, link) {
		model_empty(pool);
		free(pool);
	}
}

struct model_process *model_add_process(struct model *m, pid_t pid, uid_t uid, gid_t gid)
{
	struct model_process *p = calloc(1, sizeof(*p));

	p->pid = pid;
	p->uid = uid;
	p->gid = gid;
	p->alive = true;
	list_insert(&m->processes, &p->link);
	return p;
}

void model_forget_dead(struct model *m)
{
	struct model_process *p;
	struct model_session *s;

	list_foreach (p, &m->processes, link) {
		bool left = p->alive;

		list_foreach (s, &m->sessions, link)
			left = left || s->process == p;
		if (left)
			continue;
		list_drop(&p->link);
		free(p);
	}
}

void model_refuse(struct model_session *s, int code)
{
	s->reply.what = MODEL_ERROR;
	s->reply.code = code;
}

/* ---- names and rights ---- */

/* A private name belongs to its user. */
static bool may_say(const struct model_process *p, const char *key)
{
	char own[24];

	snprintf(own, sizeof(own), "~%u/", p->uid);
	return key[0] != '~' || p->admin || strncmp(key, own, strlen(own)) == 0;
}

int model_key(const struct model_process *p, const char *name, char key[MODEL_NAME_MAX])
{
	if (!*name || name[0] == '/' || strstr(name, "//") || strstr(name, ".."))
		return CODE_NAME;
	if (strncmp(name, "~/", 2) == 0)
		snprintf(key, MODEL_NAME_MAX, "~%u/%s", p->uid, name + 2);
	else
		snprintf(key, MODEL_NAME_MAX, "%s", name);
	return may_say(p, key) ? CODE_OK : CODE_ACCESS;
}

struct model_buffer *model_buffer_by_key(struct model *m, const char *key)
{
	struct model_buffer *b;

	list_foreach (b, &m->buffers, link)
		if (b->name[0] && strcmp(b->name, key) == 0)
			return b;
	return NULL;
}

bool model_owns(const struct model_process *p, const struct model_buffer *b)
{
	return p->admin || p->uid == b->uid;
}

/* As for a file: the first class that matches decides. */
bool model_allows(const struct model_process *p, const struct model_buffer *b,
		  enum model_access access)
{
	unsigned shift = p->uid == b->uid ? 6 : p->gid == b->gid ? 3 : 0;
	unsigned bits = b->mode >> shift & 7, wanted = access == MODEL_WRITE ? 6 : 4;

	return p->admin || (bits & wanted) == wanted;
}

bool model_visible(const struct model_process *p, const struct model_buffer *b)
{
	return model_owns(p, b) || (b->state != MODEL_FILLING && b->name[0] &&
				    may_say(p, b->name) && model_allows(p, b, MODEL_READ));
}

/* ---- lives ---- */

void model_drop_name(struct model *m, struct model_buffer *b)
{
	struct model_session *s;

	list_foreach (s, &m->waiters, wait_link) {
		if (!s->while_filling || !b->name[0] || strcmp(s->name, b->name) != 0)
			continue;
		list_drop(&s->wait_link);
		s->waits = MODEL_IDLE;
		model_refuse(s, CODE_NOT_FOUND);
		s->reply.later = true;
	}
	b->name[0] = '\0';
}

void model_maybe_free(struct model *m, struct model_buffer *b)
{
	struct model_session *s;

	list_foreach (s, &m->sessions, link)
		if (s->creating == b)
			return;
	if (b->name[0] || !list_empty(&b->leases) || b->twin_of)
		return;
	model_release(m, b);
	model_end_twin(m, b);
	list_drop(&b->link);
	free(b);
}

int model_grant(struct model *m, struct model_session *s, struct model_buffer *b,
		enum model_access access)
{
	struct model_lease *l;

	if (model_leases(m, s->process->uid) >= MODEL_LEASES_MAX)
		return CODE_LIMIT;
	l = calloc(1, sizeof(*l));
	l->access = access;
	l->buffer = b;
	l->session = s;
	list_insert(&b->leases, &l->buffer_link);
	list_insert(&s->leases, &l->session_link);
	b->foreign = b->foreign || s->process->uid != b->uid;
	model_touch(m, b);
	s->reply.what = MODEL_ATTACH;
	s->reply.lease = l;
	s->reply.buffer = b;
	return CODE_OK;
}

void model_end(struct model *m, struct model_lease *l)
{
	struct model_buffer *b = l->buffer;

	list_drop(&l->buffer_link);
	list_drop(&l->session_link);
	free(l);
	model_touch(m, b);
	model_yield(m, b);
	if (b->state == MODEL_FILLING || (b->transient && list_empty(&b->leases) && !b->twin_of))
		model_drop_name(m, b);
	model_maybe_free(m, b);
}

/* Only a writer of a shared buffer can have left it half written; the first death counts. */
void model_lose(struct model *m, struct model_lease *l)
{
	struct model_buffer *b = l->buffer;

	if (l->access == MODEL_WRITE && b->state == MODEL_SHARED && !b->dirty && !l->away) {
		b->dirty = true;
		b->dirty_pid = l->session->process->pid;
		b->dirty_uid = l->session->process->uid;
	}
	model_end(m, l);
}

void model_forget(struct model_session *s)
{
	list_drop(&s->link);
	list_drop(&s->wait_link);
	free(s);
}

int model_connect(struct model *m, struct model_process *p, struct model_session **ret)
{
	struct model_session *s;

	if (model_peers(m, p->uid) >= MODEL_PEERS_MAX)
		return CODE_LIMIT;
	s = calloc(1, sizeof(*s));
	s->process = p;
	s->connected = true;
	s->connection = -1;
	list_init(&s->leases);
	list_init(&s->wait_link);
	list_insert(&m->sessions, &s->link);
	*ret = s;
	return CODE_OK;
}

/* Ends everything of this session: its process has ended. */
static void lose_all(struct model *m, struct model_session *s)
{
	struct model_lease *l;

	list_foreach (l, &s->leases, session_link)
		model_lose(m, l);
	model_forget(s);
}

/* A closed socket ends only an unfinished create; leases end with the process. */
void model_disconnect(struct model *m, struct model_session *s)
{
	struct model_buffer *b = s->creating;
	struct model_lease *l;

	list_drop(&s->wait_link);
	s->waits = MODEL_IDLE;
	s->creating = NULL;
	s->connected = false;
	model_want_less(m);
	if (b) {
		model_drop_name(m, b);
		model_maybe_free(m, b);
	}
	list_foreach (l, &s->leases, session_link)
		if (l->buffer->state == MODEL_FILLING)
			model_drop_name(m, l->buffer);
	if (!s->process->alive)
		lose_all(m, s);
	else if (list_empty(&s->leases))
		model_forget(s);
	model_settle(m);
}

/* A process that inherited its sockets may go on using them; only sessions without a socket end. */
void model_die(struct model *m, struct model_process *p)
{
	struct model_session *s;

	p->alive = false;
	list_foreach (s, &m->sessions, link)
		if (s->process == p && !s->connected)
			lose_all(m, s);
	model_settle(m);
}
