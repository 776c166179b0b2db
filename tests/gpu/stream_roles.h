/* SPDX-License-Identifier: MIT
 *
 * The processes of tests of streams: a reader that dies in mid-kernel, one that checks every byte
 * of the frames that it holds, and a producer that dies in mid-kernel. Each frame is one array
 * "words", and each word has the low 32 bits of the frame's sequence number.
 */
#pragma once

#include "client/gpushm_stream.h"
#include "tests/gpu/kernels.h"
#include "tests/lib/role.h"

#define FRAME_WORDS 65536u
#define FRAME_BYTES (4ull * FRAME_WORDS)

/* A stream of such frames, by this process. */
int stream_make(struct gpushm *conn, const char *name, const char *pool, uint32_t slots,
		struct gpushm_stream **ret);
/* The frame's words. */
CUdeviceptr frame_words(struct gpushm_frame *f);

/* args: socket, stream, "every" or "latest", "1": the release is queued behind the kernel, the fd
 * of a page of witnesses, its index there. Prints "ready"; takes a frame when it reads a line, and
 * prints "holding". Over the fake driver the next line shuts its socket down, and it goes on until
 * its input ends. */
int victim_role(char **args);

/* args: socket, stream, "every" or "latest", "1": it uses the CPU. Prints "ready"; holds two frames
 * at a time until its input or the stream ends, and prints "FRAMES BAD_FRAMES". */
int checker_role(char **args);

/* args: socket, stream, pool. Publishes a frame, and one behind a kernel that never ends, and
 * prints "filling". */
int dying_producer_role(char **args);
