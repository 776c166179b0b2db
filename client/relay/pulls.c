/* SPDX-License-Identifier: MIT
 *
 * A pull begins with an announcement: requests carry when it began, and the source names this
 * machine to others. One more thread repeats it, as long as the pull runs and afterwards, since a
 * source forgets machines that it does not hear of, and a pull may get all of its bytes elsewhere.
 */
#include "client/relay/pulls.h"

#include "client/gpushm_private.h"
#include "client/load/pull.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/base/size.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RETRY_MIN_MS 500u
#define RETRY_MAX_MS 30000u
#define ANNOUNCE_S 30u
#define ANNOUNCE_PATIENCE_S 5u

struct pulls;

struct pull {
	const struct pulls *of;
	const struct config_pull *config;
	struct offer *offer;		     /* while it runs; NULL: not offered */
	char announcement[ANNOUNCEMENT_MAX]; /* of this pull; "": none */
	char content[128];		     /* ETag or digest of what is here; "": not known */
	char complaint[sizeof(((struct gpushm_private_error *)0)->text)]; /* the last one */
	uint64_t retry_ms;
};

struct pulls {
	const struct config *config;
	struct offers *offers;
	struct fanout *fanout;
	const char *base;
	struct gpushm_remote_options remote;
	struct pull *pulls;
	size_t n;
};

/* ---- the announcement ---- */

static void set_own(struct pull *p)
{
	struct announcement own;

	if (*p->of->base && offers_may(p->of->offers, p->config->name) &&
	    announcement_format(p->of->base, p->config->name, clock_realtime_ns() / 1000000u,
				p->announcement) == 0 &&
	    announcement_parse(p->announcement, &own) == 0)
		fanout_set_own(p->of->fanout, p->config->name, &own);
	else
		p->announcement[0] = '\0';
}

/* What this relay offers under the name now; "": nothing that others could get. */
static void describe(const struct pull *p, char etag[64], char relay[ANNOUNCEMENT_MAX])
{
	struct offer *o = offers_find(p->of->offers, p->config->name, NULL);
	struct announcement own = { .since = 0 };
	struct offer_facts facts = { .complete = false };

	etag[0] = '\0';
	if (o && offer_know(o) == 0)
		offer_facts(o, &facts);
	if (facts.etag[0] && (facts.complete || fanout_own(p->of->fanout, p->config->name, &own)) &&
	    announcement_format(p->of->base, p->config->name, own.since, relay) == 0)
		memcpy(etag, facts.etag, sizeof(facts.etag));
	offer_release(o);
}

static void *repeat_announcements(void *arg)
{
	const struct pulls *all = arg;
	struct gpushm_remote_options remote = all->remote;
	char etag[64], relay[ANNOUNCEMENT_MAX];

	remote.patience_s = ANNOUNCE_PATIENCE_S;
	for (;;) {
		for (size_t i = 0; i < all->n; i++) {
			describe(&all->pulls[i], etag, relay);
			/* A source that is away is the other thread's to complain about. */
			if (etag[0])
				pull_announce(all->pulls[i].config->source, etag, relay, &remote);
		}
		sleep(ANNOUNCE_S);
	}
	return NULL;
}

/* ---- what the pull says ---- */

static void on_begun(void *user, const struct manifest *m, const char *header,
		     struct gpushm_buffer *b)
{
	struct pull *p = user;

	p->offer = offers_pull_begin(p->of->offers, p->config->name, m, header, b);
}

static void on_block(void *user, uint64_t block)
{
	struct pull *p = user;

	if (p->offer)
		offer_pull_block(p->offer, block);
}

static void on_ended(void *user, int result)
{
	struct pull *p = user;

	if (p->offer)
		offers_pull_end(p->of->offers, p->offer, result);
	p->offer = NULL;
}

/* ---- the thread ---- */

static void keep_content(struct pull *p, struct gpushm_buffer *b)
{
	const void *value;
	size_t size;

	p->content[0] = '\0';
	/* Metadata that are an array count for the digest of a buffer, and not for its file's. */
	if ((gpushm_buffer_attr(b, "gpushm.etag", &value, &size) == 0 ||
	     gpushm_buffer_attr(b, "gpushm.content", &value, &size) == 0) &&
	    size < sizeof(p->content)) {
		memcpy(p->content, value, size);
		p->content[size] = '\0';
	}
}

static void report(const struct pull *p, int result, const struct gpushm_load_report *r)
{
	double s = (double)r->elapsed_ns / 1e9;

	if (result == GPUSHM_LOAD_ATTACHED)
		fprintf(stderr, "gpushm-relay: \"%s\" is here already, as %s has it\n",
			p->config->name, p->config->source);
	else
		fprintf(stderr, "gpushm-relay: pulled \"%s\" from %s: %s in %.1f s\n",
			p->config->name, p->config->source, size_format(r->bytes).text, s);
}

static int pull_now(struct pull *p, struct gpushm *c)
{
	const struct config_pull *config = p->config;
	const struct gpushm_options options = {
		.struct_size = sizeof(options),
		.pool = config->pool,
		.mode = config->mode,
	};
	struct gpushm_load_report done = { 0 };
	const struct gpushm_load_options load = {
		.struct_size = sizeof(load),
		.flags = GPUSHM_LOAD_IF_MISSING | GPUSHM_LOAD_REPLACE,
		.report = &done,
		.remote = &p->of->remote,
	};
	const struct pull_observer observer = { .begun = on_begun,
						.block = on_block,
						.ended = on_ended,
						.user = p,
						.relay = p->announcement[0] ? p->announcement
									    : NULL };
	struct gpushm_buffer *b = NULL;
	int r;

	r = pull_run(c, config->source, config->name, &options, &load, &observer, &b);
	if (r < 0)
		return r;
	report(p, r, &done);
	keep_content(p, b);
	gpushm_close(b);
	return 0;
}

static int pull_once(struct pull *p)
{
	struct gpushm *c = NULL;
	int r = gpushm_connect(p->of->config->socket, &c);

	/* -ENOENT is a source that does not have the buffer yet. */
	if (r < 0)
		return r == -ENOENT ? -ECONNREFUSED : r;
	set_own(p);
	r = pull_now(p, c);
	fanout_set_own(p->of->fanout, p->config->name, NULL);
	gpushm_disconnect(c);
	return r;
}

/* Machines that lost one source must not come back to it at the same moment. */
static void sleep_before_retry(struct pull *p)
{
	uint64_t ms = p->retry_ms / 2 + clock_monotonic_ns() % (p->retry_ms / 2 + 1);
	const struct timespec t = { .tv_sec = (time_t)(ms / 1000),
				    .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&t, NULL);
	p->retry_ms = 2 * p->retry_ms < RETRY_MAX_MS ? 2 * p->retry_ms : RETRY_MAX_MS;
}

/* The same complaint is not repeated. */
static void complain(struct pull *p)
{
	if (strcmp(p->complaint, gpushm_error()) == 0)
		return;
	snprintf(p->complaint, sizeof(p->complaint), "%s", gpushm_error());
	fprintf(stderr, "gpushm-relay: [pull %s]: %s; it is tried again\n", p->config->name,
		p->complaint);
}

/* Until the source has something that is not here. */
static int await_news(struct pull *p)
{
	return gpushm_pull_wait(p->config->source, p->content[0] ? p->content : NULL,
				&p->of->remote, GPUSHM_WAIT_FOREVER, NULL, NULL);
}

static void *run(void *arg)
{
	struct pull *p = arg;
	bool is_there = false; /* the source has just said that it has it */
	int r;

	p->retry_ms = RETRY_MIN_MS;
	for (;;) {
		r = pull_once(p);
		if (r == 0) {
			p->retry_ms = RETRY_MIN_MS;
			p->complaint[0] = '\0';
			if (!p->config->follow)
				return NULL;
		}
		/* A source that does not have it yet is asked when it has. If it has it, what is
		 * missing is something of this machine, such as the pool. */
		if (r == 0 || (r == -ENOENT && !is_there)) {
			r = await_news(p);
			is_there = r == 0;
		} else {
			is_there = false;
		}
		if (r < 0) {
			complain(p);
			sleep_before_retry(p);
		}
	}
}

static int start_thread(void *(*run_it)(void *), void *arg)
{
	pthread_t thread;
	int err = pthread_create(&thread, NULL, run_it, arg);

	if (err)
		return -err;
	pthread_detach(thread);
	return 0;
}

int pulls_start(const struct config *config, struct offers *offers, struct fanout *fanout,
		const char *base)
{
	struct pulls *all = config->n_pulls > 0 ? calloc(1, sizeof(*all)) : NULL;
	int r = 0;

	if (config->n_pulls == 0)
		return 0;
	if (all)
		all->pulls = calloc(config->n_pulls, sizeof(*all->pulls));
	if (!all || !all->pulls)
		return -ENOMEM;
	all->config = config;
	all->offers = offers;
	all->fanout = fanout;
	all->base = base;
	all->n = config->n_pulls;
	all->remote = (struct gpushm_remote_options){ .struct_size = sizeof(all->remote),
						      .ca = config->ca,
						      .cert = config->cert,
						      .key = config->key };
	for (size_t i = 0; i < all->n; i++) {
		all->pulls[i].of = all;
		all->pulls[i].config = &config->pulls[i];
	}
	for (size_t i = 0; r == 0 && i < all->n; i++)
		r = start_thread(run, &all->pulls[i]);
	return r < 0 || !*base ? r : start_thread(repeat_announcements, all);
}
