/* SPDX-License-Identifier: MIT
 *
 * What is in a buffer: the table that its arrays are looked up in, its attributes, and what else
 * it can be asked. Of a buffer that was opened the table is the daemon's and never changes. While
 * a buffer is being filled, its creator has a table that grows: the image is made anew when
 * somebody looks and the builder has more arrays than the image. Attributes are set at create and
 * must not move with it, so they have an image of their own.
 *
 * Nothing here asks the daemon.
 */
#include "client/base/error.h"
#include "client/buffer/buffer.h"
#include "proto/base/own.h"

/* A getter of a const buffer may have to look under the lock; the buffer itself was never const. */
static struct gpushm_buffer *unconst(const struct gpushm_buffer *b)
{
	return (struct gpushm_buffer *)b;
}

static int refresh(struct gpushm_buffer *b)
{
	_cleanup_(image_done) struct image fresh = IMAGE_NONE;
	struct image old = b->table;
	uint64_t digest;
	int r;

	if (b->table.memory &&
	    table_view_arrays(&b->table.view) == table_builder_arrays(b->builder))
		return 0;
	r = image_finish(b->builder, b->bytes, &fresh, &digest);
	if (r < 0)
		return r;
	b->digest = digest;
	b->table = fresh;
	fresh = old;
	return 0;
}

int buffer_table(struct gpushm_buffer *b, bool whole, const struct table_view **ret)
{
	int r;

	pthread_mutex_lock(&b->lock);
	if (b->builder)
		r = refresh(b);
	else if (!image_is(&b->table))
		r = error_set(ENOENT, "buffer \"%s\" has no arrays", b->name);
	else
		r = whole ? image_load(&b->table) : image_look(&b->table);
	if (r < 0) {
		pthread_mutex_unlock(&b->lock);
		return r;
	}
	*ret = &b->table.view;
	return 0;
}

void buffer_table_done(struct gpushm_buffer *b)
{
	pthread_mutex_unlock(&b->lock);
}

size_t gpushm_buffer_arrays(const struct gpushm_buffer *b)
{
	size_t n = 0;

	if (buffer_check(b) < 0)
		return 0;
	pthread_mutex_lock(&unconst(b)->lock);
	if (b->builder)
		n = table_builder_arrays(b->builder);
	else if (image_is(&b->table))
		n = table_view_arrays(&b->table.view);
	pthread_mutex_unlock(&unconst(b)->lock);
	return n;
}

static int find_attr(const struct table_view *v, const char *key, struct table_attr *ret)
{
	size_t len = strlen(key);

	for (uint32_t i = 0; i < table_view_attrs(v); i++) {
		int r = table_view_attr_at(v, i, ret);

		if (r < 0)
			return r;
		if (ret->key_len == len && memcmp(ret->key, key, len) == 0)
			return 0;
	}
	return -ENOENT;
}

int gpushm_buffer_attr(const struct gpushm_buffer *b, const char *key, const void **ret_value,
		       size_t *ret_size)
{
	struct image *i = image_is(&b->attrs) ? &unconst(b)->attrs : &unconst(b)->table;
	struct table_attr attr = { 0 };
	int r = buffer_check(b), found = -ENOENT;

	if (r < 0)
		return r;
	/* While filling, the table can't be looked at without the lock; with attributes there is
	 * b->attrs, and without there is nothing to find. A table that was opened stays. */
	pthread_mutex_lock(&unconst(b)->lock);
	/* What is told points into memory, and is valid until the buffer is closed. */
	r = image_load(i);
	if (r == 0 && image_is(i))
		found = find_attr(&i->view, key, &attr);
	pthread_mutex_unlock(&unconst(b)->lock);
	if (r < 0)
		return r;
	if (found == -EBADMSG)
		return error_set(EPROTO, "buffer \"%s\": the daemon's table makes no sense",
				 b->name);
	if (found < 0)
		return error_set(-found, "buffer \"%s\" has no attribute \"%s\"", b->name, key);
	*ret_value = attr.value;
	*ret_size = attr.value_len;
	return 0;
}
