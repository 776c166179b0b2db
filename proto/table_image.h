/* SPDX-License-Identifier: MIT
 *
 * The image of a table, byte by byte, and what the files that write it and read it share. Private
 * to proto/table_*.c; other files include table.h.
 *
 * All numbers are little endian. Parts follow each other in this order, each padded to 8 bytes:
 *
 *   struct table_header     one
 *   struct table_entry      header.arrays of them, in the order that the arrays were added
 *   u32 slots               header.slots of them: a hash table of names
 *   struct table_attr_entry header.attrs of them
 *   text                    names, shapes and strides, descrs, keys and values, up to image_bytes
 *
 * An entry's dims_at is the offset of u64 shape[ndim] and then i64 strides[ndim] (in bytes, always
 * present; all 0 for packed types), on a multiple of 8. Every *_at is an offset from the image's
 * start, and what it leads to lies within the image, even if it has no bytes.
 *
 * To find a name: h = FNV-1a 64 of its bytes, i = h mod slots (a power of two, at least 2 and at
 * least twice the arrays, so that a search ends). If slots[i] is 0, there is no such name. Else it
 * is an index into the entries plus 1: if that entry's hash is h and its name is equal, it is
 * found, else i = (i + 1) mod slots, at most TABLE_PROBES_MAX times.
 *
 * The digest of a layout is the FNV-1a 64 of this, for each array in the order added: u64 name_len,
 * name, u8 code, u8 bits, u16 lanes, u32 itemsize, u64 descr_len, descr, u64 ndim, u64 shape[ndim],
 * i64 strides[ndim], u64 offset. Attributes are not part of it. Without arrays: FNV's offset basis.
 */
#pragma once

#include "proto/table.h"

#define TABLE_MAGIC "gpushmtb"
#define TABLE_VERSION 1u
#define TABLE_PART_ALIGN 8u

/* The longest search, in slots. The hash is no secret, so a client can choose names that collide; a
 * name that would lie farther away is refused. Of 262,144 ordinary names none is expected to lie
 * farther away than about 100. */
#define TABLE_PROBES_MAX 256u

struct table_header {
	char magic[8]; /* TABLE_MAGIC, without a NUL */
	uint32_t version;
	uint32_t arrays;
	uint32_t slots;
	uint32_t attrs;
	uint64_t image_bytes;  /* of the whole image, this header included */
	uint64_t buffer_bytes; /* of the buffer that the arrays lie in */
	uint64_t digest;
	uint64_t entries_at;
	uint64_t slots_at;
	uint64_t attrs_at;
	uint64_t text_at;
};

struct table_entry {
	uint64_t hash; /* of the name */
	uint64_t name_at;
	uint64_t descr_at;
	uint64_t dims_at;
	uint64_t offset; /* of element [0, 0, ...] in the buffer */
	uint32_t name_len;
	uint32_t descr_len;
	uint32_t ndim;
	uint32_t itemsize; /* as in struct dtype */
	uint8_t code;
	uint8_t bits;
	uint16_t lanes;
	uint32_t zero;
};

struct table_attr_entry {
	uint64_t key_at;
	uint64_t value_at;
	uint32_t key_len;
	uint32_t value_len;
};

_Static_assert(sizeof(struct table_header) == 80, "no padding, the same everywhere");
_Static_assert(sizeof(struct table_entry) == 64, "no padding, the same everywhere");
_Static_assert(sizeof(struct table_attr_entry) == 24, "no padding, the same everywhere");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "images are read and written as they are");

/* An attribute that a builder owns: the value lies behind the key in one allocation. */
struct table_owned_attr {
	char *key;
	uint32_t key_len;
	uint32_t value_len;
};

/* How much of the image is made: it is done in steps (table_builder_finish_step()). */
struct table_writer {
	uint64_t digest;   /* of the first `digested` arrays */
	uint32_t digested; /* arrays are removed by table_builder_truncate() only */
	int fd;		   /* owned; -1: not begun */
	struct table_header header;
	uint32_t entries;		/* written */
	uint64_t slots_done, text_done; /* bytes written */
};

/* Begins the image anew with the next step. */
void table_writer_drop(struct table_writer *w);

/* What a builder has so far. In its entries *_at is an offset from the start of the text. */
struct table_builder {
	uint64_t buffer_bytes;
	struct table_entry *entries; /* owned */
	uint32_t arrays;
	uint32_t *slots; /* owned */
	uint32_t *tags;	 /* behind the slots: the upper half of the hash of each slot's name */
	uint32_t n_slots;
	/* Larger slots that are being filled; see table_builder_reserve_step(). */
	struct {
		uint32_t *slots; /* owned */
		uint32_t n, arrays;
	} grown;
	unsigned char *text; /* owned; without the attributes' */
	uint64_t text_len, text_room;
	struct table_owned_attr attrs[ATTRS_MAX];
	uint32_t n_attrs;
	uint32_t attr_bytes; /* of keys and values */
	struct table_writer writer;
};

/* The start of an error text: `array "w1": `, `attribute "source": `; a long name is cut. */
struct table_subject {
	const char *kind;
	const char *name; /* not terminated */
	size_t name_len;
};

/* fault() with the subject before the text. */
int table_refuse(struct fault *err, enum code code, struct table_subject subject,
		 const char *format, ...) __attribute__((format(printf, 4, 5)));
