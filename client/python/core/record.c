/* SPDX-License-Identifier: MIT
 *
 * Named tuples: the tables of client/records.txt say which member becomes which field, and how.
 * Times are seconds since the epoch as floats, as in os.stat(); a value that is missing is None.
 */
#include "client/python/core/record.h"

#include "client/gpushm_events.h"
#include "client/gpushm_query.h"
#include "client/gpushm_stream.h"
#include "proto/base/uuid.h"
#include "proto/record.h"
#include "proto/words.h"

#include "records_table.h"

const struct record *const record_stat = &stat_record, *const record_pool = &pool_record,
			   *const record_status = &status_record,
			   *const record_event = &event_record,
			   *const record_logged_event = &logged_event_record,
			   *const record_stream_stats = &stream_stats_record,
			   *const record_stream_info = &stream_info_record;

/* A table's type. */
struct tuple_type {
	const struct record *record;
	int hidden;	    /* the last fields are attributes only, and no items of the tuple */
	PyTypeObject *type; /* owned, for as long as the process lives */
};

#define TUPLE(name)                      \
	{                                \
		.record = &name##_record \
	}
static struct tuple_type tuple_types[] = {
	TUPLE(holder),
	TUPLE(stat),
	TUPLE(pool),
	TUPLE(usage),
	TUPLE(status),
	{ .record = &event_record, .hidden = 1 }, /* a program may unpack three items */
	TUPLE(logged_event),
	TUPLE(stream_stats),
	TUPLE(stream_reader),
	TUPLE(stream_info),
};

/* ---- members of one value ---- */

static PyObject *none(void)
{
	return Py_NewRef(Py_None);
}

/* Names of processes need not be UTF-8. */
static PyObject *from_text(const char *text, bool may_be_missing)
{
	return may_be_missing && !*text
		       ? none()
		       : PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* "GPU-00112233-4455-6677-8899-aabbccddeeff", as nvidia-smi prints it; None: zeros. */
static PyObject *from_uuid(const unsigned char *uuid)
{
	char text[UUID_TEXT + 4] = "GPU-";
	bool any = false;

	for (int i = 0; i < 16; i++)
		any = any || uuid[i];
	uuid_format(uuid, text + 4);
	return any ? PyUnicode_FromString(text) : none();
}

/* NULL: the value means none. An access is a mode of open(). */
static const char *word_of(enum record_type type, unsigned value)
{
	bool is_access = type == RECORD_ACCESS || type == RECORD_ACCESSN;

	if (value == 0 && (type == RECORD_STATEN || type == RECORD_ACCESSN))
		return NULL;
	if (is_access)
		return value == GPUSHM_WRITE ? "r+" : "r";
	return record_word(type, value);
}

/* Values of 32 bits. */
static PyObject *from_32(enum record_type type, const void *p)
{
	int number = *(const int *)p;

	switch (type) {
	case RECORD_BOOL:
		return PyBool_FromLong(number);
	case RECORD_INT:
	case RECORD_PID:
		return PyLong_FromLong(number);
	case RECORD_PID0:
		return number ? PyLong_FromLong(number) : none();
	case RECORD_ORDINAL:
		return number < 0 ? none() : PyLong_FromLong(number);
	case RECORD_UIDN:
		return number == -1 ? none() : PyLong_FromUnsignedLong((unsigned)number);
	case RECORD_U32:
	case RECORD_UID:
	case RECORD_GID:
	case RECORD_MODE:
		return PyLong_FromUnsignedLong((unsigned)number);
	default:
		return word_of(type, (unsigned)number)
			       ? PyUnicode_FromString(word_of(type, (unsigned)number))
			       : none();
	}
}

static PyObject *from_64(enum record_type type, uint64_t number)
{
	bool missing = (number == 0 && (type == RECORD_ID0 || type == RECORD_TIME)) ||
		       (number == GPUSHM_WAIT_FOREVER && type == RECORD_LIMIT);

	if (missing)
		return none();
	if (type == RECORD_TIME || type == RECORD_NS)
		return PyFloat_FromDouble((double)number / 1e9);
	if (type == RECORD_MS || type == RECORD_LIMIT)
		return PyFloat_FromDouble((double)number / 1e3);
	return PyLong_FromUnsignedLongLong(number);
}

/* ---- members of many values ---- */

/* Attributes by their keys, or the counts of refusals by their codes. */
static PyObject *from_pairs(const void *const *structs, size_t n, bool attrs)
{
	_cleanup_(drop_object) PyObject *dict = PyDict_New();

	for (size_t i = 0; dict && i < n; i++) {
		const struct gpushm_attr *a = structs[i];
		const struct gpushm_refusal *r = structs[i];
		_cleanup_(drop_object) PyObject *value =
			attrs ? PyBytes_FromStringAndSize(a->value, (Py_ssize_t)a->size)
			      : PyLong_FromUnsignedLongLong(r->count);

		if (!value || PyDict_SetItemString(dict, attrs ? a->key : r->code, value) < 0)
			return NULL;
	}
	return take_ptr(dict);
}

PyObject *record_list(const struct record *r, const void *const *structs, size_t n)
{
	PyObject *list = PyList_New(0);

	for (size_t i = 0; list && i < n; i++)
		object_append(&list, record_one(r, structs[i]));
	return list;
}

/* ---- structs ---- */

static PyObject *read_field(const struct record_field *f, const void *from)
{
	const void *p = record_at(from, f->at);

	if (!record_has(f, from))
		return none();
	switch (f->type) {
	case RECORD_NAME:
	case RECORD_TEXT:
	case RECORD_LABEL:
		return from_text(p, f->type == RECORD_LABEL);
	case RECORD_STRING:
	case RECORD_CODE:
	case RECORD_TYPE:
		return from_text(*(const char *const *)p, true);
	case RECORD_UUID:
		return from_uuid(p);
	case RECORD_ATTRS:
	case RECORD_LIST:
		if (f->type == RECORD_ATTRS || f->of == &refusal_record)
			return from_pairs(*(const void *const *const *)p, record_count(f, from),
					  f->type == RECORD_ATTRS);
		return record_list(f->of, *(const void *const *const *)p, record_count(f, from));
	default:
		return f->size == sizeof(uint64_t) ? from_64(f->type, *(const uint64_t *)p)
						   : from_32(f->type, p);
	}
}

static PyTypeObject *type_of(const struct record *r)
{
	size_t i = 0;

	while (tuple_types[i].record != r)
		i++;
	return tuple_types[i].type;
}

PyObject *record_one(const struct record *r, const void *from)
{
	PyObject *tuple = PyStructSequence_New(type_of(r));
	Py_ssize_t at = 0;

	for (unsigned i = 0; tuple && i < r->n; i++) {
		PyObject *value = r->fields[i].python ? read_field(&r->fields[i], from) : none();

		if (value && r->fields[i].python)
			PyStructSequence_SetItem(tuple, at++, value);
		else if (value)
			Py_DECREF(value);
		else
			Py_CLEAR(tuple);
	}
	return tuple;
}

static int add(PyObject *module, struct tuple_type *t)
{
	_cleanup_(free_ptr) PyStructSequence_Field *fields =
		calloc(t->record->n + 1, sizeof(*fields));
	PyStructSequence_Desc desc = { t->record->python, t->record->doc, fields, -t->hidden };
	int n = 0;

	if (!fields)
		return PyErr_NoMemory(), -1;
	for (unsigned i = 0; i < t->record->n; i++)
		if (t->record->fields[i].python)
			fields[n++] = (PyStructSequence_Field){ t->record->fields[i].python,
								t->record->fields[i].doc };
	desc.n_in_sequence += n;
	t->type = PyStructSequence_NewType(&desc);
	return t->type ? PyModule_AddType(module, t->type) : -1;
}

int record_init(PyObject *module)
{
	for (size_t i = 0; i < array_size(tuple_types); i++)
		if (add(module, &tuple_types[i]) < 0)
			return -1;
	return 0;
}
