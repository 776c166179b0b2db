/* SPDX-License-Identifier: MIT
 *
 * Dirty buffers. A process that is gone without a CLOSE may have been in the middle of writing: a
 * shared buffer that it held for writing is dirty from then on, and whoever looks or opens is told
 * who died and when. The first death counts until the owner, or an administrator, has looked and
 * cleaned the buffer: what came later came on top of it. A sealed buffer can't be written to, a
 * reader has written nothing, and a buffer that is being filled goes with its creator: none of
 * these is ever dirty.
 */
#include "daemon/catalog/catalog.h"

#include "daemon/util/log.h"
#include "proto/base/clock.h"

#include <string.h>
#include <time.h>

void catalog_mark_dirty(struct catalog *c, struct buffer *b, const struct process *p)
{
	if (b->dirty || b->state != BUFFER_SHARED)
		return;
	b->dirty = true;
	b->death = (struct death){ .ns = clock_realtime_ns(), .pid = p->pid, .uid = p->uid };
	memcpy(b->death.command, p->command, sizeof(b->death.command));
	log_write(LOG_WARNING,
		  &(struct log_about){ LOG_ID_DIRTY, .name = b->key, .pid = p->pid, .uid = p->uid,
				       .buffer = b->id },
		  "buffer \"%s\" is dirty: process %d (%s) has gone while it held it for writing",
		  b->key ? b->key : "", p->pid, p->command);
	if (c->archive)
		archive_change(c->archive, b);
	catalog_notice(c, b);
	c->on_changed(b, b->key, c->arg);
}

void catalog_holder_died(struct catalog *c, struct lease *l)
{
	if (l->access == ACCESS_WRITE)
		catalog_mark_dirty(c, l->buffer, l->process);
	catalog_end_lease(c, l);
}

int catalog_refuse_dirty(const struct buffer *b, struct fault *f)
{
	time_t at = (time_t)(b->death.ns / 1000000000u);
	char when[32] = "";
	struct tm tm;

	if (!b->dirty)
		return 0;
	if (gmtime_r(&at, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S UTC", &tm);
	return fault(
		f, CODE_DIRTY,
		"buffer \"%s\" is dirty: process %d (%s) of uid %u died at %s while it held it "
		"for writing; its owner looks at it and says gpushmctl clean",
		b->key ? b->key : "", b->death.pid, b->death.command, b->death.uid, when);
}

int catalog_clean(struct catalog *c, const struct process *p, const char *key, uint64_t id,
		  struct fault *f)
{
	struct buffer *b = NULL;
	int r = catalog_lookup_visible(c, p, key, &b, f);

	if (r < 0)
		return r;
	if (id && b->id != id)
		return fault(f, CODE_NOT_FOUND, "buffer \"%s\" is another one by now", key);
	if (!buffer_owned_by(b, p))
		return fault(f, CODE_ACCESS,
			     "buffer \"%s\" belongs to uid %u: only its owner and admins may say "
			     "that it is clean",
			     key, b->uid);
	if (!b->dirty)
		return 0;
	b->dirty = false;
	b->death = (struct death){ 0 };
	if (c->archive)
		archive_change(c->archive, b);
	catalog_notice(c, b);
	c->on_changed(b, b->key, c->arg);
	c->on_published(b, c->arg);
	return 0;
}
