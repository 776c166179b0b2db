/* SPDX-License-Identifier: MIT
 *
 * A server that sends prepared replies to the library, valid or not: one connection at a time, one
 * thread, one reply for each request, whatever the request is. It keeps the requests so that the
 * test can check them. Failures end the Check test.
 */
#pragma once

#include "gpushm.pb-c.h"

#include <stddef.h>

#define CANNED_MAX 512
#define CANNED_FDS_MAX 4

struct canned;

/* Listens in a folder of its own; serves nobody before canned_serve(). */
struct canned *canned_new(void);
const char *canned_path(const struct canned *s);

/* Adds the next reply; the fds are duplicated. */
void canned_reply(struct canned *s, const Gpushm__Proto__Reply *reply, const int *fds, size_t n);
void canned_raw(struct canned *s, const void *data, size_t len, const int *fds, size_t n);
/* Replies to n requests by a function that fills *reply; its pointers must stay valid. */
typedef void canned_fn(const Gpushm__Proto__Request *request, Gpushm__Proto__Reply *reply);
void canned_respond(struct canned *s, canned_fn *respond, size_t times);

/* Hangs up instead of a reply, and serves the client when it connects again, as the daemon's
 * successor. */
void canned_hang_up(struct canned *s);

/* Replies that many tests need. */
void canned_hello(struct canned *s); /* one host pool, id 1 */
void canned_done(struct canned *s);
void canned_error(struct canned *s, int code, const char *text);

/* Starts to serve. After the last reply the next request finds a closed connection. */
void canned_serve(struct canned *s);

/* Waits until the client has gone, or until all replies are used and one more request came. */
void canned_join(struct canned *s);
/* After canned_join(): the number of requests, and the i-th request, which canned_free() frees. */
size_t canned_requests(const struct canned *s);
const Gpushm__Proto__Request *canned_request(const struct canned *s, size_t i);
size_t canned_request_bytes(const struct canned *s, size_t i);

/* Joins, and closes and removes all. Returns NULL. */
struct canned *canned_free(struct canned *s);
