/* SPDX-License-Identifier: MIT
 *
 * gpushm_load(): headers are checked first, then memory is taken, filled, and published. A buffer
 * that is to replace another one is filled under a private name. Whatever fails, what was created
 * is discarded; if this process dies, the daemon does that.
 */
#include "client/models/load.h"

#include "client/gpushm_memory.h"
#include "client/gpushm_private.h"
#include "client/gpushm_query.h"
#include "client/models/checksum.h"
#include "client/models/copy/blocks.h"
#include "client/models/copy/engine.h"
#include "client/models/fail.h"
#include "client/models/files/checkpoint.h"
#include "client/models/files/model.h"
#include "client/models/match.h"
#include "client/models/pulled.h"
#include "client/models/web/remote.h"
#include "proto/base/clock.h"
#include "proto/base/own.h"
#include "proto/base/sized.h"
#include "proto/limits.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define FLAGS                                                                                  \
	(GPUSHM_LOAD_IF_MISSING | GPUSHM_LOAD_REPLACE | GPUSHM_LOAD_VERIFY |                   \
	 GPUSHM_LOAD_DROP_CACHE | GPUSHM_LOAD_CACHED | GPUSHM_LOAD_DIRECT | GPUSHM_LOAD_NIXL | \
	 GPUSHM_LOAD_KEEP)
#define LOOK_AGAIN_MS 100u
#define TURN_MS 1	   /* for other threads that have the connection */
#define SPACE_TURN_MS 500u /* a turn loses its place in the queue for space */
#define CREATES_MAX 16	   /* daemons that may die of one create */

struct loading {
	struct gpushm *c;
	const char *name;
	const struct gpushm_create_options *options; /* as the caller has it */
	struct gpushm_create_options known;	     /* what we know of it */
	struct gpushm_open_options opening;	     /* as known has it */
	struct gpushm_load_options load;
	struct pulled *pulled; /* NULL: these are files of the user */
	struct checkpoint cp;
	struct model m;
	struct engine *engine;
	struct checksums *checksums;
	struct gpushm_buffer *b;
	bool created;	   /* b is ours to fill, and not published yet */
	bool under_other;  /* it has another name until it is published */
	uint64_t deadline; /* clock_deadline() */
	struct engine_result result;
	char types[MODEL_TYPES_MAX]; /* the attribute "gpushm.types" */
	char path[1024];	     /* "gpushm.path"; "": the buffer has no path */
	struct gpushm_attr *attrs;   /* owned: others that a pull brings */
	size_t n_attrs;
};

/* ---- options ---- */

int load_read_options(const struct gpushm_load_options *from, struct gpushm_load_options *ret)
{
	struct gpushm_load_options o;
	int r = load_read_struct("load options", from, &o, sizeof(o));

	if (r == 0)
		r = load_check_report(o.report);
	if (r < 0)
		return r;
	if (o.flags & ~FLAGS)
		return load_fail(EINVAL, "load options: unknown flags %#x", o.flags & ~FLAGS);
	if ((o.flags & GPUSHM_LOAD_CACHED) && (o.flags & GPUSHM_LOAD_DIRECT))
		return load_fail(EINVAL,
				 "load options: files are read through the page cache or past it, "
				 "not both");
	if (o.n_only > 0 && !o.only)
		return load_fail(EINVAL, "load options: %zu patterns and no array", o.n_only);
	for (size_t i = 0; i < o.n_only; i++)
		if (!o.only[i])
			return load_fail(EINVAL, "load options: pattern %zu is NULL", i);
	/* The checksums read the same pages. */
	if (o.sha256 && !(o.flags & GPUSHM_LOAD_DIRECT))
		o.flags |= GPUSHM_LOAD_CACHED;
	*ret = o;
	return 0;
}

/* ---- creating ---- */

/* Progress can stop a wait, too: for another process, for space, or for a stream. */
static int report_wait(const struct loading *l)
{
	bool copied = l->result.content[0] != '\0';
	const struct gpushm_load_progress p = { .struct_size = sizeof(p),
						.done = copied ? l->m.plan.bytes : 0,
						.total = l->m.plan.bytes,
						.elapsed_ns = l->result.elapsed_ns };

	if (l->load.progress && l->load.progress(l->load.user, &p) != 0)
		return load_fail(ECANCELED, "the load was stopped");
	return 0;
}

/* A wait of the daemon for space, in turns, so that progress can stop it. */
struct turn {
	struct gpushm_create_options options;
	const struct gpushm_create_options *use; /* the options of this turn */
	uint64_t left;				 /* ms after it */
};

static void set_turn(struct turn *t, uint64_t left)
{
	t->options.wait_ms = left < SPACE_TURN_MS ? left : SPACE_TURN_MS;
	t->left = left == GPUSHM_WAIT_FOREVER ? left : left - t->options.wait_ms;
}

static void first_turn(const struct loading *l, struct turn *t)
{
	*t = (struct turn){ .options = l->known, .use = l->options };
	if (!l->load.progress || !l->options)
		return;
	t->options.struct_size = sizeof(t->options);
	t->use = &t->options;
	set_turn(t, l->known.wait_ms);
}

/* After a turn that found no space: 0 for another one, else the error r or that of progress. */
static int next_turn(const struct loading *l, struct turn *t, int r)
{
	if (t->left == 0)
		return r;
	r = report_wait(l);
	set_turn(t, t->left);
	return r;
}

static size_t count_attrs(const struct gpushm_attr *attrs, size_t n)
{
	size_t bytes = 0;

	for (size_t i = 0; i < n; i++) {
		const struct gpushm_attr *a = sized_at(attrs, i);

		bytes += a->size + (a->key ? strlen(a->key) : 0);
	}
	return bytes;
}

/* What the attributes take at the end, so that a load does not fail for want of space then. */
static int check_attrs(struct loading *l)
{
	size_t bytes = strlen("gpushm.source") + 64 + strlen("gpushm.files") + 64 +
		       strlen("gpushm.content") + sizeof(l->result.content);

	if (l->types[0])
		bytes += strlen("gpushm.types") + strlen(l->types);
	if (l->m.metadata && !l->m.has_metadata_array)
		bytes += strlen("gpushm.metadata") + l->m.metadata_len;
	bytes += count_attrs(l->known.attrs, l->known.attrs ? l->known.n_attrs : 0) +
		 count_attrs(l->attrs, l->n_attrs);
	if (bytes + strlen("gpushm.path") + strlen(l->path) > ATTR_BYTES_MAX)
		l->path[0] = '\0';
	if (bytes > ATTR_BYTES_MAX)
		return load_fail(EDQUOT,
				 "the attributes take %zu bytes with those that a load adds; a "
				 "buffer has at most %u",
				 bytes, ATTR_BYTES_MAX);
	return 0;
}

/* *ret_again: the buffer was lost with its daemon, before anything was read into it. */
static int describe(struct loading *l, bool *ret_again)
{
	int r = gpushm_describe(l->b, l->m.specs, l->m.n);

	*ret_again = r == -ECONNRESET && gpushm_buffer_lost(l->b) == 1;
	l->created = !*ret_again;
	if (l->created)
		return r;
	private_error_guard();
	gpushm_discard(l->b);
	l->b = NULL;
	return r;
}

/* The load's own slots are a buffer of a pinned pool, which counts for the user, too: they may have
 * what is left to the user. The engine is made again later. False: there was none. */
static bool give_slots_back(struct loading *l)
{
	bool had = l->engine;

	l->engine = engine_free(l->engine);
	return had;
}

static int create_as(struct loading *l, const char *name)
{
	struct turn t;
	int tries = 0, r;
	bool again;

	do {
		again = false;
		first_turn(l, &t);
		do
			r = gpushm_create(l->c, name, l->m.bytes, t.use, &l->b);
		while ((r == -EDQUOT && give_slots_back(l)) ||
		       (r == -ENOSPC && (r = next_turn(l, &t, r)) == 0));
		if (r == 0)
			r = describe(l, &again);
	} while (again && ++tries < CREATES_MAX);
	return r;
}

/* A private name, under which nobody looks for a model. */
static int create_to_replace(struct loading *l)
{
	uint64_t number = clock_monotonic_ns();
	char name[64];

	if (getrandom(&number, sizeof(number), GRND_NONBLOCK) < 0)
		number ^= (uint64_t)getpid() << 32;
	snprintf(name, sizeof(name), "~/loading-%016llx", (unsigned long long)number);
	l->under_other = true;
	return create_as(l, name);
}

/* ---- if missing ---- */

static uint64_t left_ms(const struct loading *l)
{
	uint64_t left = clock_left_ms(l->deadline);

	return left > 0 ? left : 1;
}

/* Compares the open buffer; closes it unless it is the same. */
static int compare(struct loading *l)
{
	const struct match match = { l->c, &l->cp, &l->m, &l->known, &l->load, l->pulled };
	int r = match_buffer(&match, l->b);

	if (r == MATCH_SAME)
		return r;
	private_error_guard();
	gpushm_close(l->b);
	l->b = NULL;
	return r;
}

/* What another process has replaced meanwhile; MATCH_OTHER also if the name is free. -EAGAIN: it is
 * filled now. */
static int compare_again(struct loading *l)
{
	struct gpushm_buffer *ours = l->b;
	int r;

	l->b = NULL;
	r = gpushm_open(l->c, l->name, GPUSHM_READ, 0, &l->opening, &l->b);
	r = r == 0 ? compare(l) : r == -ENOENT ? MATCH_OTHER : r;
	if (r != MATCH_SAME && r != -EAGAIN) {
		l->b = ours;
		return r;
	}
	/* -EAGAIN: another process has created a buffer of that name meanwhile, and fills it. */
	l->created = l->under_other = false;
	gpushm_discard(ours);
	return r;
}

/* Of several processes of one user that want to replace the buffer by the same files one loads:
 * they take the same private name. -EAGAIN: another process has it. */
static int create_to_replace_once(struct loading *l)
{
	struct sha256_ctx hash;
	uint8_t digest[16];
	char name[64] = "~/loading-";
	int r;

	sha256_init(&hash);
	sha256_update(&hash, strlen(l->name), (const uint8_t *)l->name);
	sha256_update(&hash, sizeof(l->m.source), (const uint8_t *)l->m.source);
	sha256_update(&hash, sizeof(l->m.files), (const uint8_t *)l->m.files);
	/* Two generations of a name have the same header. */
	if (l->pulled)
		sha256_update(&hash, strlen(l->pulled->m->etag),
			      (const uint8_t *)l->pulled->m->etag);
	sha256_digest(&hash, sizeof(digest), digest);
	for (size_t i = 0; i < sizeof(digest); i++)
		sprintf(name + strlen("~/loading-") + 2 * i, "%02x", digest[i]);
	l->under_other = true;
	r = create_as(l, name);
	if (r == -EEXIST && !l->created) {
		l->under_other = false;
		return -EAGAIN;
	}
	return r < 0 ? r : compare_again(l);
}

static void free_watch(struct gpushm_watch **w)
{
	*w = gpushm_watch_free(*w);
}

/* Waits until the name means another buffer, or for a while: who loads may have died. */
static int wait_for_loader(struct loading *l)
{
	_cleanup_(free_watch) struct gpushm_watch *w = NULL;
	struct gpushm_event event = { .struct_size = sizeof(event) };
	uint64_t left = clock_left_ms(l->deadline);
	int r;

	if (left == 0)
		return load_fail(
			ETIMEDOUT,
			"buffer \"%s\": another process loads it to replace the one there is",
			l->name);
	r = gpushm_watch_new(l->c, &w);
	if (r == 0)
		r = gpushm_watch_name(w, l->name);
	/* What is there now is the first event. */
	if (r == 0)
		r = gpushm_watch_next(w, 0, &event);
	if (r == 0)
		r = gpushm_watch_next(w, left < LOOK_AGAIN_MS ? left : LOOK_AGAIN_MS, &event);
	return r == -ETIMEDOUT ? 0 : r;
}

/* Another process still loads: progress can stop the wait, and what was pinned for this load goes.
 * Or it is a thread that has the same connection, which was busy meanwhile: then that thread gets
 * its turn. */
static int end_nap(struct loading *l)
{
	give_slots_back(l);
	poll(NULL, 0, TURN_MS);
	return report_wait(l);
}

static int open_or_create(struct loading *l)
{
	struct turn t;

	first_turn(l, &t);
	for (;;) {
		uint64_t left = left_ms(l);
		uint64_t nap = left > LOOK_AGAIN_MS ? LOOK_AGAIN_MS : left;
		int r = gpushm_open_or_create(l->c, l->name, GPUSHM_READ, nap, &l->opening,
					      l->m.bytes, t.use, &l->b);

		if (r == -ENOSPC)
			r = next_turn(l, &t, r);
		else if (r == -ETIMEDOUT && nap < left)
			r = end_nap(l);
		else if (r == -EDQUOT && give_slots_back(l))
			r = 0;
		else
			return r;
		if (r < 0)
			return r;
	}
}

/* Opens a buffer with these contents, or creates one. */
static int find_or_create(struct loading *l)
{
	for (;;) {
		bool again = false;
		int r = open_or_create(l);

		if (r == GPUSHM_CREATED) {
			r = describe(l, &again);
			if (again)
				continue;
			return r;
		}
		if (r < 0)
			return r;
		r = compare(l);
		if (r != MATCH_OTHER)
			return r < 0 ? r : 0;
		if (!(l->load.flags & GPUSHM_LOAD_REPLACE))
			return -EEXIST;
		r = create_to_replace_once(l);
		if (r != -EAGAIN)
			return r < 0 ? r : 0;
		r = wait_for_loader(l);
		if (r == 0)
			r = report_wait(l);
		if (r < 0)
			return r;
	}
}

static int get_buffer(struct loading *l)
{
	if (l->load.flags & GPUSHM_LOAD_IF_MISSING)
		return find_or_create(l);
	if (l->load.flags & GPUSHM_LOAD_REPLACE)
		return create_to_replace(l);
	return create_as(l, l->name);
}

/* ---- filling and publishing ---- */

static int wait_for_checksums(struct loading *l)
{
	const struct gpushm_load_progress all = { .done = l->m.plan.bytes,
						  .total = l->m.plan.bytes,
						  .elapsed_ns = l->result.elapsed_ns,
						  .file = l->cp.files.files[0].path };

	return checksums_wait(l->checksums, &l->load, &all);
}

static int fill(struct loading *l)
{
	int r = l->load.sha256 ? checksums_begin(&l->cp.files, &l->checksums) : 0;

	if (r == 0 && l->pulled)
		r = pulled_begin(l->pulled, &l->cp, l->b);
	if (r == 0 && l->pulled)
		engine_set_check(l->engine, &l->pulled->check);
	if (r == 0)
		r = engine_load(l->engine, &l->cp.files, &l->m.plan, l->b, &l->result);
	if (r == 0)
		r = wait_for_checksums(l);
	return r < 0 ? r : checkpoint_finish(&l->cp);
}

static int set_attrs(struct loading *l)
{
	const struct gpushm_attr attrs[] = {
		{ sizeof(*attrs), "gpushm.source", l->m.source, strlen(l->m.source) },
		{ sizeof(*attrs), "gpushm.files", l->m.files, strlen(l->m.files) },
		{ sizeof(*attrs), "gpushm.content", l->result.content, strlen(l->result.content) },
		{ sizeof(*attrs), "gpushm.types", l->types, strlen(l->types) },
		{ sizeof(*attrs), "gpushm.path", l->path, strlen(l->path) },
		{ sizeof(*attrs), "gpushm.metadata", l->m.metadata,
		  l->m.has_metadata_array ? 0 : l->m.metadata_len },
	};

	/* One of no bytes is not set. */
	int r = gpushm_set_attrs(l->b, attrs, array_size(attrs));

	/* A pull keeps "gpushm.source": the contents are those of these files. */
	return r < 0 || l->n_attrs == 0 ? r : gpushm_set_attrs(l->b, l->attrs, l->n_attrs);
}

/* The driver may refuse to make this process's mapping read-only after the daemon has published.
 * The buffer is whole, and one that it has replaced does not come back: so it is opened anew. */
static int open_published(struct loading *l, int error)
{
	struct gpushm_buffer *b = NULL;

	private_error_guard();
	l->created = false;
	if (gpushm_open(l->c, l->name, GPUSHM_READ, 0, &l->opening, &b) < 0 && !l->under_other)
		gpushm_unlink(l->c, l->name);
	if (b && gpushm_buffer_id(b) == gpushm_buffer_id(l->b)) {
		gpushm_close(l->b);
		l->b = b;
		return 0;
	}
	gpushm_close(b);
	return error;
}

static int publish(struct loading *l)
{
	int r = l->under_other ? gpushm_publish_as(l->b, GPUSHM_SEALED, l->name, GPUSHM_REPLACE)
			       : gpushm_publish(l->b, GPUSHM_SEALED);

	if (r < 0 && gpushm_buffer_state(l->b) == GPUSHM_SEALED)
		return open_published(l, r);
	l->created = r < 0;
	return r;
}

/* The files' checksums are compared also if nothing is copied. */
static int attach(struct loading *l)
{
	int r = 0;

	digest_of(l->b, l->result.content);
	if (l->load.sha256 && !checkpoint_is_stream(&l->cp)) {
		r = checksums_begin(&l->cp.files, &l->checksums);
		if (r == 0)
			r = wait_for_checksums(l);
		if (r == 0)
			r = checkpoint_finish(&l->cp);
	}
	return r < 0 ? r : GPUSHM_LOAD_ATTACHED;
}

/* ---- the whole ---- */

/* Without one if the buffer is there most likely: it would start the driver, and pin memory. */
static int begin_engine(struct loading *l)
{
	_cleanup_(free_result) struct gpushm_stat *st = NULL;

	if ((l->load.flags & GPUSHM_LOAD_IF_MISSING) && !l->engine) {
		if (gpushm_stat(l->c, l->name, 0, 0, &st) != -ENOENT)
			return 0;
	}
	return engine_new(l->c, &l->known, &l->load, &l->engine);
}

/* A wait for a stream ends when progress says so. */
static bool is_stopped(const void *of)
{
	return report_wait(of) < 0;
}

/* The key of files is that of this machine's. */
static int prepare_pulled(struct loading *l)
{
	l->m.files[0] = '\0';
	return pulled_attrs(l->pulled, l->known.attrs, l->known.attrs ? l->known.n_attrs : 0,
			    &l->attrs, &l->n_attrs);
}

static int open_sources(struct loading *l, const char *const *sources, size_t n)
{
	const struct load_stop stop = { l->load.progress ? is_stopped : NULL, l };
	int r;

	if (!l->pulled)
		return checkpoint_open(sources, n, l->load.sha256, l->load.remote, stop, &l->cp);
	r = checkpoint_open_file(l->pulled->url, l->load.remote, stop, &l->cp);
	return r < 0 ? r : pulled_check(l->pulled, &l->cp);
}

/* Where it came from, for people: of several sources the first. A URL is without its query, which
 * may be a secret. */
static void name_path(struct loading *l, const char *source)
{
	bool url = l->pulled || url_is(source);
	_cleanup_(free_ptr) char *file =
		url || checkpoint_is_stream(&l->cp) ? NULL : realpath(source, NULL);
	const char *path = l->pulled ? l->pulled->url : url ? source : file ? file : "";
	size_t n = url ? strcspn(path, "?#") : strlen(path);

	if (n < sizeof(l->path))
		snprintf(l->path, sizeof(l->path), "%.*s", (int)n, path);
}

/* The buffer may have a hidden name, and it is not the caller who creates it. */
static int explain(const struct loading *l, int r)
{
	if (r != -ECONNRESET || gpushm_buffer_lost(l->b) != 1)
		return r;
	return load_fail(ECONNRESET,
			 "the daemon died while buffer \"%s\" was being loaded: load it again",
			 l->name);
}

/* Its memory may go from now on, if the caller wants that. */
static int make_clean(const struct loading *l)
{
	int r = l->load.twin ? gpushm_make_twin(l->c, l->name, l->load.twin) : 0;

	if (r == 0 || r == -EEXIST)
		r = l->load.flags & GPUSHM_LOAD_KEEP
			    ? gpushm_set_keep(l->c, l->name, l->load.keep_ms, 0)
			    : 0;
	return r;
}

static int run(struct loading *l, const char *const *sources, size_t n)
{
	int r = begin_engine(l);

	if (r == 0)
		r = open_sources(l, sources, n);
	if (r == 0)
		r = model_build(&l->cp, &l->load, &l->m);
	if (r == 0 && l->pulled)
		r = prepare_pulled(l);
	if (r == 0)
		r = model_types(&l->m, l->types, sizeof(l->types));
	if (r == 0) {
		name_path(l, n > 0 ? sources[0] : NULL);
		r = check_attrs(l);
	}
	if (r == 0 && l->engine)
		engine_expect(l->engine, l->m.plan.bytes);
	if (r == 0)
		r = get_buffer(l);
	if (r < 0)
		return r;
	if (!l->created)
		return attach(l);
	if (!l->engine)
		r = engine_new(l->c, &l->known, &l->load, &l->engine);
	if (r == 0)
		r = fill(l);
	if (r == 0)
		r = set_attrs(l);
	if (r == 0)
		r = publish(l);
	return explain(l, r);
}

static void report(const struct loading *l)
{
	struct gpushm_load_report report = { .bytes = l->m.plan.bytes,
					     .tensors = l->m.n - l->m.has_metadata_array,
					     .elapsed_ns = l->result.elapsed_ns,
					     .direct = l->result.direct };

	memcpy(report.content, l->result.content, sizeof(report.content));
	load_write_report(l->load.report, &report);
}

/* Keeps gpushm_error(). */
static void finish(struct loading *l, bool close_buffer, int result)
{
	private_error_guard();
	if (l->pulled)
		pulled_end(l->pulled, result);
	free(l->attrs);
	l->checksums = checksums_free(l->checksums);
	l->engine = engine_free(l->engine);
	if (l->created)
		gpushm_discard(l->b);
	else if (close_buffer)
		gpushm_close(l->b);
	model_clear(&l->m);
	checkpoint_close(&l->cp);
}

/* gpushm_create() checks the rest. */
static int read_create_options(const struct gpushm_create_options *from,
			       struct gpushm_create_options *ret)
{
	const char *wrong;
	int r = load_read_struct("options", from, ret, sizeof(*ret));

	if (r < 0 || !ret->attrs)
		return r;
	wrong = sized_check_all(ret->attrs, ret->n_attrs, sizeof(*ret->attrs));
	return wrong ? load_fail(EINVAL, "the attributes: %s", wrong) : 0;
}

int load_run(struct gpushm *c, const char *const *sources, size_t n, const char *name,
	     const struct gpushm_create_options *options, const struct gpushm_load_options *load,
	     struct pulled *pulled, struct gpushm_buffer **ret)
{
	struct loading l = {
		.c = c, .name = name, .options = options, .pulled = pulled, .deadline = UINT64_MAX
	};
	int r = load_read_options(load, &l.load), clean;

	/* So that a program which is linked with the archive has it. */
	reload_be_known();
	if (r < 0)
		return r;
	if (!c || !name)
		return load_fail(EINVAL, "the %s is NULL", c ? "name" : "connection");
	if (!pulled && (l.load.flags & GPUSHM_LOAD_NIXL))
		return load_fail(EINVAL, "load options: NIXL is for gpushm_pull()");
	r = read_create_options(options, &l.known);
	if (r < 0)
		return r;
	l.opening =
		(struct gpushm_open_options){ sizeof(l.opening), l.known.flags & GPUSHM_SET_DEVICE,
					      l.known.device };
	if (l.load.wait_ms > 0)
		l.deadline = clock_deadline(l.load.wait_ms);
	r = run(&l, sources, n);
	clean = r < 0 ? r : make_clean(&l);
	if (clean < 0)
		r = clean;
	if (r >= 0)
		report(&l);
	finish(&l, r < 0 || !ret, r < 0 ? r : 0);
	if (r >= 0 && ret)
		*ret = l.b;
	return r;
}

int gpushm_load(struct gpushm *c, const char *const *sources, size_t n, const char *name,
		const struct gpushm_create_options *options, const struct gpushm_load_options *load,
		struct gpushm_buffer **ret)
{
	return load_run(c, sources, n, name, options, load, NULL, ret);
}

int gpushm_load_key(const char *const *sources, size_t n, const struct gpushm_load_options *load,
		    char ret_key[65])
{
	struct gpushm_load_options o;
	struct checkpoint cp = { 0 };
	char source[65];
	int r = load_read_options(load, &o);

	if (r == 0)
		r = checkpoint_open(sources, n, NULL, o.remote, (struct load_stop){ 0 }, &cp);
	if (r == 0 && checkpoint_is_stream(&cp))
		r = load_fail(ESPIPE, "a stream has no key: it can be read only once");
	if (r == 0)
		model_keys(&cp, &o, source, ret_key);
	if (r == 0 && ret_key[0] == '\0')
		r = load_fail(ENOTSUP,
			      "%s has no key: its server sends neither ETag nor "
			      "Last-Modified, by which it could be known again",
			      cp.files.files[0].path);
	checkpoint_close(&cp);
	return r;
}
