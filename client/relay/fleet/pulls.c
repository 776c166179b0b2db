/* SPDX-License-Identifier: MIT
 *
 * A pull begins with an announcement: requests carry when it began, and the source names this
 * machine to others. One more thread repeats it, as long as the pull runs and afterwards, since a
 * source forgets machines that it does not hear of, and a pull may get all of its bytes elsewhere.
 *
 * A thread works on its section of one configuration, to which it has a reference. When a reload
 * brings another section of that name, or none, the thread stops what it does, and looks again.
 */
#include "client/relay/fleet/pulls.h"

#include "client/gpushm_load_private.h"
#include "client/gpushm_private.h"
#include "client/relay/fleet/route.h"
#include "client/relay/locks.h"
#include "proto/base/clock.h"
#include "proto/base/list.h"
#include "proto/base/own.h"
#include "proto/base/size.h"
#include "proto/base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RETRY_MIN_MS 500u
#define RETRY_MAX_MS 30000u
#define RETRY_SOON_MS 4000u /* the same for what may be there again at any moment */
#define ANNOUNCE_S 30u
#define ANNOUNCE_PATIENCE_S 5u

struct pull {
	struct list link; /* pulls.list */
	char *name;	  /* owned */

	/* Under the lock; the thread reads them without it. */
	struct config *config; /* owned: a reference; of the section */
	const struct config_pull *section;
	bool runs;		 /* a thread */
	bool done;		 /* the section wants no more */
	atomic_bool stop;	 /* the section is another one now */
	atomic_bool renew;	 /* the certificates are in other files now: a wait begins again */
	struct announcement own; /* while it pulls; url "": none */
	char via[PULL_VIA_MAX];	 /* what its source has said */

	/* The thread's. */
	struct offer *offer;		     /* while it runs; NULL: not offered */
	char announcement[ANNOUNCEMENT_MAX]; /* of this pull; "": none */
	char content[128];		     /* ETag or digest of what is here; "": not known */
	char complaint[sizeof(((struct gpushm_private_error *)0)->text)]; /* the last one */
	uint64_t retry_ms;
	bool is_there; /* the source has just said that it has it */
	bool is_away;  /* while it waits: the source does not reply */
	bool circles;  /* the source gets it from this relay */
};

static struct {
	struct offers *offers;
	const char *base;
	const char *socket;
	pthread_mutex_t lock; /* of all that follows */
	pthread_cond_t changed;
	struct config *config; /* owned: a reference; the last one */
	struct list list;
	bool announces; /* there is the thread for that */
} pulls = { .lock = PTHREAD_MUTEX_INITIALIZER, .list = { &pulls.list, &pulls.list } };

static struct {
	atomic_uint_least64_t failed[PULLS_CAUSES], last_s, away;
} counts;

static struct gpushm_remote_options remote_of(const struct config *c)
{
	return (struct gpushm_remote_options){ .struct_size = sizeof(struct gpushm_remote_options),
					       .ca = c->ca,
					       .cert = c->cert,
					       .key = c->key };
}

/* Under the lock. */
static struct pull *find_pull(const char *name)
{
	struct pull *p;

	list_foreach (p, &pulls.list, link)
		if (strcmp(p->name, name) == 0)
			return p;
	return NULL;
}

/* ---- the announcement ---- */

static void set_own(struct pull *p)
{
	struct announcement own = { .url = "" };

	if (!*pulls.base || !config_offers(p->config, p->name) ||
	    announcement_format(pulls.base, p->name, clock_realtime_ns() / 1000000u,
				p->announcement) < 0 ||
	    announcement_parse(p->announcement, &own) < 0)
		p->announcement[0] = own.url[0] = '\0';
	lock_guard(&pulls.lock, LOCK_PULLS);
	p->own = own;
}

static void drop_own(struct pull *p)
{
	lock_guard(&pulls.lock, LOCK_PULLS);
	p->own.url[0] = '\0';
}

bool pulls_own(const char *name, struct announcement *ret)
{
	const struct pull *p;

	lock_guard(&pulls.lock, LOCK_PULLS);
	p = find_pull(name);
	if (!p || !p->own.url[0])
		return false;
	*ret = p->own;
	return true;
}

/* What this relay offers under the name now; "": nothing that others could get. */
static void describe(const char *name, char etag[64], char relay[ANNOUNCEMENT_MAX])
{
	struct offer *o = offers_find(pulls.offers, name, NULL);
	struct announcement own = { .since = 0 };
	struct offer_facts facts = { .complete = false };

	etag[0] = '\0';
	if (o && offer_know(o, NULL) == 0)
		offer_facts(o, &facts);
	if (facts.etag[0] && (facts.complete || pulls_own(name, &own)) &&
	    announcement_format(pulls.base, name, own.since, relay) == 0)
		memcpy(etag, facts.etag, sizeof(facts.etag));
	offer_release(o);
}

static bool has_same_host(const char *a, const char *b)
{
	const char *scheme = strstr(a, "://"), *at = scheme ? scheme + 3 : a;
	size_t n = (size_t)(at - a) + strcspn(at, "/") + 1;

	return strncmp(a, b, n) == 0;
}

/* A host that says nothing takes some seconds, and others must hear of this machine in time. The
 * names of a source mostly stand together in the configuration: it is asked for the first one. */
static void announce(const struct config *c)
{
	struct gpushm_remote_options remote = remote_of(c);
	char etag[64], relay[ANNOUNCEMENT_MAX];
	const char *silent = NULL;
	int r;

	remote.patience_s = ANNOUNCE_PATIENCE_S;
	for (size_t i = 0; i < c->n_pulls; i++) {
		const struct config_pull *p = &c->pulls[i];

		if (!config_offers(c, p->name) || (silent && has_same_host(silent, p->source)))
			continue;
		describe(p->name, etag, relay);
		/* A source that is away is the other thread's to complain about. */
		r = etag[0] ? gpushm_private_pull_announce(p->source, etag, relay, &remote) : 0;
		if (r == -ETIMEDOUT || r == -EBUSY)
			silent = p->source;
	}
}

static void *repeat_announcements(void *unused)
{
	for (;;) {
		struct config *c = config_current();

		announce(c);
		config_release(c);
		sleep(ANNOUNCE_S);
	}
	return NULL;
}

/* ---- what the pull says ---- */

static void on_begun(void *user, const struct manifest *m, const char *header,
		     struct gpushm_buffer *b)
{
	struct pull *p = user;

	p->offer = offers_pull_begin(pulls.offers, p->name, m, header, b);
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
		offers_pull_end(pulls.offers, p->offer, result);
	p->offer = NULL;
}

static void on_via(void *user, const char *via)
{
	struct pull *p = user;
	bool circles;

	lock_take(&pulls.lock, LOCK_PULLS);
	circles = p->section->follow && route_hear(via, p->via);
	lock_drop(&pulls.lock);
	if (circles && !p->circles)
		fprintf(stderr,
			"gpushm-relay: [pull %s]: a circle: %s itself gets it from this relay, "
			"directly or through others; two buffers of that name would be exchanged "
			"again and again\n",
			p->name, p->section->source);
	p->circles = circles;
}

void pulls_via(const char *name, char ret[PULL_VIA_MAX])
{
	const struct pull *p;

	ret[0] = '\0';
	lock_guard(&pulls.lock, LOCK_PULLS);
	p = find_pull(name);
	if (p && p->section->follow)
		route_append(p->via, ret);
}

/* ---- one pull ---- */

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

static int is_stopped(void *user, const struct gpushm_load_progress *progress)
{
	const struct pull *p = user;

	return p->stop;
}

static void report(const struct pull *p, int result, const struct gpushm_load_report *r)
{
	double s = (double)r->elapsed_ns / 1e9;

	if (result == GPUSHM_LOAD_ATTACHED)
		fprintf(stderr, "gpushm-relay: \"%s\" is here already, as %s has it\n", p->name,
			p->section->source);
	else
		fprintf(stderr, "gpushm-relay: pulled \"%s\" from %s: %s in %.1f s\n", p->name,
			p->section->source, size_format(r->bytes).text, s);
}

static int pull_now(struct pull *p, struct gpushm *c)
{
	const struct config_pull *section = p->section;
	const struct gpushm_remote_options remote = remote_of(p->config);
	const struct gpushm_create_options options = {
		.struct_size = sizeof(options),
		.pool = section->pool,
		.mode = section->mode,
	};
	struct gpushm_load_report done = { .struct_size = sizeof(done) };
	const struct gpushm_load_options load = {
		.struct_size = sizeof(load),
		.flags = GPUSHM_LOAD_IF_MISSING | GPUSHM_LOAD_REPLACE,
		.progress = is_stopped,
		.user = p,
		.report = &done,
		.remote = &remote,
	};
	const struct pull_observer observer = { .begun = on_begun,
						.block = on_block,
						.ended = on_ended,
						.via = on_via,
						.user = p,
						.relay = p->announcement[0] ? p->announcement
									    : NULL };
	struct gpushm_buffer *b = NULL;
	int r;

	r = gpushm_private_pull(c, section->source, p->name, &options, &load, &observer, &b);
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
	int r;

	lock_assert_none_from(LOCKS_RELAY);
	r = gpushm_connect(pulls.socket, &c);

	/* -ENOENT is a source that does not have the buffer yet. */
	if (r < 0)
		return r == -ENOENT ? -ECONNREFUSED : r;
	set_own(p);
	r = pull_now(p, c);
	drop_own(p);
	gpushm_disconnect(c);
	return r;
}

/* The same complaint is not repeated. */
static void complain(struct pull *p)
{
	if (strcmp(p->complaint, gpushm_error()) == 0)
		return;
	snprintf(p->complaint, sizeof(p->complaint), "%s", gpushm_error());
	fprintf(stderr, "gpushm-relay: [pull %s]: %s; it is tried again\n", p->name, p->complaint);
}

static bool is_woken(const struct pull *p)
{
	return p->stop || p->renew;
}

/* A wait may last for ever: this tells meanwhile what is wrong with the source. */
static int watch_source(void *user, const struct gpushm_load_progress *progress)
{
	struct pull *p = user;
	bool is_away = !progress->file;

	if (is_away && !p->is_away) {
		complain(p);
		counts.failed[PULLS_SOURCE]++;
		counts.away++;
	} else if (!is_away && p->is_away) {
		p->complaint[0] = '\0';
		counts.away--;
	}
	p->is_away = is_away;
	return is_woken(p);
}

/* Until the source has something that is not here. */
static int await_news(struct pull *p)
{
	const struct gpushm_remote_options remote = remote_of(p->config);
	const struct pull_observer observer = { .via = on_via, .user = p };
	int r = gpushm_private_pull_wait(p->section->source, p->content[0] ? p->content : NULL,
					 &remote, GPUSHM_WAIT_FOREVER, watch_source, p, &observer);

	if (p->is_away)
		counts.away--;
	p->is_away = false;
	return r;
}

static enum pulls_cause cause_of(int result)
{
	static const struct {
		int error;
		enum pulls_cause cause;
	} table[] = { { ECONNREFUSED, PULLS_DAEMON }, { ECONNRESET, PULLS_DAEMON },
		      { ENOMEM, PULLS_MEMORY },	      { ENOSPC, PULLS_MEMORY },
		      { EDQUOT, PULLS_MEMORY },	      { ENOENT, PULLS_MISSING },
		      { ETIMEDOUT, PULLS_SOURCE },    { EHOSTUNREACH, PULLS_SOURCE },
		      { EREMOTEIO, PULLS_SOURCE },    { ENETRESET, PULLS_SOURCE },
		      { EBUSY, PULLS_SOURCE },	      { ESTALE, PULLS_SOURCE },
		      { EACCES, PULLS_REFUSED },      { EBADMSG, PULLS_DAMAGED } };

	for (size_t i = 0; i < array_size(table); i++)
		if (result == -table[i].error)
			return table[i].cause;
	return PULLS_OTHER;
}

/* A source that does not have the buffer is no failure, as long as nobody says that it has it. */
static void count(const struct pull *p, int result)
{
	if (result == 0)
		counts.last_s = clock_realtime_ns() / 1000000000u;
	else if (!p->stop && (result != -ENOENT || p->is_there))
		counts.failed[cause_of(result)]++;
}

void pulls_count(struct pulls_counts *ret)
{
	for (int i = 0; i < PULLS_CAUSES; i++)
		ret->failed[i] = counts.failed[i];
	ret->last_s = counts.last_s;
	ret->away = counts.away;
}

/* Machines that lost one source must not come back to it at the same moment. */
static void sleep_before_retry(struct pull *p, enum pulls_cause cause)
{
	bool soon = cause == PULLS_SOURCE || cause == PULLS_DAEMON;
	uint64_t max = soon ? RETRY_SOON_MS : RETRY_MAX_MS;
	uint64_t pause = p->retry_ms < max ? p->retry_ms : max;
	uint64_t ms = pause / 2 + clock_monotonic_ns() % (pause / 2 + 1);
	uint64_t until = clock_monotonic_ns() + ms * 1000000u;
	bool in_time = true;

	lock_guard(&pulls.lock, LOCK_PULLS);
	while (!is_woken(p) && in_time)
		in_time = thread_cond_wait(&pulls.changed, &pulls.lock, until);
	p->retry_ms = 2 * pause < max ? 2 * pause : max;
}

/* A pull, and the wait for a reason to pull again. */
static void work(struct pull *p)
{
	int r = pull_once(p);

	count(p, r);
	if (r == 0) {
		p->retry_ms = RETRY_MIN_MS;
		p->complaint[0] = '\0';
		p->done = !p->section->follow;
	}
	if (p->done || p->stop)
		return;
	/* A source that does not have it yet is asked when it has. If it has it, what is missing is
	 * something of this machine, such as the pool. */
	if (r == 0 || (r == -ENOENT && !p->is_there)) {
		r = await_news(p);
		p->is_there = r == 0;
	} else {
		p->is_there = false;
	}
	if (r < 0 && !is_woken(p)) {
		complain(p);
		sleep_before_retry(p, cause_of(r));
	}
}

/* ---- sections and threads ---- */

static const struct config_pull *find_section(const struct config *c, const char *name)
{
	for (size_t i = 0; i < c->n_pulls; i++)
		if (strcmp(c->pulls[i].name, name) == 0)
			return &c->pulls[i];
	return NULL;
}

static bool is_same_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool is_same(const struct config_pull *a, const struct config_pull *b)
{
	return strcmp(a->source, b->source) == 0 && is_same_text(a->pool, b->pool) &&
	       a->mode == b->mode && a->follow == b->follow;
}

static bool has_same_files(const struct config *a, const struct config *b)
{
	return is_same_text(a->ca, b->ca) && is_same_text(a->cert, b->cert) &&
	       is_same_text(a->key, b->key);
}

/* Under the lock. It has no thread. */
static void free_pull(struct pull *p)
{
	list_drop(&p->link);
	config_release(p->config);
	free(p->name);
	free(p);
}

/* Under the lock: gives the pull the section of the last configuration, which has one. */
static void take_section(struct pull *p)
{
	const struct config_pull *section = find_section(pulls.config, p->name);

	if (!p->section || !is_same(p->section, section)) {
		p->content[0] = p->complaint[0] = p->via[0] = '\0';
		p->retry_ms = RETRY_MIN_MS;
		p->is_there = p->done = p->circles = false;
	}
	config_release(p->config);
	p->config = config_ref(pulls.config);
	p->section = section;
	p->stop = p->renew = false;
}

/* False: there is nothing more to do, and the pull is another thread's or gone. */
static bool has_work(struct pull *p)
{
	lock_guard(&pulls.lock, LOCK_PULLS);
	if (!find_section(pulls.config, p->name)) {
		free_pull(p);
		return false;
	}
	take_section(p);
	p->runs = !p->done;
	return p->runs;
}

static void *run(void *arg)
{
	while (has_work(arg))
		work(arg);
	return NULL;
}

/* Under the lock: a section that has no pull yet, or one that has come to its end. */
static int begin(const char *name)
{
	struct pull *p = find_pull(name);
	int r;

	if (p && p->runs)
		return 0;
	if (!p) {
		p = calloc(1, sizeof(*p));
		if (!p)
			return -ENOMEM;
		list_insert(&pulls.list, &p->link);
		p->name = strdup(name);
		if (!p->name)
			return free_pull(p), -ENOMEM;
	}
	take_section(p);
	if (p->done)
		return 0;
	p->runs = true;
	r = thread_start_detached(run, p);
	if (r < 0)
		free_pull(p);
	return r;
}

/* Under the lock: ends what the last configuration does not want any more. */
static void end_others(void)
{
	struct pull *p;

	list_foreach (p, &pulls.list, link) {
		const struct config_pull *section = find_section(pulls.config, p->name);

		if (!section && !p->runs)
			free_pull(p);
		else if (p->runs && (!section || !is_same(p->section, section)))
			p->stop = true;
		else if (!has_same_files(p->config, pulls.config))
			p->renew = true;
	}
	pthread_cond_broadcast(&pulls.changed);
}

int pulls_use(struct config *config)
{
	int r = 0;

	lock_guard(&pulls.lock, LOCK_PULLS);
	config_release(pulls.config);
	pulls.config = config_ref(config);
	end_others();
	for (size_t i = 0; r == 0 && i < config->n_pulls; i++)
		r = begin(config->pulls[i].name);
	if (r == 0 && config->n_pulls > 0 && *pulls.base && !pulls.announces) {
		r = thread_start_detached(repeat_announcements, NULL);
		pulls.announces = r == 0;
	}
	return r;
}

int pulls_start(struct config *config, struct offers *offers, const char *base)
{
	pulls.offers = offers;
	pulls.base = base;
	pulls.socket = config->socket;
	thread_cond_init(&pulls.changed);
	return pulls_use(config);
}
