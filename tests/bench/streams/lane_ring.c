/* SPDX-License-Identifier: MIT
 *
 * Rings that a program can make by hand, over one shared buffer of equal slots: by words for which
 * the GPU waits, by waiting on the host, and by CUDA's IPC events; and a socket that carries an fd.
 * None of them has an answer to a reader that dies.
 */
#include "proto/base/own.h"
#include "tests/bench/streams/lane.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>

/* ---- the memory ---- */

static void ring_open(struct lane *l)
{
	const struct job *job = &side.board->job;
	const struct gpushm_create_options o = { .struct_size = sizeof(o),
						 .pool = lane_pool(),
						 .flags = GPUSHM_TRANSIENT };

	l->slot = (job->bytes + 511) / 512 * 512;
	if (l->producer) {
		side_must(gpushm_create(side.c, lane_label(l), l->slot * job->depth, &o,
					&l->buffer),
			  "a ring");
		side_must(gpushm_publish(l->buffer, GPUSHM_SHARED), "publishing a ring");
	} else {
		side_must(gpushm_open(side.c, lane_label(l), GPUSHM_READ, 1000, NULL, &l->buffer),
			  "opening a ring");
	}
	l->memory = lane_address(l->buffer);
}

static void ring_close(struct lane *l)
{
	side_must(gpushm_close(take_ptr(l->buffer)), "closing a ring");
}

static uintptr_t slot_of(const struct lane *l, uint64_t i)
{
	return l->memory + i % side.board->job.depth * l->slot;
}

static void poll_word(_Atomic uint64_t *word, uint64_t value)
{
	while ((int64_t)(atomic_load(word) - value) < 0)
		if (atomic_load(&side.board->failed))
			side_fail("another process failed");
}

/* ---- words: the GPU waits for them; without a GPU both sides poll ---- */

static void words_open(struct lane *l)
{
	if (side.board->job.gpu && !gpu.words)
		side_fail("the driver has no stream memory operations");
	ring_open(l);
}

static void words_wait(_Atomic uint64_t *word, CUdeviceptr for_gpu, uint64_t value)
{
	if (side.board->job.gpu)
		gpu_wait(for_gpu, value);
	else
		poll_word(word, value);
}

static void words_post(_Atomic uint64_t *word, CUdeviceptr for_gpu, uint64_t value)
{
	if (side.board->job.gpu)
		gpu_write(for_gpu, value);
	else
		atomic_store(word, value);
}

static uintptr_t words_begin(struct lane *l, uint64_t i)
{
	if (i > side.board->job.depth)
		words_wait(l->returned, l->gpu_returned, i - side.board->job.depth);
	return slot_of(l, i);
}

static void words_publish(struct lane *l, uint64_t i)
{
	words_post(l->posted, l->gpu_posted, i);
}

static uintptr_t words_next(struct lane *l, uint64_t i)
{
	words_wait(l->posted, l->gpu_posted, i);
	return slot_of(l, i);
}

static void words_release(struct lane *l, uint64_t i)
{
	words_post(l->returned, l->gpu_returned, i);
}

const struct lane_ops lane_words = { words_open,    NULL,	ring_close,   words_begin,
				     words_publish, words_next, words_release };

/* ---- the host waits for its GPU, and then for the other process ---- */

static void futex_await(_Atomic uint64_t *word, uint64_t value)
{
	for (;;) {
		uint64_t seen = atomic_load(word);

		if ((int64_t)(seen - value) >= 0)
			return;
		syscall(SYS_futex, word, FUTEX_WAIT, (uint32_t)seen, NULL, NULL, 0);
	}
}

static void futex_post(_Atomic uint64_t *word, uint64_t value)
{
	work_wait();
	atomic_store(word, value);
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static uintptr_t futex_begin(struct lane *l, uint64_t i)
{
	if (i > side.board->job.depth)
		futex_await(l->returned, i - side.board->job.depth);
	return slot_of(l, i);
}

static void futex_publish(struct lane *l, uint64_t i)
{
	futex_post(l->posted, i);
}

static uintptr_t futex_next(struct lane *l, uint64_t i)
{
	futex_await(l->posted, i);
	return slot_of(l, i);
}

static void futex_release(struct lane *l, uint64_t i)
{
	futex_post(l->returned, i);
}

const struct lane_ops lane_futex = { ring_open,	    NULL,	ring_close,   futex_begin,
				     futex_publish, futex_next, futex_release };

/* ---- IPC events: one for each slot and direction; the host says that one is recorded ---- */

static void make_events(struct lane *l)
{
	CUipcEventHandle handle;

	for (unsigned i = 0; i < side.board->job.depth; i++) {
		GPU_MUST(gpu.call.event_create(&l->mine[i],
					       CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
		GPU_MUST(gpu.call.event_record(l->mine[i], gpu.stream));
		GPU_MUST(gpu.call.ipc_get_event(&handle, l->mine[i]));
		lane_send(l, &handle, sizeof(handle), -1);
	}
}

static void take_events(struct lane *l)
{
	CUipcEventHandle handle;

	for (unsigned i = 0; i < side.board->job.depth; i++) {
		lane_receive(l, &handle, sizeof(handle), NULL);
		GPU_MUST(gpu.call.ipc_open_event(&l->theirs[i], handle));
	}
}

static void events_open(struct lane *l)
{
	if (!gpu.events)
		side_fail("the driver has no IPC events");
	ring_open(l);
	if (!l->producer)
		take_events(l);
	make_events(l);
}

static void events_close(struct lane *l)
{
	for (unsigned i = 0; i < side.board->job.depth; i++) {
		GPU_MUST(gpu.call.event_destroy(l->theirs[i]));
		GPU_MUST(gpu.call.event_destroy(l->mine[i]));
	}
	ring_close(l);
}

static void wait_event(struct lane *l, uint64_t i)
{
	GPU_MUST(gpu.call.stream_wait_event(gpu.stream, l->theirs[i % side.board->job.depth], 0));
}

static void record_event(struct lane *l, uint64_t i)
{
	GPU_MUST(gpu.call.event_record(l->mine[i % side.board->job.depth], gpu.stream));
}

static uintptr_t events_begin(struct lane *l, uint64_t i)
{
	if (i > side.board->job.depth) {
		poll_word(l->returned, i - side.board->job.depth);
		wait_event(l, i);
	}
	return slot_of(l, i);
}

static void events_publish(struct lane *l, uint64_t i)
{
	record_event(l, i);
	atomic_store(l->posted, i);
}

static uintptr_t events_next(struct lane *l, uint64_t i)
{
	poll_word(l->posted, i);
	wait_event(l, i);
	return slot_of(l, i);
}

static void events_release(struct lane *l, uint64_t i)
{
	record_event(l, i);
	atomic_store(l->returned, i);
}

const struct lane_ops lane_events = { events_open,    take_events, events_close,  events_begin,
				      events_publish, events_next, events_release };

/* The same with messages instead of words: processes that have nothing to do sleep. */

static uintptr_t pipes_begin(struct lane *l, uint64_t i)
{
	uint64_t back;

	if (i > side.board->job.depth) {
		lane_receive(l, &back, sizeof(back), NULL);
		wait_event(l, i);
	}
	return slot_of(l, i);
}

static void pipes_post(struct lane *l, uint64_t i)
{
	record_event(l, i);
	lane_send(l, &i, sizeof(i), -1);
}

static uintptr_t pipes_next(struct lane *l, uint64_t i)
{
	uint64_t number;

	lane_receive(l, &number, sizeof(number), NULL);
	wait_event(l, number);
	return slot_of(l, number);
}

static void pipes_close(struct lane *l)
{
	uint64_t back;

	for (unsigned i = 0; l->producer && i < side.board->job.depth; i++)
		lane_receive(l, &back, sizeof(back), NULL);
	events_close(l);
}

const struct lane_ops lane_pipes = { events_open, take_events, pipes_close, pipes_begin,
				     pipes_post,  pipes_next,  pipes_post };

/* ---- a message with an fd for each frame ---- */

static void socket_nothing(struct lane *l)
{
}

static uintptr_t socket_begin(struct lane *l, uint64_t i)
{
	return (uintptr_t)side.scratch;
}

static void socket_publish(struct lane *l, uint64_t i)
{
	lane_send(l, &i, sizeof(i), BOARD_FD);
}

static uintptr_t socket_next(struct lane *l, uint64_t i)
{
	_cleanup_(close_fd) int fd = -1;
	uint64_t number;

	lane_receive(l, &number, sizeof(number), &fd);
	return (uintptr_t)side.scratch;
}

static void socket_release(struct lane *l, uint64_t i)
{
}

const struct lane_ops lane_socket = { socket_nothing, NULL,	   socket_nothing, socket_begin,
				      socket_publish, socket_next, socket_release };
