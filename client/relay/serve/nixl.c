/* SPDX-License-Identifier: MIT
 *
 * Sessions, and the regions of memory that they let be read. An agent of NIXL knows one region: its
 * metadata, which a puller gets, are the keys of all that it knows.
 */
#include "client/relay/serve/nixl.h"

#include "client/gpushm_load_private.h"
#include "client/gpushm_private.h"
#include "client/relay/locks.h"
#include "proto/base/clock.h"
#include "proto/base/list.h"
#include "proto/base/own.h"
#include "proto/base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define IDLE_S 60u /* without a request; then a session ends */
#define SESSIONS_MAX 32u
#define SESSIONS_OF_ADDRESS_MAX 4u
#define SLOTS 16u
#define SLOT_BYTES (2u << 20)
#define RING_BYTES ((size_t)SLOTS * SLOT_BYTES)

/* Memory that NIXL knows. */
struct region {
	struct list link; /* regions */
	unsigned sessions;
	struct offer *offer;	       /* owned */
	const struct mapping *mapping; /* entered: its buffer is read as it is; NULL: ring */
	char *ring;		       /* owned: RING_BYTES */
	struct nixl_agent *agent;      /* owned */
	struct nixl_memory memory;
	void *metadata; /* owned */
	size_t n_metadata;
};

struct session {
	struct list link; /* sessions */
	char id[GRANT_SESSION + 1];
	char address[64]; /* who began it */
	char name[OFFER_NAME_MAX];
	struct region *region;
	uint64_t used_ms;
	unsigned users; /* requests that are filling a slot */
	bool ended;	/* the last of them frees it */
};

/* Regions are made one after the other: two pullers of a buffer share one. */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static struct list sessions = { &sessions, &sessions };
static struct list regions = { &regions, &regions };
static struct list ended = { &ended, &ended }; /* regions without a session */
static unsigned n_sessions;
/* Of the configuration. */
static bool is_on, reads_gpus;

/* ---- regions ---- */

/* It is in no list. */
static struct region *region_free(struct region *r)
{
	gpushm_private_nixl_free(r->agent);
	if (r->ring)
		munmap(r->ring, RING_BYTES);
	if (r->mapping)
		offer_leave(r->offer, r->mapping);
	offer_release(r->offer);
	free(r->metadata);
	free(r);
	return NULL;
}

/* False: its bytes can't be read as they lie there. A GPU is read without a detour only where its
 * user says that network cards can: NIXL over TCP would copy each piece through the processor, far
 * slower than a ring. */
static bool find_memory(const struct mapping *m, struct nixl_memory *ret)
{
	void *device = gpushm_buffer_device_ptr(m->buffer);

	*ret = (struct nixl_memory){
		.gpu = !m->host,
		.device = m->host ? 0 : m->device,
		.address = (uintptr_t)(m->host ? m->host : device),
		.bytes = gpushm_buffer_bytes(m->buffer),
	};
	return m->plain && ret->address && ret->bytes > 0 && (m->host || reads_gpus);
}

static int start(struct region *r)
{
	int result = gpushm_private_nixl_new(&r->agent);

	if (result == 0)
		result = gpushm_private_nixl_register(r->agent, &r->memory);
	if (result == 0)
		result = gpushm_private_nixl_metadata(r->agent, &r->metadata, &r->n_metadata);
	if (result < 0)
		r->agent = gpushm_private_nixl_free(r->agent);
	return result;
}

/* A network card that wants to write what it registers refuses a buffer that is mapped for reading;
 * then there is the ring. */
static bool start_mapped(struct region *r, struct MHD_Connection *reader)
{
	if (offer_enter(r->offer, reader, &r->mapping) < 0) {
		r->mapping = NULL;
		return false;
	}
	if (find_memory(r->mapping, &r->memory) && start(r) == 0)
		return true;
	offer_leave(r->offer, r->mapping);
	r->mapping = NULL;
	return false;
}

static int start_ring(struct region *r)
{
	r->ring =
		mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (r->ring == MAP_FAILED) {
		r->ring = NULL;
		return gpushm_private_fail(ENOMEM, "out of memory for NIXL");
	}
	r->memory = (struct nixl_memory){ .address = (uintptr_t)r->ring, .bytes = RING_BYTES };
	return start(r);
}

/* Takes the reference to the offer. */
static int region_new(struct offer *o, struct MHD_Connection *reader, struct region **ret)
{
	struct region *r = calloc(1, sizeof(*r));
	int result;

	if (!r) {
		offer_release(o);
		return gpushm_private_fail(ENOMEM, "out of memory for NIXL");
	}
	r->offer = o;
	result = start_mapped(r, reader) ? 0 : start_ring(r);
	if (result < 0)
		region_free(r);
	else
		*ret = r;
	return result;
}

/* What NIXL and UCX need of a stack is more than a connection's thread has. */
struct making {
	struct offer *offer;
	struct MHD_Connection *reader;
	struct region *region;
	int result;
	struct gpushm_private_error why;
};

static void *make(void *arg)
{
	struct making *m = arg;

	m->result = region_new(m->offer, m->reader, &m->region);
	gpushm_private_keep(&m->why);
	return NULL;
}

static int make_region(struct offer *o, struct MHD_Connection *reader, struct region **ret)
{
	struct making m = { .offer = offer_ref(o), .reader = reader };
	pthread_t thread;

	if (thread_start(&thread, make, &m) < 0) {
		offer_release(o);
		return gpushm_private_fail(ENOMEM, "no thread for NIXL");
	}
	pthread_join(thread, NULL);
	gpushm_private_put_back(&m.why);
	if (m.result == 0)
		*ret = m.region;
	return m.result;
}

/* ---- sessions ---- */

/* Called with the lock held, as end(). What NIXL has to do for the end of a region takes long, and
 * is another thread's. */
static void unlist(struct session *s)
{
	struct region *r = s->region;

	list_drop(&s->link);
	n_sessions--;
	free(s);
	if (--r->sessions > 0)
		return;
	list_drop(&r->link);
	list_insert(&ended, &r->link);
}

/* A session that a request uses ends with that. */
static void end(struct session *s)
{
	s->ended = true;
	if (s->users == 0)
		unlist(s);
}

static bool has_room(const struct exchange *x)
{
	unsigned of_address = 0;
	struct session *s;

	list_foreach (s, &sessions, link)
		of_address += strcmp(s->address, x->peer->address) == 0;
	return n_sessions < SESSIONS_MAX && of_address < SESSIONS_OF_ADDRESS_MAX;
}

/* The region that other pullers of the buffer read. */
static struct region *find_region(const struct offer *o)
{
	struct region *r;

	list_foreach (r, &regions, link)
		if (r->offer == o && r->mapping)
			return r;
	return NULL;
}

static struct session *session_new(const struct exchange *x)
{
	static const char digits[] = "0123456789abcdef";
	unsigned char random[GRANT_SESSION / 2];
	struct session *s = calloc(1, sizeof(*s));

	if (!s || getrandom(random, sizeof(random), 0) != sizeof(random)) {
		free(s);
		return NULL;
	}
	for (size_t i = 0; i < GRANT_SESSION; i++)
		s->id[i] = digits[random[i / 2] >> (i % 2 ? 0 : 4) & 15];
	snprintf(s->address, sizeof(s->address), "%s", x->peer->address);
	snprintf(s->name, sizeof(s->name), "%s", x->name);
	s->used_ms = clock_monotonic_ms();
	return s;
}

/* Takes the new region, if there is one. The session has a user, so that it stays until the reply
 * is made. */
static void enlist(struct session *s, struct region *shared, struct region *made)
{
	s->region = made ? made : shared;
	s->users = 1;
	if (made)
		list_insert(&regions, &made->link);
	s->region->sessions++;
	list_insert(&sessions, &s->link);
	n_sessions++;
}

/* 0, -EBUSY, or what region_new() says. */
static int begin(const struct exchange *x, struct offer *o, struct session **ret)
{
	struct region *shared, *made = NULL;
	struct session *s = session_new(x);
	int r = s ? 0 : gpushm_private_fail(ENOMEM, "out of memory for NIXL");

	lock_take(&making, LOCK_NIXL_MAKING);
	lock_take(&lock, LOCK_NIXL);
	if (r == 0 && !has_room(x))
		r = gpushm_private_fail(EBUSY,
					"the relay has %u sessions of NIXL, %u of one address at "
					"most; a puller that was killed keeps one for %u s",
					SESSIONS_MAX, SESSIONS_OF_ADDRESS_MAX, IDLE_S);
	shared = r == 0 ? find_region(o) : NULL;
	if (shared)
		enlist(s, shared, NULL);
	lock_drop(&lock);
	if (r == 0 && !shared) {
		r = make_region(o, x->http, &made);
		lock_take(&lock, LOCK_NIXL);
		if (r == 0)
			enlist(s, NULL, made);
		lock_drop(&lock);
	}
	lock_drop(&making);
	if (r < 0)
		free(s);
	else
		*ret = s;
	return r;
}

/* Gets a session for a request. NULL: that buffer has no session of that name. */
static struct session *enter(const struct exchange *x, const char *id)
{
	struct session *s;

	lock_guard(&lock, LOCK_NIXL);
	list_foreach (s, &sessions, link)
		if (!s->ended && strcmp(s->id, id) == 0 && strcmp(s->name, x->name) == 0) {
			s->users++;
			s->used_ms = clock_monotonic_ms();
			return s;
		}
	return NULL;
}

static void leave(struct session *s, bool ends)
{
	lock_guard(&lock, LOCK_NIXL);
	s->users--;
	s->used_ms = clock_monotonic_ms();
	if (ends || s->ended)
		end(s);
}

static void end_unused(void)
{
	struct list done;
	uint64_t now = clock_monotonic_ms();
	struct session *s;
	struct region *r;

	list_init(&done);
	lock_take(&lock, LOCK_NIXL);
	list_foreach (s, &sessions, link)
		if (!s->ended && s->users == 0 && now - s->used_ms > IDLE_S * 1000ull)
			end(s);
	list_move(&ended, &done);
	lock_drop(&lock);
	list_drain (r, &done, link)
		region_free(r);
}

static void *run(void *unused)
{
	for (;; sleep(1))
		end_unused();
	return NULL;
}

void nixl_count(unsigned *ret_sessions, unsigned *ret_regions)
{
	struct region *r;

	*ret_regions = 0;
	lock_guard(&lock, LOCK_NIXL);
	*ret_sessions = n_sessions;
	list_foreach (r, &regions, link)
		*ret_regions += 1;
}

/* ---- requests ---- */

static int copy_pieces(const struct mapping *m, struct grant *g)
{
	g->pieces = calloc(m->n + 1, sizeof(*g->pieces));
	if (!g->pieces)
		return gpushm_private_fail(ENOMEM, "out of memory for NIXL");
	for (size_t i = 0; i < m->n; i++)
		g->pieces[i] = (struct grant_piece){ .begin = m->pieces[i].begin,
						     .bytes = m->pieces[i].bytes,
						     .offset = m->pieces[i].buffer_offset };
	g->n_pieces = m->n;
	return 0;
}

static int format(struct session *s, char **ret)
{
	const struct region *r = s->region;
	struct nixl_found library;
	struct offer_facts facts;
	struct grant g = { .expires_s = IDLE_S,
			   .metadata = r->metadata,
			   .n_metadata = r->n_metadata,
			   .memory = r->memory,
			   .slots = r->mapping ? 0 : SLOTS,
			   .slot_bytes = SLOT_BYTES };
	int result = r->mapping ? copy_pieces(r->mapping, &g) : 0;

	offer_facts(r->offer, &facts);
	strcpy(g.session, s->id);
	g.etag = facts.etag;
	g.size = facts.size;
	g.header = facts.header;
	if (gpushm_private_nixl_find(&library) == 0)
		snprintf(g.nixl, sizeof(g.nixl), "%s", library.version);
	if (result == 0)
		result = gpushm_private_grant_format(&g, ret);
	free(g.pieces);
	return result;
}

static enum MHD_Result failed(const struct exchange *x, int result)
{
	_cleanup_(free_ptr) char *why = strdup(gpushm_error());

	if (result == -ENOSYS)
		return exchange_error(x, MHD_HTTP_NOT_IMPLEMENTED,
				      "the relay's machine can't serve by NIXL: %s",
				      why ? why : "");
	return exchange_failed(x, result);
}

static enum MHD_Result begin_session(const struct exchange *x, struct offer *o,
				     const struct offer_facts *f)
{
	struct session *s = NULL;
	char *text;
	int r = begin(x, o, &s);

	if (r < 0)
		return failed(x, r);
	r = format(s, &text);
	leave(s, r < 0);
	return r < 0 ? failed(x, r)
		     : exchange_send(x, MHD_HTTP_OK,
				     exchange_text("application/json", "no-store", text));
}

/* Reads bytes of the file into a slot; waits for them if the relay itself pulls them. */
static int fill(const struct exchange *x, const struct session *s, const json_t *what)
{
	const struct region *r = s->region;
	struct offer_facts facts;
	json_int_t slot, offset, bytes;

	if (json_unpack((json_t *)what, "{s:I, s:I, s:I}", "slot", &slot, "offset", &offset,
			"bytes", &bytes) < 0)
		return gpushm_private_fail(EINVAL, "\"fill\" has numbers \"slot\", \"offset\" and "
						   "\"bytes\"");
	offer_facts(r->offer, &facts);
	if (!r->ring || slot < 0 || slot >= SLOTS || bytes <= 0 || bytes > SLOT_BYTES ||
	    offset < (json_int_t)facts.header || (uint64_t)offset > facts.size ||
	    (uint64_t)bytes > facts.size - (uint64_t)offset)
		return gpushm_private_fail(EINVAL, "\"fill\": there is no such slot, or there are "
						   "no such bytes of the file's data");
	return offer_read(r->offer, (uint64_t)offset, r->ring + (size_t)slot * SLOT_BYTES,
			  (size_t)bytes, x->http);
}

static enum MHD_Result use_session(const struct exchange *x, const json_t *body, const char *id)
{
	const json_t *what = json_object_get(body, "fill");
	struct session *s = enter(x, id);
	enum MHD_Result ret;
	int r = 0;

	if (!s)
		return exchange_error(x, MHD_HTTP_CONFLICT,
				      "\"%s\": that session of NIXL has ended, or was of another "
				      "relay",
				      x->name);
	if (what)
		r = fill(x, s, what);
	if (r == -EINVAL)
		ret = exchange_error(x, MHD_HTTP_BAD_REQUEST, "%s", gpushm_error());
	else if (r < 0)
		ret = failed(x, r);
	else
		ret = exchange_json(x, MHD_HTTP_OK, json_object());
	leave(s, json_is_true(json_object_get(body, "end")));
	return ret;
}

static enum MHD_Result reply(const struct exchange *x, const json_t *body)
{
	const char *id = json_string_value(json_object_get(body, "session"));
	const char *etag = json_string_value(json_object_get(body, "etag"));
	json_int_t version = json_integer_value(json_object_get(body, "version"));

	if (!id && (!etag || version < 1))
		return exchange_error(x, MHD_HTTP_BAD_REQUEST,
				      "the body is JSON: {\"version\": 1, \"etag\": \"...\"}, or "
				      "{\"session\": \"...\"}");
	if (!id && version != GRANT_VERSION)
		return exchange_error(x, MHD_HTTP_NOT_IMPLEMENTED,
				      "this relay knows version %d of pulls by NIXL, and not %lld",
				      GRANT_VERSION, (long long)version);
	/* A session was allowed when it began; a configuration may change. */
	if (id && allow_read(x->config, x->peer, x->name))
		return use_session(x, body, id);
	return exchange_known(x, etag, begin_session);
}

enum MHD_Result nixl_post(const struct exchange *x)
{
	_cleanup_(json_decrefp) json_t *body = NULL;

	if (!is_on)
		return exchange_error(x, MHD_HTTP_NOT_IMPLEMENTED,
				      "this relay does not serve by NIXL: its configuration needs "
				      "nixl=yes (gpushm-relay(8) says what that means)");
	body = json_loadb(x->body, x->n_body, JSON_REJECT_DUPLICATES, NULL);
	return reply(x, body);
}

void nixl_prepare(const struct config *c)
{
	struct nixl_found l;

	if (!c->nixl)
		return;
	reads_gpus = c->nixl_gpu;
	/* UCX would catch signals, and put hooks into the code of mmap(), for memory that is sent
	 * without being registered: there is none, and systemd's MemoryDenyWriteExecute= refuses
	 * that. */
	setenv("UCX_ERROR_SIGNALS", "", 0);
	setenv("UCX_MEM_MMAP_HOOK_MODE", "none", 0);
	if (gpushm_private_nixl_find(&l) < 0)
		fprintf(stderr, "gpushm-relay: nixl=yes, but %s\n", gpushm_error());
	else
		fprintf(stderr, "gpushm-relay: NIXL %s: %s\n", l.version, l.path);
	is_on = thread_start_detached(run, NULL) == 0;
}
