/* SPDX-License-Identifier: MIT
 *
 * Words for buffers. Enumerations that a newer daemon may extend print as "?" rather than index
 * out of a table. User and group names are looked up once in a row: a list of thousands of buffers
 * mostly has one owner, and each look-up may read /etc/passwd or ask a server.
 */
#include "client/ctl/entry.h"

#include "client/ctl/output.h"
#include "proto/base/own.h"
#include "proto/base/utf8.h"

#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <time.h>

static const char *word(const char *const *words, size_t n, unsigned i)
{
	return i < n && words[i] ? words[i] : "?";
}

const char *entry_kind(enum gpushm_kind kind)
{
	static const char *const words[] = { NULL, "host", "pinned", "vmm", "mempool" };

	return word(words, array_size(words), kind);
}

const char *entry_state(enum gpushm_state state)
{
	static const char *const words[] = { NULL, "filling", "sealed", "shared" };

	return word(words, array_size(words), state);
}

const char *entry_access(enum gpushm_access access)
{
	static const char *const words[] = { NULL, "read", "write" };

	return word(words, array_size(words), access);
}

enum grid_style entry_state_style(const struct gpushm_stat *s)
{
	if (s->dirty)
		return GRID_BAD;
	return s->state == GPUSHM_FILLING ? GRID_WARN : GRID_GOOD;
}

const char *entry_user(uid_t uid)
{
	static char name[64];
	static uid_t known = (uid_t)-1;
	const struct passwd *p = uid == known ? NULL : getpwuid(uid);

	if (uid == known)
		return name;
	known = uid;
	if (p)
		snprintf(name, sizeof(name), "%s", p->pw_name);
	else
		snprintf(name, sizeof(name), "%u", uid);
	return name;
}

const char *entry_group(gid_t gid)
{
	static char name[64];
	static gid_t known = (gid_t)-1;
	const struct group *g = gid == known ? NULL : getgrgid(gid);

	if (gid == known)
		return name;
	known = gid;
	if (g)
		snprintf(name, sizeof(name), "%s", g->gr_name);
	else
		snprintf(name, sizeof(name), "%u", gid);
	return name;
}

uint64_t entry_age(uint64_t since_ns)
{
	struct timespec t;
	uint64_t now;

	clock_gettime(CLOCK_REALTIME, &t);
	now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	return now > since_ns ? now - since_ns : 0;
}

static void holders_json(struct json *j, const struct gpushm_stat *s)
{
	json_open(j, "holders", '[');
	for (size_t i = 0; i < s->n_holders; i++) {
		const struct gpushm_holder *h = &s->holders[i];

		json_open(j, NULL, '{');
		json_id(j, "lease", h->lease);
		json_int(j, "pid", h->pid);
		json_uint(j, "uid", h->uid);
		json_string(j, "command", h->command);
		json_string(j, "access", entry_access(h->access));
		json_bool(j, "suspect", h->suspect);
		json_time(j, "since", h->since_ns);
		json_close(j, '}');
	}
	json_close(j, ']');
}

static void attrs_json(struct json *j, const struct gpushm_stat *s)
{
	json_open(j, "attrs", '{');
	for (size_t i = 0; i < s->n_attrs; i++) {
		const struct gpushm_attr *a = &s->attrs[i];

		if (utf8_valid(a->value, a->size)) {
			json_bytes(j, a->key, a->value, a->size);
			continue;
		}
		json_open(j, a->key, '{');
		json_base64(j, "base64", a->value, a->size);
		json_close(j, '}');
	}
	json_close(j, '}');
}

static void death_json(struct json *j, const struct gpushm_stat *s)
{
	json_open(j, "dirty_by", '{');
	json_int(j, "pid", s->dirty_pid);
	json_uint(j, "uid", s->dirty_uid);
	json_string(j, "command", s->dirty_command);
	json_time(j, "since", s->dirty_ns);
	json_close(j, '}');
}

void entry_json(struct json *j, const char *key, const struct gpushm_stat *s, bool with_holders)
{
	char mode[16];

	snprintf(mode, sizeof(mode), "%04o", s->mode);
	json_open(j, key, '{');
	json_id(j, "id", s->id);
	json_string(j, "name", s->name[0] ? s->name : NULL);
	json_string(j, "pool", s->pool);
	json_string(j, "kind", entry_kind(s->kind));
	json_string(j, "state", entry_state(s->state));
	json_uint(j, "bytes", s->bytes);
	json_uint(j, "allocated_bytes", s->allocated_bytes);
	json_uint(j, "uid", s->uid);
	json_uint(j, "gid", s->gid);
	json_string(j, "mode", mode);
	json_bool(j, "transient", s->transient);
	json_bool(j, "dirty", s->dirty);
	if (s->dirty)
		death_json(j, s);
	json_time(j, "created", s->created_ns);
	json_time(j, "published", s->published_ns);
	json_uint(j, "arrays", s->arrays);
	json_hex(j, "digest", s->digest);
	json_uint(j, "readers", s->readers);
	json_uint(j, "writers", s->writers);
	json_uint(j, "suspects", s->suspects);
	if (s->n_attrs)
		attrs_json(j, s);
	if (with_holders)
		holders_json(j, s);
	json_close(j, '}');
}

struct dtype entry_dtype(struct gpushm_dtype t)
{
	return (struct dtype){ t.code, t.bits, t.lanes, t.itemsize };
}

struct gpushm_dtype entry_public_dtype(struct dtype t)
{
	return (struct gpushm_dtype){ t.code, t.bits, t.lanes, t.itemsize };
}

char *entry_shape(const struct gpushm_array *a, char *buf, size_t size)
{
	int ndim = gpushm_array_ndim(a);
	size_t n = 0;

	for (int i = 0; i < ndim && n < size; i++)
		n += (size_t)snprintf(buf + n, size - n, "%s%" PRId64, i ? ", " : "(",
				      gpushm_array_dim(a, i));
	if (n < size)
		snprintf(buf + n, size - n, "%s", !ndim ? "()" : ndim == 1 ? ",)" : ")");
	return buf;
}
