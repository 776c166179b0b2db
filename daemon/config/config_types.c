/* SPDX-License-Identifier: MIT
 *
 * Reads and writes each type of value of gpushmd.conf. What is written (--dump-config) reads back
 * as the same value.
 *
 * Of a pool or a GPU only the form is checked here. Whether the GPU exists is found out when the
 * pools are made, and by pools_check().
 *
 * Users and groups are looked up once, when the file is read; later decisions compare numbers. A
 * word of digits is always a number, as useradd(8) takes no such name.
 */
#include "daemon/config/config_table.h"

#include "proto/base/grow.h"
#include "proto/base/number.h"
#include "proto/base/own.h"
#include "proto/name.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define NODE_MAX 1023u	   /* the kernel's MAX_NUMNODES is at most 1 << 10 (CONFIG_NODES_SHIFT) */
#define FRACTION_DIGITS 6  /* of a decimal number: as many as are written */
#define PATH_BYTES_MAX 107 /* of a socket's path, without its NUL (unix(7)) */
#define ENTRY_BYTES_MAX (1u << 20) /* of a group(5) entry: some 50,000 members */
#define WORD_MAX 255u		   /* LOGIN_NAME_MAX is 256 with its NUL */

_Static_assert(PATH_BYTES_MAX + 1 == sizeof((struct sockaddr_un){ 0 }.sun_path),
	       "value_path's text names the number");

static const char digits[] = "0123456789";
static const char unlimited[] = "unlimited";

/* Says what is wrong with a value. -EINVAL. */
#define refuse(wrong, ...) (snprintf(wrong, KEYFILE_WRONG_MAX, __VA_ARGS__), -EINVAL)

/* ---- numbers ---- */

/* Reads "12", "12.5" or ".5", at most max, and then `suffix`. */
static int parse_decimal(const char *text, double max, const char *suffix, double *ret)
{
	size_t whole = strspn(text, digits);
	size_t fraction = text[whole] == '.' ? strspn(text + whole + 1, digits) : 0;
	size_t len = whole + (text[whole] == '.') + fraction;
	double value;

	if (whole + fraction == 0 || whole > 3 || fraction > FRACTION_DIGITS ||
	    strcmp(text + len, suffix) != 0)
		return -EINVAL;
	value = strtod(text, NULL);
	if (value > max)
		return -EINVAL;
	*ret = value;
	return 0;
}

static void write_decimal(double value, FILE *out)
{
	char text[32];
	size_t len = (size_t)snprintf(text, sizeof(text), "%.*f", FRACTION_DIGITS, value);

	while (len > 0 && text[len - 1] == '0')
		len--;
	if (len > 0 && text[len - 1] == '.')
		len--;
	fprintf(out, "%.*s", (int)len, text);
}

/* A part of a whole, in percent; negative: not set. */
static int parse_part(const struct keyfile_type *type, const char *text, void *member, char *wrong)
{
	double percent = 100;

	if (strcmp(text, unlimited) != 0 &&
	    (parse_decimal(text, 100, "%", &percent) < 0 || percent < 1))
		return -EINVAL;
	*(double *)member = percent;
	return 0;
}

static void format_part(const struct keyfile_type *type, const void *member, FILE *out)
{
	double percent = *(const double *)member;

	if (percent < 0)
		return;
	write_decimal(percent, out);
	putc('%', out);
}

/* ---- sizes ---- */

static int parse_size(const struct keyfile_type *type, const char *text, void *member, char *wrong)
{
	struct config_size size = { 0 };
	int r = strchr(text, '%') ? parse_decimal(text, 100, "%", &size.percent)
				  : keyfile_parse_size(type, text, &size.bytes, wrong);

	if (r < 0)
		return r;
	if (size.bytes == 0 && size.percent == 0)
		return refuse(wrong, "a pool of no size");
	*(struct config_size *)member = size;
	return 0;
}

static void format_size(const struct keyfile_type *type, const void *member, FILE *out)
{
	const struct config_size *size = member;

	if (size->percent > 0) {
		write_decimal(size->percent, out);
		putc('%', out);
	} else {
		keyfile_format_size(type, &size->bytes, out);
	}
}

/* ---- names ---- */

static int parse_path(const struct keyfile_type *type, const char *text, void *member, char *wrong)
{
	size_t len = strlen(text);

	/* A backslash at a line's end joins the next line: such a path can be read at the end of a
	 * file only, and cannot be written. */
	if (text[0] != '/' || text[len - 1] == '/' || text[len - 1] == '\\')
		return -EINVAL;
	if (len > PATH_BYTES_MAX)
		return refuse(wrong, "the path has %zu bytes", len);
	return keyfile_parse_text(type, text, member, wrong);
}

static int parse_pool(const struct keyfile_type *type, const char *text, void *member, char *wrong)
{
	const char *fault = name_check_pool(text, strlen(text));

	if (fault)
		return refuse(wrong, "%s", fault);
	strcpy(member, text);
	return 0;
}

static void format_name(const struct keyfile_type *type, const void *member, FILE *out)
{
	fputs(member, out);
}

static int parse_kind(const struct keyfile_type *type, const char *text, void *member, char *wrong)
{
	for (unsigned kind = 1; kind < KIND_END; kind++) {
		if (strcmp(kind_word(kind), text) != 0)
			continue;
		*(enum pool_kind *)member = (enum pool_kind)kind;
		return 0;
	}
	return -EINVAL;
}

static void format_kind(const struct keyfile_type *type, const void *member, FILE *out)
{
	fputs(kind_word(*(const enum pool_kind *)member), out);
}

/* Compares with a form like "0000:00:00.0", in which '0' means any hexadecimal digit. */
static bool has_form(const char *text, const char *form)
{
	for (; *text != '\0' && *form != '\0'; text++, form++)
		if (*form == '0' ? !isxdigit((unsigned char)*text) : *form != *text)
			return false;
	return *text == *form;
}

static bool is_uuid_prefix(const char *text)
{
	size_t n = strspn(text, "0123456789abcdefABCDEF-");

	return n > 0 && n <= strlen("00000000-0000-0000-0000-000000000000") && text[n] == '\0';
}

/* nvidia-smi writes a PCI domain with eight digits, the driver's API with four. The short form is
 * kept. */
static int parse_device(const struct keyfile_type *type, const char *text, void *member,
			char *wrong)
{
	size_t n = strspn(text, digits);
	char *device = member;

	if (has_form(text, "00000000:00:00.0") && strncmp(text, "0000", 4) == 0)
		text += 4;
	if (has_form(text, "0000:00:00.0")) {
		for (; *text != '\0'; text++)
			*device++ = (char)tolower((unsigned char)*text);
		*device = '\0';
		return 0;
	}
	if (!(strncmp(text, "GPU-", 4) == 0 && is_uuid_prefix(text + 4)) &&
	    !(n > 0 && n <= 4 && text[n] == '\0'))
		return -EINVAL;
	strcpy(device, text);
	return 0;
}

/* ---- users and groups ---- */

static const char separators[] = " \t,";
static const char everybody[] = "*"; /* in a list of users */
static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
static const char *const id_words[] = { [ID_USER] = "user", [ID_GROUP] = "group" };

struct entry {
	uint32_t id;
	const char *name; /* in the caller's buffer */
};

/* Looks up by name, or by id if name is NULL. 0, -ESRCH, -ERANGE (buf is too small), -errno. */
static int query(enum id_kind kind, const char *name, uint32_t id, char *buf, size_t size,
		 struct entry *ret)
{
	struct passwd user, *found_user = NULL;
	struct group group, *found_group = NULL;
	int r;

	if (kind == ID_USER)
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

/* The same with a buffer that is large enough; the caller frees *buf. */
static int look_up(enum id_kind kind, const char *name, uint32_t id, char **buf, struct entry *ret)
{
	int r = -ERANGE;

	for (size_t size = 1024; r == -ERANGE && size <= ENTRY_BYTES_MAX; size *= 4) {
		free(*buf);
		*buf = malloc(size);
		if (!*buf)
			return -ENOMEM;
		r = query(kind, name, id, *buf, size, ret);
	}
	return r;
}

int config_parse_id(enum id_kind kind, const char *word, uint32_t *ret, char *wrong)
{
	_cleanup_(free_ptr) char *buf = NULL;
	struct entry entry;
	uint64_t number;
	int r;

	if (word[strspn(word, digits)] == '\0') {
		/* The kernel takes (uid_t)-1 for "no change". */
		if (!number_read(word, UINT32_MAX - 1, &number))
			return refuse(wrong, "%.64s is no number of a %s", word, id_words[kind]);
		*ret = (uint32_t)number;
		return 0;
	}
	r = look_up(kind, word, 0, &buf, &entry);
	if (r == -ENOMEM)
		return r;
	if (r == -EIO || r == -EMFILE || r == -ENFILE)
		return refuse(wrong, "%s \"%.64s\" can't be looked up: %s", id_words[kind], word,
			      strerror(-r));
	/* getpwnam(3): "not found" is 0 or any of ENOENT, ESRCH, EBADF, EPERM, ... */
	if (r < 0)
		return refuse(wrong, "there is no %s \"%.64s\"", id_words[kind], word);
	*ret = entry.id;
	return 0;
}

void config_format_id(enum id_kind kind, uint32_t id, FILE *out)
{
	_cleanup_(free_ptr) char *buf = NULL, *again = NULL;
	struct entry entry, back;

	if (look_up(kind, NULL, id, &buf, &entry) == 0 && entry.name[0] != '\0' &&
	    entry.name[strspn(entry.name, plain)] == '\0' &&
	    entry.name[strspn(entry.name, digits)] != '\0' &&
	    look_up(kind, entry.name, 0, &again, &back) == 0 && back.id == id)
		fputs(entry.name, out);
	else
		fprintf(out, "%" PRIu32, id);
}

static int parse_group(const struct keyfile_type *type, const char *text, void *member, char *wrong)
{
	return config_parse_id(ID_GROUP, text, member, wrong);
}

static void format_group(const struct keyfile_type *type, const void *member, FILE *out)
{
	if (*(const gid_t *)member != (gid_t)-1)
		config_format_id(ID_GROUP, *(const gid_t *)member, out);
}

/* The text is not empty. A list of no words would open a pool to everybody. */
static int parse_ids(const struct keyfile_type *type, const char *text, void *member, char *wrong)
{
	struct id_list *list = member;
	size_t before = list->n;

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
		ids[list->n] = ID_EVERYBODY;
		r = type->of == ID_USER && strcmp(word, everybody) == 0
			    ? 0
			    : config_parse_id(type->of, word, &ids[list->n], wrong);
		if (r < 0)
			return r;
		list->n++;
		text += len;
	}
	return list->n > before ? 0 : refuse(wrong, "it names nobody");
}

static void format_ids(const struct keyfile_type *type, const void *member, FILE *out)
{
	const struct id_list *list = member;

	for (size_t i = 0; i < list->n; i++) {
		if (i > 0)
			putc(' ', out);
		if (list->ids[i] == ID_EVERYBODY)
			fputs(everybody, out);
		else
			config_format_id(type->of, list->ids[i], out);
	}
}

static void clear_ids(void *member)
{
	struct id_list *list = member;

	free(list->ids);
	*list = (struct id_list){ 0 };
}

/* ---- the types ---- */

#define VALUE(ctype, how, text)                                               \
	{                                                                     \
		.allowed = text, .size = sizeof(ctype), .parse = parse_##how, \
		.format = format_##how                                        \
	}
#define IDS(kind, text)                                                                        \
	{                                                                                      \
		.allowed = text, .parse = parse_ids, .format = format_ids, .clear = clear_ids, \
		.list = true, .of = kind                                                       \
	}

/* An int's -1, "the device's own", has UINT32_MAX's bits and an empty text. */
const struct keyfile_type value_node =
	KEYFILE_NUMBER(0, NODE_MAX, "", "a NUMA node's number, 0 to 1023");
const struct keyfile_type value_count =
	KEYFILE_NUMBER(0, UINT32_MAX - 1, unlimited, "a whole number, or \"unlimited\"");
const struct keyfile_type value_some = KEYFILE_NUMBER(
	1, UINT32_MAX - 1, unlimited,
	"a whole number from 1, or \"unlimited\"; max-connections=0 keeps users out");
const struct keyfile_type value_age =
	KEYFILE_NUMBER(0, 86400, NULL, "a whole number of seconds, 0 to 86400");
const struct keyfile_type value_seconds =
	KEYFILE_NUMBER(1, 86400, NULL, "a whole number of seconds, 1 to 86400");
const struct keyfile_type value_microseconds =
	KEYFILE_NUMBER(0, 1000, NULL, "a whole number of microseconds, 0 to 1000");
const struct keyfile_type value_part =
	VALUE(double, part, "a part from 1% to 100% (\"50%\"), or \"unlimited\"");
const struct keyfile_type value_size =
	VALUE(struct config_size, size,
	      "bytes, with K, M, G or T for powers of 1024 (\"40G\"), or a part of the "
	      "device's or the host's memory up to 100% (\"80%\")");
const struct keyfile_type value_bytes =
	KEYFILE_SIZE(0, unlimited,
		     "bytes, with K, M, G or T for powers of 1024 (\"40G\"), or \"unlimited\"");
const struct keyfile_type value_path = {
	.allowed = "an absolute path of at most 107 bytes, without / or backslash at its end",
	.parse = parse_path,
	.format = keyfile_format_text,
	.clear = free_ptr
};
const struct keyfile_type value_pool = { .allowed = "1 to 63 of the characters A-Z a-z 0-9 . _ -",
					 .size = POOL_NAME_MAX + 1,
					 .parse = parse_pool,
					 .format = format_name };
const struct keyfile_type value_kind = VALUE(enum pool_kind, kind, "host, pinned, vmm or mempool");
const struct keyfile_type value_device = {
	.allowed = "a UUID or its start (\"GPU-8c3b...\"), a PCI id (\"0000:3b:00.0\") or an "
		   "ordinal (\"0\")",
	.size = sizeof(((struct pool_config *)0)->device),
	.parse = parse_device,
	.format = format_name
};
const struct keyfile_type value_trust = KEYFILE_WORDS("refuse", "trust", "refuse or trust");
const struct keyfile_type value_share = KEYFILE_WORDS("refuse", "share", "refuse or share");
const struct keyfile_type value_allocate =
	KEYFILE_WORDS("first-use", "create", "first-use or create");
const struct keyfile_type value_yes = KEYFILE_WORDS("no", "yes", "no or yes");
const struct keyfile_type value_group = VALUE(gid_t, group, "a group's name or number");
const struct keyfile_type value_users =
	IDS(ID_USER, "names or numbers of users, with blanks between, or \"*\" for all users");
const struct keyfile_type value_groups =
	IDS(ID_GROUP, "names or numbers of groups, with blanks between");
