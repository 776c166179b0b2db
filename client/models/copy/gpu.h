/* SPDX-License-Identifier: MIT
 *
 * A GPU as a load, save or verification uses it: the device's primary context, pinned memory, and
 * queues of copies. The calling thread's current context stays as it was. gpu.c is the only file of
 * this folder that needs cuda.h; nogpu.c replaces it where the library is built without.
 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu;

/* Starts the driver, and retains the primary context of the device with that CUDA ordinal. 0, or
 * -ENODEV, -ENOMEM, -EIO with gpushm_error() set, as all functions here. */
int gpu_open(int device, struct gpu **ret);
/* NULL is allowed. Returns NULL. */
struct gpu *gpu_close(struct gpu *g);

/* The processors that are near to the GPU and that this thread may use. False: not known. */
bool gpu_processors(struct gpu *g, cpu_set_t *ret);

/* The NUMA node that the GPU is connected to; -1: not known. */
int gpu_node(struct gpu *g);

/* Pins new memory for copies, of huge pages where the kernel gives them. A child of fork() does not
 * have it. */
int gpu_pin(struct gpu *g, size_t bytes, void **ret);
/* With the same number of bytes. NULL is allowed. */
void gpu_unpin(struct gpu *g, void *memory, size_t bytes);

/* From gpu_enter() until gpu_leave() the thread has the context current. */
int gpu_enter(struct gpu *g);
void gpu_leave(void);

/* A stream of copies, in which places are marked, with so many marks: 0, 1, ... Threads in the
 * context make it and copy with it; any thread may free it, once its copies are done. */
struct gpu_queue;
int gpu_queue_new(unsigned marks, struct gpu_queue **ret);
/* It has at least so many marks from now on. */
int gpu_queue_reserve(struct gpu_queue *q, unsigned marks);
/* NULL is allowed. */
void gpu_queue_free(struct gpu *g, struct gpu_queue *q);
/* Queue a copy; the memory must stay until it is done. */
int gpu_copy_to_device(struct gpu_queue *q, uint64_t device, const void *host, size_t bytes);
int gpu_copy_to_host(struct gpu_queue *q, void *host, uint64_t device, size_t bytes);
/* gpu_wait() waits for what was queued before the last gpu_mark() of that number; it returns at
 * once, if there was none. gpu_drain() waits for all that was queued. */
int gpu_mark(struct gpu_queue *q, unsigned mark);
int gpu_wait(struct gpu_queue *q, unsigned mark);
int gpu_drain(struct gpu_queue *q);
