/* SPDX-License-Identifier: MIT
 *
 * The verbs of a buffer's maker: CREATE, DESCRIBE, PUBLISH, and CLOSE, which names a lease as they
 * do. CREATE may have to wait for a driver; its session is busy until then, and nothing of it is
 * lost if the client goes first.
 */
#include "daemon/ipc/verb.h"
#include "proto/base/size.h"
#include "proto/name.h"

#include <stdio.h>

#define SIZE_LIMIT ((uint64_t)INT64_MAX) /* off_t's: what a file can have */

static void on_made(struct buffer *b, int result, const struct fault *f, void *arg)
{
	struct session *s = arg;
	struct reply a = { 0 };
	struct lease *l = NULL;
	struct fault own = *f;

	s->creating = NULL;
	if (result == 0)
		result = catalog_grant(&s->service->catalog, s->process, b, ACCESS_WRITE, &l, &own);
	if (result == 0)
		reply_attach(&a, s, l);
	else
		reply_fault(&a, &own);
	s->on_answer(s, &a);
}

/* protobuf-c has NULL for bytes that are absent or empty, which memcmp() and memcpy() must not be
 * given, for no bytes either (C11, 7.24.1). */
static const char *text_of(ProtobufCBinaryData bytes)
{
	return bytes.len ? (const char *)bytes.data : "";
}

static int read_attrs(const Gpushm__Proto__Create *m, struct table_attr *ret, struct fault *f)
{
	if (m->n_attrs > ATTRS_MAX)
		return fault(f, CODE_LIMIT, "CREATE: %zu attributes, at most %u are kept",
			     m->n_attrs, ATTRS_MAX);
	for (size_t i = 0; i < m->n_attrs; i++)
		ret[i] = (struct table_attr){ text_of(m->attrs[i]->key), m->attrs[i]->key.len,
					      text_of(m->attrs[i]->value), m->attrs[i]->value.len };
	return 0;
}

static int read_spec(struct session *s, const Gpushm__Proto__Create *m, struct buffer_spec *ret,
		     char pool[POOL_NAME_MAX + 1], struct fault *f)
{
	if (!m->has_size_bytes || m->size_bytes == 0)
		return request_bad(f, "CREATE", "size_bytes must be at least 1");
	/* Sums with it, and what it is rounded up to, are numbers, too. */
	if (m->size_bytes > SIZE_LIMIT)
		return fault(f, CODE_TOO_LARGE, "CREATE: %s: no memory is that large",
			     size_format(m->size_bytes).text);
	if (m->has_mode && (m->mode & ~0666u))
		return fault(f, CODE_BAD_REQUEST, "CREATE: mode %04o; bits of 0666 are allowed",
			     m->mode);
	if (m->has_pool && m->pool.len && name_check_pool(m->pool.data, m->pool.len))
		return fault(f, CODE_NAME, "CREATE: pool name: %s",
			     name_check_pool(m->pool.data, m->pool.len));
	if (m->has_gid && !s->process->admin && !process_in_group(s->process, m->gid))
		return fault(f, CODE_ACCESS, "CREATE: uid %u is not in group %u", s->process->uid,
			     m->gid);
	snprintf(pool, POOL_NAME_MAX + 1, "%.*s", (int)m->pool.len, text_of(m->pool));
	ret->pool = pool;
	ret->bytes = m->size_bytes;
	ret->mode = m->has_mode ? m->mode : 0600;
	ret->gid = m->has_gid ? m->gid : s->process->gid;
	ret->transient = m->has_transient && m->transient;
	ret->wait_ms = m->wait_ms;
	return 0;
}

int request_create(struct session *s, const Gpushm__Proto__Request *q, struct reply *a,
		   struct fault *f)
{
	const Gpushm__Proto__Create *m = q->create;
	char key[KEY_MAX + 1], pool[POOL_NAME_MAX + 1];
	struct table_attr attrs[ATTRS_MAX];
	struct buffer_spec spec = { .key = key, .attrs = attrs, .n_attrs = m->n_attrs };
	struct buffer *b = NULL;
	struct lease *l = NULL;
	int r = request_key(s, "CREATE", m->has_name, m->name, key, f);

	if (r == 0)
		r = read_spec(s, m, &spec, pool, f);
	if (r == 0)
		r = read_attrs(m, attrs, f);
	if (r == 0)
		r = catalog_create(&s->service->catalog, s->process, &spec, &b, &l, f);
	if (r == -EINPROGRESS) {
		b->making->on_made = on_made;
		b->making->arg = s;
		s->creating = b;
	}
	if (r == 0)
		reply_attach(a, s, l);
	return r;
}

/* ---- DESCRIBE, PUBLISH, CLOSE: they name a lease ---- */

static int lease_of(struct session *s, const char *verb, bool has, uint64_t id, struct lease **ret,
		    struct fault *f)
{
	if (!has)
		return request_bad(f, verb, "a lease is missing");
	return catalog_lease(&s->service->catalog, s->process, id, ret, f);
}

static int read_dtype(const Gpushm__Proto__Array *m, struct table_array *ret, struct fault *f)
{
	const Gpushm__Proto__Dtype *t = m->dtype;

	if (!t || !t->has_code || t->code > UINT8_MAX || t->bits > UINT8_MAX ||
	    (t->has_lanes && (t->lanes == 0 || t->lanes > UINT16_MAX)))
		return fault(f, CODE_DTYPE,
			     "DESCRIBE: array \"%.*s\": dtype is missing or out of "
			     "range",
			     (int)m->name.len, text_of(m->name));
	ret->dtype = (struct dtype){ (uint8_t)t->code, (uint8_t)t->bits,
				     t->has_lanes ? (uint16_t)t->lanes : 1, t->itemsize };
	ret->descr = text_of(t->descr);
	ret->descr_len = t->descr.len;
	return 0;
}

static int read_array(const Gpushm__Proto__Array *m, struct table_array *ret, struct fault *f)
{
	/* The name goes into messages before the table has checked it: its length must be right by
	 * then. */
	if (m->name.len > ARRAY_NAME_MAX)
		return fault(f, CODE_NAME, "DESCRIBE: an array's name has %zu bytes, at most %u",
			     m->name.len, ARRAY_NAME_MAX);
	if (m->n_shape > DIMENSIONS_MAX || (m->n_strides && m->n_strides != m->n_shape))
		return fault(
			f, CODE_LAYOUT,
			"DESCRIBE: array \"%.*s\": %zu dimensions and %zu strides; at most %u, "
			"and as many strides or none",
			(int)m->name.len, text_of(m->name), m->n_shape, m->n_strides,
			DIMENSIONS_MAX);
	*ret = (struct table_array){ .name = text_of(m->name),
				     .name_len = m->name.len,
				     .ndim = (uint32_t)m->n_shape,
				     .offset = m->offset,
				     .has_strides = m->n_strides > 0 };
	for (size_t i = 0; i < m->n_shape; i++)
		ret->shape[i] = m->shape[i];
	for (size_t i = 0; i < m->n_strides; i++)
		ret->strides[i] = m->strides[i];
	return read_dtype(m, ret, f);
}

int request_describe(struct session *s, const Gpushm__Proto__Request *q, struct reply *a,
		     struct fault *f)
{
	const Gpushm__Proto__Describe *m = q->describe;
	struct table_array array;
	struct lease *l = NULL;
	int r = lease_of(s, "DESCRIBE", m->has_lease, m->lease, &l, f);
	uint32_t before;

	if (r < 0)
		return r;
	if (l->buffer->state != BUFFER_FILLING)
		return fault(f, CODE_STATE,
			     "DESCRIBE: the buffer is published; arrays are "
			     "described before that");
	before = l->buffer->arrays;
	for (size_t i = 0; i < m->n_arrays && r == 0; i++) {
		r = read_array(m->arrays[i], &array, f);
		if (r == 0)
			r = buffer_describe(l->buffer, &array, f);
	}
	if (r < 0) {
		buffer_forget_arrays(l->buffer, before);
		return r;
	}
	gpushm__proto__reply__init(&a->reply);
	gpushm__proto__describe_reply__init(&a->u.described);
	a->reply.result_case = GPUSHM__PROTO__REPLY__RESULT_DESCRIBED;
	a->reply.described = &a->u.described;
	TELL(&a->u.described, arrays, l->buffer->arrays);
	return 0;
}

int request_publish(struct session *s, const Gpushm__Proto__Request *q, struct reply *a,
		    struct fault *f)
{
	const Gpushm__Proto__Publish *m = q->publish;
	struct lease *l = NULL;
	int r = lease_of(s, "PUBLISH", m->has_lease, m->lease, &l, f);

	if (r < 0)
		return r;
	if (!m->has_state || (m->state != GPUSHM__PROTO__STATE__STATE_SEALED &&
			      m->state != GPUSHM__PROTO__STATE__STATE_SHARED))
		return request_bad(f, "PUBLISH", "state must be sealed or shared");
	r = catalog_publish(&s->service->catalog, l, (enum buffer_state)m->state, f);
	if (r < 0)
		return r;
	gpushm__proto__reply__init(&a->reply);
	gpushm__proto__publish_reply__init(&a->u.published);
	a->reply.result_case = GPUSHM__PROTO__REPLY__RESULT_PUBLISHED;
	a->reply.published = &a->u.published;
	TELL(&a->u.published, digest, l->buffer->digest);
	return 0;
}

int request_close(struct session *s, const Gpushm__Proto__Request *q, struct reply *a,
		  struct fault *f)
{
	struct lease *l = NULL;
	int r = lease_of(s, "CLOSE", q->close->has_lease, q->close->lease, &l, f);

	a->silent = q->close->has_quiet && q->close->quiet;
	if (r < 0)
		return r;
	catalog_close(&s->service->catalog, l);
	reply_done(a);
	return 0;
}
