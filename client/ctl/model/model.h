/* SPDX-License-Identifier: MIT
 *
 * Models: safetensors files that become buffers, and buffers that become such files. The work is
 * libgpushm-load's, which is loaded when a command needs it and not before.
 */
#pragma once

#include "client/ctl/ctl.h"
#include "client/ctl/model/progress.h"
#include "client/ctl/new_buffer.h"
#include "client/gpushm_load_private.h"

#include <limits.h>

/* The functions of libgpushm-load. */
struct model_library {
	__typeof__(gpushm_load) *load;
	__typeof__(gpushm_save) *save;
	__typeof__(gpushm_verify) *verify;
	__typeof__(gpushm_pull) *pull;
	/* Of this version alone. */
	__typeof__(gpushm_private_nixl_find) *nixl_find;
	__typeof__(gpushm_private_nixl_new) *nixl_new;
	__typeof__(gpushm_private_nixl_free) *nixl_free;
};

#define MODEL_LIBRARY_TODO \
	"install libgpushm-load, of the same version as gpushmctl, beside libgpushm"

/* Loads the library. 0, or -ENOENT and the reason in why. */
int model_library_find(struct model_library *ret, char *why, size_t size);

/* The same for libgpushm, which needs it for memory that comes back; what fails is no error. */
void model_library_offer(void);

/* The same for a command. An exit code. */
int model_library_open(struct model_library *ret);

/* Whether put and get take the file for a model: by its name, x.safetensors or
 * x.safetensors.index.json. */
bool model_is_file(const char *path);
bool model_is_index(const char *path);

/* Progress of a function of the library, and its end by a signal. The first call of
 * model_on_progress() begins it: what the library waits for before that, a signal ends at once. */
struct model_progress {
	const char *asked; /* --progress, or NULL */
	const char *label; /* borrowed */
	bool quiet;
	bool stream; /* a signal ends the process at once: a pipe may block the library for ever,
			and a buffer that is not published ends with its process */
	bool begun;
	struct progress progress;
};
gpushm_load_progress_fn model_on_progress; /* user: a struct model_progress */

/* done: the file or the buffer has its name; so a signal that comes now is too late. */
void model_progress_end(struct model_progress *p, bool done);

/* Whether the file is standard input or output, a pipe or a device: "-", or not regular. */
bool model_is_stream(const char *path);

/* --threads as the library has it, which has a limit of its own. */
static inline unsigned model_threads(uint64_t n)
{
	return n < UINT_MAX ? (unsigned)n : UINT_MAX;
}

/* The exit code for a result of the library. It prints the error, and says nothing about a closed
 * pipe. */
int model_result(int r);

/* "; 0.31 s, 48.4 GiB/s"; "" for no time. */
struct output_text model_pace(const struct gpushm_load_report *r);

/* bytes, seconds, tensors and digest as members of an object. */
void model_report_json(struct json *j, const struct gpushm_load_report *r);

/* Opens a buffer for reading, and warns if it is dirty. An exit code. */
int model_open(struct ctl *ctl, const char *name, uint64_t timeout, struct gpushm_buffer **ret);

/* ---- fetch.c ---- */

/* The options that load and pull share. */
struct model_fetch {
	struct new_buffer new_buffer; /* first: new_buffer_args; with a default for its wait */
	bool if_missing, replace, verify;
	const char *token_file, *cacert, *cert, *key; /* how web servers are asked */
	uint64_t patience;			      /* ms; 0: the library's */
	uint64_t threads;
	const char *progress;
};

/* For an options struct that starts with a struct model_fetch. */
extern const struct arg model_fetch_args[];

/* A load or a pull. */
struct model_fetching {
	const struct model_fetch *options; /* borrowed */
	struct model_library library;
	struct new_buffer_options create;
	struct model_progress progress;
	struct gpushm_remote_options remote;
	struct gpushm_load_options load; /* borrows what stands here */
	struct gpushm_load_report report;
	struct gpushm_buffer *buffer; /* owned: what the library returns */
	bool attached;		      /* it was there already */
};

/* Opens the library, connects, and fills in what the library needs; the caller may add to it. label
 * is borrowed. An exit code. */
int model_fetch_begin(struct model_fetching *f, struct ctl *ctl, const struct model_fetch *o,
		      const char *label);

/* After the library's function returned r. */
void model_fetch_end(struct model_fetching *f, int r);

/* Prints the error about a name that is taken, about which the daemon does not know these options.
 * An exit code. */
int model_fetch_taken(const struct model_fetching *f);

/* Prints what came, and closes the buffer, with --transient at the end of standard input. An exit
 * code. */
int model_fetch_finish(struct ctl *ctl, const struct model_fetching *f);

/* ---- load.c ---- */

struct model_load {
	struct model_fetch fetch; /* first: model_fetch_args */
	struct arg_list only;
	const char *strip, *sha256, *io;
	bool drop_cache;
	const char *twin, *keep;
};

/* `gpushmctl load`: loads these sources, and reports it. An exit code. */
int model_load(struct ctl *ctl, const struct model_load *o, size_t n, char **sources,
	       const char *name);

/* ---- save.c ---- */

struct model_save {
	const char *progress;
	uint64_t threads, timeout;
	uint64_t shard_size; /* bytes; 0: one file */
};

/* `gpushmctl save`: writes the buffer to a file, and reports it. An exit code. */
int model_save(struct ctl *ctl, const struct model_save *o, const char *name, const char *file);

/* ---- what is in a model ---- */

#define MODEL_DTYPES_MAX 32u

struct model_dtype {
	char name[32];
	uint64_t tensors, bytes;
};

struct model_summary {
	uint64_t tensors;			     /* names */
	uint64_t bytes;				     /* tied tensors count once */
	struct model_dtype dtypes[MODEL_DTYPES_MAX]; /* the one with the most bytes first */
	size_t n_dtypes;
};

/* Whether the buffer was loaded from files, or says what types its tensors have, as one that
 * gpushm.torch has published. */
bool model_is(const struct gpushm_stat *s);

/* An attribute of that key that is text; NULL. */
const struct gpushm_attr *model_attr(const struct gpushm_stat *s, const char *key);

/* Reads the attribute "gpushm.types" that a load has left. False: it has no types. */
bool model_summarize(const void *types, size_t size, struct model_summary *ret);
