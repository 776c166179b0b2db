/* SPDX-License-Identifier: MIT
 *
 * Calls of libcuda.so.1 that tests make themselves, as a program does that works on its own CUDA
 * streams; and work that lasts as a long kernel does, by a host function that waits at a gate.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

/* As in cuda.h, which is not there everywhere. */
struct cu {
	int (*init)(unsigned flags);
	int (*retain)(void **ctx, int device);
	int (*release)(int device);
	int (*push)(void *ctx);
	int (*pop)(void **ctx);
	int (*create)(void **stream, unsigned flags);
	int (*destroy)(void *stream);
	int (*query)(void *stream);
	int (*synchronize)(void *stream);
	int (*host_function)(void *stream, void (*function)(void *), void *argument);
	int (*fill)(unsigned long long ptr, unsigned value, size_t n, void *stream);
	int (*to_host)(void *to, unsigned long long from, size_t bytes, void *stream);
	int (*begin_capture)(void *stream, int mode);
	int (*end_capture)(void *stream, void **graph);
	int (*instantiate)(void **exec, void *graph, unsigned long long flags);
	int (*launch)(void *exec, void *stream);
	int (*exec_destroy)(void *exec);
	int (*graph_destroy)(void *graph);
};

extern struct cu cu;
extern atomic_bool cu_gate_open;

/* Finds the calls; before the census of a test, since the driver stays loaded. */
void cu_load(void);
/* Makes GPU 0's primary context the thread's, and closes the gate. */
void cu_enter(void);
/* Undoes it; streams and graphs of the test have ended. */
void cu_leave(void);
/* Work on the CUDA stream that lasts until the gate is open. */
void cu_work(void *stream);
/* Opens the gate after 30 ms; the caller joins the thread. */
pthread_t cu_open_gate_later(void);
