/* SPDX-License-Identifier: MIT
 *
 * Compares the daemon's replies, field by field, with the model.
 */
#include "tests/model/play.h"

#include "proto/base/own.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const char *play_name_of(const struct model_buffer *b)
{
	return b->name[0] ? b->name : "(unlinked)";
}

void play_same(uint64_t told, uint64_t expected, const char *what, const char *whose)
{
	if (told != expected)
		play_fail("%s of %s: the daemon says %" PRIu64 ", the model %" PRIu64, what, whose,
			  told, expected);
}

/* A value that can't be predicted: the first one is taken, and must stay from then on. */
static void stays(uint64_t told, uint64_t *known, const char *what, const char *whose)
{
	if (*known == 0)
		*known = told;
	play_same(told, *known, what, whose);
}

static void learn_id(uint64_t told, uint64_t *known, uint64_t before, uint64_t *max,
		     const char *what)
{
	if (*known == 0) {
		if (told <= before)
			play_fail("%s id %" PRIu64 " is not above all that were given", what, told);
		*known = told;
		*max = told > *max ? told : *max;
	}
	play_same(told, *known, "id", what);
}

/* ---- buffers ---- */

static void check_name(const Gpushm__Proto__Buffer *told, const struct model_buffer *b,
		       const struct model_process *viewer)
{
	char name[MODEL_NAME_MAX], key[MODEL_NAME_MAX] = "";

	snprintf(name, sizeof(name), "%.*s", (int)told->name.len, (const char *)told->name.data);
	if (told->has_name && model_key(viewer, name, key) != CODE_OK)
		play_fail("buffer %" PRIu64 " is told as \"%s\"", told->id, name);
	if (strcmp(key, b->name) != 0)
		play_fail("buffer %" PRIu64 " is named \"%s\" by the daemon, \"%s\" by the model",
			  told->id, key, b->name);
}

static void check_holder(const Gpushm__Proto__Buffer *told, struct model_lease *l)
{
	const Gpushm__Proto__Holder *h = NULL;
	const char *whose = play_name_of(l->buffer);

	for (size_t i = 0; i < told->n_holders; i++)
		if (told->holders[i]->lease == l->id)
			h = told->holders[i];
	if (!h)
		play_fail("lease %" PRIu64 " on %s, of process %d, is not told", l->id, whose,
			  l->session->process->pid);
	play_same((uint64_t)h->pid, (uint64_t)l->session->process->pid, "a holder", whose);
	play_same(h->uid, l->session->process->uid, "a holder's user", whose);
	play_same(h->access, l->access, "a holder's access", whose);
	play_same(h->away, l->away, "whether a holder is away", whose);
	play_same(h->suspect, !l->session->connected, "whether a holder is suspect", whose);
	stays(h->since_ns, &l->since_ns, "the time of a lease", whose);
}

/* Compares the holders. */
static void check_holders(const Gpushm__Proto__Buffer *told, struct model_buffer *b)
{
	unsigned readers = model_holders(b, MODEL_READ), writers = model_holders(b, MODEL_WRITE);
	struct model_lease *l;

	play_same(told->readers, readers, "readers", play_name_of(b));
	play_same(told->writers, writers, "writers", play_name_of(b));
	play_same(told->suspects, model_suspect_holders(b), "suspects", play_name_of(b));
	play_same(told->away, model_away(b), "who is away", play_name_of(b));
	if (!told->n_holders)
		return;
	play_same(told->n_holders, readers + writers, "number of holders", play_name_of(b));
	list_foreach (l, &b->leases, buffer_link)
		check_holder(told, l);
}

static void check_dirt(const Gpushm__Proto__Buffer *told, struct model_buffer *b)
{
	const char *whose = play_name_of(b);

	if (b->two_died && told->dirty) {
		b->dirty_pid = told->dirty_pid;
		b->dirty_uid = told->dirty_uid;
		b->two_died = false;
	}

	play_same(told->dirty, b->dirty, "dirt", whose);
	play_same(told->has_dirty_pid, b->dirty, "whether the dead is told", whose);
	play_same((uint64_t)told->dirty_pid, b->dirty ? (uint64_t)b->dirty_pid : 0, "the dead",
		  whose);
	play_same(told->dirty_uid, b->dirty ? b->dirty_uid : 0, "the dead's user", whose);
	play_same(told->dirty_ns != 0, b->dirty, "a time of death", whose);
}

static void check_residence(const Gpushm__Proto__Buffer *told, const struct model_buffer *b)
{
	const char *whose = play_name_of(b);
	bool evicted = b->hollow && b->state != MODEL_FILLING;

	play_same(told->residence == GPUSHM__PROTO__RESIDENCE__RESIDENCE_TWIN, evicted,
		  "whether it is evicted", whose);
	play_same(told->twin_of, b->twin_of ? b->twin_of->id : 0, "whose twin it is", whose);
	play_same(told->wanted, b->wanted, "whether it is wanted", whose);
	play_same(told->keep_ms, b->keep_ms, "how long it stays", whose);
	play_same((uint64_t)told->priority, (uint64_t)b->priority, "the priority", whose);
}

void play_check_buffer(struct play *p, const Gpushm__Proto__Buffer *told, struct model_buffer *b,
		       const struct model_process *viewer, bool later)
{
	const char *whose = play_name_of(b);

	check_name(told, b, viewer);
	learn_id(told->id, &b->id, b->above ? b->above : p->last_buffer, &p->max_buffer, whose);
	play_same(told->pool, b->pool->id, "the pool", whose);
	play_same(told->size_bytes, b->bytes, "size", whose);
	play_same(told->allocated_bytes, b->allocated, "allocated bytes", whose);
	play_same(told->state, b->state, "state", whose);
	play_same(told->uid, b->uid, "owner", whose);
	play_same(told->gid, b->gid, "group", whose);
	play_same(told->mode, b->mode, "mode", whose);
	play_same(told->transient, b->transient, "transience", whose);
	play_same(told->arrays, b->arrays, "number of arrays", whose);
	check_dirt(told, b);
	check_residence(told, b);
	if (!later)
		check_holders(told, b);
	stays(told->created_ns, &b->created_ns, "the creation", whose);
	play_same(told->published_ns != 0, b->state != MODEL_FILLING, "a publication", whose);
	if (b->state == MODEL_FILLING)
		return;
	stays(told->published_ns, &b->published_ns, "the publication", whose);
	stays(told->digest, &b->digest, "the digest", whose);
}

/* ---- attaches ---- */

static struct model_block *find_block(struct model_pool *pool, uint64_t memory)
{
	struct model_block *block;

	list_foreach (block, &pool->pending, link)
		if (memory && block->memory == memory)
			return block;
	return NULL;
}

/* Equal pending blocks are interchangeable: the model takes the first one. */
static bool swap_with_equal(struct model_buffer *b, uint64_t memory)
{
	struct model_block *block = find_block(b->pool, memory);

	if (!block || block->bytes != b->allocated || block->uid != b->uid || block->foreign)
		return false;
	block->memory = b->memory;
	return true;
}

static void check_which_memory(struct play *p, struct model_buffer *b, uint64_t memory)
{
	struct model_buffer *other = model_buffer_of_memory(&p->model, memory);
	bool waits = find_block(b->pool, memory);

	if (other && other != b)
		play_fail("\"%s\" is given the memory that \"%s\" still has", play_name_of(b),
			  play_name_of(other));
	if (!b->pool->vague && waits && !(b->reused && swap_with_equal(b, memory)))
		play_fail("\"%s\" is given memory that waits, and not for it", play_name_of(b));
	if (!b->pool->vague && !waits && b->memory && memory != b->memory)
		play_fail("\"%s\" is given other memory than what waits for it in \"%s\" (%u more "
			  "wait there)",
			  play_name_of(b), b->pool->name, model_pending(b->pool));
	b->memory = memory;
}

static uint64_t read_tag(const struct model_buffer *b, int fd)
{
	uint64_t tag = 0;

	if (pread(fd, &tag, sizeof(tag), 0) != sizeof(tag))
		play_fail("the memory of \"%s\" can't be read: %s", play_name_of(b),
			  strerror(errno));
	return tag;
}

/* A new buffer is zero, or has what its user had in an earlier one. */
static void tag_memory(struct play *p, struct model_buffer *b, int fd, bool reused)
{
	uint64_t tag = read_tag(b, fd);

	if (tag && (!reused || tag >> 32 != b->uid + 1ull))
		play_fail("\"%s\" of uid %u begins with what uid %u had", play_name_of(b), b->uid,
			  (unsigned)(tag >> 32) - 1);
	b->tag = p->copied ? p->copied : (b->uid + 1ull) << 32 | (++p->model.tags & 0xffffffff);
	if (pwrite(fd, &b->tag, sizeof(b->tag), 0) != sizeof(b->tag))
		play_fail("the memory of \"%s\" can't be written: %s", play_name_of(b),
			  strerror(errno));
}

static void check_memory(struct play *p, struct raw *raw, struct model_buffer *b,
			 const struct model_reply *reply)
{
	struct stat st;

	if (fstat(raw->frame.fds[0], &st) < 0)
		play_fail("fstat: %s", strerror(errno));
	if (reply->lease->access == MODEL_WRITE && b->state == MODEL_FILLING) {
		check_which_memory(p, b, st.st_ino);
		tag_memory(p, b, raw->frame.fds[0], b->reused || b->pool->vague);
	} else {
		play_same(st.st_ino, b->memory, "the memory", play_name_of(b));
		if (read_tag(b, raw->frame.fds[0]) != b->tag)
			play_fail("\"%s\" has other contents", play_name_of(b));
	}
}

/* A mempool's fd comes with the first attach of a connection. */
static bool was_lent(struct model_session *s, uint32_t id)
{
	for (unsigned i = 0; i < s->n_lent; i++)
		if (s->lent[i] == id)
			return true;
	if (s->n_lent < array_size(s->lent))
		s->lent[s->n_lent++] = id;
	return false;
}

void play_check_attach(struct play *p, struct raw *raw, struct model_session *s)
{
	const Gpushm__Proto__Attach *a = raw->reply->attach;
	struct model_lease *l = s->reply.lease;
	struct model_buffer *b = l->buffer;
	bool mempool = b->pool->kind == MODEL_MEMPOOL;
	bool pool_fd = mempool && !was_lent(s, b->pool->id);
	bool table = b->has_table && b->state != MODEL_FILLING && !s->reply.again;
	bool memory = !mempool && !b->hollow;
	uint64_t allocated = b->hollow ? model_round(b->pool, b->bytes) : b->allocated;

	learn_id(a->buffer, &b->id, b->above ? b->above : p->last_buffer, &p->max_buffer,
		 "a buffer's");
	learn_id(a->lease, &l->id, p->last_lease, &p->max_lease, "a lease's");
	play_same(a->pool, b->pool->id, "the pool", play_name_of(b));
	play_same(a->size_bytes, b->bytes, "size", play_name_of(b));
	play_same(a->allocated_bytes, allocated, "allocated bytes", play_name_of(b));
	play_same(a->state, b->state, "state", play_name_of(b));
	play_same(a->access, l->access, "access", play_name_of(b));
	play_same(a->dirty, b->dirty, "dirt", play_name_of(b));
	play_same(a->mode, b->mode, "mode", play_name_of(b));
	play_same(a->uid, b->uid, "owner", play_name_of(b));
	play_same(a->memory_fd, memory, "the memory's fd", play_name_of(b));
	play_same(a->pool_fd, pool_fd, "the pool's fd", play_name_of(b));
	play_same(a->table_fd, table, "the table's fd", play_name_of(b));
	play_same(a->fds, (unsigned)memory + pool_fd + table, "number of fds", play_name_of(b));
	if (b->state != MODEL_FILLING)
		stays(a->digest, &b->digest, "the digest", play_name_of(b));
	if (memory)
		check_memory(p, raw, b, &s->reply);
	frame_close_fds(&raw->frame);
}
