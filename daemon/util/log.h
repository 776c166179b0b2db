/* SPDX-License-Identifier: MIT
 *
 * The daemon's log: to the journal, with fields, if stderr is connected to it (JOURNAL_STREAM),
 * else a line to stderr. Thread-safe. Nothing is buffered.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <syslog.h>

/* The subjects of a line; each non-zero member becomes a field of the journal (GPUSHM_UID=...), or
 * a part of the end of a line on stderr. Strings are borrowed. */
struct log_about {
	const char *message_id; /* one of LOG_ID_*, for journalctl -x */
	const char *pool, *name;
	pid_t pid;
	uid_t uid;    /* written also if it is 0 and `pid` or `of_user` is not */
	bool of_user; /* root is the subject, whose pid is not known */
	uint64_t buffer;
};

/* A struct process and a struct buffer as its members. */
#define LOG_PROCESS(p) .pid = (p)->pid, .uid = (p)->uid, .of_user = true
#define LOG_BUFFER(b) .name = buffer_name(b), .buffer = (b)->id

#define LOG_ID_STARTED "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a01"
#define LOG_ID_VIOLATION "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a02"
#define LOG_ID_POOL_FAILED "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a03"
#define LOG_ID_SUSPECT "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a04"
#define LOG_ID_CONFIG "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a05"
#define LOG_ID_FDS "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a06"
#define LOG_ID_UNWATCHED "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a0e"
#define LOG_ID_LOST "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a0f"
#define LOG_ID_REFUSED "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a07"
#define LOG_ID_POOL_NEARLY_FULL "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a08"
#define LOG_ID_AUDIT "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a09"
#define LOG_ID_DIRTY "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a0d"
#define LOG_ID_CANT_START "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a10"
#define LOG_ID_NO_RESTART "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a11"
#define LOG_ID_STATE_NOT_WRITTEN "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a12"
#define LOG_ID_STATE_NOT_READ "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a13"
#define LOG_ID_NO_GPU "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a14"
#define LOG_ID_NOT_VERIFIED "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a15"
#define LOG_ID_DRIVER_STUCK "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a16"
#define LOG_ID_DAEMON_DIED "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a17"
#define LOG_ID_USER_NAMESPACE "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a18"
#define LOG_ID_SUSPECT_STAYS "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a19"
#define LOG_ID_NOT_FREED "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a1a"
#define LOG_ID_DROPPED "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a1b"
#define LOG_ID_ORPHANED "0c8b6d5b8e0c4d0f9b7e2a3f1d6c5a1c"

/* Chooses the journal or stderr. Lines of a priority number above max_priority (syslog's LOG_DEBUG
 * = 7) are dropped. */
void log_open(int max_priority);

/* The name at the beginning of each line, "gpushmd" so far; static, and set before other threads
 * run. */
extern const char *log_name;

/* Whether a line of that priority is written. Saves the work of composing a line that is not. */
extern _Atomic int log_max_priority;
static inline bool log_wants(int priority)
{
	return priority <= log_max_priority;
}

void log_write(int priority, const struct log_about *about, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* With a message id if there is something to do about it: tests/lint/units.sh knows the others. */
#define log_error_id(id, ...) \
	log_write(LOG_ERR, &(struct log_about){ .message_id = (id) }, __VA_ARGS__)
#define log_warning_id(id, ...) \
	log_write(LOG_WARNING, &(struct log_about){ .message_id = (id) }, __VA_ARGS__)
#define log_warning(...) log_write(LOG_WARNING, NULL, __VA_ARGS__)
#define log_notice(...) log_write(LOG_NOTICE, NULL, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, NULL, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, NULL, __VA_ARGS__)
