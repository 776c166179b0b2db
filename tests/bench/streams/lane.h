/* SPDX-License-Identifier: MIT
 *
 * A lane: frames go from one process to another in one of the ways that are compared. All ways have
 * the same four steps for a frame. Failures end the process.
 *
 * Lane 0 goes from process 0 to 1, lane 1 from 1 to 2, and lane 2 from 1 back to 0.
 */
#pragma once

#include "client/gpushm_stream.h"
#include "tests/bench/streams/gpu.h"
#include "tests/bench/streams/side.h"

struct lane_ops;

struct lane {
	const struct lane_ops *ops;
	unsigned index;
	bool producer;
	int socket;
	_Atomic uint64_t *posted, *returned; /* the last frame, by hand */
	CUdeviceptr gpu_posted, gpu_returned;
	uintptr_t memory; /* of the ways with one buffer: `depth` slots */
	uint64_t slot;	  /* bytes */

	struct gpushm_stream *stream;
	struct gpushm_frame *frame;
	struct gpushm_array *array;
	struct gpushm_buffer *buffer;
	CUevent mine[DEPTH_MAX], theirs[DEPTH_MAX];
};

struct lane_ops {
	void (*open)(struct lane *l);  /* the producer is the first */
	void (*ready)(struct lane *l); /* producer: the reader has opened it; NULL: nothing */
	void (*close)(struct lane *l);
	/* Frames are numbered from 1. Return the address of the frame. */
	uintptr_t (*begin)(struct lane *l, uint64_t i);
	void (*publish)(struct lane *l, uint64_t i);
	uintptr_t (*next)(struct lane *l, uint64_t i);
	void (*release)(struct lane *l, uint64_t i);
};

extern const struct lane_ops lane_stream, lane_words, lane_futex, lane_events, lane_pipes,
	lane_name, lane_socket;

/* Opens the lanes whose bits are set, those that this process has an end of; all processes of the
 * job call it together. */
void lanes_open(struct lane *lanes, unsigned used);
void lanes_close(struct lane *lanes, unsigned used);

/* "bench/7.0": the name of what the lane has in the daemon. */
const char *lane_label(const struct lane *l);
/* The pool of the job, "gpu" or "host". */
const char *lane_pool(void);
/* Where a buffer lies, for the job's work. */
uintptr_t lane_address(const struct gpushm_buffer *b);

/* Messages between the two ends of the lane. */
void lane_send(const struct lane *l, const void *data, size_t n, int fd);
void lane_receive(const struct lane *l, void *data, size_t n, int *ret_fd);
