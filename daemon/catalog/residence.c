/* SPDX-License-Identifier: MIT
 *
 * Memory that comes and goes. A sealed buffer never changes, so its memory may be given back once
 * another buffer has the same bytes: its twin, in the host's memory, which it holds; or once its
 * owner says that the bytes have a source, from which its processes can load them again. The daemon
 * moves no byte and opens no file: a process fills the twin, and later a new buffer of the evicted
 * one's pool, and the daemon takes that buffer's memory. So what a process leaves undone ends as
 * any buffer does that was never published.
 */
#include "daemon/catalog/reaper.h"

#include "daemon/util/log.h"
#include "proto/base/clock.h"

#include <inttypes.h>

int catalog_refuse_evicted(const struct buffer *b, struct fault *f)
{
	if (!b->evicted)
		return 0;
	return fault(f, CODE_EVICTED,
		     "buffer \"%s\" is evicted, and only its owner's processes, of gpushm 0.3 or "
		     "later, bring it back: gpushmctl promote, as uid %u",
		     buffer_name(b), b->uid);
}

/* Both are the owner's, so that no user makes the bytes of another. */
static int check_pair(const struct buffer *fresh, const struct buffer *b, struct fault *f)
{
	const char *name = buffer_name(b);

	if (b->state != BUFFER_SEALED)
		return fault(f, CODE_STATE, "buffer \"%s\" is not sealed: its bytes may change",
			     name);
	if (fresh->state == BUFFER_SHARED || !fresh->block.bytes)
		return fault(f, CODE_STATE, "what is to have the bytes of buffer \"%s\" %s", name,
			     fresh->block.bytes ? "may change" : "has no memory any more");
	if (fresh->uid != b->uid)
		return fault(
			f, CODE_ACCESS,
			"buffer \"%s\" belongs to uid %u: only that user's processes may do this",
			name, b->uid);
	if (fresh->bytes != b->bytes)
		return fault(f, CODE_LAYOUT, "buffer \"%s\" has %" PRIu64 " bytes, not %" PRIu64,
			     name, b->bytes, fresh->bytes);
	return catalog_check_suspendable(b, f);
}

/* ---- the twin ---- */

bool catalog_has_twin(const struct buffer *b)
{
	return b->twin && !b->twin->lost;
}

bool catalog_is_clean(const struct buffer *b)
{
	return catalog_has_twin(b) || (b->cached && b->cached->source);
}

static int check_twin(const struct buffer *fresh, const struct buffer *b, struct fault *f)
{
	int r = check_pair(fresh, b, f);

	if (r < 0)
		return r;
	if (kind_of(fresh->pool->config.kind)->on_gpu)
		return fault(f, CODE_UNSUPPORTED,
			     "pool \"%s\" is on a GPU: a twin is in a host or pinned pool",
			     fresh->pool->config.name);
	if (catalog_has_twin(b))
		return fault(f, CODE_EXISTS, "buffer \"%s\" has a twin already", buffer_name(b));
	/* No two are each other's only copy; and where all buffers end, from the last to the first,
	 * none takes the next one with it. */
	if (fresh->id <= b->id || b->twin_of || fresh->twin || fresh->twin_of)
		return fault(f, CODE_STATE,
			     "a twin of buffer \"%s\" is made after it, and neither has or is "
			     "another one",
			     buffer_name(b));
	return 0;
}

void catalog_end_twin(struct catalog *c, struct buffer *twin)
{
	twin->twin_of = NULL;
	catalog_release(c, twin);
}

static int set_twin(struct catalog *c, struct buffer *b, struct buffer *twin)
{
	struct buffer *former = b->twin;
	int r = catalog_cache(c, b);

	if (r < 0)
		return r;
	b->twin = catalog_hold(twin);
	r = catalog_record(c, record_residence, b, false);
	if (r < 0) {
		b->twin = former;
		catalog_release(c, twin);
		return r;
	}
	twin->twin_of = b;
	if (former)
		catalog_end_twin(c, former);
	return 0;
}

/* A client repeats this if the daemon died in the middle of it: then it is published already. */
int catalog_add_twin(struct catalog *c, struct lease *fresh, struct lease *l, struct fault *f)
{
	struct buffer *twin = fresh->buffer;
	int r;

	if (twin->twin_of == l->buffer)
		return 0;
	r = check_twin(twin, l->buffer, f);
	if (r == 0 && twin->state == BUFFER_FILLING)
		r = catalog_publish(c, fresh, BUFFER_SEALED, NULL, false, f);
	if (r < 0)
		return r;
	r = set_twin(c, l->buffer, twin);
	catalog_end_name(c, twin, NULL, "it is a twin");
	return r < 0 ? catalog_refuse_unwritten(r, f) : 0;
}

int catalog_drop_twin(struct catalog *c, const struct lease *l, uint64_t id, struct fault *f)
{
	struct buffer *b = l->buffer, *twin = b->twin;
	int r;

	if (!twin || twin->id != id || l->process->uid != b->uid)
		return 0;
	b->twin = NULL;
	r = catalog_record(c, record_residence, b, false);
	if (r < 0) {
		b->twin = twin;
		return catalog_refuse_unwritten(r, f);
	}
	log_write(LOG_WARNING, &(struct log_about){ LOG_PROCESS(l->process), LOG_BUFFER(b) },
		  "buffer \"%s\": process %d (%s) found that its twin is damaged: the twin is "
		  "dropped",
		  buffer_name(b), l->process->pid, l->process->command);
	event_log_add(&c->events, .type = EVENT_LOST, .who = l->process, .buffer = twin,
		      .text = "it was a twin, and is damaged");
	catalog_end_twin(c, twin);
	return 0;
}

int catalog_adopt_twin(struct catalog *c, struct buffer *b, uint64_t twin)
{
	struct buffer *found = catalog_by_id(c, twin);

	if (!found || found == b || found->bytes != b->bytes || catalog_cache(c, b) < 0)
		return -ENOENT;
	b->twin = catalog_hold(found);
	found->twin_of = b;
	/* The daemon may have died before it did. */
	catalog_end_name(c, found, NULL, "it is a twin");
	return 0;
}

/* ---- the source ---- */

int catalog_add_source(struct catalog *c, struct buffer *b, const struct process *p, uint64_t id,
		       struct fault *f)
{
	int r = 0;

	if (!id)
		return 0;
	if (b->id != id)
		return fault(f, CODE_NOT_FOUND, "buffer \"%s\" is another one by now",
			     buffer_name(b));
	if (b->uid != p->uid)
		return fault(f, CODE_ACCESS,
			     "buffer \"%s\" belongs to uid %u: only that user's processes load it "
			     "again",
			     buffer_name(b), b->uid);
	if (b->state != BUFFER_SEALED)
		return fault(f, CODE_STATE, "buffer \"%s\" is not sealed: its bytes may change",
			     buffer_name(b));
	r = catalog_check_suspendable(b, f);
	if (r < 0)
		return r;
	r = catalog_cache(c, b);
	if (r < 0 || b->cached->source)
		return r < 0 ? catalog_refuse_unwritten(r, f) : 0;
	b->cached->source = true;
	r = catalog_record(c, record_residence, b, false);
	b->cached->source = r == 0;
	return r < 0 ? catalog_refuse_unwritten(r, f) : 0;
}

/* ---- eviction ---- */

static int refuse_used(const struct buffer *b, struct fault *f)
{
	const struct lease *l;

	list_foreach (l, &b->leases, buffer_link)
		if (!l->away)
			return fault(f, CODE_STATE,
				     "buffer \"%s\" is in use: process %d (%s) has it mapped%s",
				     buffer_name(b), l->process->pid, l->process->command,
				     b->readers + b->writers - b->away > 1 ? ", and others" : "");
	return 0;
}

static int check_evictable(const struct buffer *b, struct fault *f)
{
	int r = catalog_check_suspendable(b, f);

	if (r < 0)
		return r;
	if (b->state != BUFFER_SEALED)
		return fault(f, CODE_STATE, "buffer \"%s\" is not sealed: its bytes may change",
			     buffer_name(b));
	if (!catalog_is_clean(b))
		return fault(f, CODE_NO_COPY,
			     "buffer \"%s\" has no twin and no source, and its bytes would be "
			     "lost: gpushmctl demote makes a twin",
			     buffer_name(b));
	return refuse_used(b, f);
}

/* The memory ends as that of a buffer which has neither a name nor a lease any more. */
static int evict(struct catalog *c, struct buffer *b, struct fault *f)
{
	struct buffer *rest = buffer_alloc("", 0);
	int r;

	if (!rest)
		return fault(f, CODE_NO_MEMORY, "the daemon is out of memory");
	rest->key = NULL;
	rest->id = b->id;
	rest->pool = b->pool;
	rest->uid = b->uid;
	rest->foreign = b->foreign;
	b->evicted = true;
	r = catalog_record(c, record_residence, b, true);
	if (r < 0) {
		b->evicted = false;
		buffer_free(rest);
		return catalog_refuse_unwritten(r, f);
	}
	buffer_move_block(b, rest);
	if (b->away && c->reaper)
		pool_expect_freed(&rest->block, reaper_suspect_away, c->reaper, b->id);
	catalog_end_memory(c, rest);
	return 0;
}

int catalog_evict_buffer(struct catalog *c, struct buffer *b, const struct process *who,
			 struct fault *f)
{
	int r = check_evictable(b, f);

	if (r == 0)
		r = evict(c, b, f);
	if (r < 0)
		return r;
	c->evictions++;
	event_log_add(&c->events, .type = EVENT_EVICTED, .who = who, .buffer = b);
	return 0;
}

int catalog_evict(struct catalog *c, const struct process *p, const char *key, uint64_t id,
		  uint64_t source, struct fault *f)
{
	struct buffer *b = NULL;
	int r = catalog_lookup_visible(c, p, key, &b, f);

	if (r == 0 && id && b->id != id)
		r = fault(f, CODE_NOT_FOUND, "buffer \"%s\" is another one by now", key);
	if (r == 0)
		r = buffer_check_owner(b, p, "evict it", f);
	if (r == 0)
		r = catalog_add_source(c, b, p, source, f);
	if (r < 0 || b->evicted)
		return r;
	return catalog_evict_buffer(c, b, p, f);
}

/* ---- the way back ---- */

static int check_restore(const struct buffer *fresh, const struct buffer *b, struct fault *f)
{
	int r = check_pair(fresh, b, f);

	if (r < 0)
		return r;
	if (!b->evicted)
		return fault(f, CODE_EXISTS, "buffer \"%s\" has its memory already",
			     buffer_name(b));
	if (fresh->state != BUFFER_FILLING)
		return fault(f, CODE_STATE, "what is to restore buffer \"%s\" is published",
			     buffer_name(b));
	if (fresh->pool != b->pool)
		return fault(f, CODE_STATE, "buffer \"%s\" is of pool \"%s\"", buffer_name(b),
			     b->pool->config.name);
	return 0;
}

static void count_restore(struct catalog *c, const struct buffer *from)
{
	struct cache_counts *n = &c->cache_counts[from->pool->index];
	uint64_t now = clock_realtime_ns();

	n->restores++;
	n->restored_ns += now > from->created_ns ? now - from->created_ns : 0;
}

int catalog_restore(struct catalog *c, struct lease *fresh, struct lease *l, struct fault *f)
{
	struct buffer *from = fresh->buffer, *b = l->buffer;
	struct fault ignored;
	int r = check_restore(from, b, f);

	if (r == 0)
		r = buffer_seal_memory(from, BUFFER_SEALED, f);
	if (r < 0)
		return r;
	buffer_move_block(from, b);
	b->evicted = false;
	r = catalog_record(c, record_residence, b, true);
	if (r < 0) {
		b->evicted = true;
		buffer_move_block(b, from);
		return catalog_refuse_unwritten(r, f);
	}
	count_restore(c, from);
	/* Else the memory, unused for the longest time, could go before its maker maps it. */
	catalog_set_away(c, l, false, &ignored);
	buffer_drop_originals(b);
	catalog_end_name(c, from, NULL, "its memory is another buffer's");
	catalog_notify(c, on_buffer, b, b->key, BUFFER_RESTORED);
	event_log_add(&c->events, .type = EVENT_RESTORED, .who = fresh->process, .buffer = b);
	return 0;
}
