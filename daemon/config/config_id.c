/* SPDX-License-Identifier: MIT
 *
 * Users and groups in gpushmd.conf, by name or number, alone and in lists. A word of digits is
 * always a number, as useradd(8) takes no such name. Names are looked up once, when the file is
 * read: what is decided later is decided on numbers.
 *
 * What is written again is the name where the name still means that number, and stands for itself
 * in a list; else it is the number.
 */
#include "daemon/config/config_id.h"

#include "proto/base/grow.h"
#include "proto/base/own.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdbool.h>
#include <string.h>

#define ENTRY_BYTES_MAX (1u << 20) /* of a group(5) entry: some 50,000 members */
#define WORD_MAX 255u		   /* LOGIN_NAME_MAX is 256 with its NUL */

static const char separators[] = " \t,";
static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

enum id_kind { USER, GROUP };
static const char *const kind_words[] = { [USER] = "user", [GROUP] = "group" };

struct entry {
	uint32_t id;
	const char *name; /* in the buffer that was given */
};

/* One query, by name or, where it is NULL, by id. 0, -ESRCH, -ERANGE (more room), -errno. */
static int ask(enum id_kind kind, const char *name, uint32_t id, char *buf, size_t size,
	       struct entry *ret)
{
	struct passwd user, *found_user = NULL;
	struct group group, *found_group = NULL;
	int r;

	if (kind == USER)
		r = name ? getpwnam_r(name, &user, buf, size, &found_user)
			 : getpwuid_r(id, &user, buf, size, &found_user);
	else
		r = name ? getgrnam_r(name, &group, buf, size, &found_group)
			 : getgrgid_r(id, &group, buf, size, &found_group);
	if (found_user)
		*ret = (struct entry){ user.pw_uid, user.pw_name };
	else if (found_group)
		*ret = (struct entry){ group.gr_gid, group.gr_name };
	else
		return r == 0 ? -ESRCH : -r;
	return 0;
}

/* Likewise, with as much room as the entry takes; *buf is the caller's to free. */
static int look_up(enum id_kind kind, const char *name, uint32_t id, char **buf, struct entry *ret)
{
	int r = -ERANGE;

	for (size_t size = 1024; r == -ERANGE && size <= ENTRY_BYTES_MAX; size *= 4) {
		free(*buf);
		*buf = malloc(size);
		if (!*buf)
			return -ENOMEM;
		r = ask(kind, name, id, *buf, size, ret);
	}
	return r;
}

/* Any number but (uid_t)-1, which the kernel takes for "no change". */
static bool parse_number(const char *word, uint32_t *ret)
{
	uint64_t value = 0;

	for (const char *p = word; *p != '\0'; p++) {
		value = value * 10 + (uint64_t)(*p - '0');
		if (value >= UINT32_MAX)
			return false;
	}
	*ret = (uint32_t)value;
	return true;
}

static int parse_id(enum id_kind kind, const char *word, uint32_t *ret, char *wrong)
{
	_cleanup_(free_ptr) char *buf = NULL;
	struct entry entry;
	int r;

	if (word[strspn(word, "0123456789")] == '\0') {
		if (parse_number(word, ret))
			return 0;
		snprintf(wrong, WRONG_MAX, "%.64s is no number of a %s", word, kind_words[kind]);
		return -EINVAL;
	}
	r = look_up(kind, word, 0, &buf, &entry);
	if (r == -ENOMEM)
		return r;
	if (r == -EIO || r == -EMFILE || r == -ENFILE) {
		snprintf(wrong, WRONG_MAX, "%s \"%.64s\" can't be looked up: %s", kind_words[kind],
			 word, strerror(-r));
		return -EINVAL;
	}
	/* getpwnam(3): "not found" is 0 or any of ENOENT, ESRCH, EBADF, EPERM, ... */
	if (r < 0) {
		snprintf(wrong, WRONG_MAX, "there is no %s \"%.64s\"", kind_words[kind], word);
		return -EINVAL;
	}
	*ret = entry.id;
	return 0;
}

static void format_id(enum id_kind kind, uint32_t id, FILE *out)
{
	_cleanup_(free_ptr) char *buf = NULL, *again = NULL;
	struct entry entry, back;

	if (look_up(kind, NULL, id, &buf, &entry) == 0 && entry.name[0] != '\0' &&
	    entry.name[strspn(entry.name, plain)] == '\0' &&
	    entry.name[strspn(entry.name, "0123456789")] != '\0' &&
	    look_up(kind, entry.name, 0, &again, &back) == 0 && back.id == id)
		fputs(entry.name, out);
	else
		fprintf(out, "%" PRIu32, id);
}

static int parse_list(enum id_kind kind, const char *text, struct id_list *list, char *wrong)
{
	while (text += strspn(text, separators), *text != '\0') {
		size_t len = strcspn(text, separators);
		char word[WORD_MAX + 1];
		uint32_t *ids;
		int r;

		if (len > WORD_MAX)
			return -EINVAL;
		memcpy(word, text, len);
		word[len] = '\0';
		ids = grow(list->ids, list->n, sizeof(*ids));
		if (!ids)
			return -ENOMEM;
		list->ids = ids;
		r = parse_id(kind, word, &ids[list->n], wrong);
		if (r < 0)
			return r;
		list->n++;
		text += len;
	}
	return 0;
}

static void format_list(enum id_kind kind, const struct id_list *list, FILE *out)
{
	for (size_t i = 0; i < list->n; i++) {
		if (i > 0)
			putc(' ', out);
		format_id(kind, list->ids[i], out);
	}
}

static void clear_list(void *member)
{
	struct id_list *list = member;

	free(list->ids);
	*list = (struct id_list){ 0 };
}

int config_id_user(const char *text, uid_t *ret, char wrong[WRONG_MAX])
{
	return parse_id(USER, text, ret, wrong);
}

void config_id_format_user(uid_t uid, FILE *out)
{
	format_id(USER, uid, out);
}

static int parse_group(const char *text, void *member, char *wrong)
{
	return parse_id(GROUP, text, member, wrong);
}

static void format_group(const void *member, FILE *out)
{
	if (*(const gid_t *)member != (gid_t)-1)
		format_id(GROUP, *(const gid_t *)member, out);
}

static int parse_users(const char *text, void *member, char *wrong)
{
	return parse_list(USER, text, member, wrong);
}

static void format_users(const void *member, FILE *out)
{
	format_list(USER, member, out);
}

static int parse_groups(const char *text, void *member, char *wrong)
{
	return parse_list(GROUP, text, member, wrong);
}

static void format_groups(const void *member, FILE *out)
{
	format_list(GROUP, member, out);
}

const struct value_type value_group = { .allowed = "a group's name or number",
					.size = sizeof(gid_t),
					.parse = parse_group,
					.format = format_group };
const struct value_type value_users = { .allowed = "names or numbers of users, with blanks between",
					.list = true,
					.parse = parse_users,
					.format = format_users,
					.clear = clear_list };
const struct value_type value_groups = { .allowed =
						 "names or numbers of groups, with blanks between",
					 .list = true,
					 .parse = parse_groups,
					 .format = format_groups,
					 .clear = clear_list };
