/* SPDX-License-Identifier: MIT
 *
 * The entry of every driver call: one lock, the checks for cuInit and fork, the counters, the
 * failure that a test asked for, the log. Files of this folder include <cuda.h> from here, so that
 * the driver's names are exported from a library whose own names are hidden.
 */
#pragma once

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <stdbool.h>
#include <sys/types.h>

enum call_kind {
	CALL_PLAIN,
	CALL_EARLY,	 /* allowed before cuInit */
	CALL_GIVES_BACK, /* done even if a test makes it fail: see fakecuda.h */
};

struct call {
	const char *name;
	enum call_kind kind;
	CUresult injected;
	bool locked;
};

/* Takes the lock. Returns what the call must return at once, or CUDA_SUCCESS. */
CUresult call_enter(struct call *c, const char *name, enum call_kind kind);
/* Writes the log, drops the lock, returns the call's result. */
CUresult call_leave(struct call *c, CUresult result);

/* Takes the lock alone, for functions that are no driver calls. */
void call_lock(void);
void call_unlock(void);

/* A whole driver function: CUresult cuX(...) { return FAKE_CALL(CALL_PLAIN, noun_verb(...)); } */
#define FAKE_CALL(kind, expression)                                    \
	({                                                             \
		struct call call_;                                     \
		CUresult result_ = call_enter(&call_, __func__, kind); \
		call_leave(&call_, result_ ? result_ : (expression));  \
	})

/* The older name of a function whose _v2 has the same parameters; after #undef of that name. */
#define FAKE_ALIAS(old, new) __typeof__(new) old __attribute__((alias(#new), visibility("default")))

/* cuInit has worked in this process. */
void call_set_initialised(void);
/* Returns false in a forked child: its parent's objects are not its own. */
bool call_in_own_process(void);

/* Prints that the caller did what no correct program does, and aborts. Returns INVALID_VALUE if a
 * test has made a give-back fail before. */
CUresult misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Whether a test wants this fact not to hold. */
bool is_broken(const char *fact);

/* "CUDA_SUCCESS", or NULL for a number that is none. */
const char *error_name(CUresult result);

/* The value of an environment variable in bytes, with K, M or G behind it. */
unsigned long long env_bytes(const char *name, unsigned long long otherwise);
