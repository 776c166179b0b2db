/* SPDX-License-Identifier: MIT
 *
 * What libgpushm asks of this library for a buffer whose memory comes back: to compare the twin's
 * bytes with the digest that a load has left, and to load the files again. They are those that the
 * attributes name, and are read with the rights of this process. Bytes that differ from those of
 * the first load are never published.
 */
#include "client/gpushm_load.h"
#include "client/gpushm_private.h"
#include "client/models/copy/engine.h"
#include "client/models/copy/readback.h"
#include "client/models/fail.h"
#include "client/models/files/checkpoint.h"
#include "client/models/files/model.h"
#include "client/models/load.h"
#include "client/models/web/url.h"
#include "proto/base/clock.h"
#include "proto/base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the twin ---- */

struct comparison {
	struct gpushm_buffer *b, *twin;
	int result;
	struct gpushm_private_error why;
};

static void *compare(void *arg)
{
	struct comparison *k = arg;
	const struct readback back = { .buffer = k->twin };
	struct gpushm_load_report found = { 0 };
	char wanted[DIGEST_TEXT];
	bool has = digest_of(k->b, wanted);

	k->result = has ? load_digest(k->b, &back, &found) : 0;
	if (k->result == 0 && has && strcmp(found.content, wanted) != 0)
		k->result = load_fail(EBADMSG,
				      "buffer \"%s\": it is evicted, and its twin is damaged: its "
				      "digest is %s, not %s",
				      gpushm_buffer_name(k->b), found.content, wanted);
	gpushm_private_keep(&k->why);
	return NULL;
}

/* The threads that hash read the twin while it is copied. */
static int copy_twin(struct gpushm_buffer *b, struct gpushm_buffer *twin,
		     struct gpushm_buffer *fresh)
{
	struct comparison k = { .b = b, .twin = twin };
	pthread_t thread;
	bool runs = thread_start(&thread, compare, &k) == 0;
	int r = gpushm_write(fresh, 0, gpushm_buffer_host_ptr(twin), gpushm_buffer_bytes(b));

	if (runs)
		pthread_join(thread, NULL);
	else
		compare(&k);
	if (r < 0 || k.result == 0)
		return r;
	gpushm_private_put_back(&k.why);
	return k.result;
}

/* ---- the source ---- */

struct source_of {
	const char *name; /* the buffer's */
	uint64_t until;
	char path[1024], key[65], content[DIGEST_TEXT];
	struct checkpoint cp;
	struct model m;
};

/* Whether the buffer has that attribute, and it is text that fits. */
static bool read_attr(const struct gpushm_buffer *b, const char *key, char *ret, size_t size)
{
	const void *value;
	size_t n;

	if (gpushm_buffer_attr(b, key, &value, &n) < 0 || n == 0 || n >= size)
		return false;
	memcpy(ret, value, n);
	ret[n] = '\0';
	return strlen(ret) == n;
}

static bool read_attrs(const struct gpushm_buffer *b, struct source_of *s)
{
	*s = (struct source_of){ .name = gpushm_buffer_name(b), .until = s->until };
	return read_attr(b, "gpushm.path", s->path, sizeof(s->path)) &&
	       read_attr(b, "gpushm.source", s->key, sizeof(s->key)) &&
	       read_attr(b, "gpushm.content", s->content, sizeof(s->content)) &&
	       (s->path[0] == '/' || url_is(s->path));
}

/* What the caller can do about the error r of a load. */
static int explain(const struct source_of *s, int r)
{
	char why[sizeof((struct gpushm_private_error){ .code = NULL }.text)];

	if (r == -ECANCELED)
		return load_fail(ETIMEDOUT,
				 "buffer \"%s\": it is evicted, and its source %s was not loaded "
				 "before the timeout: try again with a longer one",
				 s->name, s->path);
	if (r == 0 || r == -ENOMEM || r == -ENOSPC || r == -EDQUOT || r == -EIO)
		return r;
	snprintf(why, sizeof(why), "%s", gpushm_error());
	return load_fail(r == -ESTALE || r == -EBADMSG ? ESTALE : ENODATA,
			 "buffer \"%s\": its source can't be loaded: %s; put it back, or load the "
			 "buffer again",
			 s->name, why);
}

static int check_key(const struct gpushm_buffer *b, const struct source_of *s)
{
	if (strcmp(s->m.source, s->key) == 0 && s->m.bytes == gpushm_buffer_bytes(b))
		return 0;
	return load_fail(ESTALE,
			 "%s has other headers than the buffer was loaded from, or the buffer has "
			 "several sources or a part of one, which only a twin can keep",
			 s->path);
}

static bool is_late(const void *of)
{
	const struct source_of *s = of;

	return url_is(s->path) && clock_monotonic_ns() >= s->until;
}

static int on_progress(void *user, const struct gpushm_load_progress *p)
{
	return is_late(user);
}

static int open_source(const struct gpushm_buffer *b, struct source_of *s)
{
	const char *source = s->path;
	int r = checkpoint_open(&source, 1, NULL, NULL, (struct load_stop){ is_late, s }, &s->cp);

	if (r == 0 && checkpoint_is_stream(&s->cp))
		r = load_fail(ESPIPE, "%s can be read only once", s->path);
	if (r == 0)
		r = model_build(&s->cp, NULL, &s->m);
	return r < 0 ? r : check_key(b, s);
}

static void close_source(struct source_of *s)
{
	model_clear(&s->m);
	checkpoint_close(&s->cp);
}

static int read_source(struct gpushm *c, struct source_of *s, struct gpushm_buffer *fresh)
{
	const struct gpushm_create_options o = { .struct_size = sizeof(o),
						 .pool = gpushm_buffer_pool(fresh) };
	const struct gpushm_load_options load = { .struct_size = sizeof(load),
						  .progress = on_progress,
						  .user = s };
	struct engine_result result = { .content = "" };
	struct engine *engine = NULL;
	int r = engine_new(c, &o, &load, &engine);

	if (r == 0)
		r = engine_load(engine, &s->cp.files, &s->m.plan, fresh, &result);
	if (r == 0)
		r = checkpoint_finish(&s->cp);
	if (r == 0 && strcmp(result.content, s->content) != 0)
		r = load_fail(ESTALE, "%s has the digest %s, and had %s when it was loaded",
			      s->path, result.content, s->content);
	private_error_guard();
	engine_free(engine);
	return r;
}

/* fresh: NULL to read the headers alone. */
static int load_again(struct gpushm *c, struct gpushm_buffer *b, struct gpushm_buffer *fresh,
		      uint64_t until)
{
	struct source_of s = { .until = until };
	int r;

	if (!read_attrs(b, &s))
		return load_fail(ENOENT, "buffer \"%s\" has no source", s.name);
	r = open_source(b, &s);
	if (r == 0 && fresh)
		r = read_source(c, &s, fresh);
	r = explain(&s, r);
	private_error_guard();
	close_source(&s);
	return r;
}

__attribute__((constructor)) void reload_be_known(void)
{
	static const struct gpushm_private_loader loader = { copy_twin, load_again };

	gpushm_private_set_loader(&loader);
}
