/* SPDX-License-Identifier: MIT
 *
 * What a load copies from where to where: the source files, and the runs of bytes between them and
 * the buffer. Sources and headers make a plan (checkpoint.c, header.c, model.c); the engine carries
 * it out.
 */
#pragma once

#include "client/models/web/stop.h"

#include <nettle/sha2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct nixl_file;
struct remote;
struct gpushm_remote_options;

/* A source file. It is open from the moment its header is read until all is copied. */
struct load_file {
	char *path;	       /* owned; as errors name it */
	int fd;		       /* owned; O_CLOEXEC; opened through the page cache; -1: remote */
	struct remote *remote; /* owned; a file on a web server; or NULL */
	char *head;	       /* owned; its first n_head bytes, until its header was read */
	size_t n_head;
	struct nixl_file *nixl; /* owned: its data come by NIXL; NULL */
	bool stream; /* it can't be read twice or at an offset: use load_file_read() only */
	bool standard_input;
	bool in_memory;	   /* of our own making */
	struct stat st;	   /* as it was before its header was read */
	uint64_t data;	   /* offset of its first tensor's bytes */
	uint64_t size;	   /* bytes; of a stream: as its header says; before, HEADER_NO_SIZE */
	uint64_t position; /* stream: bytes that were read */
	uint8_t header_sha256[SHA256_DIGEST_SIZE];
	bool has_sha256; /* of the whole file; from the file of checksums */
	uint8_t sha256[SHA256_DIGEST_SIZE];
	struct sha256_ctx hash; /* stream, if has_sha256: of what was read */
	struct load_stop stop;
	bool waits; /* a named pipe, whose reads don't: poll it before */
};

struct load_files {
	struct load_file *files; /* owned */
	size_t n;
	struct load_stop stop; /* of files that are added, and when the engine is not at work */
	const struct gpushm_remote_options *options; /* of files on servers; lent; NULL: defaults */
};

/* Reads exactly n bytes at `offset` of the file; a stream is read up to there, and what lies before
 * is dropped. Offsets of a stream only grow, and one thread at a time reads it. 0, or with
 * gpushm_error() set: -ESTALE if the file ends before, for a stream -EBADMSG; the error of read(2);
 * -ECANCELED if its stop says so. */
int load_file_read(struct load_file *f, void *ret, size_t n, uint64_t offset);

/* Bytes that lie side by side in a file and in the buffer. */
struct run {
	uint32_t file; /* index in load_files */
	uint64_t file_offset, buffer_offset, bytes;
};

/* All bytes of arrays, once, in the order of buffer offsets. Runs of one file are in the order of
 * file offsets, too, so that a stream can be read once. No run is empty. */
struct plan {
	struct run *runs; /* owned */
	size_t n;
	uint64_t bytes; /* of all runs */
};

/* Adds a run, joined with the last one if it goes on there; there is room for it. */
void plan_add(struct plan *plan, const struct run *run);
