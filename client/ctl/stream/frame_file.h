/* SPDX-License-Identifier: MIT
 *
 * A file of frames: one array of each, one after the other. A .npy file has the number of frames as
 * the first dimension of its shape, which is written when the last frame is there; a raw file has
 * no header.
 */
#pragma once

#include "client/ctl/new_file.h"
#include "client/ctl/transfer.h"
#include "client/gpushm_stream.h"

struct frame_file {
	struct new_file file;
	struct transfer transfer;
	struct gpushm_array *all; /* owned; the stream's array of all slots, for its name */
	bool raw;
	uint64_t wanted; /* frames; 0: not known */
	size_t header;	 /* bytes before the first frame */
	uint64_t n;	 /* frames so far */
	uint64_t frame_bytes;
	bool failed; /* the file is not worth keeping */
};

/* name: "-" is standard output; whatever can't be patched later, as a pipe, needs `wanted` or
 * `raw`. array: NULL for the stream's only one. Whatever this returns, frame_file_close() is to be
 * called. An exit code. */
int frame_file_open(struct frame_file *f, struct gpushm_stream *s, const char *name,
		    const char *array);

/* Appends the frame, which stays the caller's. A frame that its producer took back while it was
 * written is an error, and not in the file. An exit code. */
int frame_file_add(struct frame_file *f, struct gpushm_frame *frame);

/* Completes the file of the frames so far; without a frame no file is left. An exit code. */
int frame_file_finish(struct frame_file *f);

/* Removes the file unless it is complete. */
void frame_file_close(struct frame_file *f);
