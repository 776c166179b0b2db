/* SPDX-License-Identifier: MIT
 *
 * The reader of configuration files. It owns the text of a file only while it parses it, keeps no
 * file open and takes no lock: if an editor replaces the file meanwhile, it reads the old or the
 * new one.
 */
#include "proto/base/keyfile.h"

#include "proto/base/own.h"
#include "proto/base/suggest.h"
#include "proto/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FILE_MAX (1u << 20) /* bytes; every value of 64 pools and 4,096 users takes half of it */
#define NAMES_MAX 32u	    /* of sections, or of the keys of one */

/* ---- the file ---- */

/* Opens a file that can be read to its end: a FIFO or a terminal would hang the program at SIGHUP.
 * /dev/null (mem(4): device 1, 3) is an empty file. */
static int open_file(const char *path, int *ret)
{
	_cleanup_(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (!S_ISREG(st.st_mode) && !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)))
		return -EINVAL;
	*ret = take_fd(&fd);
	return 0;
}

/* Reads all of a file, with space for a NUL after it. 0, -EFBIG, -ENOMEM, -errno. */
static int read_file(const char *path, char **ret, size_t *ret_len)
{
	_cleanup_(close_fd) int fd = -1;
	_cleanup_(free_ptr) char *text = malloc(FILE_MAX + 1);
	size_t len = 0;
	int e = text ? open_file(path, &fd) : -ENOMEM;

	if (e < 0)
		return e;
	for (;;) {
		ssize_t n = read(fd, text + len, FILE_MAX + 1 - len);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			break;
		if (n > 0)
			len += (size_t)n;
		if (len > FILE_MAX)
			return -EFBIG;
	}
	*ret = take_ptr(text);
	*ret_len = len;
	return 0;
}

int keyfile_load(struct diagnostics *d, const char *path, char **ret, size_t *ret_len)
{
	int e = read_file(path, ret, ret_len);

	d->file = path;
	if (e == -EFBIG)
		diagnostics_add(d, 0, "the file is too large; allowed: %u bytes", FILE_MAX);
	else if (e == -EINVAL)
		diagnostics_add(d, 0, "this is no file; allowed: a regular file");
	else if (e < 0 && e != -ENOMEM)
		diagnostics_add(d, 0, "can't be read: %s; allowed: a file that uid %u may read",
				strerror(-e), (unsigned)geteuid());
	return e;
}

/* ---- sections and keys ---- */

/* Reports a fault in the item that is being read. */
#define report(...) diagnostics_add(&f->diagnostics, item->line, __VA_ARGS__)

static void report_unknown_section(struct keyfile *f, const struct ini_item *item)
{
	const char *names[NAMES_MAX];
	char suggestion[256];

	for (size_t i = 0; i < f->n_sections; i++)
		names[i] = f->sections[i].name;
	suggest(item->section, names, f->n_sections, suggestion, sizeof(suggestion));
	report("unknown section [%.64s]; %s", item->section, suggestion);
}

static int on_section(struct keyfile *f, const struct ini_item *item)
{
	const struct keyfile_section *s = NULL;

	f->section = NULL;
	f->warned = true;
	if (item->section[0] == '\0')
		return 0;
	for (size_t i = 0; i < f->n_sections; i++)
		if (strcmp(f->sections[i].name, item->section) == 0)
			s = &f->sections[i];
	if (!s) {
		report_unknown_section(f, item);
	} else if (s->no_argument && item->argument[0] != '\0') {
		report("[%s %.64s]: this section takes no name; allowed: [%s]", s->name,
		       item->argument, s->name);
	} else if (s->needs_argument && item->argument[0] == '\0') {
		report("[%s]: this section needs a name; allowed: %s", s->name, s->form);
	} else {
		f->section = s;
		return f->on_section(f, item);
	}
	return 0;
}

static void report_no_section(struct keyfile *f, const struct ini_item *item)
{
	char forms[256] = "";

	for (size_t i = 0; i < f->n_sections; i++)
		text_append(forms, sizeof(forms), "%s%s",
			    i == 0		    ? ""
			    : i + 1 < f->n_sections ? ", "
						    : " or ",
			    f->sections[i].form);
	report("an assignment before any section; allowed: %s first", forms);
}

static void report_unknown_key(struct keyfile *f, const struct ini_item *item)
{
	const struct keyfile_section *s = f->section;
	const char *names[NAMES_MAX];
	char suggestion[512];

	for (size_t i = 0; i < s->n_former; i++) {
		if (strcmp(s->former[i].name, item->key) != 0)
			continue;
		diagnostics_note(&f->diagnostics, item->line, "%s= has no effect any more; %s",
				 item->key, s->former[i].advice);
		return;
	}
	for (size_t i = 0; i < s->n_keys; i++)
		names[i] = s->keys[i].name;
	suggest(item->key, names, s->n_keys, suggestion, sizeof(suggestion));
	report("unknown key \"%.64s\"; %s", item->key, suggestion);
}

const struct keyfile_key *keyfile_find(const struct keyfile_section *s, const char *name)
{
	for (size_t i = 0; i < s->n_keys; i++)
		if (strcmp(s->keys[i].name, name) == 0)
			return &s->keys[i];
	return NULL;
}

static int on_assignment(struct keyfile *f, const struct ini_item *item)
{
	const struct keyfile_key *key = f->section ? keyfile_find(f->section, item->key) : NULL;

	if (key)
		return f->on_key(f, key, item);
	if (f->section)
		report_unknown_key(f, item);
	else if (!f->warned)
		report_no_section(f, item);
	f->warned = true;
	return 0;
}

int keyfile_read(struct keyfile *f, const char *file, char *text, size_t len)
{
	struct ini ini;
	struct ini_item item;
	enum ini_what what;
	int e = 0;

	f->diagnostics.file = file;
	f->section = NULL;
	f->warned = false;
	ini_init(&ini, text, len, &f->diagnostics);
	while (e == 0 && (what = ini_next(&ini, &item)) != INI_END)
		e = what == INI_SECTION ? on_section(f, &item) : on_assignment(f, &item);
	return e;
}

/* ---- values ---- */

int keyfile_set(struct keyfile *f, const struct keyfile_key *key, const struct ini_item *item,
		void *members)
{
	char wrong[KEYFILE_WRONG_MAX] = "";
	int e = key->type->parse(key->type, item->value, (char *)members + key->offset, wrong);

	if (e == -EINVAL)
		report("%s=%.80s: %s; allowed: %s", key->name, item->value,
		       wrong[0] != '\0' ? wrong : "this can't be used", key->type->allowed);
	return e;
}

/* The value as in a file. The caller frees it. NULL: out of memory. */
static char *write_value(const struct keyfile_key *key, const void *members)
{
	char *ret = NULL;
	size_t len;
	FILE *out = open_memstream(&ret, &len);

	if (!out)
		return NULL;
	key->type->format(key->type, (const char *)members + key->offset, out);
	if (fclose(out) != 0)
		free_ptr(&ret);
	return ret;
}

bool keyfile_is_same(const struct keyfile_key *key, const void *a, const void *b)
{
	_cleanup_(free_ptr) char *first = write_value(key, a), *second = write_value(key, b);

	return first && second && strcmp(first, second) == 0;
}

void keyfile_clear(const struct keyfile_section *s, void *members)
{
	for (size_t i = 0; i < s->n_keys; i++)
		if (s->keys[i].type->clear)
			s->keys[i].type->clear((char *)members + s->keys[i].offset);
}
