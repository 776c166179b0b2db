/* SPDX-License-Identifier: MIT
 *
 * The data of a relay's file, read by NIXL: the relay grants this process its memory, or a ring
 * that it fills, in a session; the requests for that go over HTTPS like all others. Any number of
 * threads read, each into a slot of memory that NIXL knows, from which the bytes are copied.
 *
 * A session that breaks (the relay was restarted, a network was away), also while it begins, is
 * begun again until nothing has come for gpushm_remote_options' patience. Nothing is ever read
 * another way instead.
 */
#pragma once

#include "client/gpushm_load.h"
#include "client/models/web/stop.h"

#include <stddef.h>
#include <stdint.h>

#define NIXL_SLOT_BYTES (2u << 20) /* that are read at once */
#define NIXL_SLOTS 16u

struct nixl_file;

/* url: of the relay's file, "https://HOST:PORT/v1/buffers/NAME"; etag, header, size: what is known
 * of the file. What `remote` points to must live as long. Takes about a second. 0, or with
 * gpushm_error() set: -ENOSYS (this machine or the relay has no NIXL, or the relay does not offer
 * it: the text says which), -ESTALE (another file has the name by now), -EIO (NIXL), those of
 * remote_request(). */
int nixl_file_open(const char *url, const char *etag, uint64_t header, uint64_t size,
		   const struct gpushm_remote_options *remote, struct load_stop stop,
		   struct nixl_file **ret);

/* No thread may be reading. NULL is allowed. Returns NULL. Keeps gpushm_error(). */
struct nixl_file *nixl_file_close(struct nixl_file *f);

/* Reads bytes of the file's data. Blocks. Errors as nixl_file_open(), -ETIMEDOUT, -ECANCELED. */
int nixl_file_read(struct nixl_file *f, void *to, size_t n, uint64_t offset, struct load_stop stop);
