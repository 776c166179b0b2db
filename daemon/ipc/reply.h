/* SPDX-License-Identifier: MIT
 *
 * An answer: a reply in the protocol's form, and the fds that go with it. This is where the
 * daemon's nouns become messages; nothing below knows the generated names.
 */
#ifndef GPUSHM_DAEMON_IPC_REPLY_H
#define GPUSHM_DAEMON_IPC_REPLY_H

#include "daemon/ipc/session.h"
#include "gpushm.pb-c.h"

/* Twenty-odd numbers, a name and a pool's name. */
#define REPLY_SMALL 1024u

/* Says a number where it is not 0: who does not find it, reads 0. */
#define TELL(m, field, value) ((m)->has_##field = ((m)->field = (value)) != 0)

struct reply {
	Gpushm__Proto__Reply reply;
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
	} u;
	struct fault fault;	/* what u.error speaks of */
	int fds[FRAME_FDS_MAX]; /* lent by the lease's buffer, or the board's */
	size_t n_fds;
	struct lease *lease; /* made for this answer: it ends if the answer can't be sent */
	uint64_t pool_bit;   /* of the pool whose fd goes along */
	size_t sent;	     /* bytes */
	bool small;	     /* at most REPLY_SMALL bytes, whatever its fields are */
	bool silent;	     /* the client asked for none: it is not sent */
};

/* One that carries nothing yet. Its messages are whose who fills them in. */
static inline void reply_init(struct reply *a)
{
	a->n_fds = a->sent = 0;
	a->silent = a->small = false;
	a->lease = NULL;
	a->pool_bit = 0;
}

/* Encodes and sends it. Never blocks. 0; -EMSGSIZE; or wire_send()'s -errno. */
int reply_send(struct reply *a, int socket);

void reply_fault(struct reply *a, const struct fault *f);
void reply_done(struct reply *a);
void reply_attach(struct reply *a, struct session *s, struct lease *l);

/* Bytes that stay where they are. */
ProtobufCBinaryData reply_bytes(const void *data, size_t len);

/* Memory of the build arena, that lives as long as the answer; NULL where it is used up. */
void *reply_build(struct service *s, size_t bytes);
int reply_no_memory(struct fault *f);

/* These take memory from the service's build arena, which they reset. 0, or -ENOMEM with *f filled
 * in. */
int reply_hello(struct reply *a, struct session *s, bool board, struct fault *f);
int reply_pools(struct reply *a, struct session *s, struct fault *f);
int reply_stat(struct reply *a, struct session *s, struct buffer *b, bool holders, struct fault *f);
int reply_list(struct reply *a, struct session *s, uint64_t after, const char *prefix,
	       size_t prefix_len, bool holders, struct fault *f);
int reply_status(struct reply *a, struct session *s, struct fault *f);

#endif
