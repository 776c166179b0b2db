/* SPDX-License-Identifier: MIT
 *
 * Reads a buffer's bytes block by block, with several threads: for a digest, or to write them to a
 * file. A thread copies one block from the GPU while it works on another. Host memory is read where
 * it is.
 */
#pragma once

#include "client/models/copy/blocks.h"
#include "client/models/copy/transport.h"
#include "client/models/crew.h"

struct readback {
	struct gpushm_buffer *buffer;
	struct transport *transport; /* NULL: host memory */
	const struct blocks *blocks;
	unsigned threads;
	const char *file; /* for progress; NULL: a verification */
	gpushm_load_progress_fn *progress;
	void *progress_user;

	/* What is done with the bytes. Each thread has a state of its own; without open() it is
	 * `user`, and close() and block() may be NULL, too. Functions that return an
	 * int return 0, or a negative errno with gpushm_error() set, which ends the work. */
	void *user;
	int (*open)(void *user, void **ret_state);
	void (*close)(void *state); /* also after open() failed, with NULL */
	/* Bytes that lie side by side in the file and at `bytes`; they must not be written to. A
	 * block comes as a few of these, in order, and then block(). */
	int (*part)(void *state, const struct run *part, const void *bytes);
	int (*block)(void *state, uint64_t block);
};

/* Errors: those of part() and block(), -EIO (the driver), -ECANCELED (progress), -ENOMEM, -EAGAIN
 * with gpushm_error() set. */
int readback_run(const struct readback *r, uint64_t *ret_elapsed_ns);

/* Hashes the blocks: open to block are not used. Free *ret with digest_clear(), also after an
 * error. */
int readback_digest(const struct readback *r, struct digest *ret, uint64_t *ret_elapsed_ns);

/* The same for a plan; threads, transport and blocks are not used, either. device: the GPU's; -1:
 * host memory. */
int readback_digest_plan(const struct readback *r, const struct plan *plan, int device,
			 struct digest *ret, uint64_t *ret_elapsed_ns);
