/* SPDX-License-Identifier: MIT
 *
 * What a program may see of a pull while it runs.
 */
#pragma once

#include "client/gpushm_load.h"
#include "client/models/web/manifest.h"

/* All functions may be called from any of the pull's threads; NULL ones are left out. */
struct pull_observer {
	/* The buffer exists, is mapped for writing, and has its table; nothing is in it yet.
	 * header: the file's first manifest->header bytes. Everything lives until ended(). */
	void (*begun)(void *user, const struct manifest *m, const char *header,
		      struct gpushm_buffer *b);
	/* This block of the file's data is in the buffer, compared with its digest: also for a GPU
	 * that copies from it. */
	void (*block)(void *user, uint64_t block);
	/* The buffer is published, or about to be discarded: nobody may touch it on return. A pull
	 * may begin again after that, with another manifest. */
	void (*ended)(void *user, int result);
	/* What the source says in Via, when it has said that it has a buffer or that it has none:
	 * the relays that it comes through; "": none. */
	void (*via)(void *user, const char *via);
	void *user;
	/* Where this machine offers the buffer, for the machines that ask the same source: the
	 * value of the header Gpushm-Relay of each request for the manifest and the file, as
	 * client/relay/fleet/announcement.h has it. NULL: it does not. */
	const char *relay;
};
