/* SPDX-License-Identifier: MIT
 *
 * What the threads and the GPUs of the model do. They call the library's code and the daemon's;
 * what is here stands for client/lib/stream and daemon/ipc, and for the users.
 */
#pragma once

#include "tests/model/streams/machine.h"

void producer_phase(void);
void reader_phase(void);
void daemon_phase(void);

/* The first state of a plan. */
void actors_begin(void);

static inline void (*actor_phase(enum thread_id id))(void)
{
	return id == PRODUCER ? producer_phase : id == DAEMON ? daemon_phase : reader_phase;
}

/* The daemon does what a thread has asked for, or what the end of its process asks for. */
bool daemon_can_start(enum thread_id for_thread);
void daemon_start(enum thread_id for_thread);
bool daemon_can_drop(uint32_t reader);
void daemon_drop(uint32_t reader);
/* The daemon looks whether a GPU waits for the reader for too long, and then drops it; and ends its
 * claims once more if it was dropped. */
bool daemon_can_watch(uint32_t reader);
void daemon_watch(uint32_t reader);
/* A successor of a daemon that died begins the operation again. */
bool daemon_can_restart(void);
void daemon_restart(void);

/* Whether a thread that sleeps would find something if it looked; the words change. */
bool producer_could_go_on(void);
bool reader_could_go_on(uint32_t reader);

/* The phases of threads after a reply. */
void producer_reset(void);

/* ---- GPUs ---- */

void gpu_enqueue(enum thread_id of, struct queued op);
bool gpu_can_run(enum thread_id of);
void gpu_run(enum thread_id of);

/* ---- rubbish ---- */

/* By kind and slot. */
#define RUBBISH_MAX (RUBBISH_KINDS * SLOTS_MAX)
bool rubbish_can_be_written(uint32_t i);
void rubbish_write(uint32_t i);
/* A bad member has written to the group's page. It can take frames from the others, or give them
 * twice (gpushm-streams(7)); and who sleeps may have to wait for the end of a nap. */
bool rubbish_in_group(void);
/* Whether the thread's nap may end, because it would find or mend something. */
bool rubbish_ends_nap(enum thread_id id);

/* ---- checks ---- */

void check_take(uint32_t slot);
void check_publish(uint64_t seq);
void check_delivery(uint32_t reader, const struct reader_frame *f);
void check_done(uint32_t reader, uint32_t frame);
/* Whether these contents are the frame's. */
bool check_contents(const struct reader_frame *f);
/* Between operations nobody sleeps who has something to do. */
void check_sleepers(void);
/* Of a reader that has got -EPIPE or -EOWNERDEAD. */
void check_end(uint32_t reader);
/* Of a state in which nothing can happen any more. */
void check_last_state(void);
