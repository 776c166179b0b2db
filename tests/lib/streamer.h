/* SPDX-License-Identifier: MIT
 *
 * Processes that produce and read streams with checked contents: each word of a frame follows from
 * the frame's number, so that a frame that was overwritten while it was read is noticed. What they
 * find they write to a board, a file that they and the test have mapped.
 */
#pragma once

#include "client/gpushm_stream.h"
#include "tests/lib/role.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define STREAMER_WORDS 2048 /* of 8 bytes in a frame */
#define STREAMER_FRAMES (1u << 22)
#define STREAMER_READERS 128

struct streamer_board {
	_Atomic uint64_t published; /* the last frame */
	_Atomic uint64_t producers; /* that have begun */
	_Atomic uint64_t torn;	    /* frames whose contents were wrong, and gpushm_frame_ok() 0 */
	_Atomic uint64_t broken;    /* gpushm_frame_ok() was -EPIPE */
	_Atomic uint64_t stale;	    /* gpushm_frame_ok() was -ESTALE */
	_Atomic uint64_t disorder;  /* an `every` reader that got another frame than the next */
	_Atomic uint64_t dropped;   /* readers that were dropped */
	_Atomic uint64_t ended;	    /* readers that saw -EPIPE */
	_Atomic uint64_t orphaned;  /* -EOWNERDEAD was returned so often */
	_Atomic uint64_t refused;   /* opens that failed, for any reason */
	_Atomic uint64_t taken[STREAMER_READERS];	 /* by the number that a reader was given */
	_Atomic uint16_t done[STREAMER_FRAMES];		 /* by frame: times that it was released */
	_Atomic uint8_t shared[STREAMER_FRAMES];	 /* likewise, by `share` readers */
	_Atomic uint16_t was_published[STREAMER_FRAMES]; /* by frame */
};

/* Makes and maps the file; and maps it in a role. */
struct streamer_board *streamer_board_new(const char *path);
struct streamer_board *streamer_board_open(const char *path);
void streamer_board_free(struct streamer_board *b, const char *path);

/* The arrays of each streamer's stream. */
extern const struct gpushm_array_spec streamer_arrays[];
#define STREAMER_ARRAYS 2

/* A stream of that shape; other members of *spec are the caller's, and streamer_spin_us is the
 * options'. */
extern uint64_t streamer_spin_us;
int streamer_create(struct gpushm *conn, const char *name, struct gpushm_stream_spec *spec,
		    struct gpushm_stream **ret);

/* Fills a frame as its number says. 0 or -errno. */
int streamer_fill(struct gpushm_frame *f);
/* Whether it is filled as its number says. */
bool streamer_is_right(struct gpushm_frame *f);

/* The roles. args: the socket, the stream's name, the board's path, then "key=value" words:
 *
 *	producer: slots=, readers=, limit= (ms), adopt=1, keep_queue=1, once=1 (at most once),
 *		before= (readers that must have joined before the first frame), count= (frames;
 *		0: until it is killed or its input ends), delay= (us between frames), begun=1
 *		(prints "begun" after a begin() that follows frame `count`, and stops), spin= (us)
 *	reader: id=, follow= (every, latest, share), held=, hold= (us), count=, stop= (after so many
 *		frames it holds the last one until its input ends), patience= (ms to wait for a
 *		name), scribble=1 (writes rubbish to its page after each frame), spin= (us)
 *
 * A producer prints "ready" when the stream exists, a reader when it has joined. */
int streamer_producer(char **args);
int streamer_reader(char **args);

void streamer_start(struct role_process *p, const char *role, const char *const *args);
