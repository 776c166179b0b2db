/* SPDX-License-Identifier: MIT
 *
 * Reads a configuration file into structs, by tables of its sections, keys and types of values. A
 * new key is a line in such a table, and a member; its messages follow from the table.
 */
#pragma once

#include "proto/base/ini.h"

#include <stdbool.h>
#include <stdint.h>

#define KEYFILE_WRONG_MAX 160u /* bytes of the text that parse() writes */

struct keyfile_type {
	const char *allowed; /* for people, after "allowed: " */
	size_t size;	     /* of the member; 0: the member owns memory, cannot be copied, and
				is all zero until a file sets it */
	/* Reads text into the member. Returns 0; -EINVAL, with the fault in *wrong unless `allowed`
	 * says it all; -ENOMEM. On an error the member keeps its value, but a list may have got
	 * some of the new members. */
	int (*parse)(const struct keyfile_type *type, const char *text, void *member, char *wrong);
	/* Writes what parse() reads; nothing for a value that only a default can have. */
	void (*format)(const struct keyfile_type *type, const void *member, FILE *out);
	void (*clear)(void *member); /* frees what the member owns; NULL if size is not 0 */
	bool list;		     /* a later assignment adds to it */
	unsigned of;		     /* what a list has; for parse() and format() */
	uint64_t min, max;	     /* of a whole number; the least of a size */
	const char *none;	     /* the word for the largest number, or NULL */
	const char *words[2];	     /* of a bool: for false and true */
};

struct keyfile_key {
	const char *name;
	size_t offset; /* of the member in its section's struct */
	const struct keyfile_type *type;
	bool restart; /* a change needs a restart of the program */
};

/* A key that older versions had: a file that has it is read, and a note says so. */
struct keyfile_former {
	const char *name, *advice; /* advice: what to do now */
};

struct keyfile_section {
	const char *name, *form; /* "pool", "[pool NAME]" */
	const struct keyfile_key *keys;
	size_t n_keys;
	const struct keyfile_former *former;
	size_t n_former;
	bool no_argument, needs_argument; /* neither: it may have one */
};

struct keyfile {
	struct diagnostics diagnostics;
	const struct keyfile_section *sections;
	size_t n_sections;
	/* Are called for each section, which NULL in `section` leaves out, and for each key. 0 or
	 * -errno, which ends the file. */
	int (*on_section)(struct keyfile *f, const struct ini_item *item);
	int (*on_key)(struct keyfile *f, const struct keyfile_key *key,
		      const struct ini_item *item);
	const struct keyfile_section *section; /* of the next key; NULL: its keys are passed over */
	bool warned;			       /* a key before any section is reported once */
};

/* Reads a file of at most 1 MiB. 0, and the caller frees *ret, which has space for a NUL after it;
 * -ENOMEM; or another -errno, with a diagnostic. */
int keyfile_load(struct diagnostics *d, const char *path, char **ret, size_t *ret_len);

/* Reads len bytes of `file`, and reports faults. It writes to text, which has space for a NUL after
 * it; file must outlive the diagnostics. 0, or what a call has returned. */
int keyfile_read(struct keyfile *f, const char *file, char *text, size_t len);

/* NULL if the section has no such key. */
const struct keyfile_key *keyfile_find(const struct keyfile_section *s, const char *name);

/* Reads the item's value into its member of `members`. 0; -EINVAL with a diagnostic; -ENOMEM. */
int keyfile_set(struct keyfile *f, const struct keyfile_key *key, const struct ini_item *item,
		void *members);

/* Whether both structs have the same value. Returns false if memory runs out: at worst the caller
 * then asks for a restart that is not needed. */
bool keyfile_is_same(const struct keyfile_key *key, const void *a, const void *b);

/* Frees what the keys of a section own. */
void keyfile_clear(const struct keyfile_section *s, void *members);

/* ---- types ---- */

int keyfile_parse_number(const struct keyfile_type *type, const char *text, void *member,
			 char *wrong);
void keyfile_format_number(const struct keyfile_type *type, const void *member, FILE *out);
int keyfile_parse_size(const struct keyfile_type *type, const char *text, void *member,
		       char *wrong);
void keyfile_format_size(const struct keyfile_type *type, const void *member, FILE *out);
int keyfile_parse_word(const struct keyfile_type *type, const char *text, void *member,
		       char *wrong);
void keyfile_format_word(const struct keyfile_type *type, const void *member, FILE *out);
/* A char * that the member owns; free_ptr() clears it. */
int keyfile_parse_text(const struct keyfile_type *type, const char *text, void *member,
		       char *wrong);
void keyfile_format_text(const struct keyfile_type *type, const void *member, FILE *out);

/* A uint32_t; the word `word`, or NULL, stands for UINT32_MAX. */
#define KEYFILE_NUMBER(low, high, word, text)                                                     \
	{                                                                                         \
		.allowed = text, .size = sizeof(uint32_t), .min = low, .max = high, .none = word, \
		.parse = keyfile_parse_number, .format = keyfile_format_number                    \
	}
/* A uint64_t; the word `word`, or NULL, stands for UINT64_MAX. */
#define KEYFILE_SIZE(low, word, text)                                                \
	{                                                                            \
		.allowed = text, .size = sizeof(uint64_t), .min = low, .none = word, \
		.parse = keyfile_parse_size, .format = keyfile_format_size           \
	}
#define KEYFILE_WORDS(no, yes, text)                                                \
	{                                                                           \
		.allowed = text, .size = sizeof(bool), .parse = keyfile_parse_word, \
		.format = keyfile_format_word, .words = {                           \
			no,                                                         \
			yes                                                         \
		}                                                                   \
	}
/* A mode_t. */
extern const struct keyfile_type keyfile_mode;
