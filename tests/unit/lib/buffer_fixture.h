/* SPDX-License-Identifier: MIT
 *
 * A buffer of a canned server, which counts the arrays that the library describes.
 */
#pragma once

#include "client/gpushm_array.h"
#include "tests/unit/lib/attach_fixture.h"

#include "proto/code.h"

static struct gpushm_buffer *b;
static uint32_t described; /* the canned server's count; its thread writes it */

static inline void setup_buffer(void)
{
	setup();
	described = 0;
}

static inline void teardown_buffer(void)
{
	teardown();
	ck_assert_ptr_null(b);
}

static inline void closed(void)
{
	ck_assert_msg(gpushm_close(b) >= 0, "%s", gpushm_error());
	b = NULL;
}

static inline void created(const struct gpushm_create_options *o)
{
	connected();
	ck_assert_msg(gpushm_create(c, "a", SIZE, o, &b) == 0, "%s", gpushm_error());
}

static inline void count_arrays(const Gpushm__Proto__Request *request, Gpushm__Proto__Reply *reply)
{
	static Gpushm__Proto__DescribeReply answer;
	static Gpushm__Proto__Done done;

	if (request->verb_case != GPUSHM__PROTO__REQUEST__VERB_DESCRIBE) {
		gpushm__proto__done__init(&done);
		reply->result_case = GPUSHM__PROTO__REPLY__RESULT_DONE;
		reply->done = &done;
		return;
	}
	gpushm__proto__describe_reply__init(&answer);
	described += (uint32_t)request->describe->n_arrays;
	answer.has_arrays = true;
	answer.arrays = described;
	reply->result_case = GPUSHM__PROTO__REPLY__RESULT_DESCRIBED;
	reply->described = &answer;
}

static inline void reply_published(uint64_t digest)
{
	Gpushm__Proto__PublishReply published = GPUSHM__PROTO__PUBLISH_REPLY__INIT;
	Gpushm__Proto__Reply reply = GPUSHM__PROTO__REPLY__INIT;

	published.has_digest = true;
	published.digest = digest;
	reply.result_case = GPUSHM__PROTO__REPLY__RESULT_PUBLISHED;
	reply.published = &published;
	canned_reply(server, &reply, NULL, 0);
}

static const int64_t two[] = { 2 };

static inline struct gpushm_array_spec float_spec(const char *name)
{
	return (struct gpushm_array_spec){ .struct_size = sizeof(struct gpushm_array_spec),
					   .name = name,
					   .dtype = { .code = 2, .bits = 32, .lanes = 1 },
					   .ndim = 1,
					   .shape = two };
}
