/* SPDX-License-Identifier: MIT
 *
 * CREATE, DESCRIBE and PUBLISH: a buffer from its creation until others can open it.
 *
 * The creator builds the same table as the daemon, with the same checks: wrong attributes and
 * arrays are found before anything is sent. Arrays go to the daemon in batches that fit a frame,
 * each of which it takes as a whole or not at all. Where it refuses one, the local table drops that
 * batch and the following ones, and so stays equal to the daemon's.
 *
 * Where a step fails after the daemon has made the buffer, closing its only lease removes it.
 */
#include "client/gpushm_cleanup.h"
#include "client/lib/base/error.h"
#include "client/lib/base/locks.h"
#include "client/lib/base/spec.h"
#include "client/lib/buffer/buffer.h"
#include "client/lib/link/request.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/base/sized.h"

/* A request's own fields, and one array's tag and length (a varint of a number below 2^21). */
#define REQUEST_BYTES 64u
#define ARRAY_BYTES 4u

/* Bounds what a batch unpacks to as well: an array costs the daemon at least some 300 bytes. */
#define BATCH_MAX 1024u
_Static_assert(BATCH_MAX * 400u < UNPACK_MAX, "a batch of small arrays unpacks");

/* ---- CREATE ---- */

static void free_builder(struct table_builder **b)
{
	*b = table_builder_free(*b);
}

static int convert_attr(const struct gpushm_attr *from, struct table_attr *ret)
{
	struct gpushm_attr attr;

	sized_read(from, &attr, sizeof(attr));
	*ret = (struct table_attr){ .key = attr.key ? attr.key : "",
				    .value = attr.value,
				    .value_len = attr.size };
	ret->key_len = strlen(ret->key);
	if (!attr.value && attr.size > 0)
		return error_set(EINVAL, "attribute \"%s\": %zu bytes and no value", ret->key,
				 attr.size);
	return 0;
}

/* Converts a caller's attributes. The daemon counts a key that is given twice as two of them; the
 * last value is kept. */
static int read_attrs(const struct gpushm_attr *attrs, size_t n, struct table_attr ret[ATTRS_MAX])
{
	int r;

	if (n > ATTRS_MAX)
		return error_set(EDQUOT, "%zu attributes; a buffer has at most %u", n, ATTRS_MAX);
	r = error_wrong("the attributes", sized_check_all(attrs, n, sizeof(*attrs)));
	for (size_t i = 0; i < n && r == 0; i++)
		r = convert_attr(sized_at(attrs, i), &ret[i]);
	return r;
}

static int make_builder(uint64_t bytes, const struct table_attr *attrs, size_t n,
			struct table_builder **ret)
{
	_cleanup_(free_builder) struct table_builder *b = NULL;

	if (table_builder_new(bytes, &b) < 0)
		return error_set(ENOMEM, "out of memory for a buffer");
	for (size_t i = 0; i < n; i++) {
		struct fault err;
		int r = table_builder_set_attr(b, &attrs[i], &err);

		if (r < 0)
			return error_set(-r, "attribute \"%s\": %s", attrs[i].key, err.text);
	}
	*ret = take_ptr(b);
	return 0;
}

static size_t fill_attrs(const struct table_attr *attrs, size_t n, Gpushm__Proto__Attr *list,
			 Gpushm__Proto__Attr **pointers)
{
	for (size_t i = 0; i < n; i++) {
		Gpushm__Proto__Attr *to = pointers[i] = &list[i];

		gpushm__proto__attr__init(to);
		SET(to, key, connection_bytes(attrs[i].key));
		SET(to, value,
		    ((ProtobufCBinaryData){ attrs[i].value_len, (uint8_t *)attrs[i].value }));
	}
	return n;
}

static void fill_create(struct creation *k, uint64_t bytes, const struct table_attr *attrs)
{
	const struct gpushm_create_options *o = &k->options;
	Gpushm__Proto__Create *m = &k->message;

	SET(m, size_bytes, bytes);
	if (o->pool)
		SET(m, pool, connection_bytes(o->pool));
	SET_SOME(m, mode, o->mode);
	if (o->flags & GPUSHM_SET_GID)
		SET(m, gid, o->gid);
	SET_SOME(m, transient, !!(o->flags & GPUSHM_TRANSIENT));
	m->n_attrs = fill_attrs(attrs, o->n_attrs, k->list, k->pointers);
	m->attrs = k->pointers;
	SET_SOME(m, wait_ms, o->wait_ms);
}

int creation_begin(struct creation *k, const char *name, uint64_t bytes,
		   const struct gpushm_create_options *options)
{
	struct table_attr attrs[ATTRS_MAX];
	uint64_t digest;
	int r;

	gpushm__proto__create__init(&k->message);
	k->builder = NULL;
	k->attrs = IMAGE_NONE;
	r = request_set_name(name, &k->message.has_name, &k->message.name);
	if (r == 0)
		r = buffer_create_options(options, &k->options);
	if (r == 0)
		r = read_attrs(k->options.attrs, k->options.n_attrs, attrs);
	if (r == 0)
		r = make_builder(bytes, attrs, k->options.n_attrs, &k->builder);
	if (r == 0 && k->options.n_attrs > 0)
		r = image_finish(k->builder, bytes, &k->attrs, &digest);
	if (r == 0)
		fill_create(k, bytes, attrs);
	else
		creation_done(k);
	return r;
}

void creation_finish(struct creation *k, struct gpushm_buffer *b)
{
	b->attrs = k->attrs;
	k->attrs = IMAGE_NONE;
	b->builder = take_ptr(k->builder);
}

void creation_done(struct creation *k)
{
	image_done(&k->attrs);
	k->builder = table_builder_free(k->builder);
}

static int call_create(struct gpushm *c, const char *name, struct creation *k,
		       struct gpushm_buffer **ret)
{
	const Gpushm__Proto__Request *request = request_with(CREATE, create, &k->message);
	const struct gpushm_open_options mapped = buffer_mapped_as(&k->options);
	uint64_t wait_ms = k->options.wait_ms, deadline = clock_deadline(wait_ms);

	/* Try without waiting first: this process may have closed buffers to free. */
	if (wait_ms > 0 && gpushm_pending_cleanup(NULL) > 0) {
		int r;

		k->message.has_wait_ms = false;
		r = buffer_open(c, name, request, &mapped, ret);
		if (r != -ENOSPC)
			return r;
		SET(&k->message, wait_ms, clock_wait_left_ms(wait_ms, deadline));
	}
	return buffer_open(c, name, request, &mapped, ret);
}

int gpushm_create(struct gpushm *c, const char *name, uint64_t bytes,
		  const struct gpushm_create_options *options, struct gpushm_buffer **ret)
{
	struct creation k;
	int r = creation_begin(&k, name, bytes, options);

	if (r < 0)
		return r;
	r = call_create(c, name, &k, ret);
	if (r == 0)
		creation_finish(&k, *ret);
	creation_done(&k);
	return r;
}

/* ---- DESCRIBE ---- */

struct batch {
	size_t n, bytes;
	Gpushm__Proto__Array *pointers[BATCH_MAX];
	Gpushm__Proto__Array arrays[BATCH_MAX];
	Gpushm__Proto__Dtype dtypes[BATCH_MAX];
};

static void encode(const struct gpushm_array_spec *spec, Gpushm__Proto__Dtype *dtype,
		   Gpushm__Proto__Array *array)
{
	gpushm__proto__dtype__init(dtype);
	SET(dtype, code, spec->dtype.code);
	SET(dtype, bits, spec->dtype.bits);
	if (spec->dtype.lanes != 1)
		SET(dtype, lanes, spec->dtype.lanes);
	SET_SOME(dtype, itemsize, spec->dtype.itemsize);
	if (spec->descr && *spec->descr)
		SET(dtype, descr, connection_bytes(spec->descr));

	gpushm__proto__array__init(array);
	SET(array, name, connection_bytes(spec->name ? spec->name : ""));
	SET(array, offset, spec->offset);
	array->dtype = dtype;
	/* spec_to_table() has checked that no length is negative. */
	array->n_shape = (size_t)spec->ndim;
	array->shape = (uint64_t *)spec->shape;
	array->n_strides = spec->strides ? (size_t)spec->ndim : 0;
	array->strides = (int64_t *)spec->strides;
}

/* False: the batch is full. */
static bool batch_add(struct batch *batch, struct gpushm_array_spec spec)
{
	Gpushm__Proto__Array *array = &batch->arrays[batch->n];
	size_t bytes;

	if (batch->n == BATCH_MAX)
		return false;
	encode(&spec, &batch->dtypes[batch->n], array);
	bytes = gpushm__proto__array__get_packed_size(array) + ARRAY_BYTES;
	if (batch->bytes + bytes > FRAME_MAX)
		return false;
	batch->bytes += bytes;
	batch->pointers[batch->n++] = array;
	return true;
}

/* A daemon's successor does not know what was being filled. */
int buffer_lost_with_daemon(const struct gpushm_buffer *b, int r, unsigned sends)
{
	if (r != -EBADF || !(sends > 1 || b->lease.lost))
		return r;
	return buffer_error(b, ECONNRESET,
			    "the daemon died while it was being filled: create it again");
}

/* *known: arrays that the daemon has. */
static int batch_send(struct gpushm_buffer *b, struct batch *batch, uint32_t *known)
{
	Gpushm__Proto__Describe describe = GPUSHM__PROTO__DESCRIBE__INIT;
	Gpushm__Proto__Reply *reply;
	unsigned sends;
	int r;

	SET(&describe, lease, b->lease.id);
	describe.n_arrays = batch->n;
	describe.arrays = batch->pointers;
	r = request_call(b->connection, request_with(DESCRIBE, describe, &describe), &reply,
			 &sends);
	b->spoilt = b->spoilt || request_in_doubt(r, sends);
	if (r < 0)
		return buffer_lost_with_daemon(b, r, sends);
	if (reply->described->arrays != *known + batch->n) {
		buffer_error(b, EPROTO, "the daemon counts %u arrays instead of %zu",
			     reply->described->arrays, *known + batch->n);
		return request_violated(b->connection);
	}
	*known += (uint32_t)batch->n;
	request_done(b->connection);
	return 0;
}

static int check_all(struct gpushm_buffer *b, const struct gpushm_array_spec *specs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct fault err;
		struct table_array a;
		struct gpushm_array_spec spec = spec_at(specs, i);
		int r = spec_to_table(&spec, &a);

		if (r < 0)
			return r;
		r = table_builder_add(b->builder, &a, &err);
		if (r < 0)
			return error_set(-r, "spec %zu: %s", i, err.text);
	}
	return 0;
}

static int send_all(struct gpushm_buffer *b, const struct gpushm_array_spec *specs, size_t n,
		    uint32_t *known)
{
	_cleanup_(free_ptr) struct batch *batch = malloc(sizeof(*batch));
	size_t next = 0;

	if (!batch)
		return error_set(ENOMEM, "out of memory for a request");
	while (next < n) {
		int r;

		batch->n = 0;
		batch->bytes = REQUEST_BYTES;
		while (next + batch->n < n && batch_add(batch, spec_at(specs, next + batch->n)))
			;
		r = batch_send(b, batch, known);
		if (r < 0)
			return r;
		next += batch->n;
	}
	return 0;
}

/* A batch was sent, and there was no reply. */
static int spoilt(const struct gpushm_buffer *b)
{
	return buffer_error(b, ECONNRESET,
			    "the daemon has not replied to a gpushm_describe() of it: discard it, "
			    "and create it again");
}

int gpushm_describe(struct gpushm_buffer *b, const struct gpushm_array_spec *specs, size_t n)
{
	uint32_t known;
	int r = buffer_check(b);

	if (r == 0)
		r = specs_check(specs, n);
	if (r < 0)
		return r;
	lock_guard(&b->lock, LOCK_BUFFER);
	if (!b->builder)
		return error_set(EBUSY, "buffer \"%s\" is published: its arrays are fixed",
				 b->name);
	if (b->spoilt)
		return spoilt(b);
	known = table_builder_arrays(b->builder);
	r = check_all(b, specs, n);
	if (r == 0)
		r = send_all(b, specs, n, &known);
	if (r < 0)
		table_builder_truncate(b->builder, known);
	return r;
}

/* ---- attributes that are set later ---- */

static int send_attrs(struct gpushm_buffer *b, const struct table_attr *attrs, size_t n)
{
	Gpushm__Proto__Describe describe = GPUSHM__PROTO__DESCRIBE__INIT;
	Gpushm__Proto__Reply *reply;
	Gpushm__Proto__Attr list[ATTRS_MAX], *pointers[ATTRS_MAX];
	unsigned sends;
	int r;

	SET(&describe, lease, b->lease.id);
	describe.n_attrs = fill_attrs(attrs, n, list, pointers);
	describe.attrs = pointers;
	r = request_call(b->connection, request_with(DESCRIBE, describe, &describe), &reply,
			 &sends);
	if (r == 0)
		request_done(b->connection);
	return buffer_lost_with_daemon(b, r, sends);
}

/* All that can fail on this side is done before the daemon is asked. */
static int set_attrs(struct gpushm_buffer *b, const struct table_attr *attrs, size_t n)
{
	_cleanup_(free_builder) struct table_builder *changed = NULL;
	_cleanup_(image_done) struct image image = IMAGE_NONE;
	struct image old = b->attrs;
	struct fault err;
	uint64_t digest;
	int r;

	if (!b->builder)
		return buffer_error(b, EBUSY, "it is published: its attributes are fixed");
	r = table_builder_change_attrs(b->builder, attrs, n, &changed, &err);
	if (r < 0)
		return error_set(-r, "%s", err.text);
	r = image_finish(changed, b->bytes, &image, &digest);
	if (r == 0)
		r = send_attrs(b, attrs, n);
	if (r < 0)
		return r;
	table_builder_swap_attrs(b->builder, changed);
	b->attrs = image;
	image = old;
	return 0;
}

int gpushm_set_attrs(struct gpushm_buffer *b, const struct gpushm_attr *attrs, size_t n)
{
	struct table_attr list[ATTRS_MAX];
	int r = buffer_check(b);

	if (r == 0 && n > 0)
		r = error_null(attrs, "list of attributes");
	if (r == 0)
		r = read_attrs(attrs, n, list);
	if (r < 0 || n == 0)
		return r;
	lock_guard(&b->lock, LOCK_BUFFER);
	return set_attrs(b, list, n);
}

/* CREATE and DESCRIBE. *ret_again: the buffer was lost between the two. */
static int create_described(struct gpushm *c, const char *name, uint64_t bytes,
			    const struct gpushm_array_spec *specs, size_t n,
			    const struct gpushm_create_options *options, struct gpushm_buffer **ret,
			    bool *ret_again)
{
	struct gpushm_buffer *b = NULL;
	int r = gpushm_create(c, name, bytes, options, &b);

	*ret_again = false;
	if (r < 0)
		return r;
	r = gpushm_describe(b, specs, n);
	if (r == 0) {
		*ret = b;
		return 0;
	}
	*ret_again = r == -ECONNRESET && b->lease.lost;
	error_guard();
	buffer_discard(b);
	return r;
}

/* Layout, CREATE and DESCRIBE in one. What a daemon's end takes away between the two has no
 * contents yet: its successor makes it anew, in the same time for space, and the caller sees a call
 * that took longer. */
int gpushm_create_arrays(struct gpushm *c, const char *name, struct gpushm_array_spec *specs,
			 size_t n, const struct gpushm_create_options *options,
			 struct gpushm_buffer **ret)
{
	struct gpushm_create_options o;
	uint64_t bytes, deadline;
	int tries = 0, r = gpushm_layout(specs, n, &bytes);
	bool again;

	if (r == 0)
		r = buffer_create_options(options, &o);
	if (r < 0)
		return r;
	deadline = clock_deadline(o.wait_ms);
	do {
		r = create_described(c, name, bytes, specs, n, &o, ret, &again);
		o.wait_ms = clock_wait_left_ms(o.wait_ms, deadline);
	} while (again && ++tries < BUFFER_CREATES_MAX);
	return r;
}

/* ---- PUBLISH ---- */

/* r: of a PUBLISH that was sent so often. Whether the daemon has published the buffer in that way,
 * and this process has had no reply: the daemon died before that, or was too late. */
static bool was_published(const struct gpushm_buffer *b, enum gpushm_state state, const char *name,
			  int r, unsigned sends)
{
	if (r != -EBUSY || sends == 0)
		return false;
	return sends > 1 || (b->tried == state && !strcmp(b->published_name, name));
}

static void note_try(struct gpushm_buffer *b, enum gpushm_state state, const char *name)
{
	b->tried = state;
	strcpy(b->published_name, name);
}

/* publish: has the new name, if the buffer gets one. */
static int call_publish(struct gpushm_buffer *b, Gpushm__Proto__Publish publish,
			enum gpushm_state state, uint64_t digest)
{
	/* It was a C string: request_set_name(). */
	const char *name = publish.has_name ? (const char *)publish.name.data : "";
	Gpushm__Proto__Reply *reply;
	unsigned sends;
	int r;

	SET(&publish, lease, b->lease.id);
	SET(&publish, state, (Gpushm__Proto__State)state);
	r = request_call(b->connection, request_with(PUBLISH, publish, &publish), &reply, &sends);
	if (was_published(b, state, name, r, sends))
		return 0;
	if (request_in_doubt(r, sends))
		note_try(b, state, name);
	if (r < 0)
		return buffer_lost_with_daemon(b, r, sends);
	if (reply->published->digest != digest) {
		buffer_error(b, EPROTO, "the daemon has another layout than this process");
		return request_violated(b->connection);
	}
	b->not_kept = reply->published->not_kept;
	request_done(b->connection);
	return 0;
}

/* All that can fail on this side is done before the daemon is asked: waiting for the GPU's work and
 * finishing the table. */
static int publish_with(struct gpushm_buffer *b, Gpushm__Proto__Publish message,
			enum gpushm_state state, struct image *table)
{
	uint64_t digest;
	int r = b->spoilt ? spoilt(b) : map_synchronize(b->map);

	if (r < 0)
		return error_set_about(-r, "buffer", b->name);
	r = image_finish(b->builder, b->bytes, table, &digest);
	if (r == 0)
		r = call_publish(b, message, state, digest);
	if (r < 0)
		return r;
	b->digest = digest;
	b->state = state;
	return 0;
}

static void set_name(struct gpushm_buffer *b, const char *name)
{
	strcpy(b->published_name, name);
	b->name = b->published_name;
}

/* name: NULL, or the one that the message has. */
static int publish(struct gpushm_buffer *b, enum gpushm_state state, const char *name,
		   Gpushm__Proto__Publish message)
{
	_cleanup_(image_done) struct image table = IMAGE_NONE;
	struct image old = b->table;
	int r;

	if (!b->builder)
		return error_set(EBUSY, "buffer \"%s\" is published already", b->name);
	close_fd(&b->memory);
	b->fresh.off = true;
	r = publish_with(b, message, state, &table);
	if (r < 0)
		return r;
	if (name)
		set_name(b, name);
	b->table = table;
	table = old;
	b->builder = table_builder_free(b->builder);
	if (state == GPUSHM_SHARED)
		return 0;
	/* The buffer is sealed by now, whether or not the driver makes our map read-only. */
	b->access = GPUSHM_READ;
	r = map_protect(b->map);
	return r < 0 ? error_set_about(-r, "buffer", b->name) : 0;
}

static int publish_as(struct gpushm_buffer *b, enum gpushm_state state, const char *name,
		      uint32_t flags)
{
	Gpushm__Proto__Publish message = GPUSHM__PROTO__PUBLISH__INIT;
	int r = buffer_check(b);

	if (r == 0 && name)
		r = request_set_name(name, &message.has_name, &message.name);
	if (r == 0)
		r = error_flags(flags, GPUSHM_REPLACE);
	if (r < 0)
		return r;
	message.has_replace = message.replace = !!(flags & GPUSHM_REPLACE);
	if (state != GPUSHM_SEALED && state != GPUSHM_SHARED)
		return buffer_error(b, EINVAL,
				    "a buffer is published GPUSHM_SEALED or GPUSHM_SHARED");
	lock_guard(&b->lock, LOCK_BUFFER);
	return publish(b, state, name, message);
}

int gpushm_publish(struct gpushm_buffer *b, enum gpushm_state state)
{
	return publish_as(b, state, NULL, 0);
}

int gpushm_publish_as(struct gpushm_buffer *b, enum gpushm_state state, const char *name,
		      uint32_t flags)
{
	int r = buffer_check(b);

	if (r < 0)
		return r;
	if (!name)
		return buffer_error(b, EINVAL, "a name is missing: gpushm_publish() keeps its own");
	return publish_as(b, state, name, flags);
}
