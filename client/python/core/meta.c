/* SPDX-License-Identifier: MIT
 *
 * What a program gives a frame beside its arrays. Bytes are passed on as they are. A dict becomes a
 * map of CBOR (RFC 8949) behind the tag 55799, "self-described CBOR", by which readers know it.
 *Keys of the map that are numbers belong to the package:
 *
 *	0, 1, ...  the shape of the array with that index, where it is not the slot's
 *	-1	   the program's bytes, where shapes are to be said, too, or the bytes begin as the
 *tag
 *
 * Both directions know integers of 64 bits, floats, text, bytes, lists, maps, true, false and null;
 * lengths are definite, and numbers need not be the shortest.
 */
#include "client/python/core/meta.h"

#include <math.h>
#include <stdio.h>

static const unsigned char tag[] = { 0xd9, 0xd9, 0xf7 };

enum major { UNSIGNED, NEGATIVE, BYTES, TEXT, LIST, MAP, TAG, OTHER };
enum { FALSE_ = 20, TRUE_ = 21, NULL_ = 22, HALF = 25, SINGLE = 26, DOUBLE = 27 };

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
static void put_number(struct writer *w, enum major major, unsigned low, uint64_t n, int size)
{
	unsigned char bytes[9] = { (unsigned char)((unsigned)major << 5 | low) };

	for (int i = 0; i < size; i++)
		bytes[size - i] = (unsigned char)(n >> 8 * i);
	put(w, bytes, 1 + (size_t)size);
}

static void put_head(struct writer *w, enum major major, uint64_t n)
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
		put_number(w, OTHER, SINGLE, bits32, 4);
	} else {
		memcpy(&bits, &x, sizeof(bits));
		put_number(w, OTHER, DOUBLE, bits, 8);
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
			put_head(w, UNSIGNED, positive);
	} else if (overflow < 0) {
		PyErr_Format(PyExc_OverflowError, "%R has more than 64 bits", number);
	} else if (!PyErr_Occurred()) {
		put_head(w, n < 0 ? NEGATIVE : UNSIGNED, (uint64_t)(n < 0 ? -(n + 1) : n));
	}
	return PyErr_Occurred() ? -1 : 0;
}

static int put_buffer(struct writer *w, PyObject *o)
{
	Py_buffer view;

	if (PyObject_GetBuffer(o, &view, PyBUF_SIMPLE) < 0)
		return -1;
	put_head(w, BYTES, (uint64_t)view.len);
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
	put_head(w, TEXT, (uint64_t)n);
	put(w, text, (size_t)n);
	return 0;
}

static int put_item(struct writer *w, PyObject *o);

static int put_list(struct writer *w, PyObject *o)
{
	_cleanup_(drop_object) PyObject *row = PySequence_Tuple(o);

	if (!row)
		return -1;
	put_head(w, LIST, (uint64_t)PyTuple_Size(row));
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
		put_number(w, OTHER, o == Py_None ? NULL_ : o == Py_True ? TRUE_ : FALSE_, 0, 0);
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
		put_head(w, MAP, (uint64_t)PyDict_Size(o));
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

	put(w, tag, sizeof(tag));
	put_head(w, MAP, (uint64_t)(n + (is_dict ? PyDict_Size(value) : value ? 1 : 0)));
	if (put_shapes(w, shapes) < 0)
		return -1;
	if (is_dict || !value)
		return is_dict ? put_pairs(w, value) : 0;
	put_head(w, NEGATIVE, 0);
	return put_buffer(w, value);
}

static bool begins_as_tag(const unsigned char *bytes, size_t n)
{
	return n >= sizeof(tag) && memcmp(bytes, tag, sizeof(tag)) == 0;
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
	*ret_plain = !begins_as_tag(view.buf, (size_t)view.len);
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
	error_format(ERROR_ARGUMENT, EINVAL,
		     "the frame's meta%s needs %zu bytes, and a frame has %d: use shorter keys, or "
		     "put it into an array of the stream",
		     shapes ? ", with the shapes of its arrays," : "", w.n, GPUSHM_META_MAX);
	return -1;
}

/* ---- decoding ----
 *
 * Another process has written it. A function returns NULL or -1 without an exception where it is no
 * CBOR that is known here. */

struct scan {
	const unsigned char *at, *end;
};

static uint64_t big_endian(const unsigned char *bytes, size_t n)
{
	uint64_t value = 0;

	for (size_t i = 0; i < n; i++)
		value = value << 8 | bytes[i];
	return value;
}

/* -1: it does not go on like that. */
static int scan_head(struct scan *s, enum major *ret_major, unsigned *ret_low, uint64_t *ret_n)
{
	unsigned low;
	size_t size;

	if (s->at == s->end)
		return -1;
	*ret_major = (enum major)(*s->at >> 5);
	low = *ret_low = *s->at++ & 31;
	*ret_n = low;
	if (low < 24)
		return 0;
	size = (size_t)1 << (low - 24);
	if (low > 27 || size > (size_t)(s->end - s->at))
		return -1;
	*ret_n = big_endian(s->at, size);
	s->at += size;
	return 0;
}

static double half_from(unsigned bits)
{
	unsigned exponent = bits >> 10 & 31, mantissa = bits & 1023;
	double x = exponent == 0    ? ldexp(mantissa, -24)
		   : exponent == 31 ? (mantissa ? (double)NAN : (double)INFINITY)
				    : ldexp(mantissa + 1024, (int)exponent - 25);

	return bits >> 15 ? -x : x;
}

static PyObject *other_from(unsigned low, uint64_t n)
{
	uint32_t bits = (uint32_t)n;
	float single;
	double x;

	switch (low) {
	case FALSE_:
	case TRUE_:
		return PyBool_FromLong(low == TRUE_);
	case NULL_:
		return Py_NewRef(Py_None);
	case HALF:
		return PyFloat_FromDouble(half_from(bits));
	case SINGLE:
		memcpy(&single, &bits, sizeof(single));
		return PyFloat_FromDouble((double)single);
	case DOUBLE:
		memcpy(&x, &n, sizeof(x));
		return PyFloat_FromDouble(x);
	default:
		return NULL;
	}
}

static PyObject *negative_from(uint64_t n)
{
	_cleanup_(drop_object) PyObject *number = PyLong_FromUnsignedLongLong(n);

	return number ? PyNumber_Invert(number) : NULL;
}

static PyObject *scan_item(struct scan *s);

static PyObject *scan_string(struct scan *s, bool text, uint64_t n)
{
	const char *bytes = (const char *)s->at;

	if (n > (uint64_t)(s->end - s->at))
		return NULL;
	s->at += n;
	return text ? PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)n, "strict")
		    : PyBytes_FromStringAndSize(bytes, (Py_ssize_t)n);
}

static PyObject *scan_list(struct scan *s, uint64_t n)
{
	PyObject *list = PyList_New(0);

	/* A number that is too large ends where the bytes end. */
	for (uint64_t i = 0; list && i < n; i++)
		object_append(&list, scan_item(s));
	return list;
}

static PyObject *scan_map(struct scan *s, uint64_t n)
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

static PyObject *scan_item(struct scan *s)
{
	enum major major;
	unsigned low;
	uint64_t n;

	/* 64 bytes have 64 levels at most. */
	if (scan_head(s, &major, &low, &n) < 0)
		return NULL;
	switch (major) {
	case UNSIGNED:
		return PyLong_FromUnsignedLongLong(n);
	case NEGATIVE:
		return negative_from(n);
	case BYTES:
	case TEXT:
		return scan_string(s, major == TEXT, n);
	case LIST:
		return scan_list(s, n);
	case MAP:
		return scan_map(s, n);
	case OTHER:
		return other_from(low, n);
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
	struct scan s = { m->bytes + sizeof(tag), m->bytes + m->n };
	_cleanup_(drop_object) PyObject *map = NULL;

	*ret_shapes = NULL;
	if (begins_as_tag(m->bytes, m->n)) {
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
