/* SPDX-License-Identifier: MIT
 *
 * An event loop of libuv that opens buffers as they are published: open_uv NAME... Nothing blocks:
 * the loop does other work meanwhile, and no thread waits. A call has its connection to itself, so
 * each name has one.
 */
#include "client/gpushm_async.h"

#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

struct opening {
	const char *name;
	struct gpushm *connection;
	struct gpushm_call *call;
	struct gpushm_buffer *buffer;
	uv_poll_t poll;
};

static void on_opened(struct opening *o, int r)
{
	if (r < 0)
		errx(1, "%s: %s", o->name, gpushm_error());
	o->buffer = gpushm_call_buffer(o->call);
	printf("%s: %" PRIu64 " bytes\n", o->name, gpushm_buffer_bytes(o->buffer));
	fflush(stdout);
}

/* libuv forgets the fd before the call closes it. */
static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct opening *o = poll->data;
	int r = gpushm_call_process(o->call);

	if (r == GPUSHM_PENDING)
		return;
	uv_poll_stop(poll);
	uv_close((uv_handle_t *)poll, NULL);
	on_opened(o, r);
	o->call = gpushm_call_free(o->call);
}

static void begin(uv_loop_t *loop, struct opening *o, const char *name)
{
	o->name = name;
	if (gpushm_connect(NULL, &o->connection) < 0 ||
	    gpushm_send_open(o->connection, name, GPUSHM_READ, GPUSHM_WAIT_FOREVER, NULL,
			     &o->call) < 0)
		errx(1, "%s", gpushm_error());
	o->poll.data = o;
	if (uv_poll_init(loop, &o->poll, gpushm_call_fd(o->call)) < 0 ||
	    uv_poll_start(&o->poll, UV_READABLE, on_readable) < 0)
		errx(1, "%s: the loop can't poll", name);
}

int main(int argc, char **argv)
{
	struct opening *all = calloc((size_t)argc, sizeof(*all));
	uv_loop_t *loop = uv_default_loop();

	if (!all || !loop)
		errx(1, "out of memory");
	for (int i = 1; i < argc; i++)
		begin(loop, &all[i], argv[i]);
	printf("waiting\n");
	fflush(stdout);
	uv_run(loop, UV_RUN_DEFAULT);
	for (int i = 1; i < argc; i++) {
		gpushm_close(all[i].buffer);
		gpushm_disconnect(all[i].connection);
	}
	free(all);
	uv_loop_close(loop);
	return 0;
}
