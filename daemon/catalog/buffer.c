/* SPDX-License-Identifier: MIT
 *
 * What a buffer owns and what its states allow. It is freed after its last lease. A mempool needs
 * that order: if the exporter frees before the importer, the driver gives the block to the next
 * buffer while the importer still writes. The catalog has the names and ids.
 */
#include "daemon/catalog/buffer.h"

#include "daemon/util/memfd.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/base/size.h"

#include <assert.h>
#include <fcntl.h>
#include <string.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* linux/fcntl.h, Linux 5.1 */
#endif

static int need_table(struct buffer *b, struct fault *f)
{
	if (b->table || table_builder_new(b->bytes, &b->table) == 0)
		return 0;
	return fault(f, CODE_NO_MEMORY, "the daemon is out of memory");
}

static int set_attrs(struct buffer *b, const struct table_attr *attrs, size_t n, struct fault *f)
{
	int r = n ? need_table(b, f) : 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = table_builder_set_attr(b->table, &attrs[i], f);
	if (r == 0 && b->table)
		r = recharge(&b->table_charge, table_builder_bytes(b->table), f);
	return r;
}

/* A buffer that is being filled gets all that it may need later, so that PUBLISH does not fail for
 * want of fds. */
static uint64_t fds_of(const struct buffer *b)
{
	bool table = b->state == BUFFER_FILLING || b->table_bytes > 0;

	return kind_of(b->pool->config.kind)->fds[b->state] + table;
}

int buffer_charge(struct accounts *a, struct buffer *b, uint64_t slack, struct fault *f)
{
	int r = charge(a, b->uid, ACCOUNT_BUFFERS, 1, slack, &b->buffer_charge, f);

	if (r == 0)
		r = charge(a, b->uid, ACCOUNT_TABLES, b->table_bytes, slack, &b->table_charge, f);
	if (r == 0)
		r = charge(a, b->uid, ACCOUNT_FDS, fds_of(b), slack, &b->fds_charge, f);
	if (r == 0)
		r = charge(a, b->uid, ACCOUNT_BYTES, b->evicted ? 0 : b->bytes, slack,
			   &b->bytes_charge, f);
	return r;
}

uint64_t buffer_share(const struct accounts *a, const struct process *p, const struct pool *pool)
{
	double percent = pool->config.share;

	if (percent < 0)
		percent = config_limits(a->config, p->uid)->pool_share;
	return p->admin || percent >= 100 ? UINT64_MAX
					  : (uint64_t)((double)pool->size * percent / 100);
}

/* Counts the block before it is there, so that requests under way can't exceed the share together.
 * A pool that does not work has no size to compare with, and refuses the request later. */
static int reserve(struct accounts *a, struct buffer *b, const struct process *owner,
		   struct fault *f)
{
	const struct pool *pool = b->pool;
	struct account *account = b->bytes_charge.account;
	uint64_t held = account->blocks[pool->index] + account->making[pool->index];
	uint64_t bytes = pool_round(pool, b->bytes), share = buffer_share(a, owner, pool);

	if ((held > share || bytes > share - held) && !pool_trouble(pool))
		return fault(
			f, CODE_LIMIT,
			"pool \"%s\": %s asked; uid %u holds %s of it and may hold %s of its "
			"%s (max-pool-share in gpushmd.conf): unlink buffers that are not needed",
			pool->config.name, size_format(bytes).text, owner->uid,
			size_format(held).text, size_format(share).text,
			size_format(pool->size).text);
	b->reserved = bytes;
	account->making[pool->index] += bytes;
	return 0;
}

static void end_reservation(struct buffer *b)
{
	if (b->reserved)
		b->bytes_charge.account->making[b->pool->index] -= b->reserved;
	b->reserved = 0;
}

struct buffer *buffer_alloc(const char *key, size_t len)
{
	struct buffer *b = calloc(1, sizeof(*b) + len + 1);

	if (!b)
		return NULL;
	b->key = b->name;
	if (len)
		memcpy(b->name, key, len);
	list_init(&b->all_link);
	list_init(&b->leases);
	b->block = BLOCK_NONE;
	b->table_fd = -1;
	b->fd_index = BUFFER_NOT_KEPT;
	b->cell = STATUS_PAGE_NONE;
	return b;
}

void buffer_free_key(struct buffer *b, char *key)
{
	if (key != b->name)
		free(key);
}

int buffer_new(struct accounts *accounts, const struct process *owner, struct pool *pool,
	       const struct buffer_spec *spec, struct buffer **ret, struct fault *f)
{
	/* Allocated before the buffer, which lives longer: so `making` always gets the same memory
	 * again and leaves no hole between buffers. */
	_cleanup_(free_ptr) struct making *making = calloc(1, sizeof(*making));
	struct buffer *b = making ? buffer_alloc(spec->key, strlen(spec->key)) : NULL;
	int r;

	if (!b)
		return fault(f, CODE_NO_MEMORY, "the daemon is out of memory");
	b->making = take_ptr(making);
	b->state = BUFFER_FILLING;
	b->pool = pool;
	b->uid = owner->uid;
	b->gid = spec->gid;
	b->mode = spec->mode;
	b->bytes = spec->bytes;
	b->transient = spec->transient;
	b->created_ns = clock_realtime_ns();
	r = buffer_charge(accounts, b, 0, f);
	if (r == 0)
		r = reserve(accounts, b, owner, f);
	if (r == 0)
		r = set_attrs(b, spec->attrs, spec->n_attrs, f);
	if (r < 0) {
		buffer_free(b);
		return r;
	}
	*ret = b;
	return 0;
}

void buffer_take_block(struct buffer *b, const struct block *block)
{
	end_reservation(b);
	b->block = *block;
	b->bytes_charge.account->blocks[b->pool->index] += block->bytes;
}

void buffer_move_block(struct buffer *from, struct buffer *to)
{
	discharge(&to->bytes_charge);
	to->bytes_charge = from->bytes_charge;
	to->block = from->block;
	to->memory = from->memory;
	from->bytes_charge = (struct charge){ 0 };
	from->block = BLOCK_NONE;
}

static void give_back(struct buffer *b)
{
	if (!b->block.bytes)
		return;
	b->bytes_charge.account->blocks[b->pool->index] -= b->block.bytes;
	if (b->keep_memory)
		pool_let_go(b->pool, &b->block);
	else
		pool_free(b->pool, &b->block, b->uid, b->foreign);
}

void buffer_drop_originals(struct buffer *b)
{
	close_fd(&b->block.fd_original);
	memfd_withdraw(&b->table_fd);
}

bool buffer_withdraw(struct buffer *b)
{
	end_reservation(b);
	pool_withdraw_block(b->pool, &b->block);
	memfd_withdraw(&b->table_fd);
	return buffer_is_held(b);
}

bool buffer_is_held(struct buffer *b)
{
	if (!pool_block_is_held(b->pool, &b->block)) {
		give_back(b);
		discharge(&b->bytes_charge);
	}
	if (b->table_fd >= 0 && !memfd_is_held(b->table_fd)) {
		close_fd(&b->table_fd);
		discharge(&b->table_charge);
	}
	return b->block.bytes || b->table_fd >= 0;
}

uint64_t buffer_held_bytes(const struct buffer *b)
{
	return b->block.bytes + (b->table_fd >= 0 ? b->table_bytes : 0);
}

struct buffer *buffer_free(struct buffer *b)
{
	if (!b)
		return NULL;
	assert(list_empty(&b->leases));
	end_reservation(b);
	give_back(b);
	stream_free(b->stream);
	table_builder_free(b->table);
	close_fd(&b->table_fd);
	discharge(&b->bytes_charge);
	discharge(&b->kept_charge);
	discharge(&b->fds_charge);
	discharge(&b->table_charge);
	discharge(&b->buffer_charge);
	if (b->cached)
		list_drop(&b->cached->link);
	free(b->cached);
	free(b->making);
	buffer_free_key(b, b->key);
	buffer_free_key(b, b->last_key);
	free(b);
	return NULL;
}

bool buffer_owned_by(const struct buffer *b, const struct process *p)
{
	return p->admin || p->uid == b->uid;
}

int buffer_check_owner(const struct buffer *b, const struct process *p, const char *what,
		       struct fault *f)
{
	if (buffer_owned_by(b, p))
		return 0;
	return fault(f, CODE_ACCESS,
		     "buffer \"%s\" belongs to uid %u: only its owner and admins may %s", b->key,
		     b->uid, what);
}

bool rights_allow(const struct rights *r, const struct process *p, enum access access)
{
	/* As for a file: the first class that fits decides, even if a later one allows more. */
	mode_t bits = p->uid == r->uid		    ? r->mode >> 6
		      : process_in_group(p, r->gid) ? r->mode >> 3
						    : r->mode;

	if (p->admin)
		return true;
	return access == ACCESS_WRITE ? (bits & 06) == 06 : (bits & 04) == 04;
}

struct rights buffer_rights(const struct buffer *b)
{
	return (struct rights){ b->uid, b->gid, b->mode };
}

bool buffer_allows(const struct buffer *b, const struct process *p, enum access access)
{
	struct rights r = buffer_rights(b);

	return rights_allow(&r, p, access);
}

int buffer_reserve_arrays(struct buffer *b, size_t n, struct fault *f)
{
	int r = n ? need_table(b, f) : 0;

	if (r == 0 && n)
		r = table_builder_reserve_step(b->table, n);
	return r == -ENOMEM ? fault(f, CODE_NO_MEMORY, "the daemon is out of memory") : r;
}

int buffer_describe(struct buffer *b, const struct table_array *array, struct fault *f)
{
	int r = need_table(b, f);

	if (r == 0)
		r = table_builder_add(b->table, array, f);
	if (r < 0)
		return r;
	b->arrays = table_builder_arrays(b->table);
	return recharge(&b->table_charge, table_builder_bytes(b->table), f);
}

void buffer_forget_arrays(struct buffer *b, uint32_t n)
{
	struct fault ignored;

	if (b->table)
		table_builder_truncate(b->table, n);
	/* Without arrays and attributes the buffer has no table, as at the beginning. */
	if (b->table && n == 0 && table_builder_attrs(b->table) == 0)
		b->table = table_builder_free(b->table);
	b->arrays = n;
	recharge(&b->table_charge, b->table ? table_builder_bytes(b->table) : 0, &ignored);
}

int buffer_change_attrs(struct buffer *b, const struct table_attr *attrs, size_t n, struct fault *f)
{
	struct table_builder *changed = NULL;
	int r = n ? need_table(b, f) : 0;

	if (n == 0 || r < 0)
		return r;
	r = table_builder_change_attrs(b->table, attrs, n, &changed, f);
	if (r < 0)
		return r;
	table_builder_swap_attrs(b->table, changed);
	r = recharge(&b->table_charge, table_builder_bytes(b->table), f);
	if (r < 0)
		table_builder_swap_attrs(b->table, changed);
	table_builder_free(changed);
	/* The last attribute may be gone, and with it the table. */
	if (r == 0)
		buffer_forget_arrays(b, b->arrays);
	return r;
}

/* Seals of its creator would stay, and no process could map the buffer for writing. */
static int check_writable(const struct buffer *b, enum buffer_state state, struct fault *f)
{
	int seals = fcntl(b->block.fd, F_GET_SEALS);

	if (state == BUFFER_SEALED ||
	    (seals >= 0 && !(seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))))
		return 0;
	return fault(f, CODE_STATE,
		     "buffer \"%s\" can't be shared: its creator sealed its memory against "
		     "writing (F_ADD_SEALS); publish it sealed, or close it",
		     b->key ? b->key : "");
}

/* From here on nobody can map a sealed host buffer for writing, not even its creator with its
 * writable fd. The creator can still write to a mapping that it has already: the manual says so.
 * It can add seals between the first check and F_SEAL_SEAL, so a second check comes after that. */
static int seal_host(const struct buffer *b, enum buffer_state state, struct fault *f)
{
	int seals = F_SEAL_SEAL | (state == BUFFER_SEALED ? F_SEAL_FUTURE_WRITE : 0), r;

	if (kind_of(b->pool->config.kind)->by_driver)
		return 0;
	r = check_writable(b, state, f);
	if (r < 0)
		return r;
	if (fcntl(b->block.fd, F_ADD_SEALS, seals) < 0)
		return fault(f, CODE_STATE,
			     "buffer \"%s\": its memory can't be sealed (%s): its creator added "
			     "F_SEAL_SEAL; close it",
			     b->key ? b->key : "", strerror(errno));
	return check_writable(b, state, f);
}

int buffer_seal_memory(struct buffer *b, enum buffer_state state, struct fault *f)
{
	int r = seal_host(b, state, f);

	if (r == 0 && state == BUFFER_SEALED)
		pool_seal_block(&b->block);
	return r;
}

int buffer_publish(struct buffer *b, enum buffer_state state, struct fault *f)
{
	_cleanup_(close_fd) int fd = -1;
	uint64_t bytes = 0, digest = TABLE_DIGEST_EMPTY;
	int r = b->table ? table_builder_finish_step(b->table, &fd, &bytes, &digest) : 0;

	if (r == -ERESTART)
		return r;
	if (r < 0)
		return fault(f, r == -EMFILE || r == -ENFILE ? CODE_NO_FDS : CODE_NO_MEMORY,
			     "the table of buffer \"%s\": %s", b->key ? b->key : "", strerror(-r));
	r = buffer_seal_memory(b, state, f);
	if (r < 0)
		return r;
	b->table_fd = take_fd(&fd);
	b->table_bytes = bytes;
	b->digest = digest;
	recharge(&b->table_charge, bytes, f);
	b->table = table_builder_free(b->table);
	b->state = state;
	recharge(&b->fds_charge, fds_of(b), f);
	b->published_ns = clock_realtime_ns();
	return 0;
}

/* ---- leases ---- */

static uint32_t *count_of(const struct lease *l)
{
	return l->access == ACCESS_WRITE ? &l->buffer->writers : &l->buffer->readers;
}

int lease_new(struct accounts *accounts, struct process *p, struct buffer *b, enum access access,
	      uint64_t id, uint64_t slack, struct lease **ret, struct fault *f)
{
	struct lease *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return fault(f, CODE_NO_MEMORY, "the daemon is out of memory");
	r = charge(accounts, p->uid, ACCOUNT_LEASES, 1, slack, &l->charge, f);
	if (r < 0) {
		free(l);
		return r;
	}
	l->process = p;
	l->buffer = b;
	l->access = access;
	l->id = id;
	l->since_ns = clock_realtime_ns();
	l->filling = b->state == BUFFER_FILLING;
	l->reader = -1;
	list_init(&l->process_link);
	list_init(&l->reader_link);
	lease_move(l, p);
	list_insert(&b->leases, &l->buffer_link);
	++*count_of(l);
	if (p->uid != b->uid)
		b->foreign = true;
	*ret = l;
	return 0;
}

void lease_move(struct lease *l, struct process *p)
{
	if (l->filling && !list_empty(&l->process_link))
		l->process->filling--;
	list_drop(&l->process_link);
	list_insert(l->filling ? p->leases.next : &p->leases, &l->process_link);
	p->filling += l->filling;
	l->process = p;
	lease_follow(l, l->reader);
}

void lease_follow(struct lease *l, int reader)
{
	l->reader = (int8_t)reader;
	list_drop(&l->reader_link);
	if (reader >= 0)
		list_insert(&l->process->readers, &l->reader_link);
}

void lease_fill_no_more(struct lease *l)
{
	if (!l->filling)
		return;
	l->process->filling--;
	l->filling = false;
	list_drop(&l->process_link);
	list_insert(&l->process->leases, &l->process_link);
}

void lease_set_away(struct lease *l, bool away)
{
	l->buffer->away += (uint32_t)away - (uint32_t)l->away;
	l->away = away;
}

void lease_change_buffer(struct lease *l, struct buffer *to)
{
	bool away = l->away;

	lease_set_away(l, false);
	--*count_of(l);
	list_drop(&l->buffer_link);
	l->buffer = to;
	list_insert(&to->leases, &l->buffer_link);
	++*count_of(l);
	lease_set_away(l, away);
	if (l->process->uid != to->uid)
		to->foreign = true;
}

struct lease *lease_free(struct lease *l)
{
	lease_set_away(l, false);
	l->process->filling -= l->filling;
	--*count_of(l);
	list_drop(&l->process_link);
	list_drop(&l->reader_link);
	list_drop(&l->buffer_link);
	discharge(&l->charge);
	free(l);
	return NULL;
}

void lease_make_read_only(struct lease *l)
{
	--*count_of(l);
	l->access = ACCESS_READ;
	++*count_of(l);
}

bool lease_all_suspect(const struct buffer *b)
{
	struct lease *l;

	list_foreach (l, &b->leases, buffer_link)
		if (!l->process->suspect_ns)
			return false;
	return !list_empty(&b->leases);
}
