/* SPDX-License-Identifier: MIT
 *
 * A table while it is described. The builder owns copies of everything it gets, in the form of the
 * image: the image is its entries, hash slots and text, one after the other, with adjusted offsets.
 *
 * Adding costs O(1): the hash and both arrays grow by doubling. Arrays are removed only from the
 * end (truncate), which keeps linear probing simple: the last array took a slot that was empty
 * before, so that emptying it restores the table.
 */
#include "proto/table_image.h"

#include "proto/base/grow.h"
#include "proto/base/own.h"
#include "proto/name.h"

#include <inttypes.h>
#include <string.h>

#define SLOTS_MIN 16u
#define TEXT_MIN 512u

#define SLOTS_MAX (2 * ARRAYS_MAX)
#define GROW_STEP 4096u /* arrays that move to other slots in one step: at most 1 ms */

_Static_assert((ARRAYS_MAX & (ARRAYS_MAX - 1)) == 0, "so that doubling slots ends at SLOTS_MAX");

/* Slots and their tags. */
static uint32_t *slots_new(uint32_t n)
{
	return calloc(n, 2 * sizeof(uint32_t));
}

int table_builder_new(uint64_t buffer_bytes, struct table_builder **ret)
{
	struct table_builder *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->buffer_bytes = buffer_bytes;
	b->n_slots = SLOTS_MIN;
	b->writer.fd = -1;
	b->writer.digest = FNV1A_BASIS;
	b->slots = slots_new(SLOTS_MIN);
	if (!b->slots) {
		table_builder_free(b);
		return -ENOMEM;
	}
	b->tags = b->slots + SLOTS_MIN;
	*ret = b;
	return 0;
}

struct table_builder *table_builder_free(struct table_builder *b)
{
	if (!b)
		return NULL;
	for (uint32_t i = 0; i < b->n_attrs; i++)
		free(b->attrs[i].key);
	table_writer_drop(&b->writer);
	free(b->text);
	free(b->grown.slots);
	free(b->slots);
	free(b->entries);
	free(b);
	return NULL;
}

#define SLOT_NONE UINT32_MAX

static uint32_t tag_of(uint64_t hash)
{
	return hash >> 32;
}

/* The slot of that name, or the empty one for it; SLOT_NONE: that is too far away. An entry is a
 * cache miss, and names can be chosen so that each of them meets 255 others: so an entry is looked
 * at only if the tag is equal. */
static uint32_t slot_find(const struct table_builder *p, uint64_t hash, const char *name,
			  size_t len)
{
	for (uint32_t i = 0; i < TABLE_PROBES_MAX; i++) {
		uint32_t slot = (hash + i) & (p->n_slots - 1);
		const struct table_entry *e;

		if (p->slots[slot] == 0)
			return slot;
		if (p->tags[slot] != tag_of(hash))
			continue;
		e = &p->entries[p->slots[slot] - 1];
		if (e->hash == hash && e->name_len == len &&
		    memcmp(p->text + e->name_at, name, len) == 0)
			return slot;
	}
	return SLOT_NONE;
}

/* The smallest number of slots for that many arrays. */
static uint32_t slots_for(uint64_t arrays)
{
	uint32_t n = SLOTS_MIN;

	while (n < SLOTS_MAX && n < 2 * arrays)
		n *= 2;
	return n;
}

static int grown_begin(struct table_builder *p, uint32_t n)
{
	free(p->grown.slots);
	p->grown.slots = slots_new(n);
	p->grown.n = p->grown.slots ? n : 0;
	p->grown.arrays = 0;
	return p->grown.slots ? 0 : -ENOMEM;
}

/* Growing never makes a probe longer: arrays that collide in the larger table collided in the
 * smaller one, in the same order. */
static void grown_insert(struct table_builder *p, uint32_t i)
{
	uint32_t at = p->entries[i].hash & (p->grown.n - 1);

	while (p->grown.slots[at] != 0)
		at = (at + 1) & (p->grown.n - 1);
	p->grown.slots[at] = i + 1;
	p->grown.slots[p->grown.n + at] = tag_of(p->entries[i].hash);
}

/* Keeps n_slots >= 2 * arrays with `more` arrays more. -ERESTART: at_most arrays have moved, and
 * others are left. */
static int slots_grow(struct table_builder *p, uint32_t more, uint32_t at_most)
{
	uint32_t n = slots_for((uint64_t)p->arrays + more);

	if (n <= p->n_slots)
		return 0;
	if (p->grown.n < n && grown_begin(p, n) < 0)
		return -ENOMEM;
	for (; p->grown.arrays < p->arrays && at_most > 0; at_most--)
		grown_insert(p, p->grown.arrays++);
	if (p->grown.arrays < p->arrays)
		return -ERESTART;

	free(p->slots);
	p->slots = take_ptr(p->grown.slots);
	p->n_slots = p->grown.n;
	p->tags = p->slots + p->n_slots;
	p->grown.n = 0;
	return 0;
}

int table_builder_reserve_step(struct table_builder *b, size_t more)
{
	return slots_grow(b, more < ARRAYS_MAX ? (uint32_t)more : ARRAYS_MAX, GROW_STEP);
}

static int entries_grow(struct table_builder *p)
{
	struct table_entry *entries = grow(p->entries, p->arrays, sizeof(*entries));

	if (!entries)
		return -ENOMEM;
	p->entries = entries;
	return 0;
}

/* Makes space for `more` bytes of text; the caller has checked TABLE_BYTES_MAX. */
static int text_grow(struct table_builder *p, uint64_t more)
{
	uint64_t room = p->text_room > 0 ? p->text_room : TEXT_MIN;
	unsigned char *text;

	while (room < p->text_len + more)
		room *= 2;
	if (room == p->text_room)
		return 0;
	text = realloc(p->text, room);
	if (!text)
		return -ENOMEM;
	p->text = text;
	p->text_room = room;
	return 0;
}

static uint64_t text_put(struct table_builder *p, const void *data, size_t len)
{
	uint64_t at = p->text_len;

	if (len > 0)
		memcpy(p->text + at, data, len);
	p->text_len += len;
	return at;
}

/* Bytes of an array's text: a multiple of the alignment, so that the next array's dims are aligned.
 */
static uint64_t text_bytes(const struct table_array *a)
{
	uint64_t n = (uint64_t)a->ndim * 2 * sizeof(uint64_t) + a->name_len + a->descr_len;

	return (n + TABLE_PART_ALIGN - 1) / TABLE_PART_ALIGN * TABLE_PART_ALIGN;
}

/* Adds an array that was checked and for which all parts have space. */
static void array_put(struct table_builder *p, const struct table_array *a, uint64_t hash)
{
	uint32_t slot = slot_find(p, hash, a->name, a->name_len);
	uint64_t end = p->text_len + text_bytes(a);
	struct table_entry e = {
		.hash = hash,
		.offset = a->offset,
		.name_len = a->name_len,
		.descr_len = a->descr_len,
		.ndim = a->ndim,
		.itemsize = a->dtype.itemsize,
		.code = a->dtype.code,
		.bits = a->dtype.bits,
		.lanes = a->dtype.lanes,
	};

	p->slots[slot] = p->arrays + 1;
	p->tags[slot] = tag_of(hash);
	e.dims_at = text_put(p, a->shape, a->ndim * sizeof(uint64_t));
	text_put(p, a->strides, a->ndim * sizeof(int64_t));
	e.name_at = text_put(p, a->name, a->name_len);
	e.descr_at = text_put(p, a->descr, a->descr_len);
	memset(p->text + p->text_len, 0, end - p->text_len);
	p->text_len = end;
	p->entries[p->arrays++] = e;
}

/* The largest image with that many arrays and that much text, in bytes. */
static uint64_t image_bound(uint64_t arrays, uint64_t text_len)
{
	return sizeof(struct table_header) + arrays * sizeof(struct table_entry) +
	       SLOTS_MAX * sizeof(uint32_t) + ATTRS_MAX * sizeof(struct table_attr_entry) +
	       ATTR_BYTES_MAX + text_len;
}

uint32_t table_builder_attrs(const struct table_builder *b)
{
	return b->n_attrs;
}

uint64_t table_builder_bytes(const struct table_builder *p)
{
	return sizeof(struct table_header) +
	       p->arrays * (sizeof(struct table_entry) + 2 * sizeof(uint32_t)) + p->text_len +
	       ATTRS_MAX * sizeof(struct table_attr_entry) + p->attr_bytes;
}

/* Checks the limits, and that the name is free. */
static int array_admit(const struct table_builder *p, const struct table_array *a, uint64_t hash,
		       struct fault *err)
{
	struct table_subject subject = { "array", a->name, a->name_len };
	uint32_t slot = slot_find(p, hash, a->name, a->name_len);

	if (slot == SLOT_NONE)
		return table_refuse(err, CODE_LIMIT, subject,
				    "its name's hash collides with %u others; choose another name",
				    TABLE_PROBES_MAX);
	if (p->slots[slot] != 0)
		return table_refuse(err, CODE_EXISTS, subject,
				    "the buffer has one of that name already");
	if (p->arrays >= ARRAYS_MAX)
		return table_refuse(err, CODE_LIMIT, subject,
				    "the buffer has %" PRIu32 " already; at most %u are allowed",
				    p->arrays, ARRAYS_MAX);
	if (image_bound(p->arrays + 1, p->text_len + text_bytes(a)) > TABLE_BYTES_MAX)
		return table_refuse(err, CODE_LIMIT, subject,
				    "names, shapes and descrs of a buffer's arrays may take %u "
				    "MiB; shorten the descrs",
				    TABLE_BYTES_MAX >> 20);
	return 0;
}

int table_builder_add(struct table_builder *p, const struct table_array *a, struct fault *err)
{
	struct table_subject subject = { "array", a->name, a->name_len };
	struct table_array filled;
	uint64_t hash;
	int r;

	r = table_check(a, p->buffer_bytes, &filled, err);
	if (r < 0)
		return r;
	hash = fnv1a(FNV1A_BASIS, a->name, a->name_len);
	r = array_admit(p, &filled, hash, err);
	if (r < 0)
		return r;
	if (slots_grow(p, 1, UINT32_MAX) < 0 || entries_grow(p) < 0 ||
	    text_grow(p, text_bytes(&filled)) < 0)
		return table_refuse(err, CODE_NO_MEMORY, subject, "no memory for one more");

	array_put(p, &filled, hash);
	return 0;
}

void table_builder_truncate(struct table_builder *p, uint32_t n)
{
	if (n < p->writer.digested) {
		table_writer_drop(&p->writer);
		p->writer.digested = 0;
		p->writer.digest = FNV1A_BASIS;
	}
	/* Slots that are half filled have what is removed. */
	if (p->grown.n > 0 && n < p->grown.arrays)
		p->grown.n = 0;
	while (p->arrays > n) {
		const struct table_entry *e = &p->entries[p->arrays - 1];
		const char *name = (const char *)p->text + e->name_at;

		p->slots[slot_find(p, e->hash, name, e->name_len)] = 0;
		p->text_len = e->dims_at;
		p->arrays--;
	}
}

uint32_t table_builder_arrays(const struct table_builder *b)
{
	return b->arrays;
}

/* The attribute of that key, or the end of the array. */
static struct table_owned_attr *attr_find(struct table_builder *p, const struct table_attr *attr)
{
	uint32_t i = 0;

	while (i < p->n_attrs && (p->attrs[i].key_len != attr->key_len ||
				  memcmp(p->attrs[i].key, attr->key, attr->key_len) != 0))
		i++;
	return &p->attrs[i];
}

static int attr_admit(const struct table_builder *p, const struct table_owned_attr *old,
		      const struct table_attr *attr, struct fault *err)
{
	bool is_new = old == &p->attrs[p->n_attrs];
	uint64_t others = p->attr_bytes - (is_new ? 0 : old->key_len + old->value_len);
	struct table_subject subject = { "attribute", attr->key, attr->key_len };

	if (is_new && p->n_attrs >= ATTRS_MAX)
		return table_refuse(err, CODE_LIMIT, subject,
				    "the buffer has %" PRIu32 " already; at most %u are allowed",
				    p->n_attrs, ATTRS_MAX);
	if (attr->value_len > ATTR_BYTES_MAX ||
	    others + attr->key_len + attr->value_len > ATTR_BYTES_MAX)
		return table_refuse(err, CODE_LIMIT, subject,
				    "keys and values of a buffer may have %u bytes in all; "
				    "%" PRIu64 " are left for this one",
				    ATTR_BYTES_MAX, ATTR_BYTES_MAX - others);
	return 0;
}

static int attr_check_key(const struct table_attr *attr, struct fault *err)
{
	const char *wrong = name_check_attr(attr->key, attr->key_len);

	return wrong ? table_refuse(err, CODE_NAME, (struct table_subject){ "attribute", "?", 1 },
				    "its key: %s", wrong)
		     : 0;
}

int table_builder_set_attr(struct table_builder *p, const struct table_attr *attr,
			   struct fault *err)
{
	struct table_owned_attr *a = attr_find(p, attr);
	char *copy;
	int r = attr_check_key(attr, err);

	if (r == 0)
		r = attr_admit(p, a, attr, err);
	if (r < 0)
		return r;
	copy = malloc(attr->key_len + attr->value_len);
	if (!copy)
		return table_refuse(err, CODE_NO_MEMORY,
				    (struct table_subject){ "attribute", attr->key, attr->key_len },
				    "no memory for one more");

	memcpy(copy, attr->key, attr->key_len);
	if (attr->value_len > 0)
		memcpy(copy + attr->key_len, attr->value, attr->value_len);
	if (a == &p->attrs[p->n_attrs])
		p->n_attrs++;
	p->attr_bytes += attr->key_len + attr->value_len - a->key_len - a->value_len;
	free(a->key);
	a->key = copy;
	a->key_len = attr->key_len;
	a->value_len = attr->value_len;
	return 0;
}

static int attr_remove(struct table_builder *p, const struct table_attr *attr, struct fault *err)
{
	struct table_owned_attr *a = attr_find(p, attr), *end = &p->attrs[p->n_attrs];
	int r = attr_check_key(attr, err);

	if (r < 0 || a == end)
		return r;
	p->attr_bytes -= a->key_len + a->value_len;
	free(a->key);
	memmove(a, a + 1, (size_t)(end - (a + 1)) * sizeof(*a));
	*(end - 1) = (struct table_owned_attr){ 0 };
	p->n_attrs--;
	return 0;
}

static int attrs_copy(const struct table_builder *from, struct table_builder *to, struct fault *err)
{
	int r = 0;

	for (uint32_t i = 0; i < from->n_attrs && r == 0; i++) {
		const struct table_owned_attr *a = &from->attrs[i];

		r = table_builder_set_attr(to,
					   &(struct table_attr){ a->key, a->key_len,
								 a->key + a->key_len,
								 a->value_len },
					   err);
	}
	return r;
}

int table_builder_change_attrs(const struct table_builder *b, const struct table_attr *attrs,
			       size_t n, struct table_builder **ret, struct fault *err)
{
	struct table_builder *changed = NULL;
	int r;

	if (table_builder_new(b->buffer_bytes, &changed) < 0)
		return fault(err, CODE_NO_MEMORY, "no memory for attributes");
	r = attrs_copy(b, changed, err);
	/* Removals come first: they make space. */
	for (size_t i = 0; i < n && r == 0; i++)
		if (attrs[i].value_len == 0)
			r = attr_remove(changed, &attrs[i], err);
	for (size_t i = 0; i < n && r == 0; i++)
		if (attrs[i].value_len > 0)
			r = table_builder_set_attr(changed, &attrs[i], err);
	if (r < 0)
		table_builder_free(changed);
	else
		*ret = changed;
	return r;
}

void table_builder_swap_attrs(struct table_builder *a, struct table_builder *b)
{
	struct table_owned_attr attrs[ATTRS_MAX];
	uint32_t n = a->n_attrs, bytes = a->attr_bytes;

	memcpy(attrs, a->attrs, sizeof(attrs));
	memcpy(a->attrs, b->attrs, sizeof(attrs));
	memcpy(b->attrs, attrs, sizeof(attrs));
	a->n_attrs = b->n_attrs;
	a->attr_bytes = b->attr_bytes;
	b->n_attrs = n;
	b->attr_bytes = bytes;
	/* What was written of an image has the former ones. */
	table_writer_drop(&a->writer);
	table_writer_drop(&b->writer);
}
