/* SPDX-License-Identifier: MIT
 *
 * gpushm_create and gpushm_create_arrays. The creator keeps the same table that the daemon builds:
 * its attributes are checked by it before anything is asked, and its arrays as they are described.
 * Where a step fails after the daemon has made the buffer, ending the one lease on it makes it
 * vanish.
 */
#include "client/base/error.h"
#include "client/base/options.h"
#include "client/buffer/buffer.h"
#include "client/link/attach.h"
#include "proto/base/own.h"

static void free_builder(struct table_builder **b)
{
	*b = table_builder_free(*b);
}

static int set_attr(struct table_builder *b, const struct gpushm_attr *from)
{
	struct table_attr attr = { .key = from->key ? from->key : "",
				   .value = from->value,
				   .value_len = from->size };
	struct table_error err;

	attr.key_len = strlen(attr.key);
	if (!from->value && from->size > 0)
		return error_set(EINVAL, "attribute \"%s\": %zu bytes and no value", attr.key,
				 from->size);
	if (table_builder_set_attr(b, &attr, &err) == 0)
		return 0;
	return error_set(err.what == TABLE_LIMIT       ? EDQUOT
			 : err.what == TABLE_NO_MEMORY ? ENOMEM
						       : EINVAL,
			 "attribute \"%s\": %s", attr.key, err.text);
}

static int make_builder(uint64_t bytes, const struct gpushm_options *o, struct table_builder **ret)
{
	_cleanup_(free_builder) struct table_builder *b = NULL;

	/* As the daemon counts them: a key that is given twice is two, and the last one's value. */
	if (o->n_attrs > ATTRS_MAX)
		return error_set(EDQUOT, "%zu attributes; a buffer has at most %u", o->n_attrs,
				 ATTRS_MAX);
	if (table_builder_new(bytes, &b) < 0)
		return error_set(ENOMEM, "out of memory for a buffer");
	for (size_t i = 0; i < o->n_attrs; i++) {
		int r = set_attr(b, &o->attrs[i]);

		if (r < 0)
			return r;
	}
	*ret = take_ptr(b);
	return 0;
}

struct attr_list {
	Gpushm__Proto__Attr attrs[ATTRS_MAX];
	Gpushm__Proto__Attr *pointers[ATTRS_MAX];
};

/* They are no more than ATTRS_MAX: make_builder() has seen to it. */
static size_t fill_attrs(const struct gpushm_options *o, struct attr_list *list)
{
	for (size_t i = 0; i < o->n_attrs; i++) {
		Gpushm__Proto__Attr *to = list->pointers[i] = &list->attrs[i];

		gpushm__proto__attr__init(to);
		to->has_key = to->has_value = true;
		to->key = connection_bytes(o->attrs[i].key);
		to->value.data = (uint8_t *)o->attrs[i].value;
		to->value.len = o->attrs[i].size;
	}
	return o->n_attrs;
}

static int call_create(struct gpushm *c, const char *name, uint64_t bytes,
		       const struct gpushm_options *o, struct attach *ret)
{
	Gpushm__Proto__Create create = GPUSHM__PROTO__CREATE__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;
	struct attr_list list;

	create.has_name = create.has_size_bytes = true;
	create.name = connection_bytes(name);
	create.size_bytes = bytes;
	create.has_pool = o->pool != NULL;
	create.pool = connection_bytes(o->pool ? o->pool : "");
	create.has_mode = o->mode != 0;
	create.mode = o->mode;
	create.has_gid = !!(o->flags & GPUSHM_SET_GID);
	create.gid = o->gid;
	create.has_transient = !!(o->flags & GPUSHM_TRANSIENT);
	create.transient = create.has_transient;
	create.n_attrs = fill_attrs(o, &list);
	create.attrs = list.pointers;
	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_CREATE;
	request.create = &create;
	/* Who waits for room does not wait for what this process itself could give back. */
	if (o->wait_ms > 0 && gpushm_pending_cleanup(NULL) > 0) {
		int r = attach_call(c, &request, ret);

		if (r != -ENOSPC)
			return r;
	}
	create.has_wait_ms = o->wait_ms > 0;
	create.wait_ms = o->wait_ms;
	return attach_call(c, &request, ret);
}

static int create_buffer(struct gpushm *c, const char *name, uint64_t bytes,
			 const struct gpushm_options *o, struct image *attrs,
			 struct gpushm_buffer **ret)
{
	_cleanup_(attach_done) struct attach a = ATTACH_NONE;
	int r = call_create(c, name, bytes, o, &a);

	if (r == 0)
		r = buffer_adopt(c, name, &a, o->device, ret);
	if (r < 0)
		return r;
	(*ret)->attrs = *attrs;
	*attrs = IMAGE_NONE;
	return 0;
}

int gpushm_create(struct gpushm *c, const char *name, uint64_t bytes,
		  const struct gpushm_options *options, struct gpushm_buffer **ret)
{
	_cleanup_(free_builder) struct table_builder *builder = NULL;
	_cleanup_(image_done) struct image attrs = IMAGE_NONE;
	struct gpushm_buffer *b = NULL;
	struct gpushm_options o;
	uint64_t digest;
	int r = connection_check_name(name);

	if (r == 0)
		r = options_read(options, &o);
	if (r == 0)
		r = make_builder(bytes, &o, &builder);
	if (r == 0 && o.n_attrs > 0)
		r = image_finish(builder, bytes, &attrs, &digest);
	if (r == 0)
		r = create_buffer(c, name, bytes, &o, &attrs, &b);
	if (r < 0)
		return r;
	b->builder = take_ptr(builder);
	*ret = b;
	return 0;
}

int gpushm_create_arrays(struct gpushm *c, const char *name, struct gpushm_array_spec *specs,
			 size_t n, const struct gpushm_options *options, struct gpushm_buffer **ret)
{
	struct gpushm_buffer *b = NULL;
	struct error why;
	uint64_t bytes;
	int r = gpushm_layout(specs, n, &bytes);

	if (r == 0)
		r = gpushm_create(c, name, bytes, options, &b);
	if (r < 0)
		return r;
	r = gpushm_describe(b, specs, n);
	if (r < 0) {
		error_keep(&why);
		buffer_close(b);
		error_put_back(&why);
		return r;
	}
	*ret = b;
	return 0;
}
