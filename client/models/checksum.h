/* SPDX-License-Identifier: MIT
 *
 * SHA-256 of whole source files, compared with a file of checksums.
 */
#pragma once

#include "client/gpushm_load.h"
#include "client/models/files/plan.h"

/* Reads a file as sha256sum(1) writes it, and gives each file its checksum (load_file::sha256). A
 * line is that of a file if its path, from the folder of the checksums or from the current one,
 * leads to it; else if no other line has the file's last name. Errors of open(2); -EINVAL (a line
 * without a checksum; no line for a file, or several), with gpushm_error() set. */
int checksum_read(const char *path, struct load_files *files);

/* Threads that read the files, each from its start to its end: a hash can't be computed in another
 * order. They share the page cache with the engine, which copies meanwhile. Streams are hashed
 * where they are read. */
struct checksums;

/* *ret is NULL if no regular file has a checksum. */
int checksums_begin(struct load_files *files, struct checksums **ret);

/* Waits for them, and calls load->progress with all bytes done. 0; -EBADMSG (a file has another
 * checksum), -ECANCELED, or an error of read(2), with gpushm_error() set. NULL is allowed. */
int checksums_wait(struct checksums *s, const struct gpushm_load_options *load,
		   const struct gpushm_load_progress *all);

/* Stops them. NULL is allowed. Returns NULL. */
struct checksums *checksums_free(struct checksums *s);
