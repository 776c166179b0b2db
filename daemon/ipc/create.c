/* SPDX-License-Identifier: MIT
 *
 * CREATE, DESCRIBE and PUBLISH: a buffer until its name can be opened. CREATE may have to wait for
 * a driver; its session is busy until then, and nothing is leaked if the client goes first. The
 * client's half is client/lib/buffer/create.c.
 */
#include "daemon/ipc/request.h"

#include "daemon/ipc/service.h"
#include "daemon/util/log.h"
#include "proto/base/clock.h"
#include "proto/base/size.h"
#include "proto/name.h"

#include <stdio.h>

#define SIZE_LIMIT ((uint64_t)INT64_MAX) /* of an off_t: the largest size of a file */

/* Whether an administrator may want to know of it: the others are errors of the client. */
static bool concerns_administrators(enum code code)
{
	return code == CODE_LIMIT || code == CODE_POOL_FULL || code == CODE_TOO_LARGE ||
	       code == CODE_POOL_FAILED || code == CODE_DRIVER || code == CODE_NO_MEMORY ||
	       code == CODE_NO_FDS || code == CODE_ACCESS;
}

static void log_refusal(const struct session *s, const struct fault *f)
{
	static const struct ratelimit_cause causes[CODE_COUNT];
	const struct process *p = s->process;
	struct log_about about = { LOG_ID_REFUSED, LOG_PROCESS(p) };

	if (!concerns_administrators(f->code) ||
	    !ratelimit_pass(&s->service->refusal_lines, &causes[f->code], p->uid,
			    clock_monotonic_ns()))
		return;
	log_write(LOG_NOTICE, &about,
		  "a CREATE of uid %u (process %d, %s) is refused with %s: %s; \"gpushmctl "
		  "status\" counts more of them, the log names the next one in an hour",
		  p->uid, p->pid, p->command, code_name(f->code), f->text);
}

static void on_made(struct buffer *b, int result, const struct fault *f, void *arg)
{
	struct session *s = arg;
	struct reply reply = { 0 };
	struct lease *l = NULL;
	struct fault own = *f;

	s->pending.creating = NULL;
	if (result == 0)
		result = catalog_grant(&s->service->catalog, s->process, b, ACCESS_WRITE, &l, &own);
	if (result == 0) {
		reply_attach(&reply, s, l, false);
	} else {
		log_refusal(s, &own);
		reply_fault(&reply, &own);
	}
	s->on_reply(s, &reply);
}

/* protobuf-c has NULL for absent or empty bytes. memcmp() and memcpy() must not get NULL, not even
 * for a length of 0 (C11, 7.24.1). */
static const char *text_of(ProtobufCBinaryData bytes)
{
	return bytes.len ? (const char *)bytes.data : "";
}

static int read_attrs(const char *request, Gpushm__Proto__Attr *const *attrs, size_t n,
		      struct table_attr ret[ATTRS_MAX], struct fault *f)
{
	if (n > ATTRS_MAX)
		return fault(f, CODE_LIMIT, "%s: %zu attributes, at most %u are kept", request, n,
			     ATTRS_MAX);
	for (size_t i = 0; i < n; i++)
		ret[i] = (struct table_attr){ text_of(attrs[i]->key), attrs[i]->key.len,
					      text_of(attrs[i]->value), attrs[i]->value.len };
	return 0;
}

static int read_spec(struct session *s, const Gpushm__Proto__Create *m, struct buffer_spec *ret,
		     char pool[POOL_NAME_MAX + 1], struct fault *f)
{
	if (!m->has_size_bytes || m->size_bytes == 0)
		return request_bad(f, "CREATE", "size_bytes must be at least 1");
	/* So that sums with it, and its size rounded up, do not overflow. */
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

int request_create(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
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
		r = read_attrs("CREATE", m->attrs, m->n_attrs, attrs, f);
	if (r == 0)
		r = catalog_create(&s->service->catalog, s->process, &spec, &b, &l, f);
	if (r == -EINPROGRESS) {
		b->making->on_made = on_made;
		b->making->arg = s;
		s->pending.creating = b;
	}
	if (r == 0) {
		reply_attach(reply, s, l, false);
	} else if (r != -EINPROGRESS) {
		log_refusal(s, f);
	}
	return r;
}

/* ---- DESCRIBE ---- */

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
	/* Error messages print the name before the table's check has seen it. */
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

static int describe_all(struct buffer *b, const Gpushm__Proto__Describe *m, struct fault *f)
{
	struct table_array array;
	int r = 0;

	for (size_t i = 0; i < m->n_arrays && r == 0; i++) {
		r = read_array(m->arrays[i], &array, f);
		if (r == 0)
			r = buffer_describe(b, &array, f);
	}
	return r;
}

int request_describe(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		     struct fault *f)
{
	const Gpushm__Proto__Describe *m = q->describe;
	struct table_attr attrs[ATTRS_MAX];
	Gpushm__Proto__DescribeReply *done;
	struct lease *l = NULL;
	int r = request_lease(s, "DESCRIBE", m->has_lease, m->lease, &l, f);
	uint32_t before;

	if (r < 0)
		return r;
	if (l->buffer->state != BUFFER_FILLING)
		return fault(f, CODE_STATE,
			     "DESCRIBE: the buffer is published; arrays are "
			     "described before that");
	r = buffer_reserve_arrays(l->buffer, m->n_arrays, f);
	if (r < 0)
		return r;
	before = l->buffer->arrays;
	r = read_attrs("DESCRIBE", m->attrs, m->n_attrs, attrs, f);
	if (r == 0)
		r = describe_all(l->buffer, m, f);
	if (r == 0)
		r = buffer_change_attrs(l->buffer, attrs, m->n_attrs, f);
	if (r < 0) {
		buffer_forget_arrays(l->buffer, before);
		return r;
	}
	done = reply_begin(reply, described, DESCRIBED, describe_reply);
	SET_SOME(done, arrays, l->buffer->arrays);
	return 0;
}

/* ---- PUBLISH ---- */

/* Its memory is for another buffer: as its twin, or in the place of memory that was evicted. */
static int publish_for_another(struct session *s, const Gpushm__Proto__Publish *m,
			       struct lease *fresh, struct fault *f)
{
	struct catalog *c = &s->service->catalog;
	struct lease *l = NULL;
	int r = request_lease(s, "PUBLISH", true, m->has_restores ? m->restores : m->twin_of, &l,
			      f);

	if (r < 0)
		return r;
	if (m->state != GPUSHM__PROTO__STATE__STATE_SEALED || (m->has_twin_of && m->has_restores))
		return request_bad(f, "PUBLISH", "a twin is sealed, and restores nothing");
	return m->has_restores ? catalog_restore(c, fresh, l, f) : catalog_add_twin(c, fresh, l, f);
}

int request_publish(struct session *s, const Gpushm__Proto__Request *q, struct reply *reply,
		    struct fault *f)
{
	const Gpushm__Proto__Publish *m = q->publish;
	Gpushm__Proto__PublishReply *done;
	struct lease *l = NULL;
	char key[KEY_MAX + 1];
	int r = request_lease(s, "PUBLISH", m->has_lease, m->lease, &l, f);

	if (r == 0 && m->has_name)
		r = request_key(s, "PUBLISH", true, m->name, key, f);
	if (r < 0)
		return r;
	if (!m->has_state || (m->state != GPUSHM__PROTO__STATE__STATE_SEALED &&
			      m->state != GPUSHM__PROTO__STATE__STATE_SHARED))
		return request_bad(f, "PUBLISH", "state must be sealed or shared");
	r = m->has_twin_of || m->has_restores
		    ? publish_for_another(s, m, l, f)
		    : catalog_publish(&s->service->catalog, l, (enum buffer_state)m->state,
				      m->has_name ? key : NULL, m->has_replace && m->replace, f);
	if (r < 0)
		return r;
	done = reply_begin(reply, published, PUBLISHED, publish_reply);
	SET_SOME(done, digest, l->buffer->digest);
	SET_SOME(done, not_kept, s->service->kept && !buffer_is_kept(l->buffer));
	return 0;
}
