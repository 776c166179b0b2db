/* SPDX-License-Identifier: MIT
 *
 * A checkpoint: the safetensors files that the sources name, opened, with their headers checked.
 */
#pragma once

#include "client/models/files/header.h"
#include "client/models/files/plan.h"

struct checkpoint {
	struct load_files files;
	struct header *headers; /* owned; one for each file */
};

/* Opens the files of all sources, in their order. sha256: a file of checksums, or NULL. remote: how
 * web servers are asked; NULL: the defaults; it must live as long. stop: ends waits for streams and
 * servers, here and in checkpoint_finish(). Errors as gpushm_load() has them for sources,
 * with gpushm_error() set. */
int checkpoint_open(const char *const *sources, size_t n, const char *sha256,
		    const struct gpushm_remote_options *remote, struct load_stop stop,
		    struct checkpoint *ret);

/* The same of one file at a URL, whatever it is called: a buffer's name may end with
 * ".index.json". */
int checkpoint_open_file(const char *url, const struct gpushm_remote_options *remote,
			 struct load_stop stop, struct checkpoint *ret);

/* May be called on a zeroed checkpoint and twice. */
void checkpoint_close(struct checkpoint *cp);

/* A stream is among the files: it can be read once only. */
bool checkpoint_is_stream(const struct checkpoint *cp);

/* So is a file of a server, or there is a stream: it should not be read without need. */
bool checkpoint_is_slow(const struct checkpoint *cp);

/* After the last tensor was read: whether the files are still those whose headers were checked. */
int checkpoint_finish(struct checkpoint *cp);
