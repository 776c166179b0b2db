/* SPDX-License-Identifier: MIT
 *
 * Each scrape draws a number. The thread asks the daemon once for all numbers that were drawn
 * before it began, so a scrape never gets an answer from before it came.
 */
#include "client/ctl/exporter/exporter.h"

#include "client/ctl/snapshot.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct collector {
	const char *socket; /* borrowed */
	unsigned by;
	struct gpushm *connection; /* the thread's */
	bool was_up, was_asked;	   /* the thread's; for the log */

	pthread_mutex_t lock;	/* of all below */
	pthread_cond_t changed; /* wanted or done */
	uint64_t wanted, done;	/* the last number that was drawn, and that has its snapshot */
	uint64_t since_ns;	/* CLOCK_MONOTONIC: when the thread began to ask; 0: it does not */
	struct snapshot snapshot;
};

/* One line for each change. */
static void say(struct collector *c, bool up, const char *why)
{
	if (!c->was_asked || c->was_up != up)
		fprintf(stderr, "gpushm-exporter: %s%s\n",
			up ? "the daemon replies" : "the daemon does not reply: ", up ? "" : why);
	c->was_asked = true;
	c->was_up = up;
}

static struct snapshot ask(struct collector *c)
{
	struct snapshot s = { 0 };
	int r = c->connection ? 0 : gpushm_connect(c->socket, &c->connection);

	if (r == 0)
		r = snapshot_read(c->connection, c->by, &s);
	say(c, r == 0, gpushm_error());
	if (r < 0)
		c->connection = gpushm_disconnect(c->connection);
	return s;
}

static void *run(void *arg)
{
	struct collector *c = arg;

	pthread_mutex_lock(&c->lock);
	for (;;) {
		uint64_t number;
		struct snapshot fresh;

		while (c->done == c->wanted)
			pthread_cond_wait(&c->changed, &c->lock);
		number = c->wanted;
		c->since_ns = clock_monotonic_ns();
		pthread_mutex_unlock(&c->lock);
		fresh = ask(c);
		pthread_mutex_lock(&c->lock);
		snapshot_done(&c->snapshot);
		c->snapshot = fresh;
		c->since_ns = 0;
		c->done = number;
		pthread_cond_broadcast(&c->changed);
	}
	return NULL;
}

int collector_start(const char *socket, unsigned by, struct collector **ret)
{
	_cleanup_(free_ptr) struct collector *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->socket = socket;
	c->by = by;
	pthread_mutex_init(&c->lock, NULL);
	thread_cond_init(&c->changed);
	r = thread_start_detached(run, c);
	if (r < 0)
		return r;
	*ret = take_ptr(c);
	return 0;
}

/* Whether the thread is so late that it is of no use to wait for it. */
static bool is_stuck(const struct collector *c)
{
	return c->since_ns && clock_monotonic_ns() - c->since_ns > COLLECTOR_MS * 1000000ull;
}

/* Whether the snapshot is from after the call. */
static bool await(struct collector *c)
{
	uint64_t until = clock_monotonic_ns() + COLLECTOR_MS * 1000000ull;
	uint64_t number = ++c->wanted;
	bool in_time = true;

	pthread_cond_broadcast(&c->changed);
	while (c->done < number && in_time && !is_stuck(c))
		in_time = thread_cond_wait(&c->changed, &c->lock, until);
	return c->done >= number;
}

char *collector_text(struct collector *c, enum exposition_format format, size_t *ret_len)
{
	static const struct snapshot down;
	char *text = NULL;
	FILE *out = open_memstream(&text, ret_len);
	struct exposition e = { .out = out, .format = format };
	bool failed;

	if (!out)
		return NULL;
	pthread_mutex_lock(&c->lock);
	snapshot_write(await(c) ? &c->snapshot : &down, &e, c->by);
	pthread_mutex_unlock(&c->lock);
	failed = ferror(out);
	if (fclose(out) == 0 && !failed)
		return text;
	free(text);
	return NULL;
}
