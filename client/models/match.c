/* SPDX-License-Identifier: MIT
 *
 * A name alone says nothing about contents, and anybody may take it first. So a buffer is attached
 * to only if its attributes have the keys of these files, it is sealed, and its owner is this user,
 * root, or a user in $GPUSHM_TRUST.
 */
#include "client/models/match.h"

#include "client/models/copy/engine.h"
#include "client/models/fail.h"
#include "client/models/pulled.h"
#include "proto/base/own.h"
#include "proto/base/userns.h"

#include <limits.h>
#include <pwd.h>
#include <string.h>

/* ---- trust ---- */

/* A user's number, or name; false: there is no such user. */
static bool find_uid(const char *word, uid_t *ret)
{
	struct passwd user, *found = NULL;
	char room[4096], *end;
	unsigned long n = strtoul(word, &end, 10);

	if (word[0] >= '0' && word[0] <= '9' && *end == '\0') {
		*ret = (uid_t)n;
		return n < UINT_MAX;
	}
	if (getpwnam_r(word, &user, room, sizeof(room), &found) != 0 || !found)
		return false;
	*ret = user.pw_uid;
	return true;
}

static bool is_listed(uid_t uid)
{
	const char *list = secure_getenv("GPUSHM_TRUST");
	_cleanup_(free_ptr) char *words = list ? strdup(list) : NULL;
	char *rest = words;

	for (char *word; rest && (word = strsep(&rest, ", "));) {
		uid_t trusted;

		if (word[0] && find_uid(word, &trusted) && trusted == uid)
			return true;
	}
	return false;
}

/* A number that stands for every user whom the namespace does not map identifies none of them. */
static bool is_trusted(uid_t uid)
{
	if (uid == (uid_t)-1 || uid == userns_unmapped_uid())
		return false;
	return uid == 0 || uid == geteuid() || is_listed(uid);
}

/* ---- contents ---- */

static bool has_attr(const struct gpushm_buffer *b, const char *key, const char *value)
{
	return pulled_has_attr(b, key, value, strlen(value));
}

static void drop_engine(struct engine **e)
{
	*e = engine_free(*e);
}

/* Reads the files as a load would, and copies nothing. */
static int match_contents(const struct match *m, const struct gpushm_buffer *b)
{
	_cleanup_(drop_engine) struct engine *engine = NULL;
	struct engine_result result;
	int r = engine_new(m->c, NULL, m->load, &engine);

	if (r == 0)
		r = engine_digest(engine, &m->cp->files, &m->m->plan, &result);
	if (r == 0)
		r = checkpoint_finish(m->cp);
	if (r < 0)
		return r;
	if (has_attr(b, "gpushm.content", result.content))
		return MATCH_SAME;
	load_fail(EEXIST,
		  "buffer \"%s\" was loaded from files with the same headers and other contents",
		  gpushm_buffer_name(b));
	return MATCH_OTHER;
}

static bool may_attach(const struct match *m, const struct gpushm_buffer *b)
{
	const char *name = gpushm_buffer_name(b);
	const char *pool = m->options->pool;

	if (!is_trusted(gpushm_buffer_uid(b)))
		load_fail(EEXIST,
			  "buffer \"%s\" is of another user (uid %d), who is not trusted: choose "
			  "another name, or list the user in $GPUSHM_TRUST",
			  name, (int)gpushm_buffer_uid(b));
	else if (gpushm_buffer_state(b) != GPUSHM_SEALED)
		load_fail(EEXIST, "buffer \"%s\" is not sealed: its contents may change", name);
	else if (pool && strcmp(pool, gpushm_buffer_pool(b)) != 0)
		load_fail(EEXIST, "buffer \"%s\" is in pool \"%s\", not in \"%s\"", name,
			  gpushm_buffer_pool(b), pool);
	else if (!m->pulled && !has_attr(b, "gpushm.source", m->m->source))
		load_fail(EEXIST, "buffer \"%s\" was not loaded from these files", name);
	else
		return true;
	return false;
}

int match_buffer(const struct match *m, struct gpushm_buffer *b)
{
	if (!may_attach(m, b))
		return MATCH_OTHER;
	if (m->pulled)
		return pulled_matches(m->pulled, m->m, b) ? MATCH_SAME : MATCH_OTHER;
	if (m->m->files[0] && has_attr(b, "gpushm.files", m->m->files))
		return MATCH_SAME;
	/* What would be read only to compare it is loaded at once. */
	if (checkpoint_is_slow(m->cp) && (m->load->flags & GPUSHM_LOAD_REPLACE))
		return MATCH_OTHER;
	return match_contents(m, b);
}
