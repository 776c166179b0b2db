/* SPDX-License-Identifier: MIT
 *
 * The memory that all processes of the comparison share: the job that they do next, how they wait
 * for each other, the words of the ways that are made by hand, and the samples.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define SIDES 3u	   /* processes that a job may have */
#define LANES 3u	   /* hand-overs between them: see lane.h */
#define FRAMES_MAX 65536u  /* of a job */
#define WORDS_BYTES 65536u /* for each lane */
#define READERS_MAX 64u
#define DEPTH_MAX 64u

/* The numbers of the fds that a process of the comparison inherits. */
#define BOARD_FD 10
#define CONTROL_FD 11
#define LANE_FD 20 /* two for each lane: the producer's end, and the reader's */

enum job_kind {
	JOB_HOP = 1,	/* there and back, both sides poll */
	JOB_WAKE,	/* one way, to a reader that sleeps */
	JOB_FRAME,	/* one frame is filled, and the reader's host gets a result */
	JOB_FLOW,	/* frames through two or three processes */
	JOB_COST,	/* what a producer's calls take */
	JOB_COST_WAITS, /* the same while its GPU has to wait for each reader */
	JOB_PAUSE	/* a producer makes frames, and says how long it had to wait */
};

/* The ways to hand over a frame. */
enum lane_kind {
	LANE_STREAM = 1, /* gpushm's streams */
	LANE_WORDS,	 /* words in shared memory alone; the GPU waits for them */
	LANE_FUTEX,	 /* the host waits for the GPU, and then a futex */
	LANE_EVENTS,	 /* CUDA's IPC events, and a word that the host polls */
	LANE_PIPES,	 /* CUDA's IPC events, and messages */
	LANE_NAME,	 /* gpushm's buffers: a name for each frame */
	LANE_SOCKET	 /* messages that carry an fd */
};

struct job {
	enum job_kind kind;
	enum lane_kind lane;
	bool gpu, spin;	   /* spin: readers poll instead of sleeping */
	unsigned sides;	   /* processes */
	unsigned depth;	   /* slots of a ring */
	unsigned frames;   /* that are measured */
	unsigned readers;  /* of JOB_COST, all in one process */
	uint64_t bytes;	   /* of a frame */
	uint64_t work;	   /* bytes of it that each side touches */
	double per_second; /* frames; 0: as fast as it goes */
	unsigned spin_us;  /* of a stream's readers: before they sleep; 0: as by default */
	bool array;	   /* JOB_HOP: take the frame's array, too */
	unsigned serial;   /* makes names unique */
};

struct board {
	struct job job;
	_Atomic unsigned arrived, turn; /* of the barrier */
	_Atomic int failed;
	char error[512];       /* of the first process that failed */
	_Atomic uint64_t done; /* the last frame that the reader has finished */
	_Atomic uint64_t began_ns;
	_Atomic int stop;			     /* JOB_PAUSE */
	_Atomic uint64_t longest_ns, longest_end_ns; /* JOB_PAUSE: the longest wait, and its end */
	size_t n_samples;
	_Atomic uint64_t begun_ns[FRAMES_MAX];
	double samples[FRAMES_MAX];
	_Alignas(WORDS_BYTES) unsigned char words[LANES + 1][WORDS_BYTES];
};

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A new board, for all processes that inherit *ret_fd. */
struct board *board_new(int *ret_fd);
/* That of another process. */
struct board *board_map(int fd);

/* Prepares it for the next job. */
void board_reset(struct board *b, const struct job *job);

/* Waits until all processes of the job are here. */
void board_meet(struct board *b);
/* Waits until the reader has finished that frame. */
void board_await(struct board *b, uint64_t frame);

void board_add(struct board *b, double sample);
