/* SPDX-License-Identifier: MIT
 *
 * What a program gives a frame beside its arrays. Bytes are passed on as they are. A dict becomes a
 * map of CBOR (RFC 8949) behind the tag 55799, "self-described CBOR", by which readers know it.
 * Keys of the map that are numbers belong to the package:
 *
 *	0, 1, ...  the shape of the array with that index, where it is not the slot's
 *	-1	   the program's bytes, where shapes are to be said, too, or they begin as the tag
 *
 * Both directions know integers of 64 bits, floats, text, bytes, lists, maps, true, false and null;
 * lengths are definite, and numbers need not be the shortest.
 */
#include "client/python/core/meta.h"

#include "proto/base/cbor.h"

#include <stdio.h>

/* ---- encoding ---- */

/* Counts what does not fit, too. */
struct writer {
	struct meta *to;
	size_t n;
};

static void put(struct writer *w, const void *bytes, size_t n)
{
	if (n <= sizeof(w->to->bytes) && w->n <= sizeof(w->to->bytes) - n)
		memcpy(w->to->bytes + w->n, bytes, n);
	w->n += n;
}

/* The first byte of an item, and `size` bytes of a number, the highest first. */
static void put_number(struct writer *w, enum cbor_major major, unsigned low, uint64_t n, int size)
{
	unsigned char bytes[9] = { (unsigned char)((unsigned)major << 5 | low) };

	for (int i = 0; i < size; i++)
		bytes[size - i] = (unsigned char)(n >> 8 * i);
	put(w, bytes, 1 + (size_t)size);
}

static void put_head(struct writer *w, enum cbor_major major, uint64_t n)
{
	if (n < 24)
		put_number(w, major, (unsigned)n, 0, 0);
	else if (n <= UINT8_MAX)
		put_number(w, major, 24, n, 1);
	else if (n <= UINT16_MAX)
		put_number(w, major, 25, n, 2);
	else if (n <= UINT32_MAX)
		put_number(w, major, 26, n, 4);
	else
		put_number(w, major, 27, n, 8);
}

static void put_float(struct writer *w, double x)
{
	float single = (float)x;
	uint64_t bits = 0;
	uint32_t bits32;

	if ((double)single == x) {
		memcpy(&bits32, &single, sizeof(bits32));
		put_number(w, CBOR_OTHER, CBOR_SINGLE, bits32, 4);
	} else {
		memcpy(&bits, &x, sizeof(bits));
		put_number(w, CBOR_OTHER, CBOR_DOUBLE, bits, 8);
	}
}

static int put_integer(struct writer *w, PyObject *number)
{
	int overflow;
	long long n = PyLong_AsLongLongAndOverflow(number, &overflow);
	unsigned long long positive;

	if (overflow > 0) {
		positive = PyLong_AsUnsignedLongLong(number);
		if (!PyErr_Occurred())
			put_head(w, CBOR_UNSIGNED, positive);
	} else if (overflow < 0) {
		PyErr_Format(PyExc_OverflowError, "%R has more than 64 bits", number);
	} else if (!PyErr_Occurred()) {
		put_head(w, n < 0 ? CBOR_NEGATIVE : CBOR_UNSIGNED,
			 (uint64_t)(n < 0 ? -(n + 1) : n));
	}
	return PyErr_Occurred() ? -1 : 0;
}

static int put_buffer(struct writer *w, PyObject *o)
{
	Py_buffer view;

	if (PyObject_GetBuffer(o, &view, PyBUF_SIMPLE) < 0)
		return -1;
	put_head(w, CBOR_BYTES, (uint64_t)view.len);
	put(w, view.buf, (size_t)view.len);
	PyBuffer_Release(&view);
	return 0;
}

static int put_text(struct writer *w, PyObject *o)
{
	Py_ssize_t n;
	const char *text = PyUnicode_AsUTF8AndSize(o, &n);

	if (!text)
		return -1;
	put_head(w, CBOR_TEXT, (uint64_t)n);
	put(w, text, (size_t)n);
	return 0;
}

static int put_item(struct writer *w, PyObject *o);

static int put_list(struct writer *w, PyObject *o)
{
	_cleanup_(drop_object) PyObject *row = PySequence_Tuple(o);

	if (!row)
		return -1;
	put_head(w, CBOR_LIST, (uint64_t)PyTuple_Size(row));
	for (Py_ssize_t i = 0; i < PyTuple_Size(row); i++)
		if (put_item(w, PyTuple_GetItem(row, i)) < 0)
			return -1;
	return 0;
}

static int put_pairs(struct writer *w, PyObject *dict)
{
	_cleanup_(drop_object) PyObject *items = PyDict_Items(dict);

	for (Py_ssize_t i = 0; items && i < PyList_Size(items); i++) {
		PyObject *pair = PyList_GetItem(items, i), *key = PyTuple_GetItem(pair, 0);

		if (!PyUnicode_Check(key))
			return error_python(PyExc_TypeError,
					    "a frame's meta has keys of str, not %R", key);
		if (put_text(w, key) < 0 || put_item(w, PyTuple_GetItem(pair, 1)) < 0)
			return -1;
	}
	return items ? 0 : -1;
}

/* Numbers of other libraries: NumPy's scalars. */
static int put_number_like(struct writer *w, PyObject *o)
{
	_cleanup_(drop_object) PyObject *number = NULL;

	if (PyIndex_Check(o)) {
		number = PyNumber_Index(o);
		return number ? put_integer(w, number) : -1;
	}
	number = PyNumber_Float(o);
	if (number)
		put_float(w, PyFloat_AsDouble(number));
	return number ? 0 : -1;
}

static int put_one(struct writer *w, PyObject *o)
{
	if (o == Py_None || PyBool_Check(o)) {
		put_number(w, CBOR_OTHER,
			   o == Py_None	  ? CBOR_NULL
			   : o == Py_True ? CBOR_TRUE
					  : CBOR_FALSE,
			   0, 0);
		return 0;
	}
	if (PyLong_Check(o))
		return put_integer(w, o);
	if (PyUnicode_Check(o))
		return put_text(w, o);
	if (PyBytes_Check(o) || PyByteArray_Check(o) || PyMemoryView_Check(o))
		return put_buffer(w, o);
	if (PyList_Check(o) || PyTuple_Check(o))
		return put_list(w, o);
	if (PyDict_Check(o)) {
		put_head(w, CBOR_MAP, (uint64_t)PyDict_Size(o));
		return put_pairs(w, o);
	}
	if (!PyObject_HasAttrString(o, "__len__") &&
	    (PyIndex_Check(o) || PyObject_HasAttrString(o, "__float__")))
		return put_number_like(w, o);
	return error_python(PyExc_TypeError,
			    "a frame's meta has numbers, str, bytes, bool, None, lists and dicts, "
			    "not %R",
			    (PyObject *)Py_TYPE(o));
}

static int put_item(struct writer *w, PyObject *o)
{
	int r;

	if (Py_EnterRecursiveCall(" in a frame's meta"))
		return -1;
	r = put_one(w, o);
	Py_LeaveRecursiveCall();
	return r;
}

static int put_shapes(struct writer *w, PyObject *shapes)
{
	Py_ssize_t at = 0;
	PyObject *index, *shape;

	while (shapes && PyDict_Next(shapes, &at, &index, &shape))
		if (put_integer(w, index) < 0 || put_list(w, shape) < 0)
			return -1;
	return 0;
}

/* A map of the shapes, and of the value: a dict, bytes or NULL. */
static int put_map(struct writer *w, PyObject *value, PyObject *shapes)
{
	bool is_dict = value && PyDict_Check(value);
	Py_ssize_t n = shapes ? PyDict_Size(shapes) : 0;

	put(w, CBOR_TAG, CBOR_TAG_BYTES);
	put_head(w, CBOR_MAP, (uint64_t)(n + (is_dict ? PyDict_Size(value) : value ? 1 : 0)));
	if (put_shapes(w, shapes) < 0)
		return -1;
	if (is_dict || !value)
		return is_dict ? put_pairs(w, value) : 0;
	put_head(w, CBOR_NEGATIVE, 0);
	return put_buffer(w, value);
}

/* *ret_plain: they need no map. */
static int put_plain(struct writer *w, PyObject *value, bool *ret_plain)
{
	Py_buffer view;

	if (PyObject_GetBuffer(value, &view, PyBUF_SIMPLE) < 0) {
		if (PyErr_ExceptionMatches(PyExc_TypeError))
			error_python(PyExc_TypeError,
				     "a frame's meta is a dict, bytes or None, not %R",
				     (PyObject *)Py_TYPE(value));
		return -1;
	}
	*ret_plain = !cbor_begins(view.buf, (size_t)view.len);
	if (*ret_plain)
		put(w, view.buf, (size_t)view.len);
	PyBuffer_Release(&view);
	return 0;
}

int meta_encode(PyObject *value, PyObject *shapes, struct meta *ret)
{
	struct writer w = { .to = ret };
	bool plain = false;

	ret->n = 0;
	value = value == Py_None ? NULL : value;
	if (!value && !shapes)
		return 0;
	if (value && !PyDict_Check(value) && !shapes && put_plain(&w, value, &plain) < 0)
		return -1;
	if (!plain && put_map(&w, value, shapes) < 0)
		return -1;
	ret->n = w.n;
	if (w.n <= sizeof(ret->bytes))
		return 0;
	return error_refuse(
		ERROR_ARGUMENT, EINVAL,
		"the frame's meta%s needs %zu bytes, and a frame has %d: use shorter keys, or "
		"put it into an array of the stream",
		shapes ? ", with the shapes of its arrays," : "", w.n, GPUSHM_META_MAX);
}

/* ---- decoding ----
 *
 * Another process has written it. A function returns NULL or -1 without an exception where it is no
 * CBOR that is known here. */

static PyObject *other_from(const struct cbor_item *i)
{
	switch (i->low) {
	case CBOR_FALSE:
	case CBOR_TRUE:
		return PyBool_FromLong(i->low == CBOR_TRUE);
	case CBOR_NULL:
		return Py_NewRef(Py_None);
	case CBOR_HALF:
	case CBOR_SINGLE:
	case CBOR_DOUBLE:
		return PyFloat_FromDouble(cbor_real(i));
	default:
		return NULL;
	}
}

static PyObject *negative_from(uint64_t n)
{
	_cleanup_(drop_object) PyObject *number = PyLong_FromUnsignedLongLong(n);

	return number ? PyNumber_Invert(number) : NULL;
}

static PyObject *scan_item(struct cbor *s);

static PyObject *scan_string(struct cbor *s, bool text, uint64_t n)
{
	const char *bytes = cbor_take(s, n);

	if (!bytes)
		return NULL;
	return text ? PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)n, "strict")
		    : PyBytes_FromStringAndSize(bytes, (Py_ssize_t)n);
}

static PyObject *scan_list(struct cbor *s, uint64_t n)
{
	PyObject *list = PyList_New(0);

	/* A number that is too large ends where the bytes end. */
	for (uint64_t i = 0; list && i < n; i++)
		object_append(&list, scan_item(s));
	return list;
}

static PyObject *scan_map(struct cbor *s, uint64_t n)
{
	PyObject *dict = PyDict_New();

	for (uint64_t i = 0; dict && i < n; i++) {
		_cleanup_(drop_object) PyObject *key = scan_item(s),
						*value = key ? scan_item(s) : NULL;

		if (!value || PyDict_SetItem(dict, key, value) < 0)
			Py_CLEAR(dict);
	}
	return dict;
}

static PyObject *scan_item(struct cbor *s)
{
	struct cbor_item i;

	/* 64 bytes have 64 levels at most. */
	if (!cbor_next(s, &i))
		return NULL;
	switch (i.major) {
	case CBOR_UNSIGNED:
		return PyLong_FromUnsignedLongLong(i.value);
	case CBOR_NEGATIVE:
		return negative_from(i.value);
	case CBOR_BYTES:
	case CBOR_TEXT:
		return scan_string(s, i.major == CBOR_TEXT, i.value);
	case CBOR_LIST:
		return scan_list(s, i.value);
	case CBOR_MAP:
		return scan_map(s, i.value);
	case CBOR_OTHER:
		return other_from(&i);
	default:
		return NULL;
	}
}

/* Moves the package's own entries of the map out of it. */
static int split(PyObject *map, PyObject **ret_value, PyObject **ret_shapes)
{
	_cleanup_(drop_object) PyObject *items = PyDict_Items(map), *shapes = PyDict_New(),
					*value = NULL;

	for (Py_ssize_t i = 0; items && shapes && i < PyList_Size(items); i++) {
		PyObject *pair = PyList_GetItem(items, i), *key = PyTuple_GetItem(pair, 0);
		PyObject *one = PyTuple_GetItem(pair, 1);

		if (PyUnicode_Check(key))
			continue;
		if (PyLong_Check(key) && PyBytes_Check(one) && PyLong_AsLongLong(key) == -1) {
			Py_XDECREF(value);
			value = Py_NewRef(one);
		} else if (!PyList_Check(one) || PyDict_SetItem(shapes, key, one) < 0) {
			return -1;
		}
		if (PyDict_DelItem(map, key) < 0)
			return -1;
	}
	if (!items || !shapes)
		return -1;
	if (!value)
		value = PyDict_Size(shapes) > 0 && PyDict_Size(map) == 0
				? PyBytes_FromStringAndSize("", 0)
				: Py_NewRef(map);
	*ret_shapes = PyDict_Size(shapes) > 0 ? take_ptr(shapes) : NULL;
	*ret_value = take_ptr(value);
	return *ret_value ? 0 : -1;
}

int meta_decode(const struct meta *m, PyObject **ret_value, PyObject **ret_shapes)
{
	struct cbor s = { m->bytes + CBOR_TAG_BYTES, m->bytes + m->n };
	_cleanup_(drop_object) PyObject *map = NULL;

	*ret_shapes = NULL;
	if (cbor_begins(m->bytes, m->n)) {
		map = scan_item(&s);
		if (map && PyDict_Check(map) && s.at == s.end &&
		    split(map, ret_value, ret_shapes) == 0)
			return 0;
		if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_MemoryError))
			return -1;
		PyErr_Clear();
	}
	*ret_value = PyBytes_FromStringAndSize((const char *)m->bytes, (Py_ssize_t)m->n);
	return *ret_value ? 0 : -1;
}
