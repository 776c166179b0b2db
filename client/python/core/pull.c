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

static int via_from(const char *word, uint32_t *ret_flags)
{
	*ret_flags = strcmp(word, "nixl") == 0 ? GPUSHM_LOAD_NIXL : 0;
	if (*ret_flags || strcmp(word, "https") == 0)
		return 0;
	return error_python(PyExc_ValueError, "via is \"https\" or \"nixl\", not \"%s\"", word);
}

static PyObject *pull(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = { "source",	  "name",   "pool",	  "mode",
					     "transient", "attrs",  "wait",	  "gid",
					     "device",	  "verify", "if_missing", "replace",
					     "timeout",	  "via",    "token_file", "ca",
					     "cert",	  "key",    "patience",	  "threads",
					     "progress",  NULL };
	_cleanup_(pull_done) struct pull_ask a = { .base.ask.run = run_pull,
						   .base.timeout.forever = true };
	struct load_args given = { .name = Py_None, .progress = Py_None, .options.mode = 0600 };
	PyObject *source, **paths = a.base.remote.paths;
	const char *via = "https";
	uint32_t flags;

	if (!PyArg_ParseTupleAndKeywords(
		    args, kwargs, "O|O$zO&pOO&OOpppO&sO&O&O&O&O&O&O:pull", (char **)names, &source,
		    &given.name, &given.options.pool, mode_arg, &given.options.mode,
		    &given.options.transient, &given.options.attrs, deadline_arg,
		    &a.base.options.wait, &given.options.gid, &given.options.device, &given.verify,
		    &given.if_missing, &given.replace, deadline_arg, &a.base.timeout, &via,
		    load_path_arg, &paths[0], load_path_arg, &paths[1], load_path_arg, &paths[2],
		    load_path_arg, &paths[3], u32_arg, &a.base.remote.o.patience_s, u32_arg,
		    &a.base.load.threads, &given.progress) ||
	    args_text(source, "source", &a.source) < 0 || via_from(via, &flags) < 0 ||
	    load_ask_from(&given, flags, &a.base) < 0)
		return NULL;
	return load_on(connection_of(self), &a.base, given.name);
}

/* ---- pull_wait ---- */

struct wait_ask {
	const char *source, *content;
	struct deadline timeout;
	struct load_remote remote;
};

static void wait_done(struct wait_ask *a)
{
	load_remote_done(&a->remote);
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
	static const char *const names[] = { "source", "content", "timeout", "token_file",
					     "ca",     "cert",	  "key",     NULL };
	_cleanup_(wait_done) struct wait_ask a = { .timeout.forever = true };
	PyObject *source, **paths = a.remote.paths;
	int r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O&$O&O&O&O&O&:pull_wait", (char **)names,
					 &source, content_arg, &a.content, deadline_arg, &a.timeout,
					 load_path_arg, &paths[0], load_path_arg, &paths[1],
					 load_path_arg, &paths[2], load_path_arg, &paths[3]) ||
	    args_text(source, "source", &a.source) < 0 || load_library() < 0)
		return NULL;
	load_remote_set(&a.remote);
	Py_BEGIN_ALLOW_THREADS
	r = load_calls.pull_wait(a.source, a.content, &a.remote.o, deadline_left(&a.timeout),
				 load_on_progress, Py_None);
	Py_END_ALLOW_THREADS
	return load_result(r) < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- their help ---- */

const char pull_wait_doc[] =
	"pull_wait($module, /, source, content=None, *, timeout=None, token_file=None, ca=None,\n"
	"          cert=None, key=None)\n--\n\n"
	"Waits until a relay's buffer is another file than `content`, the attribute 'gpushm.etag'\n"
	"that a pulled Buffer has, or a digest 'xxh3:...'; None: until it exists. At most\n"
	"`timeout` seconds, None for ever. A relay that is away is waited for.\n\n"
	"Other threads run meanwhile, and Ctrl-C works. source and the files: as pull(). Errors:\n"
	"Timeout, AccessDenied, ValueError.";

PyMethodDef pull_functions[] = {
	{ "pull", KEYWORDS(pull), METH_VARARGS | METH_KEYWORDS,
	  "pull($self, source, name=None, *, pool=None, mode=0o600, transient=False, attrs=None,\n"
	  "     wait=0, gid=None, device=None, verify=False, if_missing=False, replace=False,\n"
	  "     timeout=None, via='https', token_file=None, ca=None, cert=None, key=None,\n"
	  "     patience=0, threads=0, progress=None)\n--\n\n"
	  "Loads a buffer that another machine has, from its gpushm-relay(8), and opens it: a\n"
	  "Buffer with the same arrays, digest and attributes. Each block is compared with its\n"
	  "digest while it comes.\n\n"
	  "source: 'HOST/NAME', 'HOST:PORT/NAME', or a URL 'https://HOST:PORT/v1/buffers/NAME'.\n"
	  "name: of the new buffer; None is the same as there. pool, mode, transient, attrs,\n"
	  "wait, gid, device: as create(). verify, if_missing, replace, timeout, threads,\n"
	  "patience, progress: as load(). via: 'nixl' moves the bytes by NVIDIA's NIXL, which\n"
	  "uses RDMA where there is some.\n\n"
	  "ca: a file of the certificates that sign the relay's; cert, key: what this process\n"
	  "shows; token_file: a file with a bearer token. None is what the environment says:\n"
	  "GPUSHM_TLS_CA, GPUSHM_TLS_CERT, GPUSHM_TLS_KEY, GPUSHM_TOKEN_FILE.\n\n"
	  "Arrays arrive in C order: strides are not kept. After an error, Ctrl-C or an\n"
	  "exception of progress nothing is left behind. Errors: those of load(), NotSupported\n"
	  "(the relay can't offer the buffer, or NIXL is missing), AccessDenied, NotFound,\n"
	  "ConnectionError." },
	{ NULL, NULL, 0, NULL }
};
