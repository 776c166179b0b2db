/* SPDX-License-Identifier: MIT
 *
 * A reply: a message of the protocol and the fds that go with it. Only this folder knows the
 * generated names of messages.
 */
#pragma once

#include "gpushm.pb-c.h"
#include "proto/code.h"
#include "proto/limits.h"
#include "proto/message.h"

#include <stdbool.h>

struct lease;
struct service;
struct session;

#define REPLY_SMALL 1024u /* bytes: some twenty numbers, a buffer's name and a pool's name */

struct reply {
	Gpushm__Proto__Reply message;
	union {
		Gpushm__Proto__Error error;
		Gpushm__Proto__HelloReply hello;
		Gpushm__Proto__Attach attach;
		Gpushm__Proto__DescribeReply described;
		Gpushm__Proto__PublishReply published;
		Gpushm__Proto__Done done;
		Gpushm__Proto__Buffer stat;
		Gpushm__Proto__ListReply list;
		Gpushm__Proto__PoolsReply pools;
		Gpushm__Proto__StatusReply status;
		Gpushm__Proto__ReclaimReply reclaimed;
		Gpushm__Proto__WatchReply watched;
		Gpushm__Proto__MetricsReply metrics;
		Gpushm__Proto__EventsReply events;
		Gpushm__Proto__JoinReply joined;
		Gpushm__Proto__PageReply page;
		Gpushm__Proto__StreamsReply streams;
	} u;
	struct fault fault;	/* the text that u.error points to */
	int fds[FRAME_FDS_MAX]; /* borrowed from the lease's buffer or its stream, or the status
				   page's */
	size_t n_fds;
	struct lease *lease; /* made for this reply: it ends if the reply can't be sent */
	uint64_t pool_bit;   /* bit of the pool whose fd is among fds */
	size_t sent;	     /* bytes */
	bool small;	     /* at most REPLY_SMALL bytes, whatever the fields are */
	bool silent;	     /* the client asked for no reply: it is not sent */
};

/* An empty reply. The messages are initialised by reply_begin(). */
static inline void reply_init(struct reply *reply)
{
	reply->n_fds = reply->sent = 0;
	reply->silent = reply->small = false;
	reply->lease = NULL;
	reply->pool_bit = 0;
}

/* Makes `member` the result of the reply and initialises it: reply_begin(reply, stat, STAT, buffer)
 * for a Gpushm__Proto__Buffer. Expands to a pointer to it. */
#define reply_begin(reply, member, CASE, type)                               \
	(gpushm__proto__reply__init(&(reply)->message),                      \
	 gpushm__proto__##type##__init(&(reply)->u.member),                  \
	 (reply)->message.result_case = GPUSHM__PROTO__REPLY__RESULT_##CASE, \
	 (reply)->message.member = &(reply)->u.member)

/* The same for a message with parts in the build arena, which is empty then. */
#define reply_build(s, reply, member, CASE, type) \
	(arena_reset(&(s)->service->build), reply_begin(reply, member, CASE, type))

/* Encodes the reply and sends it; never blocks. 0, -EMSGSIZE, or the -errno of wire_send(). */
int reply_send(struct reply *reply, int socket);

void reply_fault(struct reply *reply, const struct fault *f);
void reply_done(struct reply *reply);
/* reply_done(), unless r is an error. Returns r. */
int reply_result(struct reply *reply, int r);
/* again: the client has the table, and keeps the lease also where the reply cannot be sent. */
void reply_attach(struct reply *reply, struct session *s, struct lease *l, bool again);
/* Whether the reply attaches memory and its process is frozen, whose driver may not import: then
 * the reply is made anew when the process is back. */
bool reply_hold(const struct reply *reply, struct session *s);

/* Bytes that outlive the reply. */
ProtobufCBinaryData reply_bytes(const void *data, size_t len);
ProtobufCBinaryData reply_text(const char *text);

/* Memory of the build arena, which lives as long as the reply; NULL if the arena is full. */
void *reply_alloc(struct service *service, size_t bytes);

/* reply_list(service, m, holders, HOLDERS_MAX): a list for so many messages, empty so far.
 * reply_append(service, m, holders, holder): a Gpushm__Proto__Holder at its end, initialised; NULL,
 * and the list as before, if the arena is full. */
#define reply_list(service, m, list, max) \
	((m)->list = reply_alloc(service, (max) * sizeof(*(m)->list)))
#define reply_append(service, m, list, type)                                                 \
	((m)->list && ((m)->list[(m)->n_##list] =                                            \
			       reply_message(service, &gpushm__proto__##type##__descriptor)) \
		 ? (m)->list[(m)->n_##list++]                                                \
		 : NULL)
void *reply_message(struct service *service, const ProtobufCMessageDescriptor *type);

/* The name of a key, as the session's client says it. 0 or -ENOMEM. */
int reply_name(struct session *s, const char *key, ProtobufCBinaryData *ret);
int reply_no_memory(struct fault *f);
