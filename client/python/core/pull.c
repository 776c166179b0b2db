/* SPDX-License-Identifier: MIT
 *
 * pull() and pull_wait(): buffers of other machines, by libgpushm-load.
 */
#include "client/python/core/args.h"
#include "client/python/core/load.h"
#include "client/python/core/module.h"

#include <string.h>

/* ---- pull ---- */

struct pull_ask {
	struct load_ask base;
	const char *source;
};

static void pull_done(struct pull_ask *a)
{
	load_ask_done(&a->base);
}

static int run_pull(struct gpushm *c, struct ask *ask)
{
	struct pull_ask *a = container_of(ask, struct pull_ask, base.ask);

	load_ask_waits(&a->base);
	return load_calls.pull(c, a->source, a->base.name, &a->base.options.o, &a->base.load,
			       &a->base.ret);
}

static PyObject *pull(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "source",	  "name",     "pool",	    "mode",
					     "transient", "attrs",    "wait",	    "gid",
					     "device",	  "verify",   "if_missing", "replace",
					     "timeout",	  "progress", "transport",  NULL };
	_cleanup_(pull_done) struct pull_ask a = { .base.ask.run = run_pull,
						   .base.timeout.forever = true };
	struct load_args given = {
		.name = Py_None, .progress = Py_None, .transport = Py_None, .options.mode = 0600
	};
	PyObject *source;

	if (transport_check_keywords(kwargs) < 0 ||
	    !PyArg_ParseTupleAndKeywords(args, kwargs, "O|O$zO&pOO&OOpppO&OO:pull", (char **)names,
					 &source, &given.name, &given.options.pool, mode_arg,
					 &given.options.mode, &given.options.transient,
					 &given.options.attrs, deadline_arg, &a.base.options.wait,
					 &given.options.gid, &given.options.device, &given.verify,
					 &given.if_missing, &given.replace, deadline_arg,
					 &a.base.timeout, &given.progress, &given.transport) ||
	    args_text(source, "source", &a.source) < 0 ||
	    load_ask_from(&given, GPUSHM_LOAD_NIXL, &a.base) < 0)
		return NULL;
	return load_on(connection_of(self), &a.base, given.name);
}

/* ---- pull_wait ---- */

struct wait_ask {
	const char *source, *content;
	struct deadline timeout;
	struct transport transport;
};

static void wait_done(struct wait_ask *a)
{
	transport_done(&a->transport);
}

/* For "O&": an attribute of a buffer is bytes. */
static int content_arg(PyObject *o, void *ret)
{
	const char **text = ret;

	if (o == Py_None)
		return 1;
	if (!PyBytes_Check(o))
		return args_text(o, "content", text) == 0;
	*text = PyBytes_AsString(o);
	return *text != NULL;
}

PyObject *pull_wait(PyObject *module, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "source", "content", "timeout", "transport", NULL };
	_cleanup_(wait_done) struct wait_ask a = { .timeout.forever = true };
	PyObject *source, *transport = Py_None;
	int r;

	if (transport_check_keywords(kwargs) < 0 ||
	    !PyArg_ParseTupleAndKeywords(args, kwargs, "O|O&$O&O:pull_wait", (char **)names,
					 &source, content_arg, &a.content, deadline_arg, &a.timeout,
					 &transport) ||
	    args_text(source, "source", &a.source) < 0 ||
	    transport_from(transport, &a.transport) < 0 || load_library() < 0)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = load_calls.pull_wait(a.source, a.content, &a.transport.remote,
				 deadline_left(&a.timeout), load_on_progress, Py_None);
	Py_END_ALLOW_THREADS
	return load_result(r) < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- their help ---- */

const char pull_wait_doc[] =
	"pull_wait($module, /, source, content=None, *, timeout=None, transport=None)\n--\n\n"
	"Waits until a relay's buffer is another file than `content`, the attribute 'gpushm.etag'\n"
	"that a pulled Buffer has, or a digest 'xxh3:...'; None: until it exists. At most\n"
	"`timeout` seconds, None for ever. A relay that is away is waited for.\n\n"
	"Other threads run meanwhile, and Ctrl-C works. source, transport: as pull(). Errors:\n"
	"Timeout, AccessDenied, ValueError.";

PyMethodDef pull_functions[] = {
	{ "pull", KEYWORDS(pull), METH_VARARGS | METH_KEYWORDS,
	  "pull($self, source, name=None, *, pool=None, mode=0o600, transient=False, attrs=None,\n"
	  "     wait=0, gid=None, device=None, verify=False, if_missing=False, replace=False,\n"
	  "     timeout=None, progress=None, transport=None)\n--\n\n"
	  "Loads a buffer that another machine has, from its gpushm-relay(8), and opens it: a\n"
	  "Buffer with the same arrays, digest and attributes. Each block is compared with its\n"
	  "digest while it comes.\n\n"
	  "source: 'HOST/NAME', 'HOST:PORT/NAME', or a URL 'https://HOST:PORT/v1/buffers/NAME'.\n"
	  "name: of the new buffer; None is the same as there. pool, mode, transient, attrs,\n"
	  "wait, gid, device: as create(). verify, if_missing, replace, timeout, progress,\n"
	  "transport: as load().\n\n"
	  "Arrays arrive in C order: strides are not kept. After an error, Ctrl-C or an\n"
	  "exception of progress nothing is left behind. Errors: those of load(), NotSupported\n"
	  "(the relay can't offer the buffer, or NIXL is missing), AccessDenied, NotFound,\n"
	  "ConnectionError." },
	{ NULL, NULL, 0, NULL }
};
