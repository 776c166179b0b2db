/* SPDX-License-Identifier: MIT
 *
 * gpushm_describe: arrays added to a buffer that is being filled. Every spec goes through the local
 * builder first, which is the daemon's own check: a wrong one is found before anything is sent.
 * Then they go to the daemon in batches that fit a frame, each of which it takes whole or not at
 * all; where it refuses one, the local table forgets that batch and what stood behind it, and so
 * stays the daemon's twin.
 */
#include "client/base/error.h"
#include "client/base/spec.h"
#include "client/buffer/buffer.h"
#include "proto/base/own.h"

/* A request's own fields, and one array's tag and length (a varint of a number below 2^21). */
#define REQUEST_BYTES 64u
#define ARRAY_BYTES 4u

/* Also bounds what a batch unpacks to: an array costs the daemon at least some 300 bytes. */
#define BATCH_MAX 1024u
_Static_assert(BATCH_MAX * 400u < UNPACK_MAX, "a batch of small arrays unpacks");

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
	dtype->has_code = dtype->has_bits = true;
	dtype->code = spec->dtype.code;
	dtype->bits = spec->dtype.bits;
	dtype->has_lanes = spec->dtype.lanes != 1;
	dtype->lanes = spec->dtype.lanes;
	dtype->has_itemsize = spec->dtype.itemsize != 0;
	dtype->itemsize = spec->dtype.itemsize;
	dtype->has_descr = spec->descr && *spec->descr;
	dtype->descr = connection_bytes(spec->descr ? spec->descr : "");

	gpushm__proto__array__init(array);
	array->has_name = array->has_offset = true;
	array->name = connection_bytes(spec->name ? spec->name : "");
	array->dtype = dtype;
	/* No length is negative: spec_to_table() has seen to it. */
	array->n_shape = (size_t)spec->ndim;
	array->shape = (uint64_t *)spec->shape;
	array->n_strides = spec->strides ? (size_t)spec->ndim : 0;
	array->strides = (int64_t *)spec->strides;
	array->offset = spec->offset;
}

/* Whether the spec found room. */
static bool batch_add(struct batch *batch, const struct gpushm_array_spec *spec)
{
	Gpushm__Proto__Array *array = &batch->arrays[batch->n];
	size_t bytes;

	if (batch->n == BATCH_MAX)
		return false;
	encode(spec, &batch->dtypes[batch->n], array);
	bytes = gpushm__proto__array__get_packed_size(array) + ARRAY_BYTES;
	if (batch->bytes + bytes > FRAME_MAX)
		return false;
	batch->bytes += bytes;
	batch->pointers[batch->n++] = array;
	return true;
}

static int batch_send(struct gpushm_buffer *b, struct batch *batch, uint32_t arrays_before)
{
	Gpushm__Proto__Describe describe = GPUSHM__PROTO__DESCRIBE__INIT;
	Gpushm__Proto__Request request = GPUSHM__PROTO__REQUEST__INIT;
	Gpushm__Proto__Reply *reply;
	int r;

	describe.has_lease = true;
	describe.lease = b->lease;
	describe.n_arrays = batch->n;
	describe.arrays = batch->pointers;
	request.verb_case = GPUSHM__PROTO__REQUEST__VERB_DESCRIBE;
	request.describe = &describe;
	r = connection_call(b->connection, &request, GPUSHM__PROTO__REPLY__RESULT_DESCRIBED,
			    &reply);
	if (r < 0)
		return r;
	if (reply->described->arrays != arrays_before + batch->n) {
		error_set(EPROTO, "buffer \"%s\": the daemon counts %u arrays instead of %zu",
			  b->name, reply->described->arrays, arrays_before + batch->n);
		return connection_violated(b->connection);
	}
	connection_done(b->connection);
	return 0;
}

static int check_all(struct gpushm_buffer *b, const struct gpushm_array_spec *specs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct table_error err;
		struct table_array a;
		int r = spec_to_table(&specs[i], &a);

		if (r < 0)
			return r;
		if (table_builder_add(b->builder, &a, &err) < 0)
			return spec_error(&err, i);
	}
	return 0;
}

/* *known: arrays that the daemon has; counted on with each batch that it took. */
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
		while (next + batch->n < n && batch_add(batch, &specs[next + batch->n]))
			;
		r = batch_send(b, batch, *known);
		if (r < 0)
			return r;
		*known += (uint32_t)batch->n;
		next += batch->n;
	}
	return 0;
}

static int describe(struct gpushm_buffer *b, const struct gpushm_array_spec *specs, size_t n)
{
	uint32_t known;
	int r;

	if (!b->builder)
		return error_set(EBUSY, "buffer \"%s\" is published: its arrays are fixed",
				 b->name);
	known = table_builder_arrays(b->builder);
	r = check_all(b, specs, n);
	if (r == 0)
		r = send_all(b, specs, n, &known);
	if (r < 0)
		table_builder_truncate(b->builder, known);
	return r;
}

int gpushm_describe(struct gpushm_buffer *b, const struct gpushm_array_spec *specs, size_t n)
{
	int r = buffer_check(b);

	if (r < 0)
		return r;
	pthread_mutex_lock(&b->lock);
	r = describe(b, specs, n);
	pthread_mutex_unlock(&b->lock);
	return r;
}
