/* SPDX-License-Identifier: MIT
 *
 * A slot of the ring of this process has a slot of the relay's ring of the same number, so that two
 * threads never ask for the same one.
 *
 * A read that was given up may still write into its slot, until its agent is freed. So a session is
 * begun again only when no thread reads, and memory is freed after the agent.
 */
#include "client/models/nixl/nixl_file.h"

#include "client/gpushm_private.h"
#include "client/models/fail.h"
#include "client/models/locks.h"
#include "client/models/nixl/agent.h"
#include "client/models/nixl/grant.h"
#include "client/models/nixl/library.h"
#include "client/models/web/credentials.h"
#include "client/models/web/remote.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/base/thread.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define BUFFERS "/v1/buffers/"
#define PATIENCE_S 60u
#define STEP_MS 100u /* between two questions whether to stop */
#define SPINS 64u    /* polls of a read before it sleeps */
#define NAP_NS 50000
#define AGAIN_MS 100u /* before a session is begun again */

struct nixl_file {
	char *url;  /* owned: of the resource for NIXL */
	char *etag; /* owned */
	uint64_t header, size;
	struct gpushm_remote_options remote; /* its strings are lent */
	uint64_t patience_ms;
	char *memory; /* owned: NIXL_SLOTS of NIXL_SLOT_BYTES */

	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint32_t busy;	      /* a bit for each slot */
	unsigned reading;     /* threads that use the session */
	atomic_bool broken;   /* there is no session, or it is to be ended when nobody reads */
	bool beginning;	      /* one thread begins it again */
	unsigned generation;  /* of the session; 0: there was none yet */
	uint64_t progress_ms; /* when bytes have come */
	uint64_t asked_ms;    /* when a request has named the session */

	/* The session. It changes while no thread reads. */
	struct nixl_agent *agent; /* owned; NULL: there is no session */
	struct grant grant;	  /* owned */
	unsigned slots;
	uint64_t slot_bytes;
};

static struct nixl_memory local_memory(const struct nixl_file *f)
{
	return (struct nixl_memory){ .address = (uintptr_t)f->memory,
				     .bytes = (uint64_t)NIXL_SLOTS * NIXL_SLOT_BYTES };
}

static int canceled(const struct nixl_file *f)
{
	return load_fail(ECANCELED, "%s: the read was stopped", f->url);
}

/* ---- requests ---- */

static struct remote_request post(const struct nixl_file *f, const char *body,
				  struct load_stop stop)
{
	return (struct remote_request){
		.url = f->url,
		.method = "POST",
		.body = body,
		.n_body = strlen(body),
		.max_bytes = GRANT_BYTES_MAX,
		.options = &f->remote,
		.stop = stop,
	};
}

/* -EAGAIN: the server is there and not well (5xx), such as a proxy whose relay restarts; time may
 * cure it. */
static int ask(const struct remote_request *q, struct remote_reply *ret)
{
	int r = remote_request(q, ret);

	return r == -EREMOTEIO && ret->status >= 500 && ret->status != 505 ? -EAGAIN : r;
}

/* The reply does not matter. */
static int request(const struct nixl_file *f, const char *body,
		   const struct gpushm_remote_options *options, struct load_stop stop)
{
	_cleanup_(remote_reply_clear) struct remote_reply reply = { 0 };
	struct remote_request q = post(f, body, stop);

	q.options = options;
	return ask(&q, &reply);
}

static void end_session(struct nixl_file *f)
{
	/* That is not waited for long: the relay ends the session by itself. */
	struct gpushm_remote_options brief = f->remote;
	char body[128];

	if (!f->agent)
		return;
	f->agent = gpushm_private_nixl_free(f->agent);
	brief.patience_s = 1;
	snprintf(body, sizeof(body), "{\"session\":\"%s\",\"end\":true}", f->grant.session);
	request(f, body, &brief, (struct load_stop){ 0 });
	grant_clear(&f->grant);
}

/* ---- a session ---- */

static int check_grant(struct nixl_file *f)
{
	const struct grant *g = &f->grant;
	unsigned slots = g->slots ? g->slots : NIXL_SLOTS;
	uint64_t bytes = g->slots ? g->slot_bytes : NIXL_SLOT_BYTES;

	if (strcmp(g->etag, f->etag) != 0)
		return load_fail(ESTALE, "%s: another file has its name by now", f->url);
	if (g->size != f->size || g->header != f->header)
		return load_fail(EBADMSG, "%s: the relay contradicts itself about the file's size",
				 f->url);
	if (f->generation > 0 && (slots < f->slots || bytes < f->slot_bytes))
		return load_fail(EBADMSG, "%s: the relay's ring has become smaller", f->url);
	if (f->generation == 0) {
		f->slots = slots < NIXL_SLOTS ? slots : NIXL_SLOTS;
		f->slot_bytes = bytes < NIXL_SLOT_BYTES ? bytes : NIXL_SLOT_BYTES;
	}
	return 0;
}

/* Both sides' versions, if they differ: that is the likely reason. */
static int meet(struct nixl_file *f)
{
	const struct nixl_library *l;
	struct gpushm_private_error e;
	int r = nixl_agent_meet(f->agent, f->grant.metadata, f->grant.n_metadata);

	if (r == 0 || nixl_library(&l) < 0 || !strcmp(l->version, f->grant.nixl))
		return r;
	gpushm_private_keep(&e);
	return load_fail(-r, "%s (here it is NIXL %s, there %s)", e.text,
			 l->version[0] ? l->version : "of an unknown version",
			 f->grant.nixl[0] ? f->grant.nixl : "one of an unknown version");
}

/* A later session is begun again by those who read, and needs no patience here. The relay ends one
 * by itself if its grant was lost. */
static int ask_for_grant(struct nixl_file *f, struct load_stop stop)
{
	_cleanup_(remote_reply_clear) struct remote_reply reply = { 0 };
	_cleanup_(free_ptr) char *body = NULL;
	struct remote_request q;
	int r;

	/* An ETag is the relay's text: quotes around hexadecimal digits and the like. */
	if (strlen(f->etag) < 2 || strpbrk(f->etag, "\\\n"))
		return load_fail(EBADMSG, "%s: its ETag can't be sent", f->url);
	r = load_format(&body, "{\"version\":%d,\"etag\":\"\\\"%.*s\\\"\"}", GRANT_VERSION,
			(int)strlen(f->etag) - 2, f->etag + 1);
	if (r < 0)
		return r;
	q = post(f, body, stop);
	q.again = f->generation == 0;
	r = q.again ? remote_request(&q, &reply) : ask(&q, &reply);
	if (r == 0)
		r = grant_parse(f->url, reply.body, reply.n_body, &f->grant);
	return r == -ENOTSUP ? load_fail(ENOSYS, "%s", gpushm_error()) : r;
}

static int begin_session(struct nixl_file *f, struct load_stop stop)
{
	const struct nixl_memory local = local_memory(f);
	int r = gpushm_private_nixl_new(&f->agent);

	if (r == -ENOSYS)
		load_fail(ENOSYS, "this machine can't pull by NIXL: %s", gpushm_error());
	if (r == 0)
		r = ask_for_grant(f, stop);
	if (r == 0)
		r = check_grant(f);
	if (r == 0)
		r = gpushm_private_nixl_register(f->agent, &local);
	if (r == 0)
		r = meet(f);
	if (r == 0)
		return 0;
	private_error_guard();
	if (f->grant.session[0])
		end_session(f);
	f->agent = gpushm_private_nixl_free(f->agent);
	grant_clear(&f->grant);
	return r;
}

/* Called with the lock held, which it gives up meanwhile. */
static int begin_again(struct nixl_file *f, struct load_stop stop)
{
	int r;

	f->beginning = true;
	lock_drop(&f->lock);
	end_session(f);
	if (f->generation > 0)
		nanosleep(&(struct timespec){ .tv_nsec = AGAIN_MS * 1000000L }, NULL);
	r = begin_session(f, stop);
	lock_take(&f->lock, LOCK_NIXL_FILE);
	f->beginning = false;
	f->generation += r == 0;
	f->broken = r < 0;
	f->asked_ms = clock_monotonic_ms();
	pthread_cond_broadcast(&f->changed);
	return r;
}

/* Until leave() the session does not change. *ret: its generation. */
static int enter(struct nixl_file *f, struct load_stop stop, unsigned *ret)
{
	int r = 0;

	lock_guard(&f->lock, LOCK_NIXL_FILE);
	while (r == 0 && (f->broken || f->beginning))
		if (f->beginning || f->reading > 0)
			pthread_cond_wait(&f->changed, &f->lock);
		else
			r = begin_again(f, stop);
	f->reading += r == 0;
	*ret = f->generation;
	return r;
}

/* r: of what was done meanwhile. */
static void leave(struct nixl_file *f, int r, unsigned generation)
{
	lock_guard(&f->lock, LOCK_NIXL_FILE);
	if (r == 0)
		f->progress_ms = clock_monotonic_ms();
	else if (f->generation == generation)
		f->broken = true;
	f->reading--;
	pthread_cond_broadcast(&f->changed);
}

/* ---- slots ---- */

static int take_slot(struct nixl_file *f, struct load_stop stop, unsigned *ret)
{
	uint32_t all = f->slots == 32 ? ~0u : (1u << f->slots) - 1;

	lock_take(&f->lock, LOCK_NIXL_FILE);
	while ((f->busy & all) == all) {
		thread_cond_wait(&f->changed, &f->lock, clock_deadline(STEP_MS));
		if ((f->busy & all) == all && load_stopped(stop)) {
			lock_drop(&f->lock);
			return canceled(f);
		}
	}
	*ret = (unsigned)__builtin_ctz(~f->busy);
	f->busy |= 1u << *ret;
	lock_drop(&f->lock);
	return 0;
}

static void give_slot(struct nixl_file *f, unsigned slot)
{
	lock_guard(&f->lock, LOCK_NIXL_FILE);
	f->busy &= ~(1u << slot);
	pthread_cond_broadcast(&f->changed);
}

/* ---- reads ---- */

static int fill_slot(struct nixl_file *f, unsigned slot, size_t n, uint64_t offset,
		     struct load_stop stop)
{
	char body[256];

	snprintf(body, sizeof(body),
		 "{\"session\":\"%s\",\"fill\":{\"slot\":%u,\"offset\":%" PRIu64 ",\"bytes\":%zu}}",
		 f->grant.session, slot, offset, n);
	return request(f, body, &f->remote, stop);
}

/* A session that is read without a request is named from time to time, by one of the threads. */
static int keep_session(struct nixl_file *f, struct load_stop stop)
{
	uint64_t now = clock_monotonic_ms();
	char body[128];
	bool mine;

	lock_take(&f->lock, LOCK_NIXL_FILE);
	mine = now - f->asked_ms > f->grant.expires_s * 1000ull / 3;
	if (mine)
		f->asked_ms = now;
	lock_drop(&f->lock);
	if (!mine)
		return 0;
	snprintf(body, sizeof(body), "{\"session\":\"%s\"}", f->grant.session);
	return request(f, body, &f->remote, stop);
}

static int await_read(struct nixl_file *f, struct nixl_read *read, struct load_stop stop)
{
	uint64_t begin = clock_monotonic_ms(), asked = begin, now;
	int r;

	for (unsigned i = 0; (r = nixl_read_poll(read)) == 0; i++) {
		if (i < SPINS) {
			sched_yield();
			continue;
		}
		nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
		now = clock_monotonic_ms();
		if (now - asked < STEP_MS)
			continue;
		asked = now;
		if (load_stopped(stop))
			return canceled(f);
		if (f->broken)
			return load_fail(EIO, "%s: the session has ended", f->url);
		if (now - begin > f->patience_ms)
			return load_fail(ETIMEDOUT,
					 "%s: nothing has come by NIXL for %" PRIu64 " s", f->url,
					 f->patience_ms / 1000);
	}
	return r < 0 ? r : 0;
}

/* The parts in the relay's memory. */
static int find_parts(struct nixl_file *f, unsigned slot, size_t n, uint64_t offset,
		      struct load_stop stop, struct nixl_part **ret, size_t *ret_n)
{
	uint64_t local = (uintptr_t)f->memory + (uint64_t)slot * NIXL_SLOT_BYTES;
	int r;

	if (!f->grant.slots) {
		r = keep_session(f, stop);
		return r < 0 ? r : grant_parts(&f->grant, offset, n, local, ret, ret_n);
	}
	r = fill_slot(f, slot, n, offset, stop);
	if (r < 0)
		return r;
	*ret = malloc(sizeof(**ret));
	if (!*ret)
		return load_no_memory();
	**ret = (struct nixl_part){
		.local = local,
		.remote = f->grant.memory.address + slot * f->grant.slot_bytes,
		.bytes = n,
	};
	*ret_n = 1;
	return 0;
}

static int read_slot(struct nixl_file *f, unsigned slot, size_t n, uint64_t offset,
		     struct load_stop stop)
{
	const struct nixl_memory local = local_memory(f);
	_cleanup_(free_ptr) struct nixl_part *parts = NULL;
	struct nixl_read *read;
	size_t n_parts;
	int r = find_parts(f, slot, n, offset, stop, &parts, &n_parts);

	if (r == 0)
		r = nixl_read_begin(f->agent, &local, &f->grant.memory, parts, n_parts, &read);
	if (r < 0)
		return r;
	r = await_read(f, read, stop);
	nixl_read_end(read);
	return r;
}

static int read_once(struct nixl_file *f, unsigned slot, size_t n, uint64_t offset,
		     struct load_stop stop)
{
	unsigned generation;
	int r = enter(f, stop, &generation);

	if (r < 0)
		return r;
	r = read_slot(f, slot, n, offset, stop);
	leave(f, r, generation);
	return r;
}

/* What time may cure: a relay that is away, or restarts and has lost the session (-ENOTSUP). */
static bool may_pass(int r)
{
	return r == -EAGAIN || r == -EIO || r == -ENOTSUP || r == -ENETRESET ||
	       r == -EHOSTUNREACH || r == -ETIMEDOUT || r == -EBUSY;
}

static bool is_patient(struct nixl_file *f)
{
	lock_guard(&f->lock, LOCK_NIXL_FILE);
	return clock_monotonic_ms() - f->progress_ms < f->patience_ms;
}

static int read_again(struct nixl_file *f, unsigned slot, size_t n, uint64_t offset,
		      struct load_stop stop)
{
	int r;

	do
		r = read_once(f, slot, n, offset, stop);
	while (r < 0 && may_pass(r) && is_patient(f) && !load_stopped(stop));
	return r == -EAGAIN ? -EREMOTEIO : r;
}

int nixl_file_read(struct nixl_file *f, void *to, size_t n, uint64_t offset, struct load_stop stop)
{
	unsigned slot = 0;
	int r = take_slot(f, stop, &slot);

	for (size_t done = 0; r == 0 && done < n;) {
		size_t bytes = n - done < f->slot_bytes ? n - done : (size_t)f->slot_bytes;

		r = read_again(f, slot, bytes, offset + done, stop);
		if (r == 0)
			memcpy((char *)to + done, f->memory + (size_t)slot * NIXL_SLOT_BYTES,
			       bytes);
		done += bytes;
	}
	/* After an error something may still be written into it, and the load has failed. */
	if (r == 0)
		give_slot(f, slot);
	return r;
}

/* ---- the file ---- */

static int fill(struct nixl_file *f, const char *url, const char *etag)
{
	const char *at = strstr(url, BUFFERS);

	if (!at)
		return load_fail(EINVAL, "%s is no URL of a relay's buffer", url);
	f->etag = strdup(etag);
	load_format(&f->url, "%.*s/v1/nixl/%s", (int)(at - url), url, at + strlen(BUFFERS));
	f->memory = mmap(NULL, (size_t)NIXL_SLOTS * NIXL_SLOT_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (f->memory == MAP_FAILED)
		f->memory = NULL;
	return f->etag && f->url && f->memory ? 0 : load_no_memory();
}

int nixl_file_open(const char *url, const char *etag, uint64_t header, uint64_t size,
		   const struct gpushm_remote_options *remote, struct load_stop stop,
		   struct nixl_file **ret)
{
	struct nixl_file *f = calloc(1, sizeof(*f));
	unsigned generation;
	int r;

	if (!f)
		return load_no_memory();
	pthread_mutex_init(&f->lock, NULL);
	thread_cond_init(&f->changed);
	f->header = header;
	f->size = size;
	r = credentials_read_options(remote, &f->remote);
	f->patience_ms = (f->remote.patience_s ? f->remote.patience_s : PATIENCE_S) * 1000ull;
	f->progress_ms = clock_monotonic_ms();
	f->broken = true;
	if (r == 0)
		r = fill(f, url, etag);
	if (r == 0)
		r = enter(f, stop, &generation);
	if (r == 0)
		leave(f, 0, generation);
	if (r < 0)
		f = nixl_file_close(f);
	else
		*ret = f;
	return r;
}

struct nixl_file *nixl_file_close(struct nixl_file *f)
{
	if (!f)
		return NULL;
	private_error_guard();
	end_session(f);
	if (f->memory)
		munmap(f->memory, (size_t)NIXL_SLOTS * NIXL_SLOT_BYTES);
	pthread_cond_destroy(&f->changed);
	pthread_mutex_destroy(&f->lock);
	free(f->url);
	free(f->etag);
	free(f);
	return NULL;
}
