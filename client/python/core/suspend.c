/* SPDX-License-Identifier: MIT
 *
 * A buffer that is away: its arrays and tensors stay objects, and what would hand out an address or
 * copy raises StateError. libgpushm looks after threads that copy; other users of addresses, as
 * memoryviews and NumPy arrays, are not known to it.
 */
#include "client/gpushm_memory.h"
#include "client/python/core/args.h"
#include "client/python/core/buffer.h"

bool buffer_is_mapped(const struct buffer *self)
{
	if (!self->buffer || gpushm_buffer_suspended(self->buffer) != 1)
		return true;
	error_format(ERROR_STATE, EBUSY,
		     "buffer \"%s\": it is suspended: resume() brings its memory back",
		     gpushm_buffer_name(self->buffer));
	return false;
}

PyObject *buffer_address(const struct buffer *self, void *p)
{
	return p || buffer_is_mapped(self) ? object_address(p) : NULL;
}

/* until: NULL to suspend. A signal whose handler raises nothing does not end it. */
static PyObject *change(struct buffer *self, uint32_t flags, const struct deadline *until)
{
	int r;

	self->calls++;
	self->suspending += !until;
	do {
		WITHOUT_GIL(r = until ? gpushm_resume(self->buffer, deadline_left(until))
				      : gpushm_suspend(self->buffer, flags));
	} while (r == -EINTR && PyErr_CheckSignals() == 0);
	self->suspending -= !until;
	self->calls--;
	if (r < 0)
		error_raise(r);
	buffer_settle(self);
	return r < 0 ? NULL : until ? PyLong_FromLong(r) : Py_NewRef(Py_None);
}

PyObject *OfBuffer_suspend(PyObject *o, PyObject *args, PyObject *kwargs)
{
	struct buffer *self = buffer_of_open(o);
	int idle = 0;

	if (!args_parse(args, kwargs, OfBuffer_suspend, "|$p:suspend", &idle) || !self ||
	    !buffer_is_alive(self))
		return NULL;
	return change(self, idle ? GPUSHM_IDLE : 0, NULL);
}

PyObject *OfBuffer_resume(PyObject *o, PyObject *args, PyObject *kwargs)
{
	struct buffer *self = buffer_of_open(o);
	struct deadline until = { .at = GPUSHM_WAIT_FOREVER };

	if (!args_parse(args, kwargs, OfBuffer_resume, "|O&:resume", deadline_arg, &until) ||
	    !self || !buffer_is_alive(self))
		return NULL;
	return change(self, 0, &until);
}
