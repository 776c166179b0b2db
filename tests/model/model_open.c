/* SPDX-License-Identifier: MIT
 *
 * OPEN and STAT, at once or after a wait; and what wakes the sessions that wait for a name.
 */
#include "tests/model/model.h"

#include <stdio.h>
#include <string.h>

static int find(struct model *m, struct model_session *s, enum model_access access,
		struct model_buffer **ret)
{
	struct model_buffer *b = model_buffer_by_key(m, s->name);

	if (!b)
		return CODE_NOT_FOUND;
	if (!model_allows(s->process, b, access) ||
	    (b->pool->kind == MODEL_MEMPOOL && !model_may_use(s->process, b->pool)))
		return CODE_ACCESS;
	if (b->state == MODEL_FILLING)
		return CODE_NOT_PUBLISHED;
	if (b->state == MODEL_SEALED && access == MODEL_WRITE)
		return CODE_READ_ONLY;
	*ret = b;
	return CODE_OK;
}

int model_look(struct model *m, const struct model_process *p, const char *key,
	       struct model_buffer **ret)
{
	struct model_buffer *b = model_buffer_by_key(m, key);

	if (!b || (b->state == MODEL_FILLING && !model_owns(p, b)))
		return CODE_NOT_FOUND;
	if (!model_visible(p, b))
		return CODE_ACCESS;
	*ret = b;
	return CODE_OK;
}

static int attach(struct model *m, struct model_session *s)
{
	struct model_buffer *b = NULL;
	int code = find(m, s, s->access, &b);

	if (code == CODE_OK && s->refuses_dirty && b->dirty)
		code = CODE_DIRTY;
	if (code == CODE_OK && b->hollow && !s->away)
		code = CODE_EVICTED;
	if (code != CODE_OK)
		return code;
	code = model_grant(m, s, b, s->access);
	if (code == CODE_OK)
		s->reply.lease->away = b->hollow;
	return code;
}

static int look_at(struct model *m, struct model_session *s)
{
	struct model_buffer *b = NULL;
	int code = find(m, s, MODEL_READ, &b);

	s->reply.what = MODEL_STAT;
	s->reply.buffer = b;
	return code;
}

/* Waits if the reason may pass with time. */
static void reply_or_wait(struct model *m, struct model_session *s, enum model_waits waits,
			  enum model_patience patience)
{
	int code = waits == MODEL_OPENS ? attach(m, s) : look_at(m, s);
	bool heals = (code == CODE_NOT_FOUND && !s->while_filling) || code == CODE_NOT_PUBLISHED ||
		     code == CODE_DIRTY || code == CODE_EVICTED;

	if (code == CODE_OK)
		return;
	if (heals && patience == MODEL_BRIEFLY && code != CODE_EVICTED)
		code = CODE_TIMED_OUT;
	model_refuse(s, code);
	if (!heals || patience != MODEL_FOR_EVER)
		return;
	s->reply = (struct model_reply){ 0 };
	s->waits = waits;
	list_insert(&m->waiters, &s->wait_link);
}

void model_wake(struct model *m, const char *key)
{
	struct model_session *s;
	struct list turn;

	list_init(&turn);
	list_foreach (s, &m->waiters, wait_link)
		if (strcmp(s->name, key) == 0) {
			list_drop(&s->wait_link);
			list_insert(&turn, &s->wait_link);
		}
	list_foreach (s, &turn, wait_link) {
		enum model_waits waits = s->waits;

		list_drop(&s->wait_link);
		s->waits = MODEL_IDLE;
		reply_or_wait(m, s, waits, MODEL_FOR_EVER);
		s->reply.later = true;
	}
}

void model_open(struct model *m, struct model_session *s, const char *name,
		enum model_access access, bool refuses_dirty, bool while_filling, bool away,
		enum model_patience patience)
{
	int code = model_key(s->process, name, s->name);

	s->access = access;
	s->refuses_dirty = refuses_dirty;
	s->while_filling = while_filling;
	s->away = away;
	if (code != CODE_OK)
		model_refuse(s, code);
	else
		reply_or_wait(m, s, MODEL_OPENS, patience);
}

void model_stat(struct model *m, struct model_session *s, const char *name,
		enum model_patience patience)
{
	struct model_buffer *b = NULL;
	int code = model_key(s->process, name, s->name);

	s->while_filling = false;
	if (code == CODE_OK && patience != MODEL_AT_ONCE) {
		reply_or_wait(m, s, MODEL_STATS, patience);
		return;
	}
	if (code == CODE_OK)
		code = model_look(m, s->process, s->name, &b);
	s->reply.what = MODEL_STAT;
	s->reply.buffer = b;
	if (code != CODE_OK)
		model_refuse(s, code);
}

void model_clean(struct model *m, struct model_session *s, const char *name, bool other)
{
	struct model_buffer *b = NULL;
	char key[MODEL_NAME_MAX];
	int code = model_key(s->process, name, key);

	if (code == CODE_OK)
		code = model_look(m, s->process, key, &b);
	if (code == CODE_OK && other)
		code = CODE_NOT_FOUND;
	if (code == CODE_OK && !model_owns(s->process, b))
		code = CODE_ACCESS;
	s->reply.what = MODEL_DONE;
	if (code != CODE_OK) {
		model_refuse(s, code);
	} else if (b->dirty) {
		b->dirty = b->two_died = false;
		model_wake(m, key);
	}
}

/* ---- names ---- */

/* Whether b may have that name; *ret_other: the buffer that has it. */
static int may_take(struct model *m, const struct model_process *p, const struct model_buffer *b,
		    const char *key, bool replace, struct model_buffer **ret_other)
{
	struct model_buffer *other = model_buffer_by_key(m, key);

	*ret_other = NULL;
	if (!other || other == b)
		return CODE_OK;
	if (!replace)
		return CODE_EXISTS;
	if (!model_owns(p, other))
		return CODE_ACCESS;
	if (other->state == MODEL_FILLING)
		return CODE_NOT_PUBLISHED;
	*ret_other = other;
	return CODE_OK;
}

static void take(struct model *m, struct model_buffer *b, const char *key,
		 struct model_buffer *other)
{
	if (other)
		other->name[0] = '\0';
	if (strcmp(b->name, key) != 0)
		model_drop_name(m, b);
	snprintf(b->name, sizeof(b->name), "%s", key);
	model_wake(m, key);
	if (other)
		model_maybe_free(m, other);
	model_settle(m);
}

static int check_publish(struct model *m, const struct model_session *s,
			 const struct model_lease *l, const char *name, bool replace,
			 char key[MODEL_NAME_MAX], struct model_buffer **ret_other)
{
	int code;

	if (!l || l->session != s)
		return CODE_NO_LEASE;
	snprintf(key, MODEL_NAME_MAX, "%s", l->buffer->name);
	code = name ? model_key(s->process, name, key) : CODE_OK;
	if (code == CODE_OK && (l->buffer->state != MODEL_FILLING || l->buffer->hollow))
		code = CODE_STATE;
	if (code == CODE_OK && name)
		code = may_take(m, s->process, l->buffer, key, replace, ret_other);
	return code;
}

void model_publish(struct model *m, struct model_session *s, struct model_lease *l,
		   enum model_state state, const char *name, bool replace)
{
	struct model_buffer *other = NULL;
	char key[MODEL_NAME_MAX];
	int code = check_publish(m, s, l, name, replace, key, &other);

	if (code != CODE_OK) {
		model_refuse(s, code);
		return;
	}
	l->buffer->state = state;
	if (state == MODEL_SEALED)
		l->access = MODEL_READ;
	s->reply.what = MODEL_PUBLISHED;
	s->reply.buffer = l->buffer;
	if (key[0])
		take(m, l->buffer, key, other);
}

void model_rename(struct model *m, struct model_session *s, const char *from, const char *to,
		  bool replace)
{
	char from_key[MODEL_NAME_MAX], key[MODEL_NAME_MAX];
	struct model_buffer *b = NULL, *other = NULL;
	int code = model_key(s->process, from, from_key);

	if (code == CODE_OK)
		code = model_key(s->process, to, key);
	if (code == CODE_OK)
		code = model_look(m, s->process, from_key, &b);
	if (code == CODE_OK && !model_owns(s->process, b))
		code = CODE_ACCESS;
	if (code == CODE_OK && b->state == MODEL_FILLING)
		code = CODE_NOT_PUBLISHED;
	/* An admin gives a buffer no name that its owner could not use. */
	if (code == CODE_OK && s->process->uid != b->uid &&
	    model_key(&(struct model_process){ .uid = b->uid }, key, from_key) != CODE_OK)
		code = CODE_ACCESS;
	if (code == CODE_OK)
		code = may_take(m, s->process, b, key, replace, &other);
	s->reply.what = MODEL_DONE;
	if (code != CODE_OK)
		model_refuse(s, code);
	else if (strcmp(b->name, key) != 0)
		take(m, b, key, other);
}
