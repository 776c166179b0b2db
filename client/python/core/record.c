/* SPDX-License-Identifier: MIT
 *
 * Named tuples: one table for each struct of libgpushm says which member becomes which field, and
 * how. Times are seconds since the epoch as floats, as in os.stat(); a value that is missing is
 * None.
 */
#include "client/python/core/record.h"

#include "proto/base/uuid.h"
#include "proto/words.h"

#define FIELDS_MAX 32

struct field {
	const char *name, *doc;
	PyObject *(*read)(const void *member);
	size_t at;   /* where the member is in the struct */
	size_t when; /* where an int is; while it is 0 the field is None; 0: there is no such int */
};

/* `name_` is one member of the struct; WHOLE() reads several. */
#define FIELD(struct_, name_, read_, member_, doc_)              \
	{                                                        \
		.name = name_, .doc = doc_, .read = read_,       \
		.at = offsetof(struct gpushm_##struct_, member_) \
	}
#define FIELD_IF(struct_, name_, read_, member_, when_, doc_)     \
	{                                                         \
		.name = name_, .doc = doc_, .read = read_,        \
		.at = offsetof(struct gpushm_##struct_, member_), \
		.when = offsetof(struct gpushm_##struct_, when_)  \
	}
#define WHOLE(name_, read_, doc_)                         \
	{                                                 \
		.name = name_, .doc = doc_, .read = read_ \
	}

struct record {
	const char *name, *doc;
	const struct field *fields;
	int n, hidden;	    /* the last ones are attributes only, and no items of the tuple */
	PyTypeObject *type; /* owned, for as long as the process lives */
};

#define RECORD(name_, doc_, fields_)                                                    \
	{                                                                               \
		.name = name_, .doc = doc_, .fields = fields_, .n = array_size(fields_) \
	}

static PyObject *fill(const struct record *r, const void *from)
{
	PyObject *tuple = PyStructSequence_New(r->type);

	for (int i = 0; tuple && i < r->n; i++) {
		const struct field *f = &r->fields[i];
		bool missing = f->when && !*(const int *)((const char *)from + f->when);
		PyObject *value =
			missing ? Py_NewRef(Py_None) : f->read((const char *)from + f->at);

		if (value)
			PyStructSequence_SetItem(tuple, i, value);
		else
			Py_CLEAR(tuple);
	}
	return tuple;
}

/* A list of n structs of that size. */
static PyObject *fill_list(const struct record *r, const void *from, size_t size, size_t n)
{
	PyObject *list = PyList_New(0);

	for (size_t i = 0; list && i < n; i++)
		object_append(&list, fill(r, (const char *)from + i * size));
	return list;
}

/* ---- how members are read ---- */

static PyObject *read_u32(const void *p)
{
	return PyLong_FromUnsignedLong(*(const uint32_t *)p);
}

static PyObject *read_u64(const void *p)
{
	return PyLong_FromUnsignedLongLong(*(const uint64_t *)p);
}

static PyObject *read_int(const void *p)
{
	return PyLong_FromLong(*(const int *)p);
}

/* A number that is negative where there is none. */
static PyObject *read_ordinal(const void *p)
{
	return *(const int *)p < 0 ? Py_NewRef(Py_None) : read_int(p);
}

static PyObject *read_truth(const void *p)
{
	return PyBool_FromLong(*(const int *)p);
}

/* Names of processes need not be UTF-8. */
static PyObject *read_text(const void *p)
{
	return PyUnicode_DecodeUTF8(p, (Py_ssize_t)strlen(p), "replace");
}

static PyObject *read_text_or_none(const void *p)
{
	return *(const char *)p ? read_text(p) : Py_NewRef(Py_None);
}

static PyObject *read_ns(const void *p)
{
	uint64_t ns = *(const uint64_t *)p;

	return ns ? PyFloat_FromDouble((double)ns / 1e9) : Py_NewRef(Py_None);
}

static PyObject *read_ms(const void *p)
{
	return PyFloat_FromDouble((double)*(const uint64_t *)p / 1e3);
}

static PyObject *read_access(const void *p)
{
	return PyUnicode_FromString(*(const enum gpushm_access *)p == GPUSHM_WRITE ? "r+" : "r");
}

static PyObject *read_state(const void *p)
{
	return PyUnicode_FromString(state_word(*(const enum gpushm_state *)p));
}

static PyObject *read_kind(const void *p)
{
	return PyUnicode_FromString(kind_word(*(const enum gpushm_kind *)p));
}

static PyObject *read_event(const void *p)
{
	static const char *const words[] = { "unknown",	 "published", "dirty",	  "clean",
					     "unlinked", "gone",      "restarted" };
	unsigned what = *(const enum gpushm_event_kind *)p;

	return PyUnicode_FromString(words[what < array_size(words) ? what : 0]);
}

/* "GPU-00112233-4455-6677-8899-aabbccddeeff", as nvidia-smi prints it; None: zeros. */
static PyObject *read_uuid(const void *p)
{
	char text[UUID_TEXT + 4] = "GPU-";
	const unsigned char *uuid = p;
	bool any = false;

	for (int i = 0; i < 16; i++)
		any = any || uuid[i];
	uuid_format(uuid, text + 4);
	return any ? PyUnicode_FromString(text) : Py_NewRef(Py_None);
}

/* ---- the tables ---- */

static const struct field holder_fields[] = {
	FIELD(holder, "pid", read_int, pid, "of the process"),
	FIELD(holder, "uid", read_u32, uid, "of its user"),
	FIELD(holder, "command", read_text, command, "the process's name, at most 15 bytes"),
	FIELD(holder, "access", read_access, access, "'r' or 'r+'"),
	FIELD(holder, "since", read_ns, since_ns, "when it opened the buffer"),
	FIELD(holder, "suspect", read_truth, suspect,
	      "whether its connection is closed while the process still lives"),
	FIELD(holder, "lease", read_u64, lease, "the daemon's number for it"),
};
static struct record holder =
	RECORD("gpushm.Holder", "A process that has a buffer open.", holder_fields);

static PyObject *read_attrs(const void *p)
{
	const struct gpushm_stat *s = p;
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

static PyObject *read_holders(const void *p)
{
	const struct gpushm_stat *s = p;

	return fill_list(&holder, s->holders, sizeof(*s->holders), s->n_holders);
}

static const struct field stat_fields[] = {
	FIELD(stat, "name", read_text, name, "'' for an unlinked buffer"),
	FIELD(stat, "pool", read_text, pool, "the pool of its memory"),
	FIELD(stat, "kind", read_kind, kind, "'host', 'pinned', 'vmm' or 'mempool'"),
	FIELD(stat, "state", read_state, state, "'filling', 'sealed' or 'shared'"),
	FIELD(stat, "nbytes", read_u64, bytes, "the size that was asked for"),
	FIELD(stat, "allocated", read_u64, allocated_bytes, "bytes, rounded up by the pool"),
	FIELD(stat, "arrays", read_u32, arrays, "the number of arrays"),
	FIELD(stat, "mode", read_u32, mode, "permissions, as of a file"),
	FIELD(stat, "uid", read_u32, uid, "its owner"),
	FIELD(stat, "gid", read_u32, gid, "its group"),
	FIELD(stat, "transient", read_truth, transient,
	      "whether the daemon unlinks it when no process has it open"),
	FIELD(stat, "dirty", read_truth, dirty, "whether a writer died while it held the buffer"),
	FIELD_IF(stat, "dirty_pid", read_int, dirty_pid, dirty, "that process; None"),
	FIELD_IF(stat, "dirty_uid", read_u32, dirty_uid, dirty, "its user; None"),
	FIELD_IF(stat, "dirty_command", read_text, dirty_command, dirty, "its name; None"),
	FIELD_IF(stat, "dirty_since", read_ns, dirty_ns, dirty, "when it died; None"),
	FIELD(stat, "created", read_ns, created_ns, "when, in seconds since the epoch"),
	FIELD(stat, "published", read_ns, published_ns, "when; None: it is being filled"),
	FIELD(stat, "readers", read_u32, readers, "leases for reading"),
	FIELD(stat, "writers", read_u32, writers, "leases for writing"),
	FIELD(stat, "suspects", read_u32, suspects, "leases whose holder's connection is closed"),
	FIELD(stat, "id", read_u64, id, "a number that no other buffer ever has"),
	FIELD(stat, "digest", read_u64, digest, "of its layout"),
	WHOLE("attrs", read_attrs, "a dict of bytes; filled by stat() only"),
	WHOLE("holders", read_holders, "a list of Holder, where asked for and allowed"),
	FIELD(stat, "kept", read_truth, kept, "whether it survives the daemon's death"),
	FIELD(stat, "opens", read_u32, opens, "how often it was opened since the daemon started"),
};
_Static_assert(array_size(stat_fields) < FIELDS_MAX, "the longest table, and a NULL");
static struct record stat_record =
	RECORD("gpushm.BufferInfo", "A buffer, as the daemon describes it.", stat_fields);

static const struct field pool_fields[] = {
	FIELD(pool, "name", read_text, name, "of the pool"),
	FIELD(pool, "kind", read_kind, kind, "'host', 'pinned', 'vmm' or 'mempool'"),
	FIELD(pool, "device", read_ordinal, device, "this process's ordinal of its GPU; None"),
	FIELD(pool, "device_name", read_text_or_none, device_name, "None: no GPU"),
	FIELD(pool, "device_uuid", read_uuid, device_uuid, "'GPU-...'; None: no GPU"),
	FIELD(pool, "pci_id", read_text_or_none, pci_id, "None: no GPU"),
	FIELD(pool, "numa_node", read_ordinal, numa_node, "None: not bound to a node"),
	FIELD(pool, "nbytes", read_u64, bytes, "its size"),
	FIELD(pool, "used", read_u64, used_bytes, "bytes of buffers"),
	FIELD(pool, "pending", read_u64, pending_bytes, "bytes that are freed and wait for reuse"),
	FIELD(pool, "suspect", read_u64, suspect_bytes,
	      "bytes held only by processes whose connection is closed"),
	FIELD(pool, "max_buffer", read_u64, max_buffer_bytes,
	      "bytes of the largest possible buffer"),
	FIELD(pool, "granularity", read_u64, granularity, "sizes are rounded up to this"),
	FIELD(pool, "buffers", read_u32, buffers, "the number of buffers"),
	FIELD(pool, "failed", read_truth, failed, "whether the pool has failed"),
	FIELD_IF(pool, "why", read_text, why, failed, "the reason of the failure; None"),
	FIELD(pool, "is_default", read_truth, is_default,
	      "whether create() without a pool uses this one"),
	FIELD(pool, "allowed", read_truth, allowed, "whether this user may create in it"),
};
static struct record pool_record =
	RECORD("gpushm.PoolInfo", "A pool, as the daemon describes it.", pool_fields);

static const struct field usage_fields[] = {
	FIELD(usage, "uid", read_u32, uid, "of the user"),
	FIELD(usage, "nbytes", read_u64, bytes, "bytes of the user's buffers"),
	FIELD(usage, "nbytes_max", read_u64, bytes_max, "their limit"),
	FIELD(usage, "buffers", read_u32, buffers, "the number of the user's buffers"),
	FIELD(usage, "buffers_max", read_u32, buffers_max, "its limit"),
	FIELD(usage, "leases", read_u32, leases, "buffers that the user's processes have open"),
	FIELD(usage, "leases_max", read_u32, leases_max, "its limit"),
	FIELD(usage, "peers", read_u32, peers, "connections"),
	FIELD(usage, "peers_max", read_u32, peers_max, "its limit"),
};
static struct record usage =
	RECORD("gpushm.Usage", "What a user has, and the limits of that user.", usage_fields);

static PyObject *read_usage(const void *p)
{
	const struct gpushm_status *s = p;

	return fill_list(&usage, s->usage, sizeof(*s->usage), s->n_usage);
}

static PyObject *read_refusals(const void *p)
{
	const struct gpushm_status *s = p;
	PyObject *dict = PyDict_New();

	for (size_t i = 0; dict && i < s->n_refusals; i++) {
		PyObject *count = PyLong_FromUnsignedLongLong(s->refusals[i].count);

		if (!count || PyDict_SetItemString(dict, s->refusals[i].code, count) < 0)
			Py_CLEAR(dict);
		Py_XDECREF(count);
	}
	return dict;
}

static const struct field status_fields[] = {
	FIELD(status, "software", read_text, software, "the daemon's name and version"),
	FIELD(status, "pid", read_int, pid, "the daemon's process"),
	FIELD(status, "uptime", read_ms, uptime_ms, "in seconds"),
	FIELD(status, "peers", read_u32, peers, "connections"),
	FIELD(status, "buffers", read_u32, buffers, "the number of buffers"),
	FIELD(status, "leases", read_u32, leases, "buffers that processes have open"),
	FIELD(status, "suspects", read_u32, suspects,
	      "leases of living processes whose connection is closed"),
	FIELD(status, "waiting", read_u32, waiting, "requests that wait for a name"),
	FIELD(status, "requests", read_u64, requests, "requests that got a reply"),
	FIELD(status, "refused", read_u64, refused, "requests that were refused"),
	FIELD(status, "violations", read_u64, violations,
	      "connections closed for breaking the protocol"),
	FIELD(status, "fds", read_u32, fds, "file descriptors that the daemon has open"),
	FIELD(status, "fds_max", read_u32, fds_max, "their limit"),
	FIELD(status, "pools_failed", read_u32, pools_failed,
	      "how many; pools() says which and why"),
	WHOLE("usage", read_usage, "a list of Usage: this user's; for an admin, every user's"),
	WHOLE("refusals", read_refusals, "a dict: refused requests by code, over restarts"),
	FIELD(status, "retained", read_u32, retained,
	      "freed buffers whose memory processes still have open or mapped"),
	FIELD(status, "retained_nbytes", read_u64, retained_bytes, "of that memory"),
	FIELD(status, "kept", read_truth, kept,
	      "whether published buffers survive the daemon's death"),
};
static struct record status_record =
	RECORD("gpushm.Status", "The daemon, as it describes itself.", status_fields);

struct told_event {
	struct gpushm_event event;
	uint64_t previous;
};

static PyObject *read_id(const void *p)
{
	return *(const uint64_t *)p ? PyLong_FromUnsignedLongLong(*(const uint64_t *)p)
				    : Py_NewRef(Py_None);
}

static const struct field event_fields[] = {
	FIELD(event, "what", read_event, what,
	      "'published', 'dirty', 'clean', 'unlinked', 'gone' or 'restarted'"),
	FIELD(event, "name", read_text, name, "as watch() got it; '' for 'restarted'"),
	FIELD(event, "buffer", read_u64, buffer, "the buffer's id; 0 for 'restarted'"),
	{ .name = "previous",
	  .doc = "if 'published': the id of the buffer that had the name before, or None",
	  .read = read_id,
	  .at = offsetof(struct told_event, previous) },
};
/* A program may unpack the three items of the first version. */
static struct record event_record = { .name = "gpushm.Event",
				      .doc = "A change of a buffer or of its name.",
				      .fields = event_fields,
				      .n = array_size(event_fields),
				      .hidden = 1 };

/* Pointers to texts: "" is None. */
static PyObject *read_string(const void *p)
{
	return read_text_or_none(*(const char *const *)p);
}

static PyObject *read_uid(const void *p)
{
	return *(const uid_t *)p == (uid_t)-1 ? Py_NewRef(Py_None) : read_u32(p);
}

static PyObject *read_logged_access(const void *p)
{
	return *(const enum gpushm_access *)p ? read_access(p) : Py_NewRef(Py_None);
}

static PyObject *read_logged_state(const void *p)
{
	return *(const enum gpushm_state *)p ? read_state(p) : Py_NewRef(Py_None);
}

static const struct field logged_event_fields[] = {
	FIELD(logged_event, "type", read_string, type, "'created', 'refused' ...: see events()"),
	FIELD(logged_event, "time", read_ns, time_ns, "seconds since the epoch"),
	FIELD(logged_event, "number", read_u64, number, "grows, also over restarts of the daemon"),
	FIELD(logged_event, "name", read_string, name, "the buffer's"),
	FIELD(logged_event, "former", read_string, former, "the name before, if it changed"),
	FIELD(logged_event, "buffer", read_id, buffer, "its id"),
	FIELD(logged_event, "owner", read_uid, owner, "its owner's uid"),
	FIELD(logged_event, "nbytes", read_u64, bytes, "its size"),
	FIELD(logged_event, "pool", read_string, pool, "its pool, or the one that failed"),
	FIELD(logged_event, "state", read_logged_state, state, "its state"),
	FIELD(logged_event, "access", read_logged_access, access,
	      "'r' or 'r+', if it was opened or closed or its holder died"),
	FIELD(logged_event, "uid", read_uid, uid,
	      "whose process did it; None: the daemon, or not for this user to know"),
	FIELD(logged_event, "pid", read_int, pid, "that process; 0: not known"),
	FIELD(logged_event, "command", read_string, command, "its name"),
	FIELD(logged_event, "verb", read_string, verb, "the request, if it was refused"),
	FIELD(logged_event, "code", read_string, code, "the error's code"),
	FIELD(logged_event, "text", read_string, text, "why"),
};
static struct record logged_event_record =
	RECORD("gpushm.LoggedEvent", "Something that has happened.", logged_event_fields);

/* ---- streams ---- */

static PyObject *word(const char *const *words, unsigned n, unsigned i)
{
	return PyUnicode_FromString(i < n ? words[i] : "unknown");
}

static PyObject *read_stream_state(const void *p)
{
	static const char *const words[] = { "unknown", "running", "ended", "orphaned" };

	return word(words, array_size(words), *(const enum gpushm_stream_state *)p);
}

static PyObject *read_follow(const void *p)
{
	static const char *const words[] = { "unknown", "every", "latest", "share" };

	return word(words, array_size(words), *(const enum gpushm_follow *)p);
}

static PyObject *read_delivery(const void *p)
{
	static const char *const words[] = { "unknown", "at-least-once", "at-most-once" };

	return word(words, array_size(words), *(const enum gpushm_delivery *)p);
}

/* CLOCK_MONOTONIC or a time span; 0 is one. */
static PyObject *read_seconds(const void *p)
{
	return PyFloat_FromDouble((double)*(const uint64_t *)p / 1e9);
}

static PyObject *read_limit(const void *p)
{
	return *(const uint64_t *)p == GPUSHM_WAIT_FOREVER ? Py_NewRef(Py_None) : read_ms(p);
}

static PyObject *read_pid(const void *p)
{
	return *(const pid_t *)p ? read_int(p) : Py_NewRef(Py_None);
}

static const struct field stream_stats_fields[] = {
	FIELD(stream_stats, "state", read_stream_state, state,
	      "the producer: 'running', 'ended' or 'orphaned', where it died"),
	FIELD(stream_stats, "newest", read_u64, newest, "the last frame's number; 0: none"),
	FIELD(stream_stats, "readers", read_u32, readers, "that have joined"),
	FIELD(stream_stats, "stalls", read_u64, stalls,
	      "how often the producer waited for readers"),
	FIELD(stream_stats, "stalled", read_seconds, stalled_ns, "for how long in all, in seconds"),
	FIELD(stream_stats, "taken", read_u64, taken, "frames that this reader took"),
	FIELD(stream_stats, "skipped", read_u64, skipped, "frames that it passed over"),
	FIELD(stream_stats, "lag", read_u64, lag,
	      "frames that were published after the last one that it took"),
	FIELD(stream_stats, "held", read_u32, held, "frames that it holds"),
};
static struct record stream_stats_record =
	RECORD("gpushm.StreamStats", "A stream, as one side of it sees it.", stream_stats_fields);

static const struct field stream_reader_fields[] = {
	FIELD(stream_reader, "reader", read_u32, index, "its index among the readers"),
	FIELD(stream_reader, "follow", read_follow, follow, "'every', 'latest' or 'share'"),
	FIELD(stream_reader, "max_held", read_u32, max_held, "how many frames it may hold"),
	FIELD(stream_reader, "dropped", read_truth, dropped,
	      "whether it held up the producer for too long"),
	FIELD(stream_reader, "suspect", read_truth, suspect,
	      "whether its connection is closed while the process still lives"),
	FIELD(stream_reader, "pid", read_pid, pid, "None: not for this user to know"),
	FIELD(stream_reader, "uid", read_uid, uid, "likewise"),
	FIELD(stream_reader, "command", read_text_or_none, command, "the process's name; None"),
	FIELD(stream_reader, "joined", read_ns, joined_ns, "when, in seconds since the epoch"),
	FIELD(stream_reader, "lag", read_u64, lag,
	      "frames that were published after the last one that it took"),
	FIELD(stream_reader, "taken", read_u64, taken, "frames that it took"),
	FIELD(stream_reader, "skipped", read_u64, skipped, "frames that it passed over"),
	FIELD(stream_reader, "held", read_u32, held, "frames that it holds"),
	FIELD(stream_reader, "oldest", read_id, oldest, "the oldest of them; None"),
	FIELD(stream_reader, "oldest_held", read_ms, oldest_ms, "for how long, in seconds"),
};
static struct record stream_reader =
	RECORD("gpushm.StreamReader", "A reader of a stream.", stream_reader_fields);

static PyObject *read_stream_readers(const void *p)
{
	const struct gpushm_stream_info *s = p;

	return fill_list(&stream_reader, s->readers, sizeof(*s->readers), s->n_readers);
}

static const struct field stream_info_fields[] = {
	FIELD(stream_info, "name", read_text, name, "'' for an unlinked stream"),
	FIELD(stream_info, "pool", read_text, pool, "the pool of its memory"),
	FIELD(stream_info, "id", read_u64, buffer, "of its buffer"),
	FIELD(stream_info, "uid", read_u32, uid, "its owner"),
	FIELD(stream_info, "state", read_stream_state, state,
	      "the producer: 'running', 'ended' or 'orphaned', where it died"),
	FIELD(stream_info, "slots", read_u32, slots, "how many frames its memory holds"),
	FIELD(stream_info, "slot_nbytes", read_u64, slot_bytes, "bytes of one"),
	WHOLE("readers", read_stream_readers, "a list of StreamReader"),
	FIELD(stream_info, "readers_max", read_u32, readers_max, "how many there may be"),
	FIELD(stream_info, "delivery", read_delivery, delivery,
	      "'at-least-once' or 'at-most-once'"),
	FIELD(stream_info, "keep_queue", read_truth, keep_queue,
	      "whether frames wait for 'share' readers also while nobody reads so"),
	FIELD(stream_info, "limit", read_limit, limit_ms,
	      "seconds for which a reader may hold up the producer; None: for ever"),
	FIELD(stream_info, "producers", read_u32, producers, "so far"),
	FIELD(stream_info, "pid", read_pid, pid,
	      "the producer's process; None: not for this user to know"),
	FIELD(stream_info, "command", read_text_or_none, command, "its name; None"),
	FIELD(stream_info, "newest", read_u64, newest, "the last frame's number; 0: none"),
	FIELD(stream_info, "newest_time", read_seconds, newest_ns,
	      "when it was published, as time.monotonic() counts"),
	FIELD(stream_info, "now", read_seconds, now_ns,
	      "the time of this look, likewise: two looks give a rate"),
	FIELD(stream_info, "stalls", read_u64, stalls, "how often the producer waited for readers"),
	FIELD(stream_info, "stalled", read_seconds, stalled_ns, "for how long in all, in seconds"),
	FIELD(stream_info, "waiting", read_ms, waiting_ms, "for how long it waits now, in seconds"),
	FIELD(stream_info, "queued", read_u64, queued, "frames that no 'share' reader has taken"),
	FIELD(stream_info, "redone", read_u64, redone,
	      "frames of dead 'share' readers that others got"),
	FIELD(stream_info, "lost", read_u64, lost,
	      "frames of dead 'share' readers that nobody got"),
	FIELD(stream_info, "dropped", read_u32, dropped, "readers that were dropped, so far"),
};
static struct record stream_info_record =
	RECORD("gpushm.StreamInfo", "A stream, as the daemon describes it.", stream_info_fields);

/* ---- the types ---- */

static int add(PyObject *module, struct record *r)
{
	PyStructSequence_Field fields[FIELDS_MAX] = { 0 };
	PyStructSequence_Desc desc = { r->name, r->doc, fields, r->n - r->hidden };

	for (int i = 0; i < r->n; i++)
		fields[i] = (PyStructSequence_Field){ r->fields[i].name, r->fields[i].doc };
	r->type = PyStructSequence_NewType(&desc);
	return r->type ? PyModule_AddType(module, r->type) : -1;
}

int record_init(PyObject *module)
{
	struct record *const all[] = {
		&holder,	&stat_record,	     &pool_record,	   &usage,
		&status_record, &event_record,	     &logged_event_record, &stream_stats_record,
		&stream_reader, &stream_info_record,
	};

	for (size_t i = 0; i < array_size(all); i++)
		if (add(module, all[i]) < 0)
			return -1;
	return 0;
}

PyObject *record_stat(const struct gpushm_stat *s)
{
	return fill(&stat_record, s);
}

PyObject *record_stats(const struct gpushm_stat *stats, size_t n)
{
	return fill_list(&stat_record, stats, sizeof(*stats), n);
}

PyObject *record_pools(const struct gpushm_pool *pools, size_t n)
{
	return fill_list(&pool_record, pools, sizeof(*pools), n);
}

PyObject *record_status(const struct gpushm_status *s)
{
	return fill(&status_record, s);
}

PyObject *record_stream_stats(const struct gpushm_stream_stats *s)
{
	return fill(&stream_stats_record, s);
}

PyObject *record_streams(const struct gpushm_stream_info *streams, size_t n)
{
	return fill_list(&stream_info_record, streams, sizeof(*streams), n);
}

PyObject *record_event(const struct gpushm_event *e, uint64_t previous)
{
	return fill(&event_record, &(struct told_event){ *e, previous });
}

PyObject *record_events(const struct gpushm_events *e)
{
	PyObject *list = PyList_New(0);

	for (size_t i = 0; list && e && i < e->n; i++)
		object_append(&list, fill(&logged_event_record, e->events[i]));
	return list;
}
