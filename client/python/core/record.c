/* SPDX-License-Identifier: MIT
 *
 * Named tuples: a struct's members in the order of its fields below. Times are seconds since the
 * epoch as floats, as os.stat() has them; what is not there is None.
 */
#include "client/python/core/record.h"

#include "client/python/core/buffer.h"

static PyTypeObject *holder_type, *stat_type, *pool_type, *usage_type, *status_type; /* owned */

static PyStructSequence_Field holder_fields[] = {
	{ "pid", "of the process" },
	{ "uid", "of its user" },
	{ "command", "its name, at most 15 bytes, for people" },
	{ "access", "'r' or 'r+'" },
	{ "since", "when it opened the buffer, in seconds since the epoch" },
	{ "suspect", "whether its connection has closed and it lives on" },
	{ "lease", "the daemon's number for it" },
	{ NULL, NULL }
};
static PyStructSequence_Desc holder_desc = { "gpushm.Holder", "Who has a buffer open.",
					     holder_fields, array_size(holder_fields) - 1 };

static PyStructSequence_Field stat_fields[] = {
	{ "name", "'' for an unlinked one" },
	{ "pool", "where its memory is from" },
	{ "kind", "'host', 'pinned', 'vmm' or 'mempool'" },
	{ "state", "'filling', 'sealed' or 'shared'" },
	{ "nbytes", "as asked for" },
	{ "allocated", "bytes, as the pool rounded them up" },
	{ "arrays", "how many" },
	{ "mode", "as a file has it" },
	{ "uid", "its owner" },
	{ "gid", "its group" },
	{ "transient", "whether it unlinks itself when nobody has it open" },
	{ "dirty", "whether a writer died while it held it" },
	{ "dirty_pid", "that process; None" },
	{ "dirty_uid", "its user; None" },
	{ "dirty_command", "its name; None" },
	{ "dirty_since", "when it died, in seconds since the epoch; None" },
	{ "created", "in seconds since the epoch" },
	{ "published", "in seconds since the epoch; None: it is being filled" },
	{ "readers", "that have it open" },
	{ "writers", "that have it open" },
	{ "suspects", "of them" },
	{ "id", "never used again" },
	{ "digest", "of its layout" },
	{ "attrs", "a dict of bytes; of stat() only, else empty" },
	{ "holders", "a list of Holder, where asked for and allowed" },
	{ NULL, NULL }
};
static PyStructSequence_Desc stat_desc = { "gpushm.BufferInfo", "A buffer, as the daemon tells it.",
					   stat_fields, array_size(stat_fields) - 1 };

static PyStructSequence_Field pool_fields[] = {
	{ "name", NULL },
	{ "kind", "'host', 'pinned', 'vmm' or 'mempool'" },
	{ "device", "this process's ordinal of its GPU; None" },
	{ "device_name", "None: no GPU" },
	{ "device_uuid", "'GPU-...'; None: no GPU" },
	{ "pci_id", "None: no GPU" },
	{ "numa_node", "None: none" },
	{ "nbytes", "its size" },
	{ "used", "bytes of buffers that live" },
	{ "pending", "bytes that were freed and wait for reuse" },
	{ "suspect", "bytes that only processes hold whose connection has closed" },
	{ "max_buffer", "bytes of the largest buffer that is possible" },
	{ "granularity", "bytes that sizes are rounded up to" },
	{ "buffers", "how many" },
	{ "failed", "whether it has" },
	{ "why", "of a failed one; None" },
	{ "is_default", "whether buffers that name no pool come from it" },
	{ "allowed", "whether this user may create in it" },
	{ NULL, NULL }
};
static PyStructSequence_Desc pool_desc = { "gpushm.PoolInfo", "A pool, as the daemon tells it.",
					   pool_fields, array_size(pool_fields) - 1 };

static PyStructSequence_Field usage_fields[] = { { "uid", NULL },	  { "nbytes", NULL },
						 { "nbytes_max", NULL },  { "buffers", NULL },
						 { "buffers_max", NULL }, { "leases", NULL },
						 { "leases_max", NULL },  { "peers", NULL },
						 { "peers_max", NULL },	  { NULL, NULL } };
static PyStructSequence_Desc usage_desc = { "gpushm.Usage", "What a user holds, and may hold.",
					    usage_fields, array_size(usage_fields) - 1 };

static PyStructSequence_Field status_fields[] = {
	{ "software", "the daemon's name and version" },
	{ "pid", "the daemon's" },
	{ "uptime", "in seconds" },
	{ "peers", "connections" },
	{ "buffers", NULL },
	{ "leases", "attaches that have not ended" },
	{ "suspects", "processes that are waited for" },
	{ "waiting", "requests that wait for a name" },
	{ "requests", "that were answered" },
	{ "refused", "of them" },
	{ "violations", "connections closed for breaking the protocol" },
	{ "fds", "that the daemon has open" },
	{ "fds_max", NULL },
	{ "pools_failed", "how many: pools() tells which and why" },
	{ "usage", "a list of Usage: this user's; everybody's for an admin" },
	{ NULL, NULL }
};
static PyStructSequence_Desc status_desc = { "gpushm.Status", "The daemon, as it tells of itself.",
					     status_fields, array_size(status_fields) - 1 };

static PyTypeObject *add(PyObject *module, PyStructSequence_Desc *desc)
{
	PyTypeObject *type = PyStructSequence_NewType(desc);

	if (type &&
	    PyModule_AddObjectRef(module, strchr(desc->name, '.') + 1, (PyObject *)type) < 0)
		Py_CLEAR(type);
	return type;
}

int record_init(PyObject *module)
{
	holder_type = add(module, &holder_desc);
	stat_type = add(module, &stat_desc);
	pool_type = add(module, &pool_desc);
	usage_type = add(module, &usage_desc);
	status_type = add(module, &status_desc);
	return holder_type && stat_type && pool_type && usage_type && status_type ? 0 : -1;
}

/* ---- filling them ---- */

/* A tuple that is filled from the left; NULL once something was raised. */
struct filling {
	PyObject *tuple;
	Py_ssize_t next;
};

static struct filling begin(PyTypeObject *type)
{
	return (struct filling){ .tuple = PyStructSequence_New(type) };
}

/* Takes value over; NULL: raised. */
static void put(struct filling *f, PyObject *value)
{
	if (!value)
		Py_CLEAR(f->tuple);
	if (f->tuple)
		PyStructSequence_SetItem(f->tuple, f->next++, value);
	else
		Py_XDECREF(value);
}

static void put_none(struct filling *f)
{
	put(f, Py_NewRef(Py_None));
}

static void put_number(struct filling *f, uint64_t n)
{
	put(f, PyLong_FromUnsignedLongLong(n));
}

/* A number that is negative where there is none. */
static void put_ordinal(struct filling *f, int n)
{
	if (n < 0)
		put_none(f);
	else
		put(f, PyLong_FromLong(n));
}

static void put_truth(struct filling *f, int truth)
{
	put(f, PyBool_FromLong(truth));
}

/* What the daemon tells was made by people, and need not be UTF-8 where it names a process. */
static void put_text(struct filling *f, const char *text)
{
	put(f, PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace"));
}

static void put_text_if(struct filling *f, int there, const char *text)
{
	if (there)
		put_text(f, text);
	else
		put_none(f);
}

static void put_time(struct filling *f, uint64_t ns)
{
	if (ns)
		put(f, PyFloat_FromDouble((double)ns / 1e9));
	else
		put_none(f);
}

static PyObject *record_holder(const struct gpushm_holder *h)
{
	struct filling f = begin(holder_type);

	put(&f, PyLong_FromLong(h->pid));
	put_number(&f, h->uid);
	put_text(&f, h->command);
	put_text(&f, h->access == GPUSHM_WRITE ? "r+" : "r");
	put_time(&f, h->since_ns);
	put_truth(&f, h->suspect);
	put_number(&f, h->lease);
	return f.tuple;
}

static PyObject *attrs_of(const struct gpushm_stat *s)
{
	_cleanup_(drop_object) PyObject *dict = PyDict_New();

	for (size_t i = 0; dict && i < s->n_attrs; i++) {
		const struct gpushm_attr *a = &s->attrs[i];
		_cleanup_(drop_object) PyObject *value =
			PyBytes_FromStringAndSize(a->value, (Py_ssize_t)a->size);

		if (!value || PyDict_SetItemString(dict, a->key, value) < 0)
			return NULL;
	}
	return take_ptr(dict);
}

static PyObject *holders_of(const struct gpushm_stat *s)
{
	_cleanup_(drop_object) PyObject *list = PyList_New(0);

	for (size_t i = 0; list && i < s->n_holders; i++) {
		_cleanup_(drop_object) PyObject *one = record_holder(&s->holders[i]);

		if (!one || PyList_Append(list, one) < 0)
			return NULL;
	}
	return take_ptr(list);
}

static void put_death(struct filling *f, const struct gpushm_stat *s)
{
	put_truth(f, s->dirty);
	put_ordinal(f, s->dirty ? s->dirty_pid : -1);
	if (s->dirty)
		put_number(f, s->dirty_uid);
	else
		put_none(f);
	put_text_if(f, s->dirty, s->dirty_command);
	put_time(f, s->dirty ? s->dirty_ns : 0);
}

PyObject *record_stat(const struct gpushm_stat *s)
{
	struct filling f = begin(stat_type);

	put_text(&f, s->name);
	put_text(&f, s->pool);
	put_text(&f, kind_word(s->kind));
	put_text(&f, state_word(s->state));
	put_number(&f, s->bytes);
	put_number(&f, s->allocated_bytes);
	put_number(&f, s->arrays);
	put_number(&f, s->mode);
	put_number(&f, s->uid);
	put_number(&f, s->gid);
	put_truth(&f, s->transient);
	put_death(&f, s);
	put_time(&f, s->created_ns);
	put_time(&f, s->published_ns);
	put_number(&f, s->readers);
	put_number(&f, s->writers);
	put_number(&f, s->suspects);
	put_number(&f, s->id);
	put_number(&f, s->digest);
	put(&f, attrs_of(s));
	put(&f, holders_of(s));
	return f.tuple;
}

/* "GPU-00112233-4455-6677-8899-aabbccddeeff", as nvidia-smi has it. */
static void put_uuid(struct filling *f, const struct gpushm_pool *p)
{
	static const char digits[] = "0123456789abcdef";
	char text[48] = "GPU-";
	bool any = false;
	char *at = text + 4;

	for (size_t i = 0; i < sizeof(p->device_uuid); i++) {
		any = any || p->device_uuid[i];
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*at++ = '-';
		*at++ = digits[p->device_uuid[i] >> 4];
		*at++ = digits[p->device_uuid[i] & 15];
	}
	*at = '\0';
	put_text_if(f, any, text);
}

PyObject *record_pool(const struct gpushm_pool *p)
{
	struct filling f = begin(pool_type);

	put_text(&f, p->name);
	put_text(&f, kind_word(p->kind));
	put_ordinal(&f, p->device);
	put_text_if(&f, *p->device_name, p->device_name);
	put_uuid(&f, p);
	put_text_if(&f, *p->pci_id, p->pci_id);
	put_ordinal(&f, p->numa_node);
	put_number(&f, p->bytes);
	put_number(&f, p->used_bytes);
	put_number(&f, p->pending_bytes);
	put_number(&f, p->suspect_bytes);
	put_number(&f, p->max_buffer_bytes);
	put_number(&f, p->granularity);
	put_number(&f, p->buffers);
	put_truth(&f, p->failed);
	put_text_if(&f, p->failed, p->why);
	put_truth(&f, p->is_default);
	put_truth(&f, p->allowed);
	return f.tuple;
}

static PyObject *record_usage(const struct gpushm_usage *u)
{
	struct filling f = begin(usage_type);

	put_number(&f, u->uid);
	put_number(&f, u->bytes);
	put_number(&f, u->bytes_max);
	put_number(&f, u->buffers);
	put_number(&f, u->buffers_max);
	put_number(&f, u->leases);
	put_number(&f, u->leases_max);
	put_number(&f, u->peers);
	put_number(&f, u->peers_max);
	return f.tuple;
}

static PyObject *usage_of(const struct gpushm_status *s)
{
	_cleanup_(drop_object) PyObject *list = PyList_New(0);

	for (size_t i = 0; list && i < s->n_usage; i++) {
		_cleanup_(drop_object) PyObject *one = record_usage(&s->usage[i]);

		if (!one || PyList_Append(list, one) < 0)
			return NULL;
	}
	return take_ptr(list);
}

PyObject *record_status(const struct gpushm_status *s)
{
	struct filling f = begin(status_type);

	put_text(&f, s->software);
	put(&f, PyLong_FromLong(s->pid));
	put(&f, PyFloat_FromDouble((double)s->uptime_ms / 1e3));
	put_number(&f, s->peers);
	put_number(&f, s->buffers);
	put_number(&f, s->leases);
	put_number(&f, s->suspects);
	put_number(&f, s->waiting);
	put_number(&f, s->requests);
	put_number(&f, s->refused);
	put_number(&f, s->violations);
	put_number(&f, s->fds);
	put_number(&f, s->fds_max);
	put_number(&f, s->pools_failed);
	put(&f, usage_of(s));
	return f.tuple;
}
