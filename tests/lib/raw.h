/* SPDX-License-Identifier: MIT
 *
 * A client that does not use the library: it sends any bytes and any fds, and reads replies. It
 * checks of each reply that it brings exactly the fds that it counts. Failures end the Check test.
 */
#pragma once

#include "gpushm.pb-c.h"
#include "proto/code.h"
#include "proto/wire.h"

struct raw {
	int socket;
	struct frame frame;	     /* the last reply, with its fds */
	Gpushm__Proto__Reply *reply; /* unpacked from frame; valid until the next reply */
	int code;		     /* of the last reply: 0, or the code of its error */
	char text[512];		     /* of its error */
};

/* REQUEST(OPEN, Open, open, BYTES(name, "x"), SET(wait_ms, 5)) */
#define MESSAGE(Type, type, ...)                                                       \
	((Gpushm__Proto__##Type){                                                      \
		.base = PROTOBUF_C_MESSAGE_INIT(&gpushm__proto__##type##__descriptor), \
		##__VA_ARGS__ })
#define REQUEST(VERB, Type, type, ...)                                                \
	(&(Gpushm__Proto__Request){                                                   \
		.base = PROTOBUF_C_MESSAGE_INIT(&gpushm__proto__request__descriptor), \
		.verb_case = GPUSHM__PROTO__REQUEST__VERB_##VERB,                     \
		.type = &MESSAGE(Type, type, ##__VA_ARGS__) })
#define SET(field, value) .has_##field = 1, .field = (value)
#define BYTES(field, s) SET(field, ((ProtobufCBinaryData){ strlen(s), (uint8_t *)(s) }))

/* The time in which a reply must come, a minute: then the test fails instead of hanging. */
extern int raw_deadline_ms;

/* Connects; sends nothing. */
void raw_connect(struct raw *r, const char *path);
/* Connects and sends HELLO. */
void raw_greet(struct raw *r, const char *path);
void raw_close(struct raw *r);

/* Sends one datagram; len may be 0. Returns 0 or -errno. */
int raw_send(struct raw *r, const void *data, size_t len);
int raw_send_fds(struct raw *r, const void *data, size_t len, const int *fds, size_t n);
int raw_request(struct raw *r, const Gpushm__Proto__Request *q);
/* Packs into a frame of FRAME_MAX bytes; returns the packed size. */
size_t raw_pack(const Gpushm__Proto__Request *q, unsigned char frame[FRAME_MAX]);

/* Waits for a reply: r->code. Fails the test if the connection has ended. */
int raw_receive(struct raw *r);
/* Sends a request and waits for the reply. */
int raw_call(struct raw *r, const Gpushm__Proto__Request *q);
/* Reads until the daemon has closed the connection; returns how many datagrams came before. */
int raw_await_end(struct raw *r);

/* Requests that many tests need; each must succeed. They return the lease. */
uint64_t raw_create(struct raw *r, const char *name, uint64_t bytes);
void raw_publish(struct raw *r, uint64_t lease, Gpushm__Proto__State state);
uint64_t raw_open(struct raw *r, const char *name);
