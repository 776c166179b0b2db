/* SPDX-License-Identifier: MIT
 *
 * The answers about buffers: STAT and LIST. They are built in the service's build arena, which is
 * as large as one answer may need: a frame is full before the arena is. Holders are told to a
 * buffer's owner and to admins only.
 */
#include "daemon/catalog/private_names.h"
#include "daemon/ipc/reply.h"
#include "proto/base/own.h"

#include <string.h>
#include <sys/mman.h>

#define LIST_MAX 512u		      /* buffers in one reply */
#define LIST_BYTES (FRAME_MAX - 256u) /* of them; the rest is for the reply around them */

/* ---- buffers ---- */

static int tell_holders(Gpushm__Proto__Buffer *m, struct service *s, const struct buffer *b)
{
	const struct lease *l;
	Gpushm__Proto__Holder **list = reply_build(s, HOLDERS_MAX * sizeof(*list));

	if (!list)
		return -ENOMEM;
	m->holders = list;
	list_foreach (l, &b->leases, buffer_link) {
		Gpushm__Proto__Holder *h = reply_build(s, sizeof(*h));

		if (m->n_holders == HOLDERS_MAX)
			break;
		if (!h)
			return -ENOMEM;
		gpushm__proto__holder__init(h);
		TELL(h, lease, l->id);
		TELL(h, pid, l->process->pid);
		TELL(h, uid, l->process->uid);
		h->has_command = 1;
		h->command = reply_bytes(l->process->command, strlen(l->process->command));
		TELL(h, access, (Gpushm__Proto__Access)l->access);
		TELL(h, since_ns, l->since_ns);
		TELL(h, suspect, l->process->suspect_ns != 0);
		list[m->n_holders++] = h;
	}
	return 0;
}

static uint32_t count_suspects(const struct buffer *b)
{
	const struct lease *l;
	uint32_t n = 0;

	list_foreach (l, &b->leases, buffer_link)
		n += l->process->suspect_ns != 0;
	return n;
}

static int tell_name(Gpushm__Proto__Buffer *m, struct session *s, const struct buffer *b)
{
	char *name = reply_build(s->service, KEY_MAX + 1);

	if (!name)
		return -ENOMEM;
	m->has_name = 1;
	m->name = reply_bytes(name, private_names_shown(s->process, b->key, name));
	return 0;
}

static void tell_death(Gpushm__Proto__Buffer *m, const struct death *d)
{
	TELL(m, dirty_pid, d->pid);
	TELL(m, dirty_uid, d->uid);
	m->has_dirty_command = 1;
	m->dirty_command = reply_bytes(d->command, strlen(d->command));
	TELL(m, dirty_ns, d->ns);
}

static int tell_buffer(Gpushm__Proto__Buffer *m, struct session *s, const struct buffer *b,
		       bool holders)
{
	gpushm__proto__buffer__init(m);
	TELL(m, id, b->id);
	TELL(m, pool, b->pool->id);
	TELL(m, size_bytes, b->bytes);
	TELL(m, allocated_bytes, b->block.bytes);
	TELL(m, state, (Gpushm__Proto__State)b->state);
	TELL(m, uid, b->uid);
	TELL(m, gid, b->gid);
	TELL(m, mode, b->mode);
	TELL(m, transient, b->transient);
	TELL(m, dirty, b->dirty);
	TELL(m, created_ns, b->created_ns);
	TELL(m, published_ns, b->published_ns);
	TELL(m, arrays, b->arrays);
	TELL(m, digest, b->digest);
	TELL(m, readers, b->readers);
	TELL(m, writers, b->writers);
	TELL(m, suspects, count_suspects(b));
	m->has_pool_name = 1;
	m->pool_name = reply_bytes(b->pool->config.name, strlen(b->pool->config.name));
	if (b->dirty)
		tell_death(m, &b->death);
	if (b->key && tell_name(m, s, b) < 0)
		return -ENOMEM;
	if (!holders || !buffer_owned_by(b, s->process))
		return 0;
	return tell_holders(m, s->service, b);
}

static int copy_attrs(Gpushm__Proto__Buffer *m, struct service *s, const struct table_view *v)
{
	uint32_t n = table_view_attrs(v);
	Gpushm__Proto__Attr **list = reply_build(s, n * sizeof(*list));

	for (uint32_t i = 0; list && i < n; i++) {
		struct table_attr attr;
		unsigned char *copy;

		if (table_view_attr_at(v, i, &attr) < 0)
			return -EBADMSG;
		list[i] = reply_build(s, sizeof(**list));
		copy = reply_build(s, attr.key_len + attr.value_len);
		if (!list[i] || !copy)
			return -ENOMEM;
		gpushm__proto__attr__init(list[i]);
		memcpy(copy, attr.key, attr.key_len);
		memcpy(copy + attr.key_len, attr.value, attr.value_len);
		list[i]->has_key = list[i]->has_value = 1;
		list[i]->key = reply_bytes(copy, attr.key_len);
		list[i]->value = reply_bytes(copy + attr.key_len, attr.value_len);
	}
	m->attrs = list;
	m->n_attrs = list ? n : 0;
	return list ? 0 : -ENOMEM;
}

/* The daemon keeps no second copy of the attributes: they are read back from the table that it
 * wrote and sealed. */
static int tell_attrs(Gpushm__Proto__Buffer *m, struct service *s, const struct buffer *b)
{
	struct table_view v;
	void *image;
	int r;

	/* To map it costs more than the rest of the answer. */
	if (b->table_fd < 0 ||
	    (table_view_init_fd(&v, b->table_fd, b->table_bytes, b->bytes) == 0 && v.attrs == 0))
		return 0;
	image = mmap(NULL, b->table_bytes, PROT_READ, MAP_SHARED, b->table_fd, 0);
	if (image == MAP_FAILED)
		return -errno;
	r = table_view_init(&v, image, b->table_bytes, b->bytes);
	if (r == 0)
		r = copy_attrs(m, s, &v);
	munmap(image, b->table_bytes);
	return r;
}

int reply_stat(struct reply *a, struct session *s, struct buffer *b, bool holders, struct fault *f)
{
	arena_reset(&s->service->build);
	gpushm__proto__reply__init(&a->reply);
	a->reply.result_case = GPUSHM__PROTO__REPLY__RESULT_STAT;
	a->reply.stat = &a->u.stat;
	if (tell_buffer(&a->u.stat, s, b, holders) < 0 || tell_attrs(&a->u.stat, s->service, b) < 0)
		return reply_no_memory(f);
	a->small = a->u.stat.n_attrs == 0 && a->u.stat.n_holders == 0;
	return 0;
}

static bool listed(const struct buffer *b, const struct session *s, const char *prefix,
		   size_t prefix_len)
{
	char shown[KEY_MAX + 1];

	if (!catalog_visible(b, s->process))
		return false;
	if (prefix_len == 0)
		return true;
	return b->key && private_names_shown(s->process, b->key, shown) >= prefix_len &&
	       memcmp(shown, prefix, prefix_len) == 0;
}

int reply_list(struct reply *a, struct session *s, uint64_t after, const char *prefix,
	       size_t prefix_len, bool holders, struct fault *f)
{
	Gpushm__Proto__ListReply *m = &a->u.list;
	struct list *end = &s->service->catalog.buffers, *at;
	struct buffer *b = catalog_next(&s->service->catalog, after);
	size_t bytes = 0;

	arena_reset(&s->service->build);
	gpushm__proto__reply__init(&a->reply);
	gpushm__proto__list_reply__init(m);
	a->reply.result_case = GPUSHM__PROTO__REPLY__RESULT_LIST;
	a->reply.list = m;
	m->buffers = reply_build(s->service, LIST_MAX * sizeof(*m->buffers));
	for (at = b ? &b->all_link : end; at != end; at = at->next) {
		Gpushm__Proto__Buffer *told;

		b = container_of(at, struct buffer, all_link);
		if (!listed(b, s, prefix, prefix_len))
			continue;
		told = reply_build(s->service, sizeof(*told));
		if (!told || tell_buffer(told, s, b, holders) < 0)
			break;
		bytes += gpushm__proto__buffer__get_packed_size(told) + 8;
		if (m->n_buffers == LIST_MAX || bytes > LIST_BYTES)
			break;
		m->buffers[m->n_buffers++] = told;
	}
	TELL(m, more, at != end);
	return m->more && m->n_buffers == 0 ? reply_no_memory(f) : 0;
}
