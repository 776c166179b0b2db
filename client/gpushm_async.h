/* SPDX-License-Identifier: MIT
 *
 * Requests for programs with an event loop: send, wait for an fd, process.
 *
 *	gpushm_send_open(c, "model/weights", GPUSHM_READ, 5000, NULL, &call);
 *	... each time that gpushm_call_fd(call) is readable:
 *	r = gpushm_call_process(call);
 *	if (r != GPUSHM_PENDING) {
 *		b = gpushm_call_buffer(call);
 *		gpushm_call_free(call);
 *	}
 *
 * A call has its connection to itself from its first function to its result, because the daemon
 * takes one request at a time: other requests of the connection return -EBUSY meanwhile, and the
 * library tells the daemon of a close later. So use one or more connections for calls alone. A
 * buffer belongs to the connection of its call.
 *
 * No function here waits for the daemon. Only where the daemon was restarted, one takes some
 * milliseconds now and then: it takes the leases of the connection over to the new daemon. Mapping
 * a buffer may ask the driver.
 */
#ifndef GPUSHM_ASYNC_H
#define GPUSHM_ASYNC_H

#include <gpushm.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct gpushm_call; /* a request, until its result is there */

/* Begin gpushm_open(), gpushm_create() and gpushm_wait(), with the same arguments, of which nothing
 * is used after the return. Errors: what these functions find before they ask the daemon; -EMFILE;
 * -ENOMEM. */
int gpushm_send_open(struct gpushm *c, const char *name, enum gpushm_access access,
		     uint64_t timeout_ms, const struct gpushm_open_options *options,
		     struct gpushm_call **ret);
int gpushm_send_create(struct gpushm *c, const char *name, uint64_t bytes,
		       const struct gpushm_create_options *options, struct gpushm_call **ret);
int gpushm_send_wait(struct gpushm *c, const char *name, uint64_t timeout_ms,
		     struct gpushm_call **ret);

/* An fd for poll() and event loops: it is readable when gpushm_call_process() has something to do,
 * also where a time is over. It does not change. Do not read, write or close it. */
int gpushm_call_fd(const struct gpushm_call *call);

/* Goes on as far as it can without waiting. GPUSHM_PENDING, which is not an error: there is no
 * result yet. Else the result of the function that the call began, also if it is asked again;
 * -EBUSY: another call is under way on this connection. Unlike gpushm_create() and gpushm_open(),
 * it runs no deferred cleanup where there is no space. For one thread at a time. */
int gpushm_call_process(struct gpushm_call *call);
#define GPUSHM_PENDING 1

/* The buffer, which the caller owns from then on. NULL: the call has none, or has returned it. */
struct gpushm_buffer *gpushm_call_buffer(struct gpushm_call *call);

/* Ends the call. A buffer that nobody has taken is closed or discarded. If there is no result yet,
 * the reply is late as after gpushm_set_timeout()'s time: the next request of the connection waits
 * for it, as long as the daemon was to wait. NULL is allowed. Returns NULL. */
struct gpushm_call *gpushm_call_free(struct gpushm_call *call);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
