/* SPDX-License-Identifier: MIT
 *
 * A published buffer gets its name: at PUBLISH, which may give it another one than CREATE, and by
 * RENAME. The name may be another buffer's, which loses it in the same step. The journal has the
 * step before anybody sees it. Then nothing can fail: the names change, and those who wait for the
 * name or watch it are woken.
 */
#include "daemon/catalog/catalog.h"

#include "daemon/catalog/private_names.h"
#include "proto/base/own.h"

#include <stdio.h>
#include <string.h>

/* A name that a buffer is about to get. */
struct new_name {
	char *key;		 /* owned */
	struct buffer *replaced; /* has that name now; NULL: nobody has it */
};

static void new_name_done(struct new_name *n)
{
	free(n->key);
}

/* ---- what may be renamed or replaced ---- */

static int check_movable(const struct buffer *b, const struct process *p, const char *verb,
			 struct fault *f)
{
	char what[16];
	int r;

	snprintf(what, sizeof(what), "%s it", verb);
	r = buffer_check_owner(b, p, what, f);
	if (r < 0 || b->state != BUFFER_FILLING)
		return r;
	return fault(f, CODE_NOT_PUBLISHED,
		     "buffer \"%s\" is still being filled: it can be %sd once it is published",
		     b->key, verb);
}

static int check_replaced(const struct buffer *b, const struct process *p, bool replace,
			  struct fault *f)
{
	if (!replace)
		return fault(f, CODE_EXISTS,
			     "name \"%s\" is taken: unlink it first, replace it, or choose another",
			     b->key);
	return check_movable(b, p, "replace", f);
}

static int new_name(const struct catalog *c, const struct process *p, const char *key, bool replace,
		    struct new_name *ret, struct fault *f)
{
	struct buffer *replaced = catalog_by_key(c, key);
	int r = replaced ? check_replaced(replaced, p, replace, f) : 0;

	if (r < 0)
		return r;
	ret->key = strdup(key);
	ret->replaced = replaced;
	return ret->key ? 0 : fault(f, CODE_NO_MEMORY, "the daemon is out of memory");
}

/* ---- the step ---- */

static void tell_replaced(struct catalog *c, struct buffer *b, const struct process *who)
{
	b->last_key = take_ptr(b->key);
	catalog_tell(c, b, b->last_key, BUFFER_UNLINKED);
	event_log_add(&c->events, .type = EVENT_REPLACED, .who = who, .buffer = b);
}

/* The buffer that loses its name may end with it. It is held until all observers have run: one may
 * release it, too. */
static void tell(struct catalog *c, struct buffer *b, char *former, struct buffer *replaced,
		 enum buffer_event event, const struct process *who)
{
	if (replaced)
		tell_replaced(c, catalog_hold(replaced), who);
	if (former)
		catalog_tell(c, b, former, BUFFER_UNLINKED);
	catalog_tell(c, b, b->key, event);
	event_log_add(&c->events, .type = event == BUFFER_RENAMED ? EVENT_RENAMED : EVENT_PUBLISHED,
		      .who = who, .buffer = b, .former = former);
	if (former)
		buffer_free_key(b, former);
	if (replaced)
		catalog_release(c, replaced);
}

static int take_name(struct catalog *c, struct buffer *b, struct new_name *n,
		     enum buffer_event event, const struct process *who)
{
	char *former = b->key;
	int r;

	b->key = n->key;
	r = catalog_record(c, record_name, b, event, n->replaced);
	if (r < 0) {
		b->key = former;
		return r;
	}
	n->key = NULL;
	if (n->replaced)
		hashtable_drop(&c->by_name, &n->replaced->by_name);
	if (former)
		hashtable_drop(&c->by_name, &b->by_name);
	hashtable_insert(&c->by_name, &b->by_name, hashtable_hash(b->key, strlen(b->key)));
	lost_forget(&c->lost, b->key);
	tell(c, b, former, n->replaced, event, who);
	return 0;
}

/* ---- PUBLISH ---- */

static int publish(struct catalog *c, struct lease *l, enum buffer_state state, struct fault *f)
{
	uint32_t *states = c->n_states[l->buffer->pool->index];
	int r = buffer_publish(l->buffer, state, f);

	if (r < 0)
		return r;
	states[BUFFER_FILLING]--;
	states[state]++;
	lease_fill_no_more(l);
	if (state == BUFFER_SEALED) {
		lease_make_read_only(l);
		c->n_write_leases--;
	}
	return 0;
}

int catalog_publish(struct catalog *c, struct lease *l, enum buffer_state state, const char *key,
		    bool replace, struct fault *f)
{
	_cleanup_(new_name_done) struct new_name name = { 0 };
	struct buffer *b = l->buffer;
	bool other = key && (!b->key || strcmp(key, b->key) != 0);
	int r = 0;

	if (b->state != BUFFER_FILLING)
		return fault(f, CODE_STATE, "buffer \"%s\" is published already",
			     b->key ? b->key : "");
	if (!b->block.bytes)
		return fault(f, CODE_STATE,
			     "its memory is another buffer's, which it has restored");
	if (b->stream && state != BUFFER_SHARED)
		return fault(f, CODE_STATE,
			     "buffer \"%s\" is a stream, which is written again and again: publish "
			     "it shared",
			     b->key ? b->key : "");
	if (other)
		r = new_name(c, l->process, key, replace, &name, f);
	if (r == 0)
		r = publish(c, l, state, f);
	if (r < 0)
		return r;
	/* The buffer is sealed by now: an observer that can't record that says so in the log. */
	if (other) {
		take_name(c, b, &name, BUFFER_PUBLISHED, l->process);
	} else {
		catalog_record(c, record_name, b, BUFFER_PUBLISHED, NULL);
		catalog_tell(c, b, b->key, BUFFER_PUBLISHED);
		event_log_add(&c->events, .type = EVENT_PUBLISHED, .who = l->process, .buffer = b);
	}
	buffer_drop_originals(b);
	if (b->stream)
		stream_drop_originals(b->stream);
	return 0;
}

/* ---- RENAME ---- */

static int check_renamed(const struct buffer *b, const struct process *p, const char *to,
			 struct fault *f)
{
	const struct process owner = { .uid = b->uid };
	int r = check_movable(b, p, "rename", f);

	if (r < 0)
		return r;
	/* An admin may say all private names; but the owner must be able to say this one. */
	if (p->uid != b->uid && !private_names_may_say(&owner, to))
		return fault(
			f, CODE_ACCESS,
			"name \"%s\" is private, and not to the owner of buffer \"%s\", uid %u", to,
			b->key, b->uid);
	return 0;
}

int catalog_rename(struct catalog *c, const struct process *p, const char *from, const char *to,
		   bool replace, struct fault *f)
{
	_cleanup_(new_name_done) struct new_name name = { 0 };
	struct buffer *b = NULL;
	int r = catalog_lookup_visible(c, p, from, &b, f);

	if (r == 0)
		r = check_renamed(b, p, to, f);
	/* As rename(2) does with a name and itself. */
	if (r < 0 || strcmp(from, to) == 0)
		return r;
	r = new_name(c, p, to, replace, &name, f);
	if (r < 0)
		return r;
	r = take_name(c, b, &name, BUFFER_RENAMED, p);
	return r < 0 ? catalog_refuse_unwritten(r, f) : 0;
}
